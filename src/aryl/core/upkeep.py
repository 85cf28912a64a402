"""What has to follow from the state, whatever the policy: no choices are made here.

A claim whose place is empty becomes a launch; a job that lost workers is regrouped or stopped; a job above
its new maximum shrinks; a cancelled job is stopped; a reclaimed server that is empty goes back; what an
operator has asked of a server is done (`asked.py`).
"""

from __future__ import annotations

from aryl.core import asked
from aryl.core.asked import shrink
from aryl.core.cluster import Cluster, Job
from aryl.core.model import Slot, largest_allowed
from aryl.core.plan import Cause, Launch, Loan, Plan, Reclaim, Resize, Return, Step, Stop


def due(cluster: Cluster) -> Plan:
    """The steps that are due now; an empty plan almost always."""
    if not (cluster.troubled or cluster.claims or cluster.reclaiming_mask or cluster.asked_mask):
        return EMPTY
    steps: list[Step] = asked.due(cluster) if cluster.asked_mask else []
    changing = {step.server_id: step for step in steps if isinstance(step, Loan | Reclaim)}
    steps += [_untrouble(cluster.jobs[job_id]) for job_id in cluster.troubled]
    idle: dict[str, int] = {}
    for claim in cluster.claims.values():
        # A claim on a server that is reclaimed at this moment is void.
        void = any(isinstance(changing.get(slot.server_id), Reclaim) for slot in claim.slots)
        if _matured(cluster, claim.slots, idle) and not void:
            steps.append(Launch(claim.job_id, cluster.jobs[claim.job_id].attempt + 1, claim.slots))
    steps += [
        Return(server.spec.server_id)
        for server in cluster.places(cluster.reclaiming_mask)
        if server.used == 0 and server.leaving == 0 and server.spec.server_id not in changing
    ]
    steps += [
        Return(server_id)
        for server_id, step in changing.items()
        if isinstance(step, Reclaim) and not _occupied(cluster, server_id)
    ]
    return Plan(tuple(steps)) if steps else EMPTY


EMPTY = Plan(())


def wake_at(cluster: Cluster) -> float:
    """When something will be due of itself; inf if nothing will."""
    return asked.wake_at(cluster) if cluster.asked_mask else float("inf")


def _occupied(cluster: Cluster, server_id: str) -> bool:
    server = cluster.server_by_id[server_id]
    return bool(server.used or server.leaving)


def _matured(cluster: Cluster, slots: tuple[Slot, ...], idle: dict[str, int]) -> bool:
    """Whether the place is empty. Claims are served in the order in which they were made: what an earlier
    one waits with isn't idle for a later one.
    """
    matured = True
    for slot in slots:
        server = cluster.server_by_id[slot.server_id]
        if slot.server_id not in idle:
            idle[slot.server_id] = server.spec.gpus - server.used - server.leaving
        matured = matured and idle[slot.server_id] >= slot.gpus
    for slot in slots:
        idle[slot.server_id] = max(idle[slot.server_id] - slot.gpus, 0)
    return matured


def _untrouble(job: Job) -> Step:
    """A job in trouble goes on at the largest size that it still can have, or stops."""
    job_id, trouble = job.spec.job_id, job.trouble
    assert trouble is not None
    wanted = largest_allowed(job.sizes, min(job.workers, job.max_workers))
    if trouble in (Cause.CANCELLED, Cause.STALLED) or wanted < job.min_workers or wanted == 0:
        return Stop(job_id, job.attempt, trouble, save=trouble is Cause.LIMITS, beneficiary=job_id)
    return Resize(
        job_id, job.attempt, job.revision + 1, (), tuple(shrink(job, job.workers - wanted)), trouble
    )
