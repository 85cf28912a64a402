"""Attempts that end badly, workers that end well before the others, and jobs that fall silent."""

from __future__ import annotations

import pytest
from tests.core.helpers import cluster_of, commit, happen, job, resize, run, stop, submit

from aryl.core import events as ev
from aryl.core import upkeep
from aryl.core.cluster import Cluster
from aryl.core.model import JobState, Slot
from aryl.core.plan import Cause, Launch, Stop


def _queue(cluster: Cluster) -> list[str]:
    return [entry.job_id for entry in cluster.pending]


def _used(cluster: Cluster) -> dict[str, int]:
    return {server.spec.server_id: server.used for server in cluster.servers if server.used}


def _settle(cluster: Cluster) -> None:
    """Carry out what is due, and let the world confirm each resize."""
    while (plan := upkeep.due(cluster)).steps:
        commit(cluster, *plan.steps)
    for job_id, found in tuple(cluster.live.items()):
        happen(cluster, ev.Resized(cluster.now, job_id, found.attempt, found.revision))


# --- crashes ---


def test_a_crashed_job_goes_to_the_head_of_the_queue_with_what_it_has_saved() -> None:
    cluster = cluster_of()
    run(cluster, job("Z", 8, max_failures=3), Slot("T1", 8, 0, 1))
    submit(cluster, job("A", 16, at=1.0), job("B", 16, at=2.0))
    happen(cluster, ev.Crashed(50.0, "Z", 1, 30.0, "exit 1"))
    found = cluster.jobs["Z"]
    assert (found.state, found.failures, found.preemptions) == (JobState.PENDING, 1, 0)
    assert (_queue(cluster), _used(cluster)) == (["Z", "A", "B"], {})
    assert (found.progress.done_s, found.pending_since_s) == (30.0, 50.0)


def test_a_job_that_has_crashed_as_often_as_it_may_has_failed() -> None:
    cluster = cluster_of()
    submit(cluster, job("A", 8, max_failures=3))
    for attempt in (1, 2, 3):
        assert cluster.jobs["A"].failures == attempt - 1
        commit(cluster, Launch("A", attempt, (Slot("T1", 8, 0, 1),)))
        happen(cluster, ev.Crashed(cluster.now + 1.0, "A", attempt, 0.0))
    assert (cluster.ended, cluster.jobs, _used(cluster)) == ({"A": JobState.FAILED}, {}, {})


def test_without_further_ado_the_first_crash_is_the_last() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 8), Slot("T1", 8, 0, 1))
    happen(cluster, ev.Crashed(1.0, "A", 1, 0.0))
    assert cluster.ended == {"A": JobState.FAILED}


def test_a_crash_of_a_job_that_is_being_stopped_is_a_stop() -> None:
    cluster = cluster_of()
    run(cluster, job("Z", 8), Slot("T1", 8, 0, 1))
    submit(cluster, job("A", 16))
    commit(cluster, stop(cluster, "Z", Cause.RECLAIM))
    happen(cluster, ev.Crashed(5.0, "Z", 1, 3.0, "signal 9"))
    found = cluster.jobs["Z"]
    assert (found.state, found.failures, found.preemptions) == (JobState.PENDING, 0, 1)
    assert _queue(cluster) == ["A", "Z"]
    assert (found.progress.done_s, found.leaving) == (3.0, {})


@pytest.mark.parametrize("told", [False, True], ids=["before it is told to stop", "while it stops"])
def test_a_crash_of_a_job_that_is_being_cancelled_ends_it(told: bool) -> None:
    cluster = cluster_of()
    run(cluster, job("A", 8, max_failures=3), Slot("T1", 8, 0, 1))
    happen(cluster, ev.CancelRequested(1.0, "A"))
    if told:
        commit(cluster, *upkeep.due(cluster).steps)
    happen(cluster, ev.Crashed(2.0, "A", 1, 0.0))
    assert (cluster.ended, _used(cluster)) == ({"A": JobState.CANCELLED}, {})


def test_workers_that_were_leaving_are_gone_with_the_crash() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 2, 8, max_failures=2), Slot("T1", 2, 6, 1))
    commit(cluster, resize(cluster, "A", remove=(Slot("T1", 0, 6, 1),)))
    happen(cluster, ev.Crashed(1.0, "A", 1, 0.0))
    assert (cluster.server_by_id["T1"].leaving, cluster.server_by_id["T1"].free) == (0, 8)


def test_late_reports_of_an_attempt_that_crashed_change_nothing() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 4, max_failures=9), Slot("T1", 4, 0, 1))
    happen(cluster, ev.Crashed(1.0, "A", 1, 0.5))
    late: tuple[ev.Event, ...] = (
        ev.Crashed(2.0, "A", 1, 9.0),
        ev.WorkersDone(2.0, "A", 1, (Slot("T1", 2, 0, 1),)),
        ev.Stalled(2.0, "A", 1),
        ev.Learned(2.0, "A", 1, 90.0, 80.0, 100.0),
        ev.WorkerReplaced(2.0, "A", 1, "T1", "signal 9"),
        ev.Failed(2.0, "A", 1),
    )
    happen(cluster, *late)
    found = cluster.jobs["A"]
    assert (found.state, found.failures, found.progress.done_s) == (JobState.PENDING, 1, 0.5)
    commit(cluster, Launch("A", 2, (Slot("T2", 4, 0, 1),)))
    happen(cluster, *late)
    assert (found.state, found.failures, found.trouble) == (JobState.STARTING, 1, None)
    assert (found.finishing, found.workers, found.spec.estimate_s) == (False, 4, None)


def test_a_worker_that_was_replaced_changes_nothing() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 4), Slot("T1", 4, 0, 1))
    happen(cluster, ev.WorkerReplaced(5.0, "A", 1, "T1", "signal 9"))
    found = cluster.jobs["A"]
    assert (found.state, found.workers, found.failures) == (JobState.RUNNING, 4, 0)
    assert found.progress.done_at(5.0) == 5.0


# --- workers that are done (E4) ---


@pytest.mark.parametrize("sizes", [(), (5, 10, 20)], ids=["any size", "allowed sizes"])
def test_reserved_equals_live_while_a_gang_is_on_its_way_out(sizes: tuple[int, ...]) -> None:
    cluster = cluster_of(3)
    run(
        cluster,
        job("E", 5, 20, sizes=sizes),
        Slot("T1", 5, 3, 1),
        Slot("T2", 0, 8, 1),
        Slot("T3", 0, 4, 1),
    )
    found = cluster.jobs["E"]
    gone = (Slot("T1", 5, 2, 1), Slot("T2", 0, 8, 1))
    happen(cluster, ev.WorkersDone(10.0, "E", 1, gone))
    assert (found.workers, _used(cluster)) == (5, {"T1": 1, "T3": 4})
    least = 5 if sizes else 1
    happen(cluster, ev.LimitsChanged(11.0, "E", least, 10))
    assert upkeep.due(cluster).steps == ()
    for left in (3, 1):
        happen(cluster, ev.WorkersDone(cluster.now + 1.0, "E", 1, (Slot("T3", 2, 0, 1),)))
        assert (found.workers, found.gpus, sum(_used(cluster).values())) == (left, left, left)
        assert (found.min_workers, found.max_workers, found.base) == (left, left, left)
        assert upkeep.due(cluster).steps == ()
    commit(cluster, stop(cluster, "E"))
    happen(cluster, ev.Stopped(20.0, "E", 1, 4.0))
    assert (found.min_workers, found.max_workers, found.sizes) == (least, 10, sizes)
    assert not found.finishing
    commit(cluster, Launch("E", 2, (Slot("T1", least, 0, 1),)))
    happen(cluster, ev.Launched(21.0, "E", 2))
    assert (found.workers, found.elastic) == (least, True)


def test_a_gang_whose_workers_are_all_done_holds_nothing_until_it_has_finished() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 2), Slot("T1", 1, 0, 1), Slot("T2", 1, 0, 1))
    happen(cluster, ev.WorkersDone(1.0, "A", 1, (Slot("T1", 1, 0, 1), Slot("T2", 1, 0, 1))))
    assert (cluster.jobs["A"].workers, _used(cluster), upkeep.due(cluster).steps) == (0, {}, ())
    happen(cluster, ev.Finished(1.0, "A", 1))
    assert cluster.ended == {"A": JobState.SUCCEEDED}


def test_a_limit_that_was_set_in_the_same_breath_resizes_no_gang_on_its_way_out() -> None:
    """A resize would start the others again."""
    cluster = cluster_of()
    run(cluster, job("E", 2, 8), Slot("T1", 2, 6, 1))
    happen(
        cluster,
        ev.LimitsChanged(1.0, "E", 2, 4),
        ev.WorkersDone(1.0, "E", 1, (Slot("T1", 0, 1, 1),)),
    )
    assert upkeep.due(cluster).steps == ()
    assert (cluster.jobs["E"].workers, cluster.jobs["E"].limits) == (7, (2, 4))


@pytest.mark.parametrize("lost_first", [False, True])
def test_a_gang_on_its_way_out_that_loses_a_server_begins_again(lost_first: bool) -> None:
    """In whichever order the two are told: what the lost workers had still to do nobody has done."""
    cluster = cluster_of()
    run(cluster, job("E", 2, 8, at=0.0), Slot("T1", 2, 2, 1), Slot("T2", 0, 4, 1))
    told: list[ev.Event] = [
        ev.WorkersDone(5.0, "E", 1, (Slot("T1", 0, 2, 1),)),
        ev.ServerLost(5.0, "T2"),
    ]
    happen(cluster, *(reversed(told) if lost_first else told))
    assert upkeep.due(cluster).steps == (Stop("E", 1, Cause.SERVER_LOST, False, "E"),)
    _settle(cluster)
    happen(cluster, ev.Stopped(5.0, "E", 1, 0.0))
    found = cluster.jobs["E"]
    assert (found.min_workers, found.max_workers, found.at_front) == (2, 8, True)


def test_workers_done_on_a_server_where_the_job_has_none_take_nothing_away() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 4), Slot("T1", 4, 0, 1))
    happen(cluster, ev.WorkersDone(1.0, "A", 1, (Slot("T2", 1, 0, 1), Slot("T9", 1, 0, 1))))
    assert (cluster.jobs["A"].workers, _used(cluster)) == (4, {"T1": 4})


# --- silence ---


def test_a_stalled_job_is_stopped_without_saving_and_goes_to_the_head_of_the_queue() -> None:
    cluster = cluster_of()
    run(cluster, job("Z", 8), Slot("T1", 8, 0, 1))
    submit(cluster, job("A", 16))
    happen(cluster, ev.Stalled(9.0, "Z", 1))
    assert upkeep.due(cluster).steps == (Stop("Z", 1, Cause.STALLED, False, "Z"),)
    _settle(cluster)
    happen(cluster, ev.Stopped(10.0, "Z", 1, 2.0))
    found = cluster.jobs["Z"]
    assert (found.preemptions, found.failures, _queue(cluster)) == (0, 0, ["Z", "A"])
    assert found.progress.done_s == 2.0


@pytest.mark.parametrize("stalled_first", [False, True])
@pytest.mark.parametrize(
    "other", [ev.ServerLost(9.0, "T2"), ev.LimitsChanged(9.0, "E", 2, 4)], ids=["a loss", "a limit"]
)
def test_a_stalled_job_is_stopped_whatever_else_is_the_matter_with_it(
    other: ev.Event, stalled_first: bool
) -> None:
    """Its silence is told once: if it were resized instead, nobody would look at it again."""
    cluster = cluster_of()
    run(cluster, job("E", 2, 8), Slot("T1", 2, 3, 1), Slot("T2", 0, 3, 1))
    told: list[ev.Event] = [ev.Stalled(9.0, "E", 1), other]
    happen(cluster, *(told if stalled_first else reversed(told)))
    assert upkeep.due(cluster).steps == (Stop("E", 1, Cause.STALLED, False, "E"),)


def test_a_job_that_is_being_cancelled_is_stopped_for_that() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 8), Slot("T1", 8, 0, 1))
    happen(cluster, ev.CancelRequested(9.0, "A"), ev.Stalled(9.0, "A", 1))
    assert upkeep.due(cluster).steps == (Stop("A", 1, Cause.CANCELLED, False, "A"),)
