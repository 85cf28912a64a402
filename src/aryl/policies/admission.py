"""Phase 1: which waiting jobs start now, at base demand.

The queue is walked in the policy's order. Strict: the first that doesn't fit blocks the rest. Otherwise it
is passed over, and with it all others of the same demand, since what doesn't fit for one of them doesn't
fit for the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from aryl.core.cluster import Cluster, Job
from aryl.policies.draft import Draft
from aryl.policies.placement import Scatter, place_base

Starter = Callable[[Draft, Job], bool]


def could_fit(cluster: Cluster, draft: Draft, job: Job, *, extra: bool = False) -> bool:
    """A cheap test that fails only where `place_base` would: enough GPUs free on shelves that the job
    accepts.

    `extra` counts GPUs of flexible workers as free.
    """
    index = draft.untouched_index
    free_workers = 0
    for stand in cluster.stands(job.spec):
        gpus = index.shelf_free(stand.shelf)
        if extra:
            gpus += cluster.shelf_flexible[stand.shelf]
        free_workers += gpus // stand.gpus_per_worker
    return free_workers >= job.min_workers


def start_where_free(scatter: Scatter) -> Starter:
    """A starter that uses free GPUs only."""

    def start(draft: Draft, job: Job) -> bool:
        if not could_fit(draft.cluster, draft, job):
            return False
        slots = place_base(draft.index, draft.cluster, job.spec, job.min_workers, scatter)
        if slots is None:
            return False
        draft.start(job, slots)
        return True

    return start


def admit(draft: Draft, starters: tuple[Starter, ...], *, strict: bool) -> None:
    """Walk the queue and start what can be started; for each job the starters are tried in turn."""
    walk_until_done(draft, starters, strict=strict, allowed=None)


def walk_until_done(
    draft: Draft, starters: tuple[Starter, ...], *, strict: bool, allowed: Callable[[Job], bool] | None
) -> None:
    """The same for jobs that are `allowed` to start; the others are passed over, one by one.

    Where projects have shares, a start may put a project above its own, and so entitle a job that was
    passed over before it: then the queue is walked again.
    """
    started = _walk(draft, starters, strict, allowed)
    while started and draft.cluster.guaranteed:
        started = _walk(draft, starters, strict, allowed)


def _walk(
    draft: Draft, starters: tuple[Starter, ...], strict: bool, allowed: Callable[[Job], bool] | None
) -> bool:
    cluster, started = draft.cluster, False
    walk = cluster.pending.walk()
    while walk.next():
        job = cluster.jobs[walk.job_id]
        if walk.job_id in draft.starts or (allowed is not None and not allowed(job)):
            # One that isn't allowed says nothing about those behind it in its class: they may be shorter.
            walk.skip_job()
        elif any(starter(draft, job) for starter in starters):
            started = True
            walk.skip_job()
        elif strict:
            break
        else:
            walk.skip_class()
    return started
