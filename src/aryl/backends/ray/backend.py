"""The Ray backend: gangs of actors on the servers of a Ray cluster, which are found by their labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aryl.backends.gangs.backend import GangBackend
from aryl.backends.gangs.crew import Crew, OnEvent
from aryl.backends.gangs.presence import Presence
from aryl.backends.ray.connection import RayAddress, disconnect
from aryl.backends.ray.crew import RayCrew
from aryl.backends.ray.places import installation
from aryl.backends.ray.servers import Settings
from aryl.core.model import Pool, ServerSpec
from aryl.errors import ArylError

_SHARED = "is-visible"


class RayBackend(GangBackend):
    """Implements `Backend`. `indices` are the GPUs of each server that is known beforehand; `state` is the
    folder of all that is kept, which all servers see; `lease_s` is how long a server goes on when it can't
    reach the head; `speed_of` gives the speed of a GPU type of a pool.
    """

    def __init__(
        self,
        state: Path,
        indices: Mapping[str, Sequence[int]],
        where: RayAddress,
        *,
        lease_s: float,
        gpu_resource: str = "GPU",
        speed_of: Callable[[Pool, str], float] = lambda _pool, _type: 1.0,
        real_gpus: bool = False,
        stuck_after_s: float = 60.0,
        roots: Sequence[str] | None = None,
    ) -> None:
        super().__init__(state, indices, stuck_after_s=stuck_after_s, roots=roots)
        self._where = where
        self._settings = Settings(
            where.namespace,
            installation(state),
            str(state.absolute() / "ray" / _SHARED),
            lease_s,
            gpu_resource,
            speed_of,
            real_gpus,
        )
        self._ray_crew: RayCrew | None = None

    def connect(self, fence: int, on_event: OnEvent) -> Crew:
        """The crew on the cluster, which outlives this process."""
        self._ray_crew = RayCrew.take_over(self._where, self._settings, self._state / "ray", fence, on_event)
        return self._ray_crew

    def close(self) -> None:
        """Let go without touching what runs."""
        super().close()
        if self._ray_crew is not None:
            disconnect()

    def present(self, crew: Crew) -> Presence:
        """The servers that are here, and those on which something may run all the same."""
        ray_crew = self._crew_on_ray()
        here = sorted((one.spec for one in ray_crew.servers.here.values()), key=_by_name)
        return Presence(tuple(here), ray_crew.doubtful)

    def address(self, server_id: str | None) -> str:
        """The address that Ray knows."""
        return self._crew_on_ray().address(server_id)

    def free_port(self, server_id: str | None) -> int:
        """A port that nobody listens on there. Raises ArylError."""
        return self._crew_on_ray().free_port(server_id)

    def _crew_on_ray(self) -> RayCrew:
        if self._ray_crew is None:
            raise ArylError("the backend isn't open")
        return self._ray_crew


def _by_name(server: ServerSpec) -> tuple[bool, int, str]:
    """Training first, and T2 before T10, whoever was heard first."""
    return server.pool is Pool.INFERENCE, len(server.server_id), server.server_id
