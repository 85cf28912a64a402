"""Whose fault is a failure: the server's or the job's? And who has fallen silent?

A launch that fails at once may be either's. The server rests for a moment, so that the next attempt goes
elsewhere if it can. A server on which several launches of several jobs failed at once is set apart
(quarantined) until an operator has looked at it. A job that has failed on several servers has itself to
blame: none of its failures counts against a server, and its own count will fail it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from aryl.core.cluster import Cluster
from aryl.core.events import Event, HealthChanged, Stalled
from aryl.core.model import Health, JobState

# How long a server rests after a launch has failed there at once.
REST_S = 5.0


@dataclass(frozen=True, slots=True)
class QuarantineRule:
    """`failures` launches of at least `jobs` jobs, each failed within `within_s` seconds."""

    within_s: float = 2.0
    failures: int = 3
    jobs: int = 2
    rest_s: float = REST_S


@dataclass(slots=True)
class Troubles:
    """What is remembered of failures. `now_s` is on the cluster's clock throughout."""

    rule: QuarantineRule = field(default_factory=QuarantineRule)
    _failed: dict[str, deque[str]] = field(default_factory=dict)  # the last jobs that failed, by server
    _failed_on: dict[str, set[str]] = field(default_factory=dict)  # servers, by job
    _resting: dict[str, float] = field(default_factory=dict)  # until when

    def failed(
        self, cluster: Cluster, servers: tuple[str, ...], job_id: str, ran_s: float, now_s: float
    ) -> Iterator[Event]:
        """A gang failed because of what happened on `servers`."""
        if ran_s > self.rule.within_s:
            return
        its_own = self._has_itself_to_blame(cluster, servers, job_id)
        for server_id in servers:
            # One that rests can still fail launches that were made before.
            if cluster.server_by_id[server_id].health not in (Health.HEALTHY, Health.RESTING):
                continue
            last = self._failed.setdefault(server_id, deque(maxlen=self.rule.failures))
            if not its_own:
                last.append(job_id)
            if len(last) == self.rule.failures and len(set(last)) >= self.rule.jobs:
                last.clear()
                yield HealthChanged(now_s, server_id, Health.QUARANTINED)
            else:
                self._resting[server_id] = now_s + self.rule.rest_s
                yield HealthChanged(now_s, server_id, Health.RESTING)

    def _has_itself_to_blame(self, cluster: Cluster, servers: tuple[str, ...], job_id: str) -> bool:
        for known in [known for known in self._failed_on if known not in cluster.jobs]:
            del self._failed_on[known]
        where = self._failed_on.setdefault(job_id, set())
        where.update(servers)
        if len(where) < self.rule.failures:
            return False
        for server_id, last in self._failed.items():
            others = [other for other in last if other != job_id]
            self._failed[server_id] = deque(others, maxlen=self.rule.failures)
        return True

    def went_well(self, servers: Iterator[str]) -> None:
        """A job ended well on these servers."""
        for server_id in servers:
            self._failed.pop(server_id, None)

    def rested(self, cluster: Cluster, now_s: float) -> Iterator[Event]:
        """Servers that have rested long enough."""
        for server_id, until_s in tuple(self._resting.items()):
            if now_s >= until_s:
                del self._resting[server_id]
                if cluster.server_by_id[server_id].health is Health.RESTING:
                    yield HealthChanged(now_s, server_id, Health.HEALTHY)

    def next_s(self) -> float:
        """When a server will have rested long enough; inf if none rests."""
        return min(self._resting.values(), default=float("inf"))

    def take_over(self, cluster: Cluster, now_s: float) -> None:
        """After a restart: who rests now rests for a moment longer."""
        for server in cluster.servers:
            if server.health is Health.RESTING:
                self._resting[server.spec.server_id] = now_s + self.rule.rest_s


@dataclass(slots=True)
class Watchdog:
    """Finds jobs that used to report and have fallen silent for `patience_s`."""

    patience_s: float
    _heard_s: dict[tuple[str, int], float] = field(default_factory=dict)

    def heard(self, job_id: str, attempt: int, now_s: float) -> None:
        """A job has reported."""
        self._heard_s[job_id, attempt] = now_s

    def changed(self, job_id: str, attempt: int, now_s: float) -> None:
        """A job was resized, which takes a while."""
        if (job_id, attempt) in self._heard_s:
            self._heard_s[job_id, attempt] = now_s

    def forget(self, job_id: str, attempt: int) -> None:
        """An attempt is over."""
        self._heard_s.pop((job_id, attempt), None)

    def silent(self, cluster: Cluster, now_s: float) -> Iterator[Event]:
        """Jobs that have been silent for too long."""
        for (job_id, attempt), heard_s in tuple(self._heard_s.items()):
            if now_s - heard_s < self.patience_s:
                continue
            job = cluster.live.get(job_id)
            if job is None or job.attempt != attempt:
                del self._heard_s[job_id, attempt]
            elif job.state is JobState.RUNNING and job.trouble is None:
                self._heard_s[job_id, attempt] = now_s
                yield Stalled(now_s, job_id, attempt)

    def next_s(self) -> float:
        """When somebody will have been silent for too long, at the earliest."""
        return min(self._heard_s.values(), default=float("inf")) + self.patience_s
