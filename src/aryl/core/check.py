"""`check(cluster, decision)`: an error in a policy is found where it is made.

Refuses a decision that overbooks a GPU (counting what the same decision vacates), breaks a gang, leaves
min..max or an allowed size, places workers where they are not accepted, or acts on a job in the wrong state.
"""

from __future__ import annotations

from collections.abc import Iterable

from aryl.core.cluster import Cluster, Job
from aryl.core.decision import Decision, Rescale
from aryl.core.diff import split_starts
from aryl.core.model import JobState, Pool, Slot, Tenure, allowed_size
from aryl.core.server import Server
from aryl.errors import DecisionError


def check(cluster: Cluster, decision: Decision) -> None:
    """Raise DecisionError unless the decision can be carried out as it stands."""
    recalled = {recall.server_id for recall in decision.recall}
    lent = set(decision.lend)
    _check_loans(cluster, recalled, lent)
    for claim_id in decision.release:
        if all(claim.claim_id != claim_id for claim in cluster.claims.values()):
            raise DecisionError(f"claim {claim_id} is released, but there is none")

    touched: set[str] = set()
    for preemption in decision.preemptions:
        _live(cluster, preemption.job_id, touched)
    for rescale in decision.rescales:
        job = _live(cluster, rescale.job_id, touched)
        _check_rescale(job, rescale)
        _check_places(cluster, job, rescale.add, recalled, lent)
    for start in decision.starts:
        waiting = _waiting(cluster, start.job_id, touched)
        if sum(slot.base for slot in start.slots) != waiting.min_workers:
            raise DecisionError(
                f"job {start.job_id} would start without its gang of {waiting.min_workers} base workers"
            )
        _check_size(waiting, sum(slot.workers for slot in start.slots))
        _check_places(cluster, waiting, start.slots, recalled, lent)
    _check_room(cluster, decision)


def _check_loans(cluster: Cluster, recalled: set[str], lent: set[str]) -> None:
    for server_id in recalled:
        if _server(cluster, server_id).tenure is not Tenure.ON_LOAN:
            raise DecisionError(f"server {server_id} is recalled but not on loan")
    for server_id in lent:
        server = _server(cluster, server_id)
        if server.spec.pool is not Pool.INFERENCE:
            raise DecisionError(f"server {server_id} is lent but belongs to the training pool")
        if server.tenure is Tenure.ON_LOAN:
            raise DecisionError(f"server {server_id} is on loan already")
        if not server.lendable(cluster.now):
            raise DecisionError(f"server {server_id} is lent but takes nothing new")


def _check_rescale(job: Job, rescale: Rescale) -> None:
    job_id = rescale.job_id
    if not rescale.add and not rescale.remove:
        raise DecisionError(f"job {job_id} is resized by nothing")
    if any(slot.base for slot in (*rescale.add, *rescale.remove)):
        raise DecisionError(f"job {job_id} is resized by base workers: they come and go as a gang")
    leaving: dict[str, int] = {}
    for slot in rescale.remove:
        leaving[slot.server_id] = leaving.get(slot.server_id, 0) + slot.flexible
        have = job.slots.get(slot.server_id)
        if slot.flexible <= 0 or have is None or have.flexible < leaving[slot.server_id]:
            raise DecisionError(
                f"job {job_id} has no {slot.workers} such workers on {slot.server_id} to remove"
            )
        if slot.gpus_per_worker != have.gpus_per_worker:
            raise DecisionError(
                f"job {job_id} has workers of {have.gpus_per_worker} GPUs on {slot.server_id}, "
                f"not of {slot.gpus_per_worker}"
            )
    more = sum(slot.workers for slot in rescale.add) - sum(leaving.values())
    _check_size(job, job.workers + more)


def _check_room(cluster: Cluster, decision: Decision) -> None:
    """No GPU has two owners, and none is promised that will not come free.

    Whoever is launched or grows needs GPUs that are empty now; claims are served from leaving GPUs first.
    """
    placed: dict[str, int] = {}
    claimed: dict[str, int] = {}
    vacated: dict[str, int] = {}
    launches, claims = split_starts(cluster, decision)
    for start in launches:
        _count(placed, start.slots)
    for start in claims:
        _count(claimed, start.slots)
    for rescale in decision.rescales:
        _count(placed, rescale.add)
        _count(vacated, rescale.remove)
    for preemption in decision.preemptions:
        _count(vacated, cluster.live[preemption.job_id].slots.values())
    for server_id in {**placed, **claimed}:
        server = cluster.server_by_id[server_id]
        leaving = vacated.get(server_id, 0)
        used = server.used - leaving + placed.get(server_id, 0)
        busy = used + max(server.leaving + leaving, server.held + claimed.get(server_id, 0))
        if busy > server.spec.gpus:
            raise DecisionError(f"server {server_id} would be overbooked by {busy - server.spec.gpus} GPUs")


def _count(gpus: dict[str, int], slots: Iterable[Slot]) -> None:
    for slot in slots:
        gpus[slot.server_id] = gpus.get(slot.server_id, 0) + slot.gpus


def _live(cluster: Cluster, job_id: str, touched: set[str]) -> Job:
    job = cluster.live.get(job_id)
    if job is None:
        raise DecisionError(f"job {job_id} is not running")
    _touch(job_id, touched)
    return job


def _waiting(cluster: Cluster, job_id: str, touched: set[str]) -> Job:
    _touch(job_id, touched)
    job = cluster.jobs.get(job_id)
    if job is None or job.state is not JobState.PENDING or job_id in cluster.claims:
        raise DecisionError(f"job {job_id} is started but isn't waiting")
    return job


def _touch(job_id: str, touched: set[str]) -> None:
    if job_id in touched:
        raise DecisionError(f"job {job_id} is decided on twice")
    touched.add(job_id)


def _check_size(job: Job, size: int) -> None:
    if not job.min_workers <= size <= job.max_workers or not allowed_size(job.spec.sizes, size):
        allowed = f"one of {job.spec.sizes}" if job.spec.sizes else f"{job.min_workers}..{job.max_workers}"
        raise DecisionError(f"job {job.spec.job_id} would have {size} workers, allowed are {allowed}")


def _check_places(
    cluster: Cluster, job: Job, slots: tuple[Slot, ...], recalled: set[str], lent: set[str]
) -> None:
    job_id = job.spec.job_id
    accepted = {stand.shelf: stand.gpus_per_worker for stand in cluster.stands(job.spec)}
    kinds = {cluster.server_by_id[server_id].spec.gpu_type for server_id in job.slots}
    for slot in slots:
        server = _server(cluster, slot.server_id)
        kinds.add(server.spec.gpu_type)
        if slot.workers <= 0 or slot.base < 0 or slot.flexible < 0:
            raise DecisionError(f"job {job_id} would get no workers on {slot.server_id}")
        if accepted.get(server.shelf) != slot.gpus_per_worker:
            raise DecisionError(
                f"job {job_id} can't have workers of {slot.gpus_per_worker} GPUs on {slot.server_id}"
            )
        ready = server.placeable or (slot.server_id in lent and not cluster.confirms_loans)
        if slot.server_id in recalled or not (ready or (slot.server_id in lent and _with_us(server))):
            raise DecisionError(f"job {job_id} would be placed on {slot.server_id}, which takes nothing new")
    if len(kinds) > 1 and not job.spec.heterogeneous:
        raise DecisionError(f"job {job_id} isn't heterogeneous but would hold {sorted(kinds)}")


def _with_us(server: Server) -> bool:
    """Whether a loan that goes on finds the server ready for work."""
    return server.tenure is Tenure.RECLAIMING and not server.handing_over


def _server(cluster: Cluster, server_id: str) -> Server:
    server = cluster.server_by_id.get(server_id)
    if server is None:
        raise DecisionError(f"there is no server {server_id}")
    return server
