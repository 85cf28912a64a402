"""Why does a job wait? Computed when somebody asks, by the parts that decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from aryl.core.cluster import Cluster, Job, Stand
from aryl.core.model import JobState, Pool
from aryl.policies.draft import Draft
from aryl.policies.placement import Scatter, fits_when_empty
from aryl.policies.reasons import Wait, WaitReason
from aryl.policies.shadow import Shadow, shadow_of

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
    if not _any_up(cluster, stands, lends=lends):
        return WaitReason(job_id, Wait.NO_MATCHING_GPU, needed)
    if job_id in cluster.claims:
        leaving, gone_s = _vacating(cluster, job_id)
        return WaitReason(job_id, Wait.VACATING, needed, behind=leaving, starts_s=gone_s)
    # The user may have changed the gang since it was submitted.
    asked = replace(spec, min_workers=job.min_workers, max_workers=job.max_workers)
    if not fits_when_empty(cluster, asked, lends=lends, scatter=scatter):
        return WaitReason(job_id, Wait.TOO_LARGE, needed)

    room = max(
        (_room(cluster, group, job.min_workers) for group in _groups(cluster, job, stands, scatter)),
        key=lambda room: room.workers,
    )
    shadow = shadow_of(Draft(cluster), job, scatter)
    starts_s = shadow.at_s if shadow else None
    behind = _in_the_way(cluster, shadow) if shadow else ()
    if strict:
        head = next(iter(cluster.pending)).job_id
        if head != job_id:
            return WaitReason(job_id, Wait.BEHIND_THE_HEAD, *room.gpus, (head,), None)
    if shadow is not None and shadow.at_s <= cluster.now:
        return WaitReason(job_id, Wait.NEXT_PASS, *room.gpus, (), cluster.now)
    wait = Wait.FRAGMENTED if room.workers >= job.min_workers else Wait.NOT_ENOUGH_FREE
    return WaitReason(job_id, wait, *room.gpus, behind, starts_s)


class _Room(NamedTuple):
    """What is free on shelves that the gang may stand on together: the workers that it would do for, were it
    all in one piece; and the GPUs needed there, free there, and free on the best server.
    """

    workers: int
    gpus: tuple[int, int, int]


def _any_up(cluster: Cluster, stands: Sequence[Stand], *, lends: bool) -> bool:
    """Whether there is a server that the job's workers could ever stand on."""
    shelves = {stand.shelf for stand in stands}
    return any(
        server.up
        and server.shelf in shelves
        and (lends or server.spec.pool is Pool.TRAINING or server.placeable)
        for server in cluster.servers
    )


def _groups(cluster: Cluster, job: Job, stands: Sequence[Stand], scatter: Scatter) -> list[list[Stand]]:
    """The shelves over which the gang may be spread: those of one GPU type, or all of them if it may be
    mixed.
    """
    if scatter is Scatter.NEVER:
        return [[stand] for stand in stands]
    if job.spec.heterogeneous:
        return [list(stands)]
    kinds: dict[str, list[Stand]] = {}
    for stand in stands:
        kinds.setdefault(cluster.free.shelves[stand.shelf].gpu_type, []).append(stand)
    return list(kinds.values())


def _room(cluster: Cluster, group: Sequence[Stand], workers: int) -> _Room:
    free = [cluster.free.shelf_free(stand.shelf) for stand in group]
    fitting = sum(gpus // stand.gpus_per_worker for gpus, stand in zip(free, group, strict=True))
    needed = workers * min(stand.gpus_per_worker for stand in group)
    best = max(cluster.free.largest_free(stand.shelf) for stand in group)
    return _Room(fitting, (needed, sum(free), best))


def _in_the_way(cluster: Cluster, shadow: Shadow) -> tuple[str, ...]:
    """The jobs to end before the gang can start, without those that end sooner but elsewhere."""
    place = {slot.server_id for slot in shadow.slots}
    found = []
    for job_id in shadow.behind:
        claim = cluster.claims.get(job_id)
        held = {slot.server_id for slot in claim.slots} if claim else cluster.jobs[job_id].slots.keys()
        if place & held:
            found.append(job_id)
    return tuple(found[:MOST_NAMED])


def _vacating(cluster: Cluster, job_id: str) -> tuple[tuple[str, ...], float]:
    """Who is leaving the claimed place, and when they are expected to be gone."""
    servers = {slot.server_id for slot in cluster.claims[job_id].slots}
    leaving = [other for other in cluster.jobs.values() if servers & other.leaving.keys()]
    told_s = (other.progress.since_s if other.stopping else other.scaled_in_s for other in leaving)
    gone_s = max((at_s + cluster.vacate_s for at_s in told_s), default=cluster.now)
    return tuple(other.spec.job_id for other in leaving[:MOST_NAMED]), max(gone_s, cluster.now)
