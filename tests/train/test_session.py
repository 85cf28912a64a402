from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aryl import train
from aryl.train import Environment, Session, read_environment


@pytest.fixture(autouse=True)
def _handler_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Where PyTorch is loaded, by other tests here, leaving ends the process at once instead of raising.
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


def gang(run_dir: Path, size: int = 2, generation: int = 0) -> list[Session]:
    """The sessions of a gang, in one process: the last of them hears the signal."""
    return [
        Session(
            Environment(
                job_id="job-1",
                rank=rank,
                size=size,
                generation=generation,
                run_dir=run_dir,
                notice_signal="USR1",
            )
        )
        for rank in range(size)
    ]


def test_outside_of_aryl_a_script_is_a_single_worker_that_never_has_to_leave() -> None:
    program = (
        "from aryl import train\n"
        "print(train.rank(), train.size(), train.local_rank(), repr(train.job_id()), train.attempt())\n"
        "print(train.should_save(1), train.should_save(10, every_steps=5), train.leaving())\n"
        "print(train.report(1, 10), train.exchange('x'), train.checkpoint_dir())\n"
        "import sys; print('torch' in sys.modules, sorted(m for m in sys.modules if m.startswith('aryl.')))\n"
    )
    bare = {name: value for name, value in os.environ.items() if not name.startswith("ARYL_")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=bare, capture_output=True, text=True, check=True
    )
    first, second, third, fourth = done.stdout.splitlines()
    assert first == "0 1 0 '' 0"
    assert second == "False True False"
    assert third == "False ['x'] checkpoint"
    assert fourth.startswith("False ")
    assert all(name.startswith("'aryl.train") for name in fourth[len("False [") : -1].split(", "))


def test_the_environment_is_read_and_what_makes_no_sense_counts_as_absent() -> None:
    place = read_environment(
        {
            "ARYL_JOB_ID": "resnet-17",
            "ARYL_ATTEMPT": "3",
            "ARYL_RANK": "9",
            "RANK": "1",
            "WORLD_SIZE": "many",
            "LOCAL_RANK": "1",
            "ARYL_RUN_DIR": "/run/resnet-17",
            "ARYL_GRACE_S": "90.5",
        }
    )
    assert place == Environment(
        job_id="resnet-17",
        attempt=3,
        rank=1,
        local_rank=1,
        size=1,
        worker=9,
        run_dir=Path("/run/resnet-17"),
        grace_s=90.5,
    )
    assert place.inside
    assert not Environment().inside


def test_under_torchrun_a_worker_is_told_apart_by_its_rank() -> None:
    place = read_environment({"RANK": "5", "ARYL_RANK": "1", "TORCHELASTIC_RUN_ID": "none"})
    assert place.worker == 5


def test_a_single_worker_leaves_after_the_step_in_which_the_notice_comes() -> None:
    session = Session(Environment(job_id="job-1", notice_signal="SIGUSR1"))
    assert not session.should_save(1)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert session.noticed
    assert session.should_save(2)
    assert session.leaving
    with pytest.raises(SystemExit) as ended:
        session.exit_saved()
    assert ended.value.code == 75


def test_all_workers_leave_after_the_same_step_whoever_is_told_and_whoever_asks_first(tmp_path: Path) -> None:
    first, last = gang(tmp_path)
    assert not any(session.should_save(4) for session in (first, last))
    assert not first.should_save(5)  # it has asked when the notice comes, and the other has not
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not last.should_save(5)
    assert not any(session.should_save(6) for session in (last, first))
    assert all(session.should_save(7) and session.leaving for session in (first, last))
    assert (first.noticed, last.noticed) == (False, True)


def test_two_workers_told_at_once_agree_on_the_first_proposal(tmp_path: Path) -> None:
    ahead, behind = gang(tmp_path)
    ahead._notice.given = behind._notice.given = True
    assert not ahead.should_save(8)
    assert not behind.should_save(7)
    assert not behind.should_save(8)
    for session in (ahead, behind):
        assert not session.should_save(9)
        assert session.should_save(10)


def test_an_agreement_of_an_earlier_generation_is_none_of_the_next(tmp_path: Path) -> None:
    before, _ = gang(tmp_path)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not before.should_save(1)
    after, _ = gang(tmp_path, generation=1)
    assert not any(after.should_save(step) for step in range(1, 10))


def test_workers_that_save_now_and_then_agree_on_when_and_do_not_leave(tmp_path: Path) -> None:
    first, last = gang(tmp_path)
    answers = [
        [session.should_save(step, every_s=0.0) for session in order]
        for step, order in enumerate([(first, last), (last, first)] * 4)
    ]
    assert all(one == other for one, other in answers)
    assert sum(one for one, _ in answers) >= 2
    assert not first.leaving


def test_steps_are_saved_at_multiples_and_when_it_is_time() -> None:
    session = Session(Environment())
    assert [step for step in range(1, 10) if session.should_save(step, every_steps=4)] == [4, 8]
    assert session.should_save(1, every_s=0.0)
    assert not session.should_save(1, every_s=3600.0)


def test_a_gang_without_a_shared_folder_saves_at_multiples_only() -> None:
    session = Session(Environment(size=2))
    assert not session.should_save(1, every_s=0.0)
    assert session.should_save(4, every_s=0.0, every_steps=4)
    with pytest.raises(RuntimeError, match="ARYL_RUN_DIR"):
        session.exchange(1)


def test_values_are_exchanged_in_order_of_rank_again_and_again(tmp_path: Path) -> None:
    sessions = gang(tmp_path, size=3)

    def meet(session: Session) -> list[list[list[int]]]:
        return [session.exchange([session.environment.rank, meeting], 60.0) for meeting in range(20)]

    with ThreadPoolExecutor(3) as threads:
        seen = list(threads.map(meet, sessions))
    expected = [[[0, meeting], [1, meeting], [2, meeting]] for meeting in range(20)]
    assert seen == [expected] * 3
    assert len(list(tmp_path.iterdir())) <= 3  # files of earlier meetings are gone


def test_a_worker_that_does_not_come_is_named(tmp_path: Path) -> None:
    first, _ = gang(tmp_path)
    with pytest.raises(TimeoutError, match="worker 1 did not come"):
        first.exchange("here", 0.05)


def test_under_torchrun_leaving_is_a_good_end_and_a_file_says_what_it_means(tmp_path: Path) -> None:
    session = Session(Environment(attempt=2, generation=1, run_dir=tmp_path, torchelastic=True))
    for _ in range(2):  # every worker does it
        with pytest.raises(SystemExit) as ended:
            session.exit_saved()
        assert ended.value.code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["saved-2-1"]


def test_the_module_speaks_for_this_process(tmp_path: Path) -> None:
    assert train.session().environment == read_environment()
    assert (train.rank(), train.worker(), train.noticed()) == (0, 0, False)
    with pytest.raises(AttributeError, match="no attribute 'replicas_of_old'"):
        _ = train.replicas_of_old


_ABORTS_WHEN_TORN_DOWN = """
import atexit, os, sys, types
from aryl import train
if sys.argv[2] == "with torch":
    sys.modules["torch"] = types.ModuleType("torch")
class Library:
    def __del__(self, abort=os.abort):
        abort()
library = Library()
atexit.register(print, "registered")
print("done")
getattr(train, sys.argv[1])()
"""


@pytest.mark.parametrize(("how", "code"), [("finish", 0), ("exit_saved", 75)])
def test_a_library_that_aborts_when_it_is_torn_down_spoils_no_end(how: str, code: int) -> None:
    def ended(torch: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _ABORTS_WHEN_TORN_DOWN, how, torch]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with_torch = ended("with torch")
    assert (with_torch.returncode, with_torch.stdout) == (code, "done\nregistered\n")
    assert ended("without").returncode == -signal.SIGABRT
