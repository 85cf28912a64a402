"""A decision as steps: their order, and what becomes a launch or a claim."""

from __future__ import annotations

from tests.core.helpers import claim, cluster_of, commit, happen, job, run, stop, submit

from aryl.core import events as ev
from aryl.core import upkeep
from aryl.core.cluster import Cluster
from aryl.core.decision import NOTHING, Decision, Preemption, Recall, Rescale, Start
from aryl.core.diff import diff
from aryl.core.model import Slot
from aryl.core.plan import (
    Cause,
    Claim,
    Launch,
    Loan,
    Plan,
    Reclaim,
    Release,
    Reserve,
    Resize,
    Stop,
    Weighed,
)


def _cluster() -> Cluster:
    cluster = cluster_of(3, 2)
    commit(cluster, Loan("I1"))
    run(cluster, job("E", 2, 6), Slot("T1", 2, 2, 1))
    run(cluster, job("G", 1, 6), Slot("T1", 1, 0, 1))
    run(cluster, job("D", 8), Slot("T2", 8, 0, 1))
    submit(cluster, job("W", 4), job("P", 6), job("Q", 3))
    return cluster


def test_steps_come_in_the_order_in_which_they_make_room() -> None:
    cluster = _cluster()
    run(cluster, job("U", 2), Slot("T3", 2, 0, 1))
    submit(cluster, job("V", 2))
    commit(cluster, stop(cluster, "U"), claim(cluster, "V", Slot("T3", 2, 0, 1)))
    weighed = (Weighed("D", 3.0),)
    plan = diff(
        cluster,
        Decision(
            starts=(Start("P", (Slot("T2", 6, 0, 1),), Cause.PRIORITY), Start("W", (Slot("T3", 4, 0, 1),))),
            rescales=(
                Rescale("G", (Slot("T1", 0, 1, 1),), (), Cause.GROWTH),
                Rescale("E", (), (Slot("T1", 0, 2, 1),), Cause.BASE_DEMAND),
            ),
            preemptions=(Preemption("D", Cause.PRIORITY, "P", True, weighed, 2),),
            lend=("I2",),
            recall=(Recall("I1", 30.0, weighed),),
            release=(0,),
        ),
    )
    assert plan.steps == (
        Release(0, Cause.WITHDRAWN),
        Reclaim("I1", 30.0, weighed),
        Loan("I2"),
        Stop("D", 1, Cause.PRIORITY, True, "P", weighed, 2),
        Resize("E", 1, 1, (), (Slot("T1", 0, 2, 1),), Cause.BASE_DEMAND),
        Reserve(Claim(1, "P", (Slot("T2", 6, 0, 1),), Cause.PRIORITY)),
        Launch("W", 1, (Slot("T3", 4, 0, 1),)),
        Resize("G", 1, 1, (Slot("T1", 0, 1, 1),), (), Cause.GROWTH),
    )


def test_nothing_gives_an_empty_plan() -> None:
    assert diff(_cluster(), NOTHING) == Plan(())


def test_a_start_on_free_gpus_is_launched_and_one_on_occupied_gpus_claims() -> None:
    cluster = _cluster()
    launched = diff(cluster, Decision(starts=(Start("W", (Slot("T3", 4, 0, 1),)),)))
    assert launched.steps == (Launch("W", 1, (Slot("T3", 4, 0, 1),)),)
    partly = (Slot("T2", 2, 0, 1), Slot("T3", 2, 0, 1))
    claimed = diff(
        cluster,
        Decision(starts=(Start("W", partly),), preemptions=(Preemption("D", Cause.PRIORITY, "W"),)),
    )
    assert claimed.steps[-1] == Reserve(Claim(0, "W", partly, Cause.BASE_DEMAND))


def test_of_two_starts_on_the_same_free_gpus_the_first_is_launched() -> None:
    cluster = _cluster()
    starts = (Start("P", (Slot("T3", 6, 0, 1),)), Start("Q", (Slot("T3", 2, 0, 1), Slot("T2", 1, 0, 1))))
    plan = diff(cluster, Decision(starts=starts, preemptions=(Preemption("D", Cause.PRIORITY, "Q"),)))
    assert [type(step).__name__ for step in plan.steps] == ["Stop", "Reserve", "Launch"]


def test_claims_are_numbered_on() -> None:
    cluster = _cluster()
    starts = (Start("P", (Slot("T2", 6, 0, 1),)), Start("Q", (Slot("T2", 2, 0, 1), Slot("T3", 1, 0, 1))))
    plan = diff(cluster, Decision(starts=starts, preemptions=(Preemption("D", Cause.PRIORITY, "P"),)))
    assert [step.claim.claim_id for step in plan.steps if isinstance(step, Reserve)] == [0, 1]
    commit(cluster, *plan.steps)
    assert cluster.claims_made == 2


def test_preempt_now_place_later() -> None:
    """Nobody gets the victim's GPUs before it has gone; then the claimant starts without a new decision."""
    cluster = _cluster()
    decision = Decision(
        starts=(Start("P", (Slot("T2", 6, 0, 1),), Cause.PRIORITY),),
        preemptions=(Preemption("D", Cause.PRIORITY, "P"),),
    )
    commit(cluster, *diff(cluster, decision).steps)
    assert cluster.server_by_id["T2"].free == 0
    assert upkeep.due(cluster) == Plan(())
    happen(cluster, ev.Stopped(40.0, "D", 1, 0.0))
    assert cluster.server_by_id["T2"].free == 2
    assert upkeep.due(cluster) == Plan((Launch("P", 1, (Slot("T2", 6, 0, 1),)),))
    commit(cluster, *upkeep.due(cluster).steps)
    assert upkeep.due(cluster) == Plan(())
    assert cluster.jobs["P"].workers == 6
