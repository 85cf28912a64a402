"""What the loop relies on, whatever the world: every `ClusterDriver` must pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.contract.drivers import Bench, local, on, simulated, spec

from aryl.core import events as ev
from aryl.core.evolve import evolve
from aryl.core.model import JobState
from aryl.core.plan import Cause, Launch, Loan, Reclaim, Resize, Return, Stop

Make = Callable[..., AbstractContextManager[Bench]]
LONG_S = 60.0


@pytest.fixture(params=[simulated, local], ids=["simulator", "local backend"])
def make(request: pytest.FixtureRequest) -> Make:
    chosen: Make = request.param
    return chosen


def test_a_gang_is_launched_and_finishes_and_its_gpus_are_free_afterwards(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, {spec("a", 3): 0.3}) as bench:
        bench.until(ev.Submitted)
        bench.commit(Launch("a", 1, (on("T1", 3),)))
        assert bench.until(ev.Launched) == ev.Launched(bench.cluster.now, "a", 1)
        assert bench.cluster.jobs["a"].state is JobState.RUNNING
        bench.until(ev.Finished)
        assert bench.cluster.ended == {"a": JobState.SUCCEEDED}
        assert bench.cluster.server_by_id["T1"].free == 4
        assert bench.count(ev.Launched) == bench.count(ev.Finished) == 1


def test_a_stopped_gang_holds_its_gpus_until_it_is_gone(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, {spec("a", 4): LONG_S}) as bench:
        bench.until(ev.Submitted)
        bench.commit(Launch("a", 1, (on("T1", 2), on("T2", 2))))
        bench.until(ev.Launched)
        bench.commit(Stop("a", 1, Cause.PRIORITY, save=True, beneficiary="b"))
        assert [server.leaving for server in bench.cluster.servers[:2]] == [2, 2]
        stopped = bench.until(ev.Stopped)
        assert (stopped.job_id, stopped.attempt) == ("a", 1)
        assert 0.0 <= stopped.kept_s <= bench.cluster.now
        assert bench.cluster.jobs["a"].state is JobState.PENDING
        assert [server.free for server in bench.cluster.servers[:2]] == [4, 4]
        bench.commit(Launch("a", 2, (on("T2", 4),)))
        assert bench.until(ev.Launched, lambda event: event.attempt == 2).job_id == "a"


def test_workers_that_are_taken_away_are_vacated_before_their_gpus_are_free(
    make: Make, tmp_path: Path
) -> None:
    with make(tmp_path, {spec("e", 2, 6): LONG_S}) as bench:
        bench.until(ev.Submitted)
        bench.commit(Launch("e", 1, (on("T1", 2, 2), on("T2", 0, 2))))
        bench.until(ev.Launched)
        bench.commit(Resize("e", 1, 1, (), (on("T2", 0, 2), on("T1", 0, 1)), Cause.BASE_DEMAND))
        assert [server.leaving for server in bench.cluster.servers[:2]] == [1, 2]
        resized = bench.until(ev.Resized)
        assert (resized.attempt, resized.revision) == (1, 1)
        bench.until(ev.Vacated)
        assert [server.free for server in bench.cluster.servers[:2]] == [1, 4]
        assert bench.cluster.jobs["e"].state is JobState.RUNNING
        assert bench.cluster.jobs["e"].workers == 3


def test_workers_that_are_added_run_when_the_resize_is_reported(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, {spec("e", 2, 6): LONG_S}) as bench:
        bench.until(ev.Submitted)
        bench.commit(Launch("e", 1, (on("T1", 2),)))
        bench.until(ev.Launched)
        bench.commit(Resize("e", 1, 1, (on("T1", 0, 2), on("T2", 0, 2)), (), Cause.GROWTH))
        bench.until(ev.Resized)
        job = bench.cluster.jobs["e"]
        assert (job.state, job.workers, job.attempt) == (JobState.RUNNING, 6, 1)


def test_of_two_resizes_in_a_row_the_last_one_counts(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, {spec("e", 2, 6): LONG_S}) as bench:
        bench.until(ev.Submitted)
        bench.commit(Launch("e", 1, (on("T1", 2),)))
        bench.until(ev.Launched)
        bench.commit(Resize("e", 1, 1, (on("T2", 0, 3),), (), Cause.GROWTH))
        bench.commit(Resize("e", 1, 2, (), (on("T2", 0, 2),), Cause.BASE_DEMAND))
        bench.until(ev.Resized, lambda event: event.revision == 2)
        bench.until(ev.Vacated)
        job = bench.cluster.jobs["e"]
        assert (job.state, job.workers) == (JobState.RUNNING, 3)
        assert [server.free for server in bench.cluster.servers[:2]] == [2, 3]


def test_a_job_that_is_stopped_as_it_ends_has_one_end(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, {spec("a", 1): 0.05, spec("b", 1): 0.6}) as bench:
        bench.until(ev.Submitted, lambda event: event.job.job_id == "b")
        bench.commit(Launch("a", 1, (on("T1", 1),)), Launch("b", 1, (on("T2", 1),)))
        bench.until(ev.Launched, lambda event: event.job_id == "a")
        if "a" in bench.cluster.live:
            bench.commit(Stop("a", 1, Cause.PRIORITY, save=True, beneficiary="b"))
        bench.until(ev.Finished, lambda event: event.job_id == "b")
        about_a = [
            event
            for event in bench.heard
            if isinstance(event, ev.Stopped | ev.Finished) and event.job_id == "a"
        ]
        assert len(about_a) == 1
        assert bench.cluster.server_by_id["T1"].free == 4


def test_a_cancelled_job_ends(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, {spec("a", 2): LONG_S, spec("b", 1): 0.2}) as bench:
        bench.until(ev.Submitted, lambda event: event.job.job_id == "b")
        bench.commit(Launch("a", 1, (on("T1", 2),)), Launch("b", 1, (on("T2", 1),)))
        bench.until(ev.Launched, lambda event: event.job_id == "a")
        evolve(bench.cluster, ev.CancelRequested(bench.cluster.now, "a"))
        bench.commit(Stop("a", 1, Cause.CANCELLED, save=False, beneficiary="a"))
        bench.until(ev.Stopped)
        assert bench.cluster.ended["a"] is JobState.CANCELLED


def test_poll_comes_back_at_its_deadline(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, {spec("a", 1): LONG_S}) as bench:
        bench.until(ev.Submitted)
        bench.commit(Launch("a", 1, (on("T1", 1),)))
        bench.until(ev.Launched)
        while bench.poll(bench.cluster.now + 0.2):
            pass
        assert bench.count(ev.Finished) == 0


def test_a_server_is_lent_and_comes_back(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, {spec("a", 4): 0.3}) as bench:
        bench.until(ev.Submitted)
        bench.commit(Loan("I1"))
        bench.commit(Launch("a", 1, (on("I1", 4),)))
        bench.until(ev.Launched)
        bench.commit(Reclaim("I1", bench.cluster.now + 10))
        bench.until(ev.Finished)
        bench.commit(Return("I1"))
        assert bench.cluster.on_loan_mask == bench.cluster.reclaiming_mask == 0
