"""What the loop does about a policy that errs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.core.helpers import declared, job

from aryl.core import events as ev
from aryl.core.cluster import Cluster, Job
from aryl.core.decision import NOTHING, Decision, Start
from aryl.core.model import JobSpec, Slot
from aryl.core.pending import QueueKey
from aryl.core.plan import Plan, Stop
from aryl.errors import DecisionError
from aryl.policies.reasons import Wait, WaitReason
from aryl.scheduler.loop import RETRY_S, Loop
from aryl.scheduler.ports import ClusterDriver

WELL = Decision((Start("a", (Slot("T1", 2, 0, 1),)),))


class Policy:
    """Decides what it was told to, one after the other, and then nothing more."""

    name = "scripted"

    def __init__(self, *decisions: Callable[[], Decision]) -> None:
        self._decisions = list(decisions)

    def decide(self, _cluster: Cluster) -> Decision:
        return self._decisions.pop(0)() if self._decisions else NOTHING

    def order(self, _job: Job, _now_s: float) -> QueueKey:
        return ()

    def could_ever_start(self, _cluster: Cluster, _spec: JobSpec) -> bool:
        return True

    def explain(self, _cluster: Cluster, job_id: str) -> WaitReason:
        return WaitReason(job_id, Wait.NEXT_PASS)


class World(ClusterDriver):
    """Says what it was told to, one fact at a time, and keeps the plans."""

    def __init__(self, *facts: ev.Event) -> None:
        self._facts = list(facts)
        self.plans: list[Plan] = []

    def poll(self, deadline_s: float) -> Sequence[ev.Event] | None:
        if self._facts and self._facts[0].at <= deadline_s:
            return (self._facts.pop(0),)
        return () if deadline_s < float("inf") else None

    def apply(self, plan: Plan, _cluster: Cluster) -> None:
        self.plans.append(plan)


def _loop(policy: Policy, world: World, defects: list[Exception] | None = None) -> Loop:
    on_defect = None if defects is None else defects.append
    loop = Loop(Cluster(policy.order), policy, world, on_defect=on_defect)
    loop.record(declared(1))
    return loop


def _too_few() -> Decision:
    return Decision((Start("a", (Slot("T1", 1, 0, 1),)),))


def _overdue() -> Decision:
    return Decision(wake_at_s=0.0)


def _nowhere() -> Decision:
    return Decision((Start("a", (Slot("T7", 2, 0, 1),)),))


def _broken() -> Decision:
    raise ZeroDivisionError("a slip of the policy's own")


DEFECTS = (_too_few, _overdue, _nowhere, _broken)


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_the_policy_stops_a_loop_whose_defects_nobody_notes(
    defect: Callable[[], Decision],
) -> None:
    loop = _loop(Policy(defect), World(ev.Submitted(0.0, job("a", 2))))
    with pytest.raises((DecisionError, ZeroDivisionError)):
        loop.run()


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_that_is_noted_costs_one_decision(defect: Callable[[], Decision]) -> None:
    defects: list[Exception] = []
    world = World(ev.Submitted(0.0, job("a", 2)), ev.ServerReturned(7.0, "T1"))
    loop = _loop(Policy(defect, lambda: WELL), world, defects)
    assert loop.step()
    assert len(defects) == 1
    assert "a" in loop.cluster.pending
    assert loop.step()
    assert loop.cluster.now == 7.0
    assert "a" in loop.cluster.live
    assert len(defects) == 1


def test_after_a_defect_the_policy_is_asked_again_even_if_nothing_happens() -> None:
    defects: list[Exception] = []
    loop = _loop(Policy(_broken, _broken, lambda: WELL), World(ev.Submitted(3.0, job("a", 2))), defects)
    loop.run()
    assert len(defects) == 2
    assert loop.cluster.jobs["a"].launched_s == 3.0 + 2 * RETRY_S


def test_what_has_to_follow_from_the_state_is_done_whatever_the_policy_does() -> None:
    world = World(ev.Submitted(0.0, job("a", 2)), ev.Launched(1.0, "a", 1), ev.CancelRequested(2.0, "a"))
    defects: list[Exception] = []
    loop = _loop(Policy(lambda: WELL, _broken), world, defects)
    for _ in range(3):
        loop.step()
    assert len(defects) == 1
    assert [type(step) for plan in world.plans for step in plan.steps][-1] is Stop
