"""Flexible workers never hold back a base demand: a waiting gang may take the place of flexible workers
(phase 1).

A place is looked for as if the flexible workers of jobs of the same or lower priority were not there. Where
the place found is occupied by them, just enough are scaled in: on each server first those whose leaving costs
their job the least time a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

from aryl.core.cluster import Cluster, Job
from aryl.core.free_index import OFF_SHELF, Content, FreeIndex
from aryl.core.model import Slot
from aryl.core.plan import Cause
from aryl.core.server import Server
from aryl.policies.admission import Starter, could_fit
from aryl.policies.draft import Draft
from aryl.policies.gain import remaining_or_guess_s
from aryl.policies.placement import Scatter, place_base


def start_over_flexible(scatter: Scatter) -> Starter:
    """A starter that scales in flexible workers where they are in the way."""

    def start(draft: Draft, job: Job) -> bool:
        cluster = draft.cluster
        if not cluster.flexible_mask or not could_fit(cluster, draft, job, extra=True):
            return False
        slots = place_base(
            without_flexible(draft, job.spec.priority), cluster, job.spec, job.min_workers, scatter
        )
        if slots is None:
            return False
        vacates = make_room(draft, slots, job.spec.priority)
        draft.start(job, slots)
        if vacates:
            draft.claiming.add(job.spec.job_id)
            settle(draft, [slot.server_id for slot in slots])
        return True

    return start


def without_flexible(draft: Draft, priority: int) -> FreeIndex:
    """What would be free without the flexible workers of jobs up to this priority; a fork of the draft's
    index.
    """
    cluster = draft.cluster
    index = draft.untouched_index.fork()
    for server in cluster.places(cluster.flexible_mask):
        if index.lane[server.place] != OFF_SHELF:
            gpus = sum(
                count * slot.gpus_per_worker for _, slot, count in _displaceable(draft, server, priority)
            )
            if gpus:
                index.give(server.place, gpus)
    return index


def make_room(draft: Draft, slots: tuple[Slot, ...], priority: int) -> bool:
    """Take what is free of a place, and let flexible workers leave for the rest; whether any has to."""
    cluster, vacates = draft.cluster, False
    for slot in slots:
        server = cluster.server_by_id[slot.server_id]
        free = draft.index.free[server.place]
        if free > 0:
            draft.index.take(server.place, min(free, slot.gpus), Content.BASE)
        short = slot.gpus - free
        if short <= 0:
            continue
        vacates = True
        for other, theirs, count in sorted(
            _displaceable(draft, server, priority), key=lambda entry: _loss_per_gpu_s(cluster, entry[0])
        ):
            workers = min(count, -(-short // theirs.gpus_per_worker))
            draft.shed(other, slot.server_id, workers, Cause.BASE_DEMAND)
            short -= workers * theirs.gpus_per_worker
            if short <= 0:
                break
    return vacates


def settle(draft: Draft, server_ids: Iterable[str]) -> None:
    """Bring the index to what will be free on these servers once the draft has been carried out.

    Claims are served from leaving GPUs first, and more may leave than was needed; so more can be free
    than was left over while the place was put together.
    """
    for server_id in server_ids:
        server = draft.cluster.server_by_id[server_id]
        if draft.index.lane[server.place] == OFF_SHELF:
            continue
        vacated = sum(
            slot.gpus_per_worker
            * (slot.workers if job_id in draft.preemptions else draft.shed_on(job_id, server_id))
            for job_id, slot in server.jobs.items()
        )
        claimed = launched = 0
        for job_id, start in draft.starts.items():
            gpus = sum(slot.gpus for slot in start.slots if slot.server_id == server_id)
            if job_id in draft.claiming:
                claimed += gpus
            else:
                launched += gpus
        kept = server.used - vacated + launched
        busy = kept + max(server.held + claimed, server.leaving + vacated)
        draft.index.put(server.place, draft.index.lane[server.place], server.spec.gpus - busy)


def _displaceable(draft: Draft, server: Server, priority: int) -> list[tuple[Job, Slot, int]]:
    """Jobs with flexible workers on a server that may be displaced: the job, its slot, and how many workers
    are left.
    """
    found = []
    for job_id, slot in server.jobs.items():
        if not slot.flexible or job_id in draft.preemptions:
            continue
        job = draft.cluster.live.get(job_id)
        if job is None or job.spec.priority > priority:
            continue
        count = slot.flexible - draft.shed_on(job_id, server.spec.server_id)
        if count > 0:
            found.append((job, slot, count))
    return found


def _loss_per_gpu_s(cluster: Cluster, job: Job) -> tuple[int, float]:
    """Priority first, then the seconds by which the job's end moves back for each GPU that it loses."""
    spec, workers = job.spec, job.workers
    base_speed = spec.speedup(spec.min_workers)
    slower = base_speed / spec.speedup(max(workers - 1, 1)) - base_speed / spec.speedup(workers)
    return spec.priority, remaining_or_guess_s(job, cluster.now) * slower / spec.gpus_per_worker
