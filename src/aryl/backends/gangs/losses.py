"""Workers that died with what ran them: their supervisor, or their server.

Nobody knows how such a worker ended, so nobody is blamed: its server counts as lost, with all that was on it.
A dead supervisor takes everything with it, but not at once: what it left (orphans) is killed by the next one.
The server is back when the last orphan is gone and every gang that stood there has been stopped or regrouped.
Not earlier: a job that waits would take the place of those that were there first, which are only on their
way back into the queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from aryl.backends.gangs.attempt import Attempt, Stage, workers_by_server
from aryl.backends.port import Gang, Phase
from aryl.backends.supervisor.protocol import WorkerKey, WorkerState, WorkerStatus

AttemptKey = tuple[str, int]


def _lost_servers(gang: Gang, statuses: Iterable[WorkerStatus]) -> set[str]:
    """The servers where workers of a gang were lost, and the journal doesn't know it."""
    places = _places(gang)
    died = {one.server_id for one in statuses if one.orphan or one.state is WorkerState.LOST}
    return {server_id for server_id in places if server_id in died}


class Losses:
    """The servers that aren't back yet. Not thread-safe: its owner has a lock."""

    def __init__(self) -> None:
        self._orphans: dict[WorkerKey, str] = {}
        self._gangs: dict[str, set[AttemptKey]] = {}
        self._lost: frozenset[str] = frozenset()

    def take_over(
        self,
        gangs: Sequence[Gang],
        statuses: Mapping[AttemptKey, Sequence[WorkerStatus]],
        away: Collection[str] = (),
    ) -> list[str]:
        """Begin anew with what a crew knows, by job and attempt. `away`: servers that aren't there. Returns
        those that are lost, with what ran on them.
        """
        everyone = [one for some in statuses.values() for one in some]
        # A lighthouse is on no server.
        self._orphans = {one.key: one.server_id for one in everyone if one.orphan and one.server_id}
        self._gangs = {server_id: set() for server_id in self._orphans.values()}
        lost = {server_id for gang in gangs for server_id in _places(gang) if server_id in away}
        for gang in gangs:
            lost |= _lost_servers(gang, statuses.get((gang.job_id, gang.attempt), ()))
        self._lost = frozenset(lost)
        for gang in gangs:
            for server_id in self._lost.intersection(_places(gang)):
                self._gangs.setdefault(server_id, set()).add((gang.job_id, gang.attempt))
        return sorted(lost)

    def lose(self, server_id: str, attempts: Mapping[AttemptKey, Attempt]) -> None:
        """A server is lost with all that was on it."""
        standing = {key for key, attempt in attempts.items() if _stands_on(server_id, attempt)}
        if standing:
            self._gangs.setdefault(server_id, set()).update(standing)

    def concern(self, gang: Gang) -> bool:
        """Whether a gang was to stand on a server that is lost, whether or not it had been started there."""
        return not self._lost.isdisjoint(_places(gang))

    def gone(self, key: WorkerKey) -> None:
        """An orphan is gone."""
        self._orphans.pop(key, None)

    def waits(self, server_id: str) -> bool:
        """Whether a server isn't back yet."""
        return server_id in self._gangs

    def back(self, attempts: Mapping[AttemptKey, Attempt]) -> list[str]:
        """The servers that are back now, each told once."""
        if not self._gangs:
            return []
        held = set(self._orphans.values())
        back = [
            server_id
            for server_id, gangs in self._gangs.items()
            if server_id not in held and not any(_stands_on(server_id, attempts.get(key)) for key in gangs)
        ]
        for server_id in back:
            del self._gangs[server_id]
        return back


def _places(gang: Gang) -> Mapping[str, int]:
    return {} if gang.phase is Phase.STOPPING else workers_by_server(gang)


def _stands_on(server_id: str, attempt: Attempt | None) -> bool:
    return (
        attempt is not None
        and attempt.stage is not Stage.OVER
        and server_id in workers_by_server(attempt.gang)
    )
