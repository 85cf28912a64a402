"""The commands that hand servers over: real processes, and never a silent failure."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.cluster import eventually

from aryl.live.hooks import Handover, HookRunner, LoanHooks, OnLimit

LONG_S = 60.0
Told = tuple[str, int, Handover, str]


class Hooked:
    """A runner whose hooks write what they do into a file, and can be held up by another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: queue.Queue[Told] = queue.Queue()
        self.restored: queue.Queue[tuple[str, int, str]] = queue.Queue()
        self.runners: list[HookRunner] = []

    def script(self, what: str, then: str = "") -> tuple[str, ...]:
        """Says that it begins, waits as long as a file is there, says that it is over."""
        text = f"""
echo {what} begins $ARYL_SERVER_ID >> "{self.folder}/log"
echo $$ >> "{self.folder}/{what}.pid"
while [ -e "{self.folder}/{what}.hold" ]; do sleep 0.02; done
echo {what} ends $ARYL_SERVER_ID >> "{self.folder}/log"
{then}
"""
        return ("/bin/sh", "-c", text)

    def runner(
        self,
        release: tuple[str, ...] | None = None,
        restore: tuple[str, ...] | None = None,
        drain_limit_s: float = LONG_S,
        on_limit: OnLimit = OnLimit.CALL_OFF,
    ) -> HookRunner:
        hooks = LoanHooks(
            self.script("release") if release is None else release,
            self.script("restore") if restore is None else restore,
            drain_limit_s,
            on_limit,
        )
        runner = HookRunner(hooks, lambda *told: self.told.put(told), lambda *told: self.restored.put(told))
        self.runners.append(runner)
        return runner

    def hold(self, what: str) -> None:
        (self.folder / f"{what}.hold").touch()

    def let_go(self, what: str) -> None:
        (self.folder / f"{what}.hold").unlink()

    @property
    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def wait_log(self, *lines: str) -> None:
        eventually(lambda: self.log == list(lines), f"the hooks never do {lines}", lambda: str(self.log))

    def heard(self) -> Told:
        return self.told.get(timeout=LONG_S)

    def wait_gone(self, what: str) -> None:
        pid = int((self.folder / f"{what}.pid").read_text().split()[-1])
        eventually(lambda: not Path(f"/proc/{pid}").exists(), f"{what} doesn't end")


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[Hooked]:
    hooked = Hooked(tmp_path)
    yield hooked
    for runner in hooked.runners:
        runner.close()


def test_a_release_is_told_when_it_is_over_and_not_before(hooked: Hooked) -> None:
    hooked.hold("release")
    hooked.runner().release("I1", 7)
    hooked.wait_log("release begins I1")
    assert hooked.told.empty()
    hooked.let_go("release")
    assert hooked.heard() == ("I1", 7, Handover.DONE, "")
    hooked.wait_log("release begins I1", "release ends I1")


def test_where_nothing_has_to_be_done_it_is_done_at_once(hooked: Hooked) -> None:
    runner = hooked.runner(release=(), restore=())
    runner.release("I1", 1)
    assert hooked.told.get_nowait() == ("I1", 1, Handover.DONE, "")
    runner.restore("I1", 3)
    assert hooked.restored.get_nowait() == ("I1", 3, "")
    assert runner.failures == 0


@pytest.mark.parametrize(
    ("release", "limit_s", "reason"),
    [
        (("/bin/sh", "-c", "exit 3"), LONG_S, "exited with 3"),
        (("/nowhere/hook",), LONG_S, "can't be started: No such file or directory"),
        (("/bin/sleep", "1000"), 0.1, "took longer than 0.1 s"),
        (("/bin/sh", "-c", "kill -9 $$"), LONG_S, "exited with -9"),
    ],
)
def test_a_release_that_goes_wrong_calls_the_loan_off(
    hooked: Hooked, release: tuple[str, ...], limit_s: float, reason: str
) -> None:
    runner = hooked.runner(release=release, drain_limit_s=limit_s)
    runner.release("I1", 1)
    assert hooked.heard() == ("I1", 1, Handover.CALLED_OFF, f"its release {reason}")
    # To restore the server is up to whoever is told.
    assert hooked.log == []
    assert hooked.restored.empty()
    assert runner.failures == 0


def test_a_release_that_goes_wrong_is_forced_if_that_is_wanted_and_said(hooked: Hooked) -> None:
    hooked.runner(release=("/bin/false",), on_limit=OnLimit.FORCE).release("I1", 1)
    assert hooked.heard() == ("I1", 1, Handover.FORCED, "exited with 1")
    assert hooked.log == []


def test_all_that_a_late_release_started_ends_with_it(hooked: Hooked) -> None:
    pids = hooked.folder / "pids"
    script = f'sleep 1000 & echo $! > "{pids}"; wait'
    hooked.runner(release=("/bin/sh", "-c", script), drain_limit_s=0.5).release("I1", 1)
    assert hooked.heard()[2] is Handover.CALLED_OFF
    child = int(pids.read_text())
    eventually(lambda: _gone(child), "what the hook started lives on")


def test_a_server_that_is_wanted_back_is_restored_without_waiting_for_its_release(hooked: Hooked) -> None:
    hooked.hold("release")
    runner = hooked.runner()
    runner.release("I1", 1)
    hooked.wait_log("release begins I1")
    runner.restore("I1", 1)
    hooked.wait_log("release begins I1", "restore begins I1", "restore ends I1")
    hooked.wait_gone("release")
    assert hooked.told.empty()


def test_a_server_that_is_lent_again_waits_for_its_restore_and_only_the_last_loan_is_told(
    hooked: Hooked,
) -> None:
    hooked.hold("restore")
    runner = hooked.runner()
    runner.restore("I1", 1)
    hooked.wait_log("restore begins I1")
    runner.release("I1", 1)
    runner.restore("I1", 2)
    runner.release("I1", 2)
    hooked.let_go("restore")
    assert hooked.heard() == ("I1", 2, Handover.DONE, "")
    hooked.wait_log("restore begins I1", "restore ends I1", "release begins I1", "release ends I1")
    assert hooked.told.empty()
    assert hooked.restored.empty()


def test_servers_do_not_wait_for_each_other(hooked: Hooked) -> None:
    hooked.hold("release")
    runner = hooked.runner()
    runner.release("I1", 1)
    runner.release("I2", 1)
    eventually(lambda: sorted(hooked.log) == ["release begins I1", "release begins I2"], "one waits")
    runner.restore("I2", 1)
    eventually(lambda: "restore ends I2" in hooked.log, "it isn't restored")
    hooked.let_go("release")
    assert hooked.heard() == ("I1", 1, Handover.DONE, "")


def test_a_restore_is_told_when_it_is_over_and_not_before(hooked: Hooked) -> None:
    hooked.hold("restore")
    runner = hooked.runner()
    runner.restore("I1", 7)
    hooked.wait_log("restore begins I1")
    assert hooked.restored.empty()
    hooked.let_go("restore")
    assert hooked.restored.get(timeout=LONG_S) == ("I1", 7, "")
    hooked.wait_log("restore begins I1", "restore ends I1")
    assert runner.failures == 0


def test_a_restore_that_fails_is_counted_and_told(hooked: Hooked) -> None:
    runner = hooked.runner(restore=("/bin/false",))
    runner.restore("I1", 2)
    assert hooked.restored.get(timeout=LONG_S) == ("I1", 2, "exited with 1")
    assert runner.failures == 1
    assert hooked.told.empty()


def test_a_restore_that_fails_once_the_server_is_lent_again_is_counted_and_not_told(hooked: Hooked) -> None:
    hooked.hold("restore")
    runner = hooked.runner(restore=hooked.script("restore", then="exit 1"))
    runner.restore("I1", 1)
    hooked.wait_log("restore begins I1")
    runner.release("I1", 1)
    hooked.let_go("restore")
    assert hooked.heard() == ("I1", 1, Handover.DONE, "")
    assert hooked.restored.empty()
    assert runner.failures == 1


def test_the_end_ends_what_runs_and_tells_nothing(hooked: Hooked) -> None:
    for what in ("release", "restore"):
        hooked.hold(what)
    runner = hooked.runner()
    runner.release("I1", 1)
    runner.restore("I2", 1)
    eventually(lambda: len(hooked.log) == 2, "they don't begin")
    runner.close()
    hooked.wait_gone("release")
    hooked.wait_gone("restore")
    assert hooked.told.empty()
    assert hooked.restored.empty()
    assert runner.failures == 0


def test_what_the_operator_wrote_is_run_as_a_vector_and_sees_only_the_name(hooked: Hooked) -> None:
    out = hooked.folder / "said"
    hooked.runner(release=("/usr/bin/env", "sh", "-c", f'echo "$0 $1" > "{out}"', "$HOME;", "`id`")).release(
        "I1", 1
    )
    assert hooked.heard()[2] is Handover.DONE
    assert out.read_text() == "$HOME; `id`\n"


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
