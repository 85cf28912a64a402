"""End all that a control plane keeps in a Ray cluster: workers, keepers, and the registry."""

from __future__ import annotations

import contextlib

from aryl.backends.ray.connection import RayAddress, connect
from aryl.backends.ray.places import is_ours


def clear(where: RayAddress) -> int:
    """End every actor of Aryl's in the namespace. Returns how many. Raises UnreachableError."""
    ray = connect(where)
    from ray.util import list_named_actors

    names = [name for name in list_named_actors() if is_ours(name)]
    for name in names:
        with contextlib.suppress(ValueError):  # it ended by itself
            ray.kill(ray.get_actor(name, namespace=where.namespace), no_restart=True)
    return len(names)
