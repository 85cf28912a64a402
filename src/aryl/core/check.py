"""`check(cluster, decision)`: an error in a policy is found where it is made.

Refuses a decision that overbooks a GPU (counting what the same decision vacates), breaks a gang, leaves
min..max or an allowed size, places workers where they are not accepted, or acts on a job in the wrong state.
"""

from __future__ import annotations

from collections.abc import Iterable

from aryl.core.cluster import Cluster, Job
from aryl.core.decision import Decision
from aryl.core.model import JobState, Slot, Tenure, allowed_size
from aryl.errors import DecisionError


def check(cluster: Cluster, decision: Decision) -> None:
    """Raise DecisionError unless the decision can be carried out as it stands."""
    room: dict[str, int] = {}
    recalled = {recall.server_id for recall in decision.recall}
    lent = set(decision.lend)
    for server_id in recalled:
        if cluster.server_by_id[server_id].tenure is not Tenure.ON_LOAN:
            raise DecisionError(f"server {server_id} is recalled but not on loan")
    for server_id in lent:
        if cluster.server_by_id[server_id].tenure is Tenure.ON_LOAN:
            raise DecisionError(f"server {server_id} is on loan already")

    touched: set[str] = set()
    for preemption in decision.preemptions:
        job = _live(cluster, preemption.job_id, touched)
        _add_room(cluster, room, job.slots.values())
    for rescale in decision.rescales:
        job = _live(cluster, rescale.job_id, touched)
        for slot in rescale.remove:
            have = job.slots.get(slot.server_id)
            if have is None or have.base < slot.base or have.flexible < slot.flexible:
                raise DecisionError(
                    f"job {rescale.job_id} has no {slot.workers} such workers on {slot.server_id} to remove"
                )
        _add_room(cluster, room, rescale.remove)
        size = (
            job.workers
            + sum(slot.workers for slot in rescale.add)
            - sum(slot.workers for slot in rescale.remove)
        )
        _check_size(job, size)
        if not rescale.add and not rescale.remove:
            raise DecisionError(f"job {rescale.job_id} is resized by nothing")
    for start in decision.starts:
        if start.job_id in touched:
            raise DecisionError(f"job {start.job_id} is decided on twice")
        touched.add(start.job_id)
        waiting = cluster.jobs.get(start.job_id)
        if waiting is None or waiting.state is not JobState.PENDING or start.job_id in cluster.claims:
            raise DecisionError(f"job {start.job_id} is started but isn't waiting")
        if sum(slot.base for slot in start.slots) != waiting.min_workers:
            raise DecisionError(
                f"job {start.job_id} would start without its gang of {waiting.min_workers} base workers"
            )
        _check_size(waiting, sum(slot.workers for slot in start.slots))
        _take_room(cluster, room, waiting, start.slots, recalled, lent)
    for rescale in decision.rescales:
        if rescale.add:
            _take_room(cluster, room, cluster.jobs[rescale.job_id], rescale.add, recalled, lent)
            free_only = {slot.server_id: slot.gpus for slot in rescale.add}
            for server_id, gpus in free_only.items():
                if gpus > _free(cluster, server_id):
                    raise DecisionError(
                        f"job {rescale.job_id} would grow on {server_id} onto GPUs that are still occupied"
                    )
    for server_id, left in room.items():
        if left < 0:
            raise DecisionError(f"server {server_id} would be overbooked by {-left} GPUs")


def _live(cluster: Cluster, job_id: str, touched: set[str]) -> Job:
    job = cluster.live.get(job_id)
    if job is None:
        raise DecisionError(f"job {job_id} is not running")
    if job_id in touched:
        raise DecisionError(f"job {job_id} is decided on twice")
    touched.add(job_id)
    return job


def _check_size(job: Job, size: int) -> None:
    if not job.min_workers <= size <= job.max_workers or not allowed_size(job.spec.sizes, size):
        allowed = f"one of {job.spec.sizes}" if job.spec.sizes else f"{job.min_workers}..{job.max_workers}"
        raise DecisionError(f"job {job.spec.job_id} would have {size} workers, allowed are {allowed}")


def _free(cluster: Cluster, server_id: str) -> int:
    server = cluster.server_by_id[server_id]
    return server.free


def _add_room(cluster: Cluster, room: dict[str, int], slots: Iterable[Slot]) -> None:
    for slot in slots:
        server_id = slot.server_id
        room[server_id] = room.get(server_id, _free(cluster, server_id)) + slot.gpus


def _take_room(
    cluster: Cluster,
    room: dict[str, int],
    job: Job,
    slots: tuple[Slot, ...],
    recalled: set[str],
    lent: set[str],
) -> None:
    accepted = {stand.shelf: stand.gpus_per_worker for stand in cluster.stands(job.spec)}
    kinds = {cluster.server_by_id[server_id].spec.gpu_type for server_id in job.slots}
    for slot in slots:
        server = cluster.server_by_id[slot.server_id]
        kinds.add(server.spec.gpu_type)
        if slot.workers <= 0 or slot.base < 0 or slot.flexible < 0:
            raise DecisionError(f"job {job.spec.job_id} would get no workers on {slot.server_id}")
        if accepted.get(server.shelf) != slot.gpus_per_worker:
            raise DecisionError(
                f"job {job.spec.job_id} can't have workers of {slot.gpus_per_worker} GPUs on {slot.server_id}"
            )
        if slot.server_id in recalled or not (server.placeable or slot.server_id in lent):
            raise DecisionError(
                f"job {job.spec.job_id} would be placed on {slot.server_id}, which takes nothing new"
            )
        room[slot.server_id] = room.get(slot.server_id, _free(cluster, slot.server_id)) - slot.gpus
    if len(kinds) > 1 and not job.spec.heterogeneous:
        raise DecisionError(f"job {job.spec.job_id} isn't heterogeneous but would hold {sorted(kinds)}")
