"""From what the backend reports to the events of the engine.

The backend doesn't know how far a job is; the state does. A job that says it has saved keeps all that it had
done when it was told to stop; one that didn't goes back to the last save that is known.

Several facts may be heard before the state has changed by the first of them, and an event that can't be would
stop the loop. So what has been said of servers is kept here. A server of which nobody has said what it has is
left alone. One that comes back with other GPUs is another machine under the same name: if it had joined by
itself, it takes the place of the old one; if it was declared, or is to change sides, somebody has to mend
that, and until then it counts as lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from aryl.backends import port
from aryl.core import events as ev
from aryl.core.cluster import Cluster, Job
from aryl.core.joining import in_words, why_not
from aryl.core.model import Health, ServerSpec
from aryl.core.plan import Cause
from aryl.live.learning import Learner
from aryl.live.troubles import Troubles, Watchdog

_log = logging.getLogger(__name__)

# Such a job is told to end at once: nobody needs what it would save, or it doesn't listen any more. Every
# other one gets its notice first.
WITHOUT_NOTICE = frozenset({Cause.CANCELLED, Cause.STALLED})


@dataclass(slots=True)
class RollCall:
    """What was last said of servers, perhaps not in the state yet. Used by the loop's thread alone."""

    _up: dict[str, bool] = field(default_factory=dict)
    _specs: dict[str, ServerSpec] = field(default_factory=dict)  # of those that joined

    def knows(self, server_id: str, cluster: Cluster) -> bool:
        """Whether there is, or is about to be, such a server."""
        return self._spec(server_id, cluster) is not None

    def up(self, server_id: str, cluster: Cluster, now_s: float) -> Iterator[ev.Event]:
        """A server is there. A backend that was opened again says so of all servers."""
        if not self._known(server_id, cluster) or self._is_up(server_id, cluster):
            return
        self._up[server_id] = True
        yield ev.ServerReturned(now_s, server_id)

    def down(self, server_id: str, cluster: Cluster, now_s: float) -> Iterator[ev.Event]:
        """A server is gone."""
        if self._known(server_id, cluster):
            self._up[server_id] = False
            yield ev.ServerLost(now_s, server_id)

    def joined(self, spec: ServerSpec, cluster: Cluster, now_s: float) -> Iterator[ev.Event]:
        """A server is there, and this is what it has."""
        server_id = spec.server_id
        known = self._spec(server_id, cluster)
        if known == spec:
            yield from self.up(server_id, cluster, now_s)
            return
        if known is not None and self._is_up(server_id, cluster):
            if _occupied(cluster, server_id):
                # Whoever ends its workers says when they are gone, and that it is there then.
                words = "server %s has %s now, not %s: what runs there goes on until it is lost"
                _log.error(words, server_id, in_words(spec), in_words(known))
                return
            self._up[server_id] = False
            yield ev.ServerLost(now_s, server_id)
        wrong = why_not(cluster, spec, known)
        if wrong:
            _log.error("server %s, with %s, can't join: %s", server_id, in_words(spec), wrong)
            return
        self._up[server_id], self._specs[server_id] = True, spec
        _log.info("server %s has joined, with %s", server_id, in_words(spec))
        yield ev.ServersJoined(now_s, (spec,))

    # The inside.

    def _spec(self, server_id: str, cluster: Cluster) -> ServerSpec | None:
        server = cluster.server_by_id.get(server_id)
        return self._specs.get(server_id, None if server is None else server.spec)

    def _is_up(self, server_id: str, cluster: Cluster) -> bool:
        server = cluster.server_by_id.get(server_id)
        return self._up.get(server_id, server is not None and server.up)

    def _known(self, server_id: str, cluster: Cluster) -> bool:
        if self.knows(server_id, cluster):
            return True
        _log.warning("server %s is talked about, but nobody has said what it has", server_id)
        return False


@dataclass(slots=True)
class Interpreter:
    """Turns facts into events. What it remembers of failures, silence and speeds is in its parts."""

    troubles: Troubles
    watchdog: Watchdog
    learner: Learner
    roll_call: RollCall = field(default_factory=RollCall)

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
                yield from self.roll_call.up(fact.server_id, cluster, now_s)
            case port.ServerJoined():
                yield from self.roll_call.joined(fact.server, cluster, now_s)
            case port.ServerDown():
                yield from self.roll_call.down(fact.server_id, cluster, now_s)
            case port.ServerStuck():
                # One that is gone at last clears its own suspicion, and nothing that others have found out.
                server = cluster.server_by_id.get(fact.server_id)
                suspected = server is not None and server.health is Health.SUSPECT
                if suspected or (fact.stuck and self.roll_call.knows(fact.server_id, cluster)):
                    health = Health.SUSPECT if fact.stuck else Health.HEALTHY
                    yield ev.HealthChanged(now_s, fact.server_id, health)
            case port.BackendLost():
                pass  # the driver opens it again
            case _:
                assert_never(fact)


def _occupied(cluster: Cluster, server_id: str) -> bool:
    server = cluster.server_by_id.get(server_id)
    return server is not None and bool(server.used or server.leaving)


def _present(cluster: Cluster, job_id: str, attempt: int) -> Job | None:
    job = cluster.jobs.get(job_id)
    return job if job is not None and job.attempt == attempt else None


def _kept_s(cluster: Cluster, fact: port.GangStopped, now_s: float) -> float:
    job = _present(cluster, fact.job_id, fact.attempt)
    if job is None:
        return 0.0
    return job.progress.done_at(now_s) if fact.saved else job.progress.saved_at(now_s)
