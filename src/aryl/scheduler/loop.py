"""The loop: poll -> evolve each event -> policy -> check -> diff -> journal the plan -> apply.

All events of one instant are evolved first; then come passes until one plans nothing (a plan may be answered
at the same instant, and those answers are polled before the next pass). The loop never sleeps and doesn't
know whose time it runs on.

A policy that errs stops the loop, unless somebody takes note of its defects: then the decision is skipped,
what has to follow from the state is still done, and the policy is asked again at the next event, or after a
while. A defect is found before anything of the decision is written, so the state is as sound as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import assert_never

from aryl.core import upkeep
from aryl.core.check import check
from aryl.core.cluster import Cluster
from aryl.core.diff import diff
from aryl.core.events import QUIET, Event, PlanCommitted, Tick
from aryl.core.evolve import evolve
from aryl.core.plan import Launch, Loan, Plan, Reclaim, Release, Reserve, Resize, Return, Step, Stop
from aryl.core.plan_edges import refuse_illegal
from aryl.errors import DecisionError
from aryl.policies.policy import Policy
from aryl.scheduler.ports import ClusterDriver, Journal, Watcher

# A plan may be answered at the same instant, and the answer may call for another; a long chain of them is a
# quarrel of two rules that undo each other. The longest honest chains seen are below ten.
MOST_PLANS_AT_ONCE = 200
PLANS_NAMED = 4

# A policy that has erred is asked again after so long, if nothing happens before: it may have been the time.
RETRY_S = 60.0


class Loop:
    """Drives one cluster with one policy. `policy_wall_s` is the time spent deciding, `last_pass_s` that of
    the last whole pass: upkeep, policy, check, diff and evolve, without the journal's disk and the driver
    (for reports, never for decisions). `on_defect` is told of the policy's errors, which raise without it.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        driver: ClusterDriver,
        *,
        journal: Journal | None = None,
        watchers: Sequence[Watcher] = (),
        on_defect: Callable[[Exception], None] | None = None,
    ) -> None:
        self.cluster, self.policy, self.driver = cluster, policy, driver
        self._journal = journal
        self._on_defect = on_defect
        self._watchers = tuple(watchers)
        self._wake_at_s = float("inf")
        self._planned_s = float("-inf")
        self._plans_now: list[Plan] = []
        self.events = 0
        self.passes = 0
        self.policy_wall_s = 0.0
        self.last_pass_s = self.longest_pass_s = self._outside_s = 0.0

    def record(self, event: Event) -> None:
        """Let one fact change the cluster, and journal it. One that can't be raises and is not journaled."""
        evolve(self.cluster, event)
        if self._journal is not None:
            self._journal.append(event)
        self.events += 1
        for watcher in self._watchers:
            watcher.saw(event, self.cluster)

    def step(self) -> bool:
        """One turn: take in what happened at the next instant, and decide. False when nothing will ever
        happen again.
        """
        polled = self.driver.poll(self._wake_at_s)
        if polled is None:
            return False
        if not polled:
            polled = (Tick(self._wake_at_s),)
        wakes = False
        for event in polled:
            self.record(event)
            wakes = wakes or not isinstance(event, QUIET)
        if self._journal is not None:
            self._journal.flush()
        if wakes:
            self.decide()
        return True

    def decide(self) -> None:
        """Look at the state: first what has to follow from it, then what the policy wants. Where that has
        cost somebody a claim, the policy looks again: the claimant waits again, and may fit elsewhere.
        """
        began_s, self._outside_s = perf_counter(), 0.0
        while self._pass():
            pass
        self.last_pass_s = perf_counter() - began_s - self._outside_s
        self.longest_pass_s = max(self.longest_pass_s, self.last_pass_s)
        self.passes += 1

    def _pass(self) -> bool:
        """One pass; whether its plan has dropped a claim."""
        self._keep_up()
        plan = self._wanted()
        if not plan.steps:
            return False
        dropped = self.cluster.claims_dropped
        self._commit(plan)
        # An idle server that has just been asked back is empty already.
        self._keep_up()
        return self.cluster.claims_dropped > dropped

    def _wanted(self) -> Plan:
        """What the policy wants, checked, as a plan; nothing if it errs and somebody takes note of that."""
        if self._on_defect is None:
            return self._decided()
        try:
            plan = self._decided()
            refuse_illegal(self.cluster, plan)
        except Exception as error:
            self._on_defect(error)
            self._wake_at_s = min(self.cluster.now + RETRY_S, upkeep.wake_at(self.cluster))
            return upkeep.EMPTY
        return plan

    def _decided(self) -> Plan:
        cluster = self.cluster
        began_s = perf_counter()
        decision = self.policy.decide(cluster)
        self.policy_wall_s += perf_counter() - began_s
        if decision.wake_at_s <= cluster.now:
            raise DecisionError(
                f"{self.policy.name} asks at {cluster.now} s to be woken at {decision.wake_at_s} s, "
                "which is not in the future"
            )
        self._wake_at_s = min(decision.wake_at_s, upkeep.wake_at(cluster))
        if decision.empty:
            return upkeep.EMPTY
        check(cluster, decision)
        plan = diff(cluster, decision)
        self._count(plan)
        return plan

    def run(self) -> None:
        """Go on until nothing will ever happen again."""
        while self.step():
            pass

    def _keep_up(self) -> None:
        """Do what is due, and what is due then: a job that was in trouble may have to leave a server too."""
        while (plan := upkeep.due(self.cluster)).steps:
            self._count(plan)
            self._commit(plan)

    def _count(self, plan: Plan) -> None:
        """Raise DecisionError if one instant has seen too many plans."""
        now_s = self.cluster.now
        if now_s > self._planned_s:
            self._planned_s = now_s
            self._plans_now.clear()
        self._plans_now.append(plan)
        if len(self._plans_now) > MOST_PLANS_AT_ONCE:
            last = "; ".join(_in_words(one) for one in self._plans_now[-PLANS_NAMED:])
            raise DecisionError(
                f"{self.policy.name} doesn't come to rest at {now_s} s: after {MOST_PLANS_AT_ONCE} plans at "
                f"one instant the last ones are: {last}"
            )

    def _commit(self, plan: Plan) -> None:
        self.record(PlanCommitted(self.cluster.now, plan))
        # What is in the journal can be repeated after a crash; what was done without it would be forgotten.
        began_s = perf_counter()
        if self._journal is not None:
            self._journal.flush()
        self.driver.apply(plan, self.cluster)
        self._outside_s += perf_counter() - began_s


def _in_words(plan: Plan) -> str:
    return ", ".join(_step_in_words(step) for step in plan.steps)


def _step_in_words(step: Step) -> str:
    what = type(step).__name__.lower()
    match step:
        case Launch():
            return f"{what} {step.job_id}"
        case Resize() | Stop():
            return f"{what} {step.job_id} ({step.cause.value})"
        case Reserve():
            return f"{what} for {step.claim.job_id} ({step.claim.cause.value})"
        case Release():
            return f"{what} claim {step.claim_id}"
        case Loan() | Reclaim() | Return():
            return f"{what} {step.server_id}"
        case _:
            assert_never(step)
