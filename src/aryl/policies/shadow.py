"""When would a gang fit, if live jobs end as estimated and nobody else comes? The "shadow time" of
backfilling.

Flexible workers count as free at once, since they never hold back a base demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """The shadow of a waiting job on `index` (default: the cluster's free GPUs); None if estimates can't
    tell.

    `stands` restricts the shelves to look at.
    """
    trial = (cluster.free if index is None else index).fork()
    for server in cluster.places(cluster.flexible_mask):
        if trial.lane[server.place] != OFF_SHELF:
            trial.give(server.place, server.flexible_gpus)
    slots = place_base(trial, cluster, job.spec, job.min_workers, scatter, stands)
    if slots is not None:
        return Shadow(cluster.now, slots, ())
    behind: list[str] = []
    for end_s, _, other_id, vacated in sorted(_ends(cluster)):
        if end_s == float("inf"):
            return None
        useful = False
        for server_id, gpus in vacated:
            place = cluster.server_by_id[server_id].place
            if trial.lane[place] != OFF_SHELF:
                trial.give(place, gpus)
                useful = True
        if not useful:
            continue
        if other_id:
            behind.append(other_id)
        slots = place_base(trial, cluster, job.spec, job.min_workers, scatter, stands)
        if slots is not None:
            return Shadow(end_s, slots, tuple(behind))
    return None


Vacated = list[tuple[str, int]]  # GPUs by server


def _ends(cluster: Cluster) -> Iterator[tuple[float, int, str, Vacated]]:
    """When GPUs are expected to come free: the time, a rank that breaks ties, whose they are, and where.

    Besides live jobs these are workers that are leaving already and jobs whose place is still being vacated.
    """
    now = cluster.now
    leaving = [
        (server.spec.server_id, server.leaving - server.held)
        for server in cluster.servers
        if server.leaving > server.held
    ]
    if leaving:
        yield now + cluster.vacate_s, -1, "", leaving
    for rank, (job_id, job) in enumerate(cluster.live.items()):
        held = [(name, slot.base * slot.gpus_per_worker) for name, slot in job.slots.items() if slot.base]
        yield now + _left_s(cluster, job, job.kinds), rank, job_id, held
    for rank, (job_id, claim) in enumerate(cluster.claims.items(), start=len(cluster.live)):
        kinds: dict[str, int] = {}
        for slot in claim.slots:
            kind = cluster.server_by_id[slot.server_id].spec.gpu_type
            kinds[kind] = kinds.get(kind, 0) + slot.workers
        left_s = cluster.vacate_s + _left_s(cluster, cluster.jobs[job_id], kinds)
        yield now + left_s, rank, job_id, [(slot.server_id, slot.gpus) for slot in claim.slots]


def _left_s(cluster: Cluster, job: Job, kinds: dict[str, int]) -> float:
    """Expected seconds until a job ends; one that stands still, in a restart or a resize, counts as going
    on.
    """
    remaining_s = job.remaining_s(cluster.now)
    rate = job.progress.rate or cluster.rate(job.spec, kinds)
    return float("inf") if remaining_s is None or rate <= 0.0 else remaining_s / rate
