"""The loop: poll -> evolve each event -> policy -> check -> diff -> journal the plan -> apply.

All events of one instant are evolved first; then come passes until one plans nothing (a plan may be answered
at the same instant, and those answers are polled before the next pass). The loop never sleeps and doesn't
know whose time it runs on.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from aryl.core import upkeep
from aryl.core.check import check
from aryl.core.cluster import Cluster
from aryl.core.diff import diff
from aryl.core.events import QUIET, Event, PlanCommitted, Tick
from aryl.core.evolve import evolve
from aryl.core.plan import Plan
from aryl.policies.policy import Policy
from aryl.scheduler.ports import ClusterDriver, Journal, Watcher


class Loop:
    """Drives one cluster with one policy. `policy_wall_s` is the time spent deciding (for reports, never for
    decisions).
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        driver: ClusterDriver,
        *,
        journal: Journal | None = None,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self.cluster, self.policy, self.driver = cluster, policy, driver
        self._journal = journal
        self._watchers = tuple(watchers)
        self._wake_at_s = float("inf")
        self.events = 0
        self.passes = 0
        self.policy_wall_s = 0.0

    def record(self, event: Event) -> None:
        """Journal one fact and let it change the cluster."""
        if self._journal is not None:
            self._journal.append(event)
        evolve(self.cluster, event)
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
        if wakes:
            self.decide()
        return True

    def decide(self) -> None:
        """One pass over the state: first what has to follow from it, then what the policy wants."""
        self._commit(upkeep.due(self.cluster))
        began_s = perf_counter()
        decision = self.policy.decide(self.cluster)
        self.policy_wall_s += perf_counter() - began_s
        self.passes += 1
        self._wake_at_s = decision.wake_at_s
        if not decision.empty:
            check(self.cluster, decision)
            self._commit(diff(self.cluster, decision))

    def run(self) -> None:
        """Go on until nothing will ever happen again."""
        while self.step():
            pass

    def _commit(self, plan: Plan) -> None:
        if plan.steps:
            self.record(PlanCommitted(self.cluster.now, plan))
            self.driver.apply(plan, self.cluster)
