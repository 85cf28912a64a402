"""From what the backend reports to the events of the engine.

The backend doesn't know how far a job is; the state does. A job that says it has saved keeps all that it had
done when it was told to stop; one that didn't goes back to the last save that is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from aryl.backends import port
from aryl.core import events as ev
from aryl.core.cluster import Cluster, Job
from aryl.core.model import Health
from aryl.core.plan import Cause
from aryl.live.learning import Learner
from aryl.live.troubles import Troubles, Watchdog

# Such a job is told to end at once: nobody needs what it would save, or it doesn't listen any more. Every
# other one gets its notice first.
WITHOUT_NOTICE = frozenset({Cause.CANCELLED, Cause.STALLED})


@dataclass(slots=True)
class Interpreter:
    """Turns facts into events. What it remembers of failures, silence and speeds is in its parts."""

    troubles: Troubles
    watchdog: Watchdog
    learner: Learner
    _down: set[str] = field(default_factory=set)  # heard of, perhaps not in the state yet

    def events(self, fact: port.Fact, cluster: Cluster, now_s: float) -> Iterator[ev.Event]:
        """What a fact means, given the state in which it is heard."""
        match fact:
            case port.GangUp():
                yield ev.Launched(now_s, fact.job_id, fact.attempt)
            case port.GangResized():
                self.watchdog.changed(fact.job_id, fact.attempt, now_s)
                yield ev.Resized(now_s, fact.job_id, fact.attempt, fact.revision)
            case port.WorkersGone():
                yield ev.Vacated(now_s, fact.job_id, fact.attempt, fact.slots)
            case port.WorkersDone():
                yield ev.WorkersDone(now_s, fact.job_id, fact.attempt, fact.slots)
            case port.GangStopped():
                yield ev.Stopped(now_s, fact.job_id, fact.attempt, _kept_s(cluster, fact, now_s))
            case port.GangSucceeded():
                job = cluster.jobs.get(fact.job_id)
                if job is not None:
                    self.troubles.went_well(iter(job.slots))
                yield ev.Finished(now_s, fact.job_id, fact.attempt)
            case port.GangFailed():
                job = _present(cluster, fact.job_id, fact.attempt)
                kept_s = job.progress.saved_at(now_s) if job is not None else 0.0
                yield ev.Crashed(now_s, fact.job_id, fact.attempt, kept_s, fact.reason)
                yield from self.troubles.failed(cluster, fact.servers, fact.job_id, fact.ran_s, now_s)
            case port.WorkerReplaced():
                yield ev.WorkerReplaced(now_s, fact.job_id, fact.attempt, fact.server_id, fact.reason)
            case port.Reported():
                self.watchdog.heard(fact.job_id, fact.attempt, now_s)
                learned = self.learner.heard(cluster, fact.job_id, fact.attempt, fact.report, now_s)
                if learned is not None:
                    yield learned
            case port.ServerUp():
                # A backend that was opened again says so of all servers.
                if fact.server_id in self._down or not cluster.server_by_id[fact.server_id].up:
                    self._down.discard(fact.server_id)
                    yield ev.ServerReturned(now_s, fact.server_id)
            case port.ServerDown():
                self._down.add(fact.server_id)
                yield ev.ServerLost(now_s, fact.server_id)
            case port.ServerStuck():
                # One that is gone at last clears its own suspicion, and nothing that others have found out.
                suspected = cluster.server_by_id[fact.server_id].health is Health.SUSPECT
                if fact.stuck or suspected:
                    health = Health.SUSPECT if fact.stuck else Health.HEALTHY
                    yield ev.HealthChanged(now_s, fact.server_id, health)
            case port.BackendLost():
                pass  # the driver opens it again
            case _:
                assert_never(fact)


def _present(cluster: Cluster, job_id: str, attempt: int) -> Job | None:
    job = cluster.jobs.get(job_id)
    return job if job is not None and job.attempt == attempt else None


def _kept_s(cluster: Cluster, fact: port.GangStopped, now_s: float) -> float:
    job = _present(cluster, fact.job_id, fact.attempt)
    if job is None:
        return 0.0
    return job.progress.done_at(now_s) if fact.saved else job.progress.saved_at(now_s)
