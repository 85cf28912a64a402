"""Runs a case and watches the state after every event, the policy at every call, both at every instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.property.accounts import Accounts
from tests.property.snapshot import snapshot
from tests.property.standards import base_demand_is_not_held_back, limits_on_lending_are_kept
from tests.strategies import Case

from aryl.core import events as ev
from aryl.core.cluster import Cluster, Job
from aryl.core.decision import Decision
from aryl.core.model import JobSpec
from aryl.core.pending import QueueKey
from aryl.core.plan import Plan
from aryl.policies.catalogue import parse_policy
from aryl.policies.policy import Policy
from aryl.policies.reasons import WaitReason
from aryl.scheduler.journal import MemoryJournal
from aryl.scheduler.loop import Loop
from aryl.sim.audit import Audit
from aryl.sim.driver import SimDriver


class Unmoved:
    """A policy that is checked to leave the cluster as it was."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.name = policy.name
        self.asked_s = float("-inf")

    def order(self, job: Job, now_s: float) -> QueueKey:
        return self.policy.order(job, now_s)

    def decide(self, cluster: Cluster) -> Decision:
        self.asked_s = cluster.now
        before = snapshot(cluster)
        decision = self.policy.decide(cluster)
        assert snapshot(cluster) == before, "the policy changed the cluster"
        return decision

    def could_ever_start(self, cluster: Cluster, spec: JobSpec) -> bool:
        return self.policy.could_ever_start(cluster, spec)

    def explain(self, cluster: Cluster, job_id: str) -> WaitReason:
        before = snapshot(cluster)
        reason = self.policy.explain(cluster, job_id)
        assert snapshot(cluster) == before, "explaining changed the cluster"
        return reason


@dataclass
class Settling:
    """A driver that looks at the state whenever an instant is over, before the next one begins."""

    driver: SimDriver
    policy: Unmoved
    loop: Loop | None = None
    seen: list[Any] = field(default_factory=list)

    def poll(self, deadline_s: float) -> Sequence[ev.Event] | None:
        polled = self.driver.poll(deadline_s)
        assert self.loop is not None
        cluster = self.loop.cluster
        next_s = polled[0].at if polled else deadline_s
        # Where no pass was due nothing has changed, but an order that depends on the time may have.
        if (polled is None or next_s > cluster.now) and self.policy.asked_s == cluster.now:
            self.settled(cluster)
        return polled

    def apply(self, plan: Plan, cluster: Cluster) -> None:
        self.driver.apply(plan, cluster)

    def settled(self, cluster: Cluster) -> None:
        again = self.policy.decide(cluster)
        assert again.empty, f"at {cluster.now} s nothing happened, and yet: {again}"
        base_demand_is_not_held_back(self.policy.policy, cluster)
        limits_on_lending_are_kept(self.policy.policy, cluster)


@dataclass
class Ran:
    """What came of it."""

    loop: Loop
    events: list[ev.Event]
    accounts: Accounts
    policy: Policy


def watched_run(case: Case, policy_name: str) -> Ran:
    """Run a case under a policy with all checks on."""
    policy = Unmoved(parse_policy(policy_name))
    driver = case.driver(policy)
    settling = Settling(driver, policy)
    journal, accounts = MemoryJournal(), Accounts(case.durations_s)

    class Books:
        def saw(self, event: ev.Event, cluster: Cluster) -> None:
            accounts.enter(event)
            assert set(accounts.claims) == set(cluster.claims)

    loop = Loop(
        Cluster(policy.order),
        policy,
        settling,
        journal=journal,
        watchers=[Audit(foresight=policy_name != "opportunistic"), Books()],
    )
    settling.loop = loop
    loop.record(case.declared)
    _drive(loop, driver)
    return Ran(loop, journal.events, accounts, policy)


def plain_run(case: Case, policy_name: str) -> list[ev.Event]:
    """Run a case under a policy without any checks, as users do."""
    policy = parse_policy(policy_name)
    driver, journal = case.driver(policy), MemoryJournal()
    loop = Loop(Cluster(policy.order), policy, driver, journal=journal)
    loop.record(case.declared)
    _drive(loop, driver)
    return journal.events


def _drive(loop: Loop, driver: SimDriver) -> None:
    turns = 0
    while loop.step():
        turns += 1
        assert turns < 20_000, "the simulation doesn't come to an end"
        if driver.quiet and not loop.cluster.jobs:
            break
