"""When would a gang fit, if live jobs end as estimated and nobody else comes? The "shadow time" of backfilling.

Flexible workers count as free at once, since they never hold back a base demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aryl.core.cluster import Cluster, Job, Stand
from aryl.core.free_index import OFF_SHELF, FreeIndex
from aryl.core.model import Slot
from aryl.policies.placement import Scatter, place_base


class Shadow(NamedTuple):
    """The earliest expected start (absolute seconds), the place, and the jobs that have to end before."""

    at_s: float
    slots: tuple[Slot, ...]
    behind: tuple[str, ...]


def shadow_of(
    cluster: Cluster,
    job: Job,
    scatter: Scatter,
    index: FreeIndex | None = None,
    stands: Sequence[Stand] | None = None,
) -> Shadow | None:
    """The shadow of a waiting job on `index` (default: the cluster's free GPUs); None if estimates can't tell.

    `stands` restricts the shelves to look at.
    """
    trial = (cluster.free if index is None else index).fork()
    for server in cluster.places(cluster.flexible_mask):
        if trial.lane[server.place] != OFF_SHELF:
            trial.give(server.place, server.flexible_gpus)
    slots = place_base(trial, cluster, job.spec, job.min_workers, scatter, stands)
    if slots is not None:
        return Shadow(cluster.now, slots, ())
    ends = sorted(
        (cluster.now + other.finishes_in_s(cluster.now), rank, other)
        for rank, other in enumerate(cluster.live.values())
    )
    behind: list[str] = []
    for end_s, _, other in ends:
        if end_s == float("inf"):
            return None
        useful = False
        for server_id, slot in other.slots.items():
            place = cluster.server_by_id[server_id].place
            if slot.base and trial.lane[place] != OFF_SHELF:
                trial.give(place, slot.base * slot.gpus_per_worker)
                useful = True
        if not useful:
            continue
        behind.append(other.spec.job_id)
        slots = place_base(trial, cluster, job.spec, job.min_workers, scatter, stands)
        if slots is not None:
            return Shadow(end_s, slots, tuple(behind))
    return None
