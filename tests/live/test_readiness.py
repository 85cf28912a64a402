"""A server that came home counts once it serves: because its hook has ended well, or because somebody says
so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.core.helpers import cluster_of, commit, happen
from tests.live.cluster import eventually
from tests.live.test_driver_live import Bench

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.model import Tenure
from aryl.core.plan import Loan, Plan, Reclaim, Return
from aryl.live import driver as live_driver
from aryl.live.hooks import RETRY_AFTER_S, RETRY_EVERY_S, Homecomings, HookRunner, LoanHooks, Ready
from aryl.live.inbox import Command, Note
from aryl.live.recollection import Recollection

FAILS = ("/bin/false",)
ENDLESS = float("inf")


def lent(*names: str, confirms_returns: bool = True) -> Cluster:
    """Three inference servers that nobody needs, those named on loan."""
    cluster = cluster_of(1, 3, confirms_loans=True, confirms_returns=confirms_returns)
    happen(cluster, ev.DemandReported(0.0, 0.0, 0.0))
    for name in names:
        commit(cluster, Loan(name))
        happen(cluster, ev.HandedOver(0.0, name))
    return cluster


@contextmanager
def driven(cluster: Cluster, hooks: LoanHooks | None = None) -> Iterator[Bench]:
    """A driver that has taken over, on a clock that stands."""
    bench = Bench(cluster, hooks)
    try:
        bench.take_over()
        yield bench
    finally:
        bench.driver.close()


class Ends:
    """Waits for the ends of hooks, of which the driver gets a note each."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bench, self._notes, self._heard = bench, 0, 0
        put = bench.driver.inbox.put

        def noted(note: Note) -> None:
            put(note)
            self._notes += 1

        monkeypatch.setattr(bench.driver.inbox, "put", noted)

    def wait(self, hooks: int = 1) -> list[ev.Event]:
        """What the driver makes of so many more of them."""
        self._heard += hooks
        eventually(lambda: self._notes >= self._heard, "a hook doesn't end")
        assert self._notes == self._heard
        return self._bench.poll(deadline_s=self._bench.clock.now_s)


def come_home(bench: Bench, server_id: str) -> None:
    bench.apply(Reclaim(server_id, 5.0))
    bench.apply(Return(server_id))


# What is known of returns


class Restores(list[tuple[str, int]]):
    """Remembers which restores were begun."""

    def begin(self, server_id: str, number: int) -> None:
        self.append((server_id, number))

    def take(self) -> list[tuple[str, int]]:
        begun = list(self)
        self.clear()
        return begun


def home(*names: str) -> Cluster:
    """Servers that have come home and don't serve yet."""
    cluster = lent(*names)
    for name in names:
        commit(cluster, Reclaim(name, 5.0))
        commit(cluster, Return(name))
    return cluster


def test_a_restore_that_fails_is_tried_again_soon_and_then_at_long_intervals() -> None:
    cluster, begun = home("I1"), Restores()
    homecomings = Homecomings(begun.begin, speed=2.0)
    assert homecomings.next_s() == ENDLESS
    homecomings.begin("I1")
    now_s = 100.0
    for wait_s in (RETRY_AFTER_S, RETRY_EVERY_S, RETRY_EVERY_S):
        assert begun.take() == [("I1", 1)]
        assert not homecomings.ended(cluster, now_s, "I1", 1, "exited with 1")
        due_s = now_s + 2.0 * wait_s  # two seconds of the cluster in a real one
        assert homecomings.next_s() == due_s
        homecomings.try_again(cluster, due_s - 0.1)
        assert begun == []
        homecomings.try_again(cluster, due_s)
        assert homecomings.next_s() == ENDLESS
        now_s = due_s
    assert begun.take() == [("I1", 1)]
    assert homecomings.ended(cluster, now_s, "I1", 1, "")
    assert homecomings.next_s() == ENDLESS


def test_a_server_that_is_said_to_serve_meanwhile_is_not_restored_again() -> None:
    cluster, begun = home("I1", "I2"), Restores()
    homecomings = Homecomings(begun.begin, speed=1.0)
    for name in ("I1", "I2"):
        homecomings.begin(name)
        homecomings.ended(cluster, 0.0, name, 1, "exited with 1")
    begun.clear()
    happen(cluster, ev.BackInService(0.0, "I1"))
    homecomings.try_again(cluster, RETRY_AFTER_S)
    assert begun == [("I2", 1)]
    # Nothing is due any more: the driver mustn't be woken for it all the time.
    assert homecomings.next_s() == ENDLESS


def test_word_of_an_earlier_return_or_of_a_server_that_serves_changes_nothing() -> None:
    cluster, begun = home("I1"), Restores()
    homecomings = Homecomings(begun.begin, speed=1.0)
    homecomings.begin("I1")
    homecomings.begin("I1")
    assert begun == [("I1", 1), ("I1", 2)]
    for wrong in ("", "exited with 1"):
        assert not homecomings.ended(cluster, 0.0, "I1", 1, wrong)
    assert homecomings.next_s() == ENDLESS
    happen(cluster, ev.BackInService(0.0, "I1"))
    for wrong in ("", "exited with 1"):
        assert not homecomings.ended(cluster, 0.0, "I1", 2, wrong)
    assert homecomings.next_s() == ENDLESS


def test_each_return_begins_with_a_clean_slate() -> None:
    cluster, begun = home("I1"), Restores()
    homecomings = Homecomings(begun.begin, speed=1.0)
    homecomings.begin("I1")
    homecomings.ended(cluster, 0.0, "I1", 1, "exited with 1")
    homecomings.begin("I1")
    assert homecomings.next_s() == ENDLESS
    homecomings.ended(cluster, 10.0, "I1", 2, "exited with 1")
    assert homecomings.next_s() == 10.0 + RETRY_AFTER_S


# The driver


def test_without_a_hook_a_server_that_came_home_serves_at_once() -> None:
    with driven(lent("I1")) as bench:
        come_home(bench, "I1")
        assert bench.cluster.serving == 2
        assert bench.poll() == [ev.BackInService(0.0, "I1")]
        assert bench.cluster.serving == 3


def test_it_serves_when_its_hook_has_ended_and_not_before(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    hold = ("/bin/sh", "-c", f'while [ ! -e "{gate}" ]; do sleep 0.02; done')
    with driven(lent("I1"), LoanHooks(restore=hold)) as bench:
        come_home(bench, "I1")
        assert bench.poll(deadline_s=0.0) == []
        assert bench.cluster.server_by_id["I1"].restoring
        gate.touch()
        assert bench.poll() == [ev.BackInService(0.0, "I1")]
        assert bench.driver.failed_restores == 0


def test_where_the_side_reports_the_end_of_the_hook_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tmp_path / "done"
    hooks = LoanHooks(restore=("/bin/sh", "-c", f'echo "$ARYL_SERVER_ID" > "{done}"'), ready=Ready.REPORT)
    with driven(lent("I1"), hooks) as bench:
        ends = Ends(bench, monkeypatch)
        come_home(bench, "I1")
        assert ends.wait() == []
        assert done.read_text() == "I1\n"
        assert bench.cluster.server_by_id["I1"].restoring
        bench.driver.inbox.put(Command(lambda _, now_s: (ev.BackInService(now_s, "I1"),)))
        assert bench.poll() == [ev.BackInService(0.0, "I1")]


def test_where_the_side_reports_and_there_is_no_hook_it_is_waited_for() -> None:
    with driven(lent("I1"), LoanHooks(ready=Ready.REPORT)) as bench:
        come_home(bench, "I1")
        assert bench.poll(deadline_s=0.0) == []
        assert bench.cluster.server_by_id["I1"].restoring


def test_a_server_whose_restore_fails_is_restored_again_and_serves_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = tmp_path / "tries"
    script = f'echo try >> "{tries}"; [ "$(wc -l < "{tries}")" -ge 3 ]'
    cluster = lent("I1")
    happen(cluster, ev.TelemetryLost(0.0))  # so that it isn't lost meanwhile
    with driven(cluster, LoanHooks(restore=("/bin/sh", "-c", script))) as bench:
        ends = Ends(bench, monkeypatch)
        come_home(bench, "I1")
        for number, wait_s in enumerate((RETRY_AFTER_S, RETRY_EVERY_S), 1):
            assert ends.wait() == []
            assert (bench.driver.failed_restores, len(tries.read_text().split())) == (number, number)
            assert bench.cluster.server_by_id["I1"].restoring
            bench.clock.now_s += wait_s
            assert bench.poll(deadline_s=bench.clock.now_s) == []
        assert ends.wait() == [ev.BackInService(RETRY_AFTER_S + RETRY_EVERY_S, "I1")]
        assert bench.driver.failed_restores == 2


def test_a_restore_of_an_earlier_return_does_not_put_a_server_into_service(tmp_path: Path) -> None:
    """It went home, was lent again before the hook had ended, and came home again."""
    gates = tmp_path / "gates"
    gates.mkdir()
    tries = tmp_path / "tries"
    script = (
        f'echo try >> "{tries}"; number=$(wc -l < "{tries}"); '
        f'while [ ! -e "{gates}/$number" ]; do sleep 0.02; done'
    )
    with driven(lent("I1"), LoanHooks(restore=("/bin/sh", "-c", script))) as bench:
        come_home(bench, "I1")
        eventually(lambda: tries.exists() and tries.read_text() == "try\n", "the first one doesn't begin")
        bench.apply(Loan("I1"))
        assert bench.poll() == [ev.HandedOver(0.0, "I1")]
        come_home(bench, "I1")
        (gates / "1").touch()
        eventually(lambda: tries.read_text() == "try\ntry\n", "the second one doesn't begin")
        assert bench.poll(deadline_s=0.0) == []
        assert bench.cluster.server_by_id["I1"].restoring
        (gates / "2").touch()
        assert bench.poll() == [ev.BackInService(0.0, "I1")]


def test_the_loop_is_woken_when_a_restore_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with driven(lent("I1"), LoanHooks(restore=FAILS)) as bench:
        ends = Ends(bench, monkeypatch)
        come_home(bench, "I1")
        assert ends.wait() == []
        waits: list[float] = []

        def slept(seconds: float) -> list[Note]:
            waits.append(seconds)
            bench.clock.now_s += seconds
            return []

        monkeypatch.setattr(live_driver, "TURN_S", ENDLESS)
        monkeypatch.setattr(bench.clock, "seconds_until", lambda at_s: at_s - bench.clock.now_s)
        monkeypatch.setattr(bench.driver.inbox, "wait", slept)
        assert bench.poll(deadline_s=RETRY_AFTER_S + 7.0) == []
        assert waits == [RETRY_AFTER_S, 7.0]


def test_a_server_whose_loan_is_called_off_is_restored_once_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = Restores()
    monkeypatch.setattr(HookRunner, "restore", lambda _, server_id, number: begun.begin(server_id, number))
    with driven(lent(), LoanHooks(release=FAILS)) as bench:
        bench.apply(Loan("I1"))
        assert bench.poll() == [ev.LoanCalledOff(0.0, "I1", "its release exited with 1")]
        assert bench.cluster.server_by_id["I1"].restoring
        assert begun == []
        for _ in range(2):
            assert bench.poll(deadline_s=0.0) == []
            assert begun == [("I1", 1)]


def test_a_loan_that_is_called_off_while_it_is_asked_back_comes_home_by_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = Restores()
    monkeypatch.setattr(HookRunner, "restore", lambda _, server_id, number: begun.begin(server_id, number))
    with driven(lent(), LoanHooks(release=FAILS)) as bench:
        bench.apply(Loan("I1"), Reclaim("I1", 5.0))
        assert bench.poll() == [ev.LoanCalledOff(0.0, "I1", "its release exited with 1")]
        assert bench.cluster.server_by_id["I1"].tenure is Tenure.RECLAIMING
        assert bench.poll(deadline_s=0.0) == []
        assert begun == []
        bench.apply(Return("I1"))
        assert begun == [("I1", 1)]


def test_a_command_that_changes_nothing_is_answered_though_nothing_happens() -> None:
    with driven(lent()) as bench:
        command = Command(lambda _cluster, _now_s: ())
        bench.driver.inbox.put(command)
        assert bench.poll(deadline_s=0.0) == []
        assert command.answer.result(0) is None


def test_a_server_is_back_in_service_after_a_loan_that_was_called_off(tmp_path: Path) -> None:
    done = tmp_path / "done"
    hooks = LoanHooks(release=FAILS, restore=("/bin/sh", "-c", f'echo "$ARYL_SERVER_ID" >> "{done}"'))
    with driven(lent(), hooks) as bench:
        bench.apply(Loan("I1"))
        assert bench.poll() == [ev.LoanCalledOff(0.0, "I1", "its release exited with 1")]
        assert bench.poll() == [ev.BackInService(0.0, "I1")]
        assert done.read_text() == "I1\n"


def test_where_nobody_asked_for_the_word_a_return_is_over_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tmp_path / "done"
    hooks = LoanHooks(restore=("/bin/sh", "-c", f'echo "$ARYL_SERVER_ID" > "{done}"; exit 1'))
    with driven(lent("I1", confirms_returns=False), hooks) as bench:
        ends = Ends(bench, monkeypatch)
        come_home(bench, "I1")
        assert bench.cluster.serving == 3
        assert ends.wait() == []
        assert (bench.driver.failed_restores, done.read_text()) == (1, "I1\n")
        # Nobody misses the server, so nothing is tried again.
        bench.clock.now_s = 2 * RETRY_AFTER_S
        assert bench.poll(deadline_s=bench.clock.now_s) == []


@pytest.mark.parametrize("ready", Ready)
def test_a_restart_restores_what_does_not_serve_yet_once_and_what_may_not_be_restored(
    ready: Ready, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = home("I1", "I2")
    happen(cluster, ev.BackInService(0.0, "I2"))
    done = tmp_path / "done"
    hooks = LoanHooks(restore=("/bin/sh", "-c", f'echo "$ARYL_SERVER_ID" >> "{done}"'), ready=ready)
    bench = Bench(cluster, hooks)
    try:
        ends = Ends(bench, monkeypatch)
        bench.driver.take_over(cluster, 7, ["I1", "I3"])
        heard = ends.wait(3)  # with the first tick
        back = ev.BackInService(0.0, "I1")
        assert [event for event in heard if event != ev.Tick(0.0)] == [back] * (ready is Ready.HOOK)
        assert sorted(done.read_text().split()) == ["I1", "I3"]
    finally:
        bench.driver.close()


def test_a_restart_without_a_hook_puts_into_service_what_was_waited_for() -> None:
    bench = Bench(home("I1"))
    try:
        bench.driver.take_over(bench.cluster, 7)
        assert bench.poll() == [ev.BackInService(0.0, "I1"), ev.Tick(0.0)]
    finally:
        bench.driver.close()


def test_the_journal_tells_who_came_home_and_was_not_said_to_serve() -> None:
    cluster, recollection = cluster_of(1, 3, confirms_loans=True), Recollection()
    demand = ev.DemandReported(0.0, 0.0, 0.0)
    happen(cluster, demand)
    names = ("I1", "I2", "I3")
    for steps in ([Loan(name) for name in names], [Reclaim(name, 5.0) for name in names]):
        commit(cluster, *steps)
    returns = ev.PlanCommitted(10.0, Plan(tuple(Return(name) for name in names)))
    happen(cluster, returns)
    for event in (demand, returns, ev.BackInService(20.0, "I2")):
        recollection.saw(event)
    assert recollection.came_home(cluster, 60.0) == ["I1", "I3"]
    commit(cluster, Loan("I3"))
    assert recollection.came_home(cluster, 60.0) == ["I1"]
    happen(cluster, ev.Tick(100.0))
    assert recollection.came_home(cluster, 60.0) == []
