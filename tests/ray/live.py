"""A daemon whose workers are actors of a Ray cluster."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.live.cluster import LiveCluster
from tests.ray.raylets import RayServers

LEASE_S = 6.0
_numbers = itertools.count()


@contextmanager
def cluster_on_ray(folder: Path, servers: RayServers, **config: Any) -> Iterator[LiveCluster]:
    """A leading daemon on these servers, in a namespace of its own, and nothing of it left afterwards."""
    namespace = f"live-{os.getpid()}-{next(_numbers)}"
    ray = {"address": servers.address, "namespace": namespace, "lease": LEASE_S}
    ray |= config.pop("ray", {})
    cluster = LiveCluster(
        folder,
        backend="ray",
        ray=ray,
        cluster=_named(servers) | config.pop("cluster", {}),
        **config,
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        # In a process of its own: Ray in this one would wait for a head that a test has ended.
        command = [sys.executable, "-m", "aryl.backends.ray.clear", servers.address, "--namespace", namespace]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30, check=False
            )


def _named(servers: RayServers) -> dict[str, Any]:
    pools: dict[str, Any] = {}
    for pool, speed in (("training", 1.0), ("inference", 1.0)):
        some = [server for server in servers.servers.values() if server.pool == pool]
        pools[pool] = {
            "servers": len(some),
            "names": [server.name for server in some],
            "gpus_per_server": some[0].gpus if some else 8,
            "gpu_type": some[0].gpu_type if some else "T4",
            "speed": speed,
        }
    return pools
