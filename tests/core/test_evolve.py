"""Every event does what it says; late reports change nothing; what can't be raises and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.helpers import (
    claim,
    cluster_of,
    commit,
    declared,
    happen,
    job,
    refused,
    resize,
    run,
    stop,
    submit,
)
from tests.property.snapshot import snapshot

from aryl.core import events as ev
from aryl.core.cluster import Cluster, Demand
from aryl.core.evolve import evolve
from aryl.core.model import Hosting, JobState, Slot, Tenure
from aryl.core.plan import Cause, Launch, Loan, Plan, Reclaim, Release, Return, Step
from aryl.errors import IllegalTransitionError


def test_a_job_goes_from_submission_to_success() -> None:
    cluster = cluster_of()
    submit(cluster, job("A", 4, at=5.0))
    assert [entry.job_id for entry in cluster.pending] == ["A"]
    commit(cluster, Launch("A", 1, (Slot("T1", 4, 0, 1),)), at=10.0)
    found = cluster.jobs["A"]
    assert (found.state, found.progress.rate, cluster.server_by_id["T1"].free) == (JobState.STARTING, 0.0, 4)
    happen(cluster, ev.Launched(12.0, "A", 1))
    assert (found.state, found.progress.rate) == (JobState.RUNNING, 1.0)
    happen(cluster, ev.Finished(40.0, "A", 1))
    assert cluster.ended == {"A": JobState.SUCCEEDED}
    assert not cluster.jobs
    assert cluster.server_by_id["T1"].free == 8
    assert found.attained_gpu_s(99.0) == 4 * 30.0


def test_a_job_that_fails_is_over() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 4), Slot("T1", 4, 0, 1))
    happen(cluster, ev.Failed(3.0, "A", 1))
    assert cluster.ended == {"A": JobState.FAILED}
    assert cluster.server_by_id["T1"].free == 8


def test_a_resize_stands_still_until_it_is_reported() -> None:
    cluster = cluster_of()
    run(cluster, job("E", 2, 6), Slot("T1", 2, 0, 1))
    commit(cluster, resize(cluster, "E", add=(Slot("T2", 0, 4, 1),)), at=10.0)
    found = cluster.jobs["E"]
    assert (found.state, found.workers, found.progress.rate) == (JobState.RESIZING, 6, 0.0)
    assert (found.grown_s, cluster.grown_s) == (10.0, 10.0)
    happen(cluster, ev.Resized(15.0, "E", 1, 1))
    assert (found.state, found.progress.rate) == (JobState.RUNNING, 3.0)
    assert found.progress.done_at(17.0) == 10.0 + 2 * 3.0


def test_gpus_of_leaving_workers_are_free_when_they_are_gone_and_not_before() -> None:
    cluster = cluster_of()
    run(cluster, job("E", 2, 6), Slot("T1", 2, 4, 1))
    removed = Slot("T1", 0, 3, 1)
    commit(cluster, resize(cluster, "E", remove=(removed,), cause=Cause.BASE_DEMAND))
    server = cluster.server_by_id["T1"]
    assert (server.used, server.leaving, server.free) == (3, 3, 2)
    happen(cluster, ev.Vacated(4.0, "E", 1, (Slot("T1", 0, 1, 1),)))
    assert (server.leaving, server.free) == (2, 3)
    happen(cluster, ev.Vacated(5.0, "E", 1, (removed,)))
    assert (server.leaving, server.free) == (0, 5)


def test_a_preempted_job_waits_again_with_what_it_kept() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 4), Slot("T1", 4, 0, 1))
    commit(cluster, stop(cluster, "A"), at=30.0)
    found = cluster.jobs["A"]
    assert (found.state, found.preemptions, found.progress.rate) == (JobState.PREEMPTING, 1, 0.0)
    assert cluster.server_by_id["T1"].free == 4
    happen(cluster, ev.Stopped(33.0, "A", 1, kept_s=20.0))
    assert (found.state, found.pending_since_s, found.progress.done_at(50.0)) == (
        JobState.PENDING,
        33.0,
        20.0,
    )
    assert cluster.server_by_id["T1"].free == 8
    assert [entry.job_id for entry in cluster.pending] == ["A"]
    commit(cluster, Launch("A", 2, (Slot("T2", 4, 0, 1),)), at=40.0)
    assert (found.attempt, found.revision) == (2, 0)


def test_a_claim_keeps_its_place_for_the_claimant() -> None:
    cluster = cluster_of(1)
    run(cluster, job("A", 6), Slot("T1", 6, 0, 1))
    submit(cluster, job("B", 4), job("C", 2))
    commit(cluster, stop(cluster, "A"), claim(cluster, "B", Slot("T1", 4, 0, 1)))
    server = cluster.server_by_id["T1"]
    assert (server.used, server.leaving, server.held, server.free) == (0, 6, 4, 2)
    assert [entry.job_id for entry in cluster.pending] == ["C"]
    happen(cluster, ev.Stopped(5.0, "A", 1, 0.0))
    assert (server.held, server.free) == (4, 4)
    commit(cluster, Launch("B", 1, (Slot("T1", 4, 0, 1),)))
    assert (server.used, server.held, server.free) == (4, 0, 4)
    assert (cluster.claims_made, cluster.claims_dropped) == (1, 0)


@pytest.mark.parametrize(
    "what",
    [
        ev.ServerLost(5.0, "T1"),
        ev.ServerDrained(5.0, "T1", True),
        ev.LimitsChanged(5.0, "B", 3, 3),
        ev.PlanCommitted(5.0, Plan((Release(0, Cause.WITHDRAWN),))),
    ],
)
def test_a_claim_that_cant_be_used_any_more_is_dropped_and_its_job_waits(what: ev.Event) -> None:
    cluster = cluster_of(1)
    run(cluster, job("A", 6), Slot("T1", 6, 0, 1))
    submit(cluster, job("B", 4))
    commit(cluster, stop(cluster, "A"), claim(cluster, "B", Slot("T1", 4, 0, 1)))
    happen(cluster, what)
    assert not cluster.claims
    assert cluster.claims_dropped == 1
    assert [entry.job_id for entry in cluster.pending] == ["B"]


def test_a_claim_of_a_cancelled_job_is_dropped() -> None:
    cluster = cluster_of(1)
    run(cluster, job("A", 6), Slot("T1", 6, 0, 1))
    submit(cluster, job("B", 4))
    commit(cluster, stop(cluster, "A"), claim(cluster, "B", Slot("T1", 4, 0, 1)))
    happen(cluster, ev.CancelRequested(1.0, "B"))
    assert not cluster.claims
    assert cluster.ended == {"B": JobState.CANCELLED}
    assert cluster.server_by_id["T1"].held == 0


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_when_it_has_stopped() -> None:
    cluster = cluster_of()
    submit(cluster, job("W", 4))
    happen(cluster, ev.CancelRequested(1.0, "W"))
    assert cluster.ended == {"W": JobState.CANCELLED}
    run(cluster, job("A", 4), Slot("T1", 4, 0, 1))
    happen(cluster, ev.CancelRequested(2.0, "A"))
    assert cluster.jobs["A"].trouble is Cause.CANCELLED
    commit(cluster, stop(cluster, "A", Cause.CANCELLED))
    happen(cluster, ev.Stopped(4.0, "A", 1, 0.0))
    assert cluster.ended["A"] is JobState.CANCELLED
    assert cluster.server_by_id["T1"].free == 8


def test_a_job_that_is_being_preempted_can_be_cancelled() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 4), Slot("T1", 4, 0, 1))
    commit(cluster, stop(cluster, "A"))
    happen(cluster, ev.CancelRequested(1.0, "A"), ev.CancelRequested(1.5, "A"))
    assert not cluster.troubled, "it has been told to stop already"
    happen(cluster, ev.Stopped(2.0, "A", 1, 0.0))
    assert cluster.ended == {"A": JobState.CANCELLED}


def test_a_job_that_is_being_cancelled_may_still_finish() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 4), Slot("T1", 4, 0, 1))
    happen(cluster, ev.CancelRequested(1.0, "A"), ev.Finished(1.0, "A", 1))
    assert cluster.ended == {"A": JobState.SUCCEEDED}
    assert not cluster.troubled


def test_a_new_maximum_below_the_present_size_makes_trouble() -> None:
    cluster = cluster_of()
    run(cluster, job("E", 2, 8), Slot("T1", 2, 6, 1))
    happen(cluster, ev.LimitsChanged(5.0, "E", 3, 6))
    found = cluster.jobs["E"]
    assert (found.trouble, found.base, found.flexible) == (Cause.LIMITS, 3, 5)


def test_limits_that_the_present_size_keeps_only_relabel_workers() -> None:
    cluster = cluster_of()
    run(cluster, job("E", 2, 8), Slot("T1", 2, 2, 1))
    happen(cluster, ev.LimitsChanged(5.0, "E", 4, 4))
    found = cluster.jobs["E"]
    assert (found.trouble, found.base, found.flexible) == (None, 4, 0)
    assert not cluster.elastic
    happen(cluster, ev.LimitsChanged(6.0, "E", 1, 5))
    assert (found.base, found.flexible) == (1, 3)
    assert list(cluster.growable) == ["E"]


def test_new_limits_put_a_waiting_job_into_its_new_class() -> None:
    cluster = cluster_of()
    submit(cluster, job("E", 2, 8))
    happen(cluster, ev.LimitsChanged(5.0, "E", 3, 3))
    assert [demand.workers for demand in cluster.pending.classes] == [3]


def test_a_lost_server_takes_its_workers_and_the_others_stand_still() -> None:
    cluster = cluster_of()
    run(cluster, job("E", 4, 8), Slot("T1", 4, 0, 1), Slot("T2", 0, 4, 1))
    happen(cluster, ev.ServerLost(10.0, "T1"))
    found = cluster.jobs["E"]
    assert (found.base, found.flexible, found.trouble) == (4, 0, Cause.SERVER_LOST)
    assert (found.progress.done_at(99.0), found.progress.rate) == (20.0, 0.0)
    assert not cluster.server_by_id["T1"].placeable
    happen(cluster, ev.ServerLost(11.0, "T1"), ev.ServerReturned(12.0, "T1"))
    assert cluster.server_by_id["T1"].free == 8


def test_a_job_that_lost_workers_stands_still_whatever_its_start_or_resize_reports() -> None:
    cluster = cluster_of()
    submit(cluster, job("A", 8))
    commit(cluster, Launch("A", 1, (Slot("T1", 4, 0, 1), Slot("T2", 4, 0, 1))))
    happen(cluster, ev.ServerLost(1.0, "T1"), ev.Launched(1.0, "A", 1))
    assert cluster.jobs["A"].progress.rate == 0.0


def test_workers_that_were_leaving_a_lost_server_are_gone() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 4), Slot("T1", 4, 0, 1))
    commit(cluster, stop(cluster, "A"))
    happen(cluster, ev.ServerLost(1.0, "T1"), ev.ServerReturned(2.0, "T1"))
    assert cluster.server_by_id["T1"].free == 8
    happen(cluster, ev.Stopped(3.0, "A", 1, 0.0))
    assert cluster.server_by_id["T1"].free == 8


def test_a_draining_server_keeps_what_it_has_and_takes_nothing_new() -> None:
    cluster = cluster_of(1)
    run(cluster, job("A", 4), Slot("T1", 4, 0, 1))
    happen(cluster, ev.ServerDrained(1.0, "T1", True))
    assert cluster.free.shelf_free(0) == 0
    assert cluster.jobs["A"].workers == 4
    happen(cluster, ev.ServerDrained(2.0, "T1", False))
    assert cluster.free.shelf_free(0) == 4


def test_a_server_is_lent_recalled_and_given_back() -> None:
    cluster = cluster_of(1, 1)
    server = cluster.server_by_id["I1"]
    assert not server.placeable
    commit(cluster, Loan("I1"))
    assert (server.tenure, server.placeable, cluster.on_loan) == (Tenure.ON_LOAN, True, 1)
    run(cluster, job("F", 4, fungible=True), Slot("I1", 4, 0, 2))
    commit(cluster, Reclaim("I1", 20.0))
    assert (server.placeable, server.deadline_s, cluster.on_loan) == (False, 20.0, 0)
    commit(cluster, Loan("I1"))
    assert server.tenure is Tenure.ON_LOAN, "the request was withdrawn"
    commit(cluster, Reclaim("I1", 30.0))
    happen(cluster, ev.Finished(9.0, "F", 1))
    commit(cluster, Return("I1"))
    assert (server.tenure, cluster.reclaiming_mask) == (Tenure.OWNED, 0)


def test_a_recall_drops_the_claims_on_the_server() -> None:
    cluster = cluster_of(1, 1)
    commit(cluster, Loan("I1"))
    run(cluster, job("F", 4, fungible=True), Slot("I1", 4, 0, 2))
    submit(cluster, job("G", 4, fungible=True))
    commit(cluster, stop(cluster, "F"), claim(cluster, "G", Slot("I1", 4, 0, 2)))
    commit(cluster, Reclaim("I1", 20.0))
    assert not cluster.claims
    assert [entry.job_id for entry in cluster.pending] == ["G"]


def test_the_inference_sides_word_is_kept() -> None:
    cluster = cluster_of(1, 2)
    happen(cluster, ev.DemandReported(7.0, 1.5, 2.0))
    assert cluster.demand == Demand(7.0, 1.5, 2.0, cluster.headroom_servers, {})
    happen(cluster, ev.DemandReported(8.0, 1.5, 2.0, 0.25, (Hosting("I1", (2, 1)),)))
    assert cluster.demand == Demand(8.0, 1.5, 2.0, 0.25, {"I1": (2, 1)})


def test_a_job_thrown_out_by_a_failure_goes_to_the_head_of_its_priority() -> None:
    cluster = cluster_of()
    submit(cluster, job("first", 1, at=0.0), job("high", 1, at=2.0, priority=1))
    run(cluster, job("late", 8, at=5.0), Slot("T1", 8, 0, 1))
    happen(cluster, ev.ServerLost(9.0, "T1"))
    commit(cluster, stop(cluster, "late", Cause.SERVER_LOST))
    happen(cluster, ev.Stopped(9.0, "late", 1, 0.0))
    assert [entry.job_id for entry in cluster.pending] == ["high", "late", "first"]
    assert cluster.jobs["late"].preemptions == 0


def test_a_job_thrown_out_by_a_failure_keeps_its_rank_until_it_is_stopped_for_another_reason() -> None:
    """Else an order that preempts would stop it again as soon as it runs."""
    cluster = cluster_of()
    run(cluster, job("A", 8), Slot("T1", 8, 0, 1))
    submit(cluster, job("B", 8))
    happen(cluster, ev.ServerLost(9.0, "T1"))
    commit(cluster, stop(cluster, "A", Cause.SERVER_LOST))
    happen(cluster, ev.Stopped(9.0, "A", 1, 0.0))
    commit(cluster, Launch("A", 2, (Slot("T2", 8, 0, 1),)))
    assert cluster.jobs["A"].at_front
    commit(cluster, stop(cluster, "A", Cause.PRIORITY))
    happen(cluster, ev.Stopped(9.0, "A", 2, 0.0))
    assert not cluster.jobs["A"].at_front


def _running_pair() -> Cluster:
    """A on its second attempt at revision 1, W waiting after an attempt."""
    cluster = cluster_of(3)
    run(cluster, job("A", 2, 8), Slot("T1", 2, 0, 1))
    commit(cluster, stop(cluster, "A"), at=1.0)
    happen(cluster, ev.Stopped(2.0, "A", 1, 0.0))
    commit(cluster, Launch("A", 2, (Slot("T1", 2, 4, 1),)))
    commit(cluster, resize(cluster, "A", remove=(Slot("T1", 0, 2, 1),)))
    run(cluster, job("W", 2), Slot("T2", 2, 0, 1))
    commit(cluster, stop(cluster, "W"), at=3.0)
    happen(cluster, ev.Stopped(4.0, "W", 1, 0.0))
    return cluster


@pytest.mark.parametrize(
    "late",
    [
        ev.Launched(4.0, "A", 1),
        ev.Launched(4.0, "A", 2),
        ev.Resized(4.0, "A", 1, 1),
        ev.Resized(4.0, "A", 2, 0),
        ev.Vacated(4.0, "A", 1, (Slot("T1", 0, 2, 1),)),
        ev.Stopped(4.0, "A", 1, 77.0),
        ev.Stopped(4.0, "A", 2, 77.0),
        ev.Finished(4.0, "A", 1),
        ev.Failed(4.0, "A", 1),
        ev.Launched(4.0, "W", 1),
        ev.Resized(4.0, "W", 1, 1),
        ev.Vacated(4.0, "W", 1, (Slot("T2", 2, 0, 1),)),
        ev.Stopped(4.0, "W", 1, 77.0),
        ev.Finished(4.0, "W", 1),
        ev.Failed(4.0, "W", 1),
        ev.Finished(4.0, "nobody", 1),
        ev.CancelRequested(4.0, "nobody"),
        ev.LimitsChanged(4.0, "nobody", 1, 2),
        ev.Tick(4.0),
        ev.Refused(4.0, "giant", "too large"),
    ],
)
def test_a_late_report_changes_nothing(late: ev.Event) -> None:
    cluster = _running_pair()
    before = snapshot(cluster)
    evolve(cluster, late)
    assert snapshot(cluster) == before


def _busy() -> Cluster:
    """A(2..4) runs on T1, B(2) waits, C has a claim on T1, I1 is on loan, I2 is recalled with F on it."""
    cluster = cluster_of(2, 3)
    commit(cluster, Loan("I1"), Loan("I2"))
    run(cluster, job("F", 1, fungible=True), Slot("I2", 1, 0, 2))
    commit(cluster, Reclaim("I2", 50.0))
    run(cluster, job("A", 2, 4), Slot("T1", 2, 1, 1))
    run(cluster, job("D", 5), Slot("T1", 5, 0, 1))
    submit(cluster, job("B", 2), job("C", 5))
    commit(cluster, stop(cluster, "D"), claim(cluster, "C", Slot("T1", 5, 0, 1)), at=10.0)
    return cluster


_PLANS: list[tuple[Callable[[Cluster], Step], str]] = [
    (lambda cluster: Launch("nobody", 1, (Slot("T2", 1, 0, 1),)), "no job nobody"),
    (lambda cluster: Launch("A", 2, (Slot("T2", 2, 0, 1),)), "RUNNING to STARTING"),
    (lambda cluster: Launch("B", 2, (Slot("T2", 2, 0, 1),)), "isn't the next"),
    (lambda cluster: Launch("B", 1, (Slot("T9", 2, 0, 1),)), "no server T9"),
    (lambda cluster: Launch("B", 1, (Slot("T1", 2, 0, 1),)), "aren't empty"),
    (lambda cluster: resize(cluster, "D", remove=(Slot("T1", 1, 0, 1),)), "no live attempt"),
    (lambda cluster: resize(cluster, "A", remove=(Slot("T1", 0, 2, 1),)), "no such workers"),
    (lambda cluster: resize(cluster, "A", remove=(Slot("T2", 0, 1, 1),)), "no such workers"),
    (lambda cluster: resize(cluster, "A", add=(Slot("T2", 0, 9, 1),)), "aren't empty"),
    (lambda cluster: stop(cluster, "D"), "no live attempt"),
    (lambda cluster: stop(cluster, "B"), "no live attempt"),
    (lambda cluster: claim(cluster, "A", Slot("T2", 2, 0, 1)), "isn't waiting"),
    (lambda cluster: claim(cluster, "C", Slot("T2", 5, 0, 1)), "isn't waiting"),
    (lambda cluster: claim(cluster, "B", Slot("T9", 2, 0, 1)), "no server T9"),
    (lambda cluster: Loan("I1"), "on-loan to on-loan"),
    (lambda cluster: Loan("T9"), "no server T9"),
    (lambda cluster: Reclaim("I3", 1.0), "owned to reclaiming"),
    (lambda cluster: Return("I1"), "on-loan to owned"),
    (lambda cluster: Return("I2"), "isn't empty"),
]


@pytest.mark.parametrize(("illegal", "words"), _PLANS)
def test_a_plan_with_one_illegal_step_is_not_committed_at_all(
    illegal: Callable[[Cluster], Step], words: str
) -> None:
    cluster = _busy()
    legal: tuple[Step, ...] = (Loan("I3"), resize(cluster, "F", add=()))
    step = illegal(cluster)
    if step == Reclaim("I3", 1.0):
        legal = legal[1:]
    plan = Plan((*legal, step))
    refused(IllegalTransitionError, cluster, words, lambda: evolve(cluster, ev.PlanCommitted(11.0, plan)))


def test_a_plan_has_one_step_for_a_job() -> None:
    cluster = _busy()
    plan = Plan((resize(cluster, "A", remove=(Slot("T1", 0, 1, 1),)), stop(cluster, "A")))
    refused(
        IllegalTransitionError, cluster, "two steps", lambda: evolve(cluster, ev.PlanCommitted(11.0, plan))
    )


def test_two_launches_of_a_plan_cant_share_a_gpu() -> None:
    cluster = _busy()
    submit(cluster, job("G", 7))
    plan = Plan((Launch("B", 1, (Slot("T2", 2, 0, 1),)), Launch("G", 1, (Slot("T2", 7, 0, 1),))))
    refused(
        IllegalTransitionError, cluster, "aren't empty", lambda: evolve(cluster, ev.PlanCommitted(11.0, plan))
    )


@pytest.mark.parametrize(
    ("illegal", "words"),
    [
        (ev.Tick(9.0), "before the cluster's time"),
        (ev.Submitted(10.0, job("A", 1)), "submitted before"),
        (ev.Submitted(10.0, job("Z", 0, 2)), "no range"),
        (ev.Submitted(10.0, job("Z", 4, 2)), "no range"),
        (ev.Submitted(10.0, job("Z", 3, 4, sizes=(2, 4))), "none of its sizes"),
        (ev.LimitsChanged(10.0, "A", 3, 2), "no range"),
        (ev.LimitsChanged(10.0, "A", 0, 2), "no range"),
        (ev.ServerLost(10.0, "T9"), "no server T9"),
        (ev.ServerReturned(10.0, "T9"), "no server T9"),
        (ev.ServerDrained(10.0, "T9", True), "no server T9"),
        (declared(1), "declared once"),
    ],
)
def test_an_event_that_cant_be_raises_and_changes_nothing(illegal: ev.Event, words: str) -> None:
    cluster = _busy()
    if isinstance(illegal, ev.ClusterDeclared):
        cluster.now = 0.0
    refused(IllegalTransitionError, cluster, words, lambda: evolve(cluster, illegal))


def test_two_servers_of_the_same_name_are_refused() -> None:
    cluster = Cluster(lambda job, now_s: ())
    twice = declared(1).servers * 2
    refused(
        IllegalTransitionError,
        cluster,
        "same name",
        lambda: evolve(cluster, ev.ClusterDeclared(0.0, twice)),
    )
