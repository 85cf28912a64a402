"""The bookkeeping of workers on servers, kept in one place so that a GPU is counted once. For `evolve`
only.
"""

from __future__ import annotations

from typing import TypeVar

from aryl.core.cluster import Cluster, Job
from aryl.core.model import FINAL_STATES, JobState, Slot, check_job_edge
from aryl.core.server import Server

Key = TypeVar("Key", int, str)


def to_state(job: Job, state: JobState) -> None:
    """Move a job along an edge of its transition table. Raises IllegalTransitionError."""
    check_job_edge(job.spec.job_id, job.state, state)
    job.state = state


def regauge(cluster: Cluster, job: Job, now_s: float) -> None:
    """From now on the job makes progress at the rate of its live workers."""
    job.progress.set_rate(now_s, cluster.rate(job.spec, job.kinds))


def add_slot(cluster: Cluster, job: Job, slot: Slot, now_s: float) -> None:
    """Put workers on a server."""
    server = cluster.server_by_id[slot.server_id]
    job.settle_attained(now_s)
    old = job.slots.get(slot.server_id)
    merged = (
        slot
        if old is None
        else slot._replace(base=old.base + slot.base, flexible=old.flexible + slot.flexible)
    )
    _write(cluster, job, server, old, merged)


def drop_slot(cluster: Cluster, job: Job, server_id: str, now_s: float) -> Slot:
    """Take all of a job's live workers off a server; returns what stood there."""
    server = cluster.server_by_id[server_id]
    job.settle_attained(now_s)
    old = job.slots[server_id]
    _write(cluster, job, server, old, None)
    return old


def shed(cluster: Cluster, job: Job, slot: Slot, now_s: float) -> None:
    """Tell `slot.base` and `slot.flexible` workers on a server to leave; their GPUs are leaving until
    `Vacated`.
    """
    server = cluster.server_by_id[slot.server_id]
    job.settle_attained(now_s)
    old = job.slots[slot.server_id]
    left = old._replace(base=old.base - slot.base, flexible=old.flexible - slot.flexible)
    server.leaving += slot.gpus
    cluster.leaving_mask |= 1 << server.place
    job.leaving[slot.server_id] = job.leaving.get(slot.server_id, 0) + slot.gpus
    _write(cluster, job, server, old, left if left.workers else None)


def release_leaving(cluster: Cluster, job: Job, server_id: str, gpus: int) -> None:
    """The workers that were told to leave are gone."""
    have = job.leaving.get(server_id, 0)
    gone = min(gpus, have)
    if gone == 0:
        return
    if gone == have:
        del job.leaving[server_id]
    else:
        job.leaving[server_id] = have - gone
    server = cluster.server_by_id[server_id]
    server.leaving -= gone
    if not server.leaving:
        cluster.leaving_mask &= ~(1 << server.place)
    cluster.refresh(server)


def relabel(cluster: Cluster, job: Job) -> None:
    """Make exactly `min_workers` workers base ones (all, if there are fewer); servers in the order they were
    taken.
    """
    short = min(job.min_workers, job.workers) - job.base
    for server_id, old in tuple(job.slots.items()):
        moved = max(min(short, old.flexible), -old.base) if short else 0
        if moved:
            new = old._replace(base=old.base + moved, flexible=old.flexible - moved)
            _write(cluster, job, cluster.server_by_id[server_id], old, new)
            short -= moved


def dismiss(cluster: Cluster, job: Job, slot: Slot, now_s: float) -> None:
    """`slot.workers` workers of a server are gone, flexible ones first; their GPUs are free at once."""
    old = job.slots.get(slot.server_id)
    if old is None:
        return
    server = cluster.server_by_id[slot.server_id]
    job.settle_attained(now_s)
    flexible = min(slot.workers, old.flexible)
    base = min(slot.workers - flexible, old.base)
    left = old._replace(base=old.base - base, flexible=old.flexible - flexible)
    _write(cluster, job, server, old, left if left.workers else None)


def end_job(cluster: Cluster, job: Job, state: JobState, now_s: float) -> None:
    """The job is over: all that it held is free."""
    to_state(job, state)
    _leave_all(cluster, job, now_s)
    if state in FINAL_STATES:
        del cluster.jobs[job.spec.job_id]
        cluster.ended[job.spec.job_id] = state


def queue_again(cluster: Cluster, job: Job, now_s: float, kept_s: float) -> None:
    """The attempt is over, all its workers are gone, and the job waits for the next one."""
    to_state(job, JobState.PENDING)
    _leave_all(cluster, job, now_s)
    job.stopping = job.finishing = False
    job.trouble = None
    job.min_workers, job.max_workers = job.limits
    job.progress.restart(now_s, kept_s)
    job.pending_since_s = cluster.now = now_s
    cluster.pending.add(cluster.demand_class(job), cluster.queue_key(job), job.spec.job_id)


def _leave_all(cluster: Cluster, job: Job, now_s: float) -> None:
    job.settle_attained(now_s)
    for server_id in tuple(job.slots):
        _write(cluster, job, cluster.server_by_id[server_id], job.slots[server_id], None)
    for server_id, gpus in tuple(job.leaving.items()):
        release_leaving(cluster, job, server_id, gpus)
    leave_live(cluster, job)
    cluster.troubled.pop(job.spec.job_id, None)


def enter_live(cluster: Cluster, job: Job) -> None:
    """The job runs from now on."""
    cluster.live[job.spec.job_id] = job
    note_growth(cluster, job)
    priority = job.spec.priority
    cluster.live_by_priority[priority] = cluster.live_by_priority.get(priority, 0) + 1


def note_growth(cluster: Cluster, job: Job) -> None:
    """Keep account of whether a live job has flexible demand, and whether that is met."""
    job_id = job.spec.job_id
    if job.elastic:
        cluster.elastic[job_id] = job
    else:
        cluster.elastic.pop(job_id, None)
    if job.elastic and job.workers < job.max_workers:
        cluster.growable[job_id] = job
    else:
        cluster.growable.pop(job_id, None)


def leave_live(cluster: Cluster, job: Job) -> None:
    """The job runs no longer, if it did."""
    if cluster.live.pop(job.spec.job_id, None) is None:
        return
    cluster.elastic.pop(job.spec.job_id, None)
    cluster.growable.pop(job.spec.job_id, None)
    priority = job.spec.priority
    left = cluster.live_by_priority[priority] - 1
    if left:
        cluster.live_by_priority[priority] = left
    else:
        del cluster.live_by_priority[priority]


def _write(cluster: Cluster, job: Job, server: Server, old: Slot | None, new: Slot | None) -> None:
    """Replace what a job has on a server, in the job, the server and every count."""
    job_id = job.spec.job_id
    base = (new.base if new else 0) - (old.base if old else 0)
    flexible = (new.flexible if new else 0) - (old.flexible if old else 0)
    per_worker = (new or old or Slot("", 0, 0, 0)).gpus_per_worker
    if new is None:
        job.slots.pop(server.spec.server_id, None)
        server.jobs.pop(job_id, None)
    else:
        job.slots[server.spec.server_id] = new
        server.jobs[job_id] = new
    job.base += base
    job.flexible += flexible
    gpus = (base + flexible) * per_worker
    job.gpus += gpus
    server.used += gpus
    _count(job.kinds, server.spec.gpu_type, base + flexible)
    if flexible:
        _count(job.flexible_on, server.shelf, flexible)
        server.flexible_gpus += flexible * per_worker
        cluster.shelf_flexible[server.shelf] += flexible * per_worker
        if server.flexible_gpus:
            cluster.flexible_mask |= 1 << server.place
        else:
            cluster.flexible_mask &= ~(1 << server.place)
    if job.spec.project:
        held = cluster.project_gpus.get(job.spec.project, 0) + base * job.spec.gpus_per_worker
        cluster.project_gpus[job.spec.project] = held
    cluster.refresh(server)


def _count(counts: dict[Key, int], key: Key, change: int) -> None:
    left = counts.get(key, 0) + change
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)
