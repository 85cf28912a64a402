"""Why does a job wait? Computed when somebody asks, by the parts that decided."""

from __future__ import annotations

from aryl.core.cluster import Cluster
from aryl.core.model import JobState
from aryl.policies.draft import Draft
from aryl.policies.placement import Scatter, fits_when_empty
from aryl.policies.reasons import Wait, WaitReason
from aryl.policies.shadow import shadow_of

# How many jobs in the way are named.
MOST_NAMED = 5


def explain_wait(cluster: Cluster, job_id: str, *, strict: bool, scatter: Scatter, lends: bool) -> WaitReason:
    """The reason for a wait in a queue that is strict or passes over. Raises KeyError for an unknown job."""
    job = cluster.jobs[job_id]
    spec = job.spec
    if job.state is not JobState.PENDING:
        return WaitReason(job_id, Wait.NOT_WAITING)
    stands = cluster.stands(spec)
    needed = job.min_workers * min((stand.gpus_per_worker for stand in stands), default=spec.gpus_per_worker)
    shelves = {stand.shelf for stand in stands}
    if not any(server.up and server.shelf in shelves for server in cluster.servers):
        return WaitReason(job_id, Wait.NO_MATCHING_GPU, needed)
    if job_id in cluster.claims:
        return WaitReason(job_id, Wait.VACATING, needed, behind=_vacating(cluster, job_id))
    if not fits_when_empty(cluster, spec, lends=lends, scatter=scatter):
        return WaitReason(job_id, Wait.TOO_LARGE, needed)

    free = sum(cluster.free.shelf_free(stand.shelf) for stand in stands)
    best = max(cluster.free.largest_free(stand.shelf) for stand in stands)
    shadow = shadow_of(Draft(cluster), job, scatter)
    starts_s = shadow.at_s if shadow else None
    behind = shadow.behind[:MOST_NAMED] if shadow else ()
    if strict:
        head = next(iter(cluster.pending)).job_id
        if head != job_id:
            return WaitReason(job_id, Wait.BEHIND_THE_HEAD, needed, free, best, (head,), None)
    if shadow is not None and shadow.at_s <= cluster.now:
        return WaitReason(job_id, Wait.NEXT_PASS, needed, free, best, (), cluster.now)
    wait = Wait.FRAGMENTED if free >= needed else Wait.NOT_ENOUGH_FREE
    return WaitReason(job_id, wait, needed, free, best, behind, starts_s)


def _vacating(cluster: Cluster, job_id: str) -> tuple[str, ...]:
    servers = {slot.server_id for slot in cluster.claims[job_id].slots}
    leaving = [other.spec.job_id for other in cluster.jobs.values() if servers & other.leaving.keys()]
    return tuple(leaving[:MOST_NAMED])
