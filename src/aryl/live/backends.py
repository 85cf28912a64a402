"""Which backend runs the workers, made as the configuration says."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from aryl.backends.devices import Nvml
from aryl.backends.gangs.backend import GangBackend
from aryl.backends.local import LocalBackend
from aryl.core.model import Pool
from aryl.live.config import ServeConfig
from aryl.live.world import gpu_indices


def make_backend(config: ServeConfig) -> GangBackend:
    """The backend. Raises InputError for GPUs that aren't there, and without the package it needs."""
    state = Path(config.state)
    match config.backend:
        case "local":
            return LocalBackend(
                state,
                gpu_indices(config),
                nvml=Nvml() if config.gpus == "real" else None,
                stuck_after_s=config.stuck_after,
                roots=config.workdirs,
            )
        case "ray":
            return _on_ray(config, state)
        case _:
            assert_never(config.backend)


def _on_ray(config: ServeConfig, state: Path) -> GangBackend:
    # Such a backend loads nothing of Ray before it is opened, but it needs it.
    from aryl.backends.ray.backend import RayBackend
    from aryl.backends.ray.connection import RayAddress, load_ray

    load_ray()
    cluster, ray = config.cluster, config.ray

    def speed_of(pool: Pool, gpu_type: str) -> float:
        return (cluster.training if pool is Pool.TRAINING else cluster.inference).speed_of(gpu_type)

    return RayBackend(
        state,
        gpu_indices(config),
        RayAddress(ray.address, ray.namespace),
        lease_s=ray.lease,
        gpu_resource=ray.gpu_resource,
        speed_of=speed_of,
        real_gpus=config.gpus == "real",
        stuck_after_s=config.stuck_after,
        roots=config.workdirs,
    )
