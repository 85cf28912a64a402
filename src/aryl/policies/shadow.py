"""When would a gang fit, if jobs end as estimated and nobody else comes? The "shadow time" of backfilling.

Flexible workers of jobs of the same or lower priority count as free at once, since they never hold back a
base demand. What the pass has decided so far counts as done: asked in the middle of a pass and asked after
it, the answer is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aryl.core.cluster import Cluster, Job, Stand
from aryl.core.free_index import OFF_SHELF, FreeIndex
from aryl.core.model import Slot
from aryl.core.server import Server
from aryl.policies.draft import Draft
from aryl.policies.placement import Scatter, place_base

Vacated = list[tuple[str, int]]  # GPUs by server

# Who is leaving is there until the world says otherwise, even where leaving takes no time.
NOT_YET_S = 1.0


class Shadow(NamedTuple):
    """The earliest expected start (absolute seconds), the place, and the jobs that have to end before."""

    at_s: float
    slots: tuple[Slot, ...]
    behind: tuple[str, ...]


def shadow_of(
    draft: Draft,
    job: Job,
    scatter: Scatter,
    stands: Sequence[Stand] | None = None,
    *,
    all_yield: bool = False,
) -> Shadow | None:
    """The shadow of a waiting job on all its shelves or on `stands`; None if estimates can't tell.

    `all_yield`: flexible workers of higher priority count as free as well, and nobody is expected to end
    sooner for having some, so that who gets them in this pass doesn't change the answer.
    """
    cluster, trial = draft.cluster, draft.untouched_index.fork()
    priority = max((job.spec.priority, *cluster.live_by_priority)) if all_yield else job.spec.priority
    for server in cluster.places(cluster.flexible_mask):
        if trial.lane[server.place] != OFF_SHELF:
            trial.give(server.place, _flexible_gpus(draft, server, priority))
    slots = place_base(trial, cluster, job.spec, job.min_workers, scatter, stands)
    if slots is not None:
        return Shadow(cluster.now, slots, ())
    behind: list[str] = []
    for end_s, _, other_id, vacated in sorted(_ends(draft, priority, all_yield=all_yield)):
        if end_s == float("inf"):
            return None
        if not _give(trial, cluster, vacated):
            continue
        if other_id:
            behind.append(other_id)
        slots = place_base(trial, cluster, job.spec, job.min_workers, scatter, stands)
        if slots is not None:
            return Shadow(end_s, slots, tuple(behind))
    return None


def _give(trial: FreeIndex, cluster: Cluster, vacated: Vacated) -> bool:
    """Count these GPUs as free; whether there was any."""
    useful = False
    for server_id, gpus in vacated:
        place = cluster.server_by_id[server_id].place
        if trial.lane[place] != OFF_SHELF:
            trial.give(place, gpus)
            useful = True
    return useful


def _flexible_gpus(draft: Draft, server: Server, priority: int) -> int:
    """GPUs of flexible workers that stay, but would give way to a gang of this priority."""
    return sum(
        (slot.flexible - draft.shed_on(job_id, server.spec.server_id)) * slot.gpus_per_worker
        for job_id, slot in server.jobs.items()
        if job_id not in draft.preemptions and draft.cluster.jobs[job_id].spec.priority <= priority
    )


def _ends(draft: Draft, priority: int, *, all_yield: bool) -> Iterator[tuple[float, int, str, Vacated]]:
    """When GPUs are expected to come free: the time, a rank that breaks ties, whose they are, and where.

    Besides live jobs these are workers that are leaving already, jobs whose place is still being vacated,
    and what the draft has stopped and started.
    """
    cluster, now = draft.cluster, draft.cluster.now
    leaving = [
        (server.spec.server_id, gpus)
        for server in cluster.servers
        if (gpus := draft.unclaimed_gpus(server)) > 0
    ]
    if leaving:
        yield now + max(cluster.vacate_s, NOT_YET_S), -1, "", leaving
    for job_id, job in cluster.live.items():
        if job_id not in draft.preemptions:
            gives_way = job.spec.priority <= priority
            held = [
                (
                    name,
                    (slot.base if gives_way else slot.workers - draft.shed_on(job_id, name))
                    * slot.gpus_per_worker,
                )
                for name, slot in job.slots.items()
                if slot.base or not gives_way
            ]
            kinds = _base_kinds(cluster, job) if all_yield else _staying(draft, job)
            yield now + _left_s(cluster, job, kinds), job.spec.sequence, job_id, held
    placed = {job_id: claim.slots for job_id, claim in cluster.claims.items()}
    placed |= {job_id: start.slots for job_id, start in draft.starts.items()}
    for job_id, slots in placed.items():
        job, kinds = cluster.jobs[job_id], dict[str, int]()
        for slot in slots:
            kind = cluster.server_by_id[slot.server_id].spec.gpu_type
            kinds[kind] = kinds.get(kind, 0) + slot.base
        wait_s = cluster.vacate_s if job_id in cluster.claims or job_id in draft.claiming else 0.0
        held = [(slot.server_id, slot.base * slot.gpus_per_worker) for slot in slots]
        yield now + wait_s + _left_s(cluster, job, kinds), job.spec.sequence, job_id, held


def _staying(draft: Draft, job: Job) -> dict[str, int]:
    """Workers of a live job by GPU type, less those that the draft lets leave."""
    job_id = job.spec.job_id
    if not draft.shed_of(job_id):
        return job.kinds
    kinds = dict(job.kinds)
    for server_id in job.slots:
        kinds[draft.cluster.server_by_id[server_id].spec.gpu_type] -= draft.shed_on(job_id, server_id)
    return {kind: workers for kind, workers in kinds.items() if workers}


def _base_kinds(cluster: Cluster, job: Job) -> dict[str, int]:
    """Base workers of a live job by GPU type."""
    kinds: dict[str, int] = {}
    for name, slot in job.slots.items():
        if slot.base:
            kind = cluster.server_by_id[name].spec.gpu_type
            kinds[kind] = kinds.get(kind, 0) + slot.base
    return kinds


def _left_s(cluster: Cluster, job: Job, kinds: dict[str, int]) -> float:
    """Expected seconds until a job with these workers ends; restarts and resizes are taken to be over."""
    remaining_s, rate = job.remaining_s(cluster.now), cluster.rate(job.spec, kinds)
    return float("inf") if remaining_s is None or rate <= 0.0 else remaining_s / rate
