"""Phase 1: which waiting jobs start now, at base demand.

The queue is walked in the policy's order. Strict: the first that doesn't fit blocks the rest. Otherwise it
is passed over, and with it all others of the same demand, since what doesn't fit for one of them doesn't
fit for the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from aryl.core.cluster import Cluster, Job
from aryl.core.model import Accounting
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
    """Walk the queue and start what can be started; for each job the starters are tried in turn.

    The queue is walked again where a start may have changed what was found out about a job before it.
    """
    started = walk_queue(draft, starters, strict)
    while started and _starts_matter(draft.cluster):
        started = walk_queue(draft, starters, strict)


def _starts_matter(cluster: Cluster) -> bool:
    """Whether a start can let a job start that was passed over earlier in the walk.

    It may put its project above the project's share; or take the fast GPUs that a job was waiting for.
    """
    return (
        bool(cluster.guaranteed)
        or cluster.accounting is Accounting.SLOWER
        or any(demand.heterogeneous for demand in cluster.pending.classes)
    )


def walk_queue(
    draft: Draft,
    starters: tuple[Starter, ...],
    strict: bool,
    allowed: Callable[[Draft, Job], bool] | None = None,
) -> bool:
    """Go through the queue once; whether anything was started.

    Jobs that aren't `allowed` to start at will are passed over one by one; the test itself may start one in
    its own way.
    """
    cluster, before = draft.cluster, len(draft.starts)
    walk = cluster.pending.walk()
    while walk.next():
        job = cluster.jobs[walk.job_id]
        if walk.job_id in draft.starts or (allowed is not None and not allowed(draft, job)):
            # One that isn't allowed says nothing about those behind it in its class: they may be shorter.
            walk.skip_job()
        elif any(starter(draft, job) for starter in starters):
            walk.skip_job()
        elif strict:
            break
        else:
            walk.skip_class()
    return len(draft.starts) > before
