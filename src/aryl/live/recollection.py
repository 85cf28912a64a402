"""What the journal says besides the state, for a daemon that takes over: who used to report, and which
servers went home a short time ago without a word that they serve again.

The state has no place for either. But a job that falls silent while nobody listens has to be missed, and a
hook that was about to put a server back into service may have died with the last daemon.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aryl.core.cluster import Cluster
from aryl.core.events import BackInService, Event, Learned, LoanCalledOff, PlanCommitted
from aryl.core.model import Tenure
from aryl.core.plan import Return


@dataclass(slots=True)
class Recollection:
    """Sees every event of the journal once, in order."""

    _told: dict[str, int] = field(default_factory=dict)  # the last attempt that reported, by job
    _home_s: dict[str, float] = field(default_factory=dict)  # when a server went home that may not serve yet

    def saw(self, event: Event) -> None:
        """Note what may be asked for later."""
        match event:
            case Learned():
                self._told[event.job_id] = event.attempt
            case LoanCalledOff():
                self._home_s[event.server_id] = event.at
            case BackInService():
                self._home_s.pop(event.server_id, None)
            case PlanCommitted():
                for step in event.plan.steps:
                    if isinstance(step, Return):
                        self._home_s[step.server_id] = event.at
            case _:
                pass

    def reporting(self, cluster: Cluster) -> list[tuple[str, int]]:
        """The jobs that run and have reported, with their attempts."""
        return [
            (job_id, job.attempt)
            for job_id, job in cluster.live.items()
            if self._told.get(job_id) == job.attempt
        ]

    def came_home(self, cluster: Cluster, within_s: float) -> list[str]:
        """The servers that went home in the last `within_s` cluster seconds, are still there, and were not
        said to serve again.
        """
        return [
            server_id
            for server_id, at_s in self._home_s.items()
            if at_s >= cluster.now - within_s and cluster.server_by_id[server_id].tenure is Tenure.OWNED
        ]
