"""What a job says of itself: how far it is, how long it takes, how its speed depends on its size."""

from __future__ import annotations

import pytest
from tests.core.helpers import cluster_of, commit, happen, job, refused, resize, run, stop, submit

from aryl.core import events as ev
from aryl.core.check import check
from aryl.core.cluster import Cluster
from aryl.core.decision import Decision
from aryl.core.evolve import evolve
from aryl.core.invariants import verify
from aryl.core.model import ServerSpec, Slot, Tenure
from aryl.core.plan import Cause, Launch, Loan, Plan, Reclaim
from aryl.core.speedup import Amdahl
from aryl.errors import DecisionError, IllegalTransitionError
from aryl.policies.catalogue import parse_policy


def test_what_a_job_has_done_and_saved_is_what_it_says() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 8, estimate_s=100.0), Slot("T1", 8, 0, 1))
    happen(cluster, ev.Learned(10.0, "A", 1, 40.0, 30.0))
    progress = cluster.jobs["A"].progress
    assert (progress.done_at(10.0), progress.saved_at(10.0), progress.lost_at(15.0)) == (40.0, 30.0, 15.0)
    assert (cluster.jobs["A"].remaining_s(15.0), cluster.jobs["A"].finishes_in_s(15.0)) == (55.0, 55.0)


def test_a_job_that_says_it_takes_longer_has_more_left() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 8), Slot("T1", 8, 0, 1))
    assert cluster.jobs["A"].remaining_s(10.0) is None
    happen(cluster, ev.Learned(10.0, "A", 1, 5.0, 5.0, estimate_s=205.0))
    assert cluster.jobs["A"].remaining_s(10.0) == 200.0
    happen(cluster, ev.Learned(20.0, "A", 1, 15.0, 5.0))
    assert cluster.jobs["A"].remaining_s(20.0) == 190.0


def test_a_job_that_claims_to_have_saved_more_than_it_has_done_has_saved_that() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 8), Slot("T1", 8, 0, 1))
    happen(cluster, ev.Learned(10.0, "A", 1, 40.0, 90.0))
    assert cluster.jobs["A"].progress.lost_at(10.0) == 0.0


def test_what_a_job_learns_of_its_speed_changes_its_rate_from_then_on() -> None:
    cluster = cluster_of()
    run(cluster, job("E", 1, 8, estimate_s=1000.0), Slot("T1", 1, 7, 1))
    assert cluster.jobs["E"].progress.rate == 8.0
    happen(cluster, ev.Learned(10.0, "E", 1, 80.0, 0.0, speedup=Amdahl(0.5)))
    found = cluster.jobs["E"]
    assert found.progress.rate == Amdahl(0.5)(8) / Amdahl(0.5)(1)
    assert found.progress.done_at(20.0) == 80.0 + 10.0 * found.progress.rate
    assert found.spec.estimate_s == 1000.0


def test_a_job_that_stands_still_learns_without_moving() -> None:
    cluster = cluster_of()
    run(cluster, job("E", 2, 8), Slot("T1", 2, 0, 1))
    commit(cluster, resize(cluster, "E", add=(Slot("T1", 0, 6, 1),)))
    happen(cluster, ev.Learned(5.0, "E", 1, 7.0, 7.0, 100.0, Amdahl(0.5)))
    progress = cluster.jobs["E"].progress
    assert (progress.rate, progress.done_at(50.0)) == (0.0, 7.0)
    happen(cluster, ev.Resized(60.0, "E", 1, 1))
    assert progress.rate == Amdahl(0.5)(8) / Amdahl(0.5)(2)


def test_the_queue_counts_with_what_a_job_has_said_once_it_waits_again() -> None:
    cluster = Cluster(parse_policy("sjf").order)
    evolve(cluster, ev.ClusterDeclared(0.0, cluster_specs()))
    run(cluster, job("A", 8, estimate_s=100.0), Slot("T1", 8, 0, 1))
    submit(cluster, job("B", 8, estimate_s=150.0))
    happen(cluster, ev.Learned(10.0, "A", 1, 10.0, 10.0, estimate_s=500.0))
    commit(cluster, stop(cluster, "A", Cause.RECLAIM))
    happen(cluster, ev.Stopped(11.0, "A", 1, 10.0))
    assert [entry.job_id for entry in cluster.pending] == ["B", "A"]
    assert cluster.jobs["A"].remaining_s(11.0) == 490.0


def cluster_specs() -> tuple[ServerSpec, ...]:
    return tuple(server.spec for server in cluster_of().servers)


def test_what_an_older_attempt_says_changes_nothing() -> None:
    cluster = cluster_of()
    run(cluster, job("A", 8, estimate_s=100.0), Slot("T1", 8, 0, 1))
    commit(cluster, stop(cluster, "A"))
    happen(cluster, ev.Stopped(5.0, "A", 1, 5.0), ev.Learned(6.0, "A", 1, 70.0, 70.0, 900.0))
    commit(cluster, Launch("A", 2, (Slot("T1", 8, 0, 1),)))
    happen(cluster, ev.Learned(7.0, "A", 1, 70.0, 70.0, 900.0, Amdahl(0.9)))
    found = cluster.jobs["A"]
    assert (found.progress.done_at(7.0), found.spec.estimate_s, found.spec.speedup(8)) == (5.0, 100.0, 8.0)


# --- what can't be ---


@pytest.mark.parametrize("at", [float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(at: float) -> None:
    cluster = cluster_of()
    refused(IllegalTransitionError, cluster, "is no time", lambda: evolve(cluster, ev.Tick(at)))


@pytest.mark.parametrize("tenure", [Tenure.OWNED, Tenure.RECLAIMING])
def test_a_plan_that_places_workers_on_a_server_that_isnt_on_loan_is_refused(tenure: Tenure) -> None:
    cluster = cluster_of(1, 1)
    submit(cluster, job("A", 1, fungible=True))
    if tenure is Tenure.RECLAIMING:
        commit(cluster, Loan("I1"), Reclaim("I1", 9.0))
    plan = Plan((Launch("A", 1, (Slot("I1", 1, 0, 2),)),))
    refused(
        IllegalTransitionError,
        cluster,
        f"can't be placed on I1, which is {tenure.value}",
        lambda: evolve(cluster, ev.PlanCommitted(0.0, plan)),
    )


def test_a_server_may_be_lent_and_used_in_one_plan_but_not_reclaimed_and_used() -> None:
    cluster = cluster_of(1, 1)
    submit(cluster, job("A", 1, fungible=True), job("B", 1, fungible=True))
    commit(cluster, Loan("I1"), Launch("A", 1, (Slot("I1", 1, 0, 2),)))
    plan = Plan((Reclaim("I1", 9.0), Launch("B", 1, (Slot("I1", 1, 0, 2),))))
    refused(
        IllegalTransitionError,
        cluster,
        "which is reclaiming",
        lambda: evolve(cluster, ev.PlanCommitted(0.0, plan)),
    )


def test_a_policy_may_not_withdraw_the_reclaim_of_a_server_that_is_kept_at_home() -> None:
    cluster = cluster_of(1, 1)
    commit(cluster, Loan("I1"))
    run(cluster, job("A", 1, fungible=True), Slot("I1", 1, 0, 2))
    happen(cluster, ev.ReclaimRequested(1.0, "I1", 600.0))
    commit(cluster, Reclaim("I1", 600.0))
    verify(cluster)
    refused(DecisionError, cluster, "takes nothing new", lambda: check(cluster, Decision(lend=("I1",))))
