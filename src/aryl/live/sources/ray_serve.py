"""The inference demand of Ray Serve, as its controller knows it, in the cluster that the backend runs on."""

from __future__ import annotations

import time

from aryl.backends.ray.serve.pool import ServePool
from aryl.core.model import Hosting
from aryl.live.sources.observation import Observation, Unit


class RayServeSource:
    """Asks a `pool`. This process has to be connected to Ray by then."""

    def __init__(self, pool: ServePool) -> None:
        self._pool = pool

    @property
    def where(self) -> str:
        """What people call it."""
        return "Ray Serve"

    def read(self) -> Observation:
        """What it needs now, and where its replicas stand. Raises ArylError."""
        asked_unix_s = time.time()
        needed = self._pool.read()
        hosting = tuple(Hosting(server_id, gpus) for server_id, gpus in needed.hosting.items())
        return Observation(asked_unix_s, needed.servers, Unit.SERVERS, hosting=hosting)

    def close(self) -> None:
        """The connection isn't ours."""
