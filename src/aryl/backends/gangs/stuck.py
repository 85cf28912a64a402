"""Workers that don't die, by server. One is enough to suspect a server, and all have to be gone before it is
trusted again.
"""

from __future__ import annotations

import logging

from aryl.backends.supervisor.protocol import WorkerKey

_log = logging.getLogger(__name__)


class StuckWorkers:
    """Keeps account of them. Not thread-safe: its owner has a lock."""

    def __init__(self) -> None:
        self._by_server: dict[str, set[WorkerKey]] = {}

    def note(self, server_id: str, key: WorkerKey, *, stuck: bool) -> bool:
        """A worker doesn't die, or is gone at last; returns whether its server is still suspect."""
        keys = self._by_server.setdefault(server_id, set())
        if stuck:
            keys.add(key)
            _log.error("a worker of %s on %s doesn't die: nothing new starts there", key.job_id, server_id)
        else:
            keys.discard(key)
            _log.warning("the worker of %s on %s that didn't die is gone", key.job_id, server_id)
        return bool(keys)

    def clear(self) -> None:
        """Nothing is known."""
        self._by_server.clear()
