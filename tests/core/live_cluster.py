"""A small cluster under a policy, whose world is played by hand: facts are told, and plans are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.core.helpers import declared

from aryl.core import events as ev
from aryl.core import upkeep
from aryl.core.cluster import Cluster, Job
from aryl.core.invariants import verify
from aryl.core.model import JobSpec
from aryl.core.plan import Plan, Step
from aryl.core.server import Server
from aryl.policies.catalogue import parse_policy
from aryl.scheduler.loop import Loop


class Live:
    """A loop that is stepped by `tell` and `wait_until`; both return the steps that were planned."""

    def __init__(self, policy: str, training: int = 1, inference: int = 3, **rules: Any) -> None:
        self.policy = parse_policy(policy)
        self._told: list[ev.Event] = []
        self._steps: list[Step] = []
        self.deadline_s = float("inf")
        self.loop = Loop(Cluster(self.policy.order), self.policy, self)
        self.loop.record(declared(training, inference, **rules))

    @property
    def cluster(self) -> Cluster:
        return self.loop.cluster

    def poll(self, deadline_s: float) -> Sequence[ev.Event]:
        self.deadline_s = deadline_s
        told, self._told = self._told, []
        return told

    def apply(self, plan: Plan, cluster: Cluster) -> None:
        self._steps += plan.steps

    def tell(self, *events: ev.Event) -> list[Step]:
        """Facts of one instant, and a pass; a second pass would plan nothing."""
        self._told = list(events)
        self._steps = []
        self.loop.step()
        verify(self.cluster)
        assert not upkeep.due(self.cluster).steps
        assert self.policy.decide(self.cluster).empty
        return self._steps

    def wake(self) -> list[Step]:
        """Let time pass until the loop wants to be woken."""
        return self.tell()

    def server(self, server_id: str) -> Server:
        return self.cluster.server_by_id[server_id]

    def job(self, job_id: str) -> Job:
        return self.cluster.jobs[job_id]

    def submit(self, *specs: JobSpec) -> list[Step]:
        """Submit jobs and have whatever is launched running."""
        now = self.cluster.now
        steps = self.tell(*(ev.Submitted(now, spec) for spec in specs))
        for job in self.cluster.live.values():
            self.tell(ev.Launched(now, job.spec.job_id, job.attempt))
        return steps

    def where(self) -> dict[str, str]:
        """How each inference server stands."""
        return {
            server.spec.server_id: server.tenure.value
            for server in self.cluster.servers
            if server.spec.server_id.startswith("I")
        }
