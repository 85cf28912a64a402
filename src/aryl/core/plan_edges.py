"""May this plan be committed? Looked at before anything is written, so that it is committed as a whole or not
at all.

`check` refuses what a policy shouldn't want; this refuses what can't be: a second attempt of a job that runs,
workers on GPUs that somebody else still occupies, a server that changes hands along no edge of its table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from aryl.core.cluster import Cluster, Job
from aryl.core.model import JobState, Pool, Slot, Tenure, check_job_edge, check_tenure_edge
from aryl.core.plan import Launch, Loan, Plan, Reclaim, Release, Reserve, Resize, Return, Stop
from aryl.core.server import Server
from aryl.errors import IllegalTransitionError


def refuse_illegal(cluster: Cluster, plan: Plan) -> None:
    """Raise IllegalTransitionError unless every step of the plan can be taken."""
    touched: set[str] = set()
    taken: dict[str, int] = {}
    tenures: dict[str, Tenure] = {}
    for step in plan.steps:
        match step:
            case Launch():
                job = _job(cluster, step.job_id, touched)
                check_job_edge(step.job_id, job.state, JobState.STARTING)
                if step.attempt != job.attempt + 1:
                    raise IllegalTransitionError(
                        f"job {step.job_id} has had {job.attempt} attempts, {step.attempt} isn't the next"
                    )
                _take(cluster, step.job_id, step.slots, taken, tenures)
            case Resize():
                job = _live_job(cluster, step.job_id, step.attempt, touched)
                check_job_edge(step.job_id, job.state, JobState.RESIZING)
                if step.revision != job.revision + 1:
                    raise IllegalTransitionError(
                        f"job {step.job_id} is at revision {job.revision}, {step.revision} isn't the next"
                    )
                for slot in step.remove:
                    have = job.slots.get(slot.server_id)
                    if have is None or have.base < slot.base or have.flexible < slot.flexible:
                        raise IllegalTransitionError(
                            f"job {step.job_id} has no such workers on {slot.server_id} to take away"
                        )
                _take(cluster, step.job_id, step.add, taken, tenures)
            case Stop():
                job = _live_job(cluster, step.job_id, step.attempt, touched)
                if job.state is not JobState.CANCELLING:
                    check_job_edge(step.job_id, job.state, JobState.PREEMPTING)
            case Reserve():
                job = _job(cluster, step.claim.job_id, touched)
                if job.state is not JobState.PENDING or step.claim.job_id in cluster.claims:
                    raise IllegalTransitionError(
                        f"job {step.claim.job_id} can't claim a place: it isn't waiting"
                    )
                for slot in step.claim.slots:
                    _server(cluster, slot.server_id)
            case Loan():
                server = _check_tenure(cluster, step.server_id, tenures, Tenure.ON_LOAN)
                if server.spec.pool is not Pool.INFERENCE:
                    raise IllegalTransitionError(f"server {step.server_id} belongs to the training pool")
            case Reclaim():
                _check_tenure(cluster, step.server_id, tenures, Tenure.RECLAIMING)
            case Return():
                server = _check_tenure(cluster, step.server_id, tenures, Tenure.OWNED)
                if server.jobs or server.leaving:
                    raise IllegalTransitionError(f"server {step.server_id} can't go back: it isn't empty")
            case Release():
                pass
            case _:
                assert_never(step)


def _job(cluster: Cluster, job_id: str, touched: set[str]) -> Job:
    job = cluster.jobs.get(job_id)
    if job is None:
        raise IllegalTransitionError(f"there is no job {job_id}")
    if job_id in touched:
        raise IllegalTransitionError(f"a plan has two steps for job {job_id}")
    touched.add(job_id)
    return job


def _live_job(cluster: Cluster, job_id: str, attempt: int, touched: set[str]) -> Job:
    job = _job(cluster, job_id, touched)
    if job_id not in cluster.live or job.attempt != attempt:
        raise IllegalTransitionError(f"job {job_id} has no live attempt {attempt}")
    return job


def _take(
    cluster: Cluster, job_id: str, slots: Iterable[Slot], taken: dict[str, int], tenures: dict[str, Tenure]
) -> None:
    for slot in slots:
        server = _server(cluster, slot.server_id)
        taken[slot.server_id] = taken.get(slot.server_id, 0) + slot.gpus
        if not server.up or taken[slot.server_id] > server.spec.gpus - server.used - server.leaving:
            raise IllegalTransitionError(
                f"job {job_id} can't have {slot.gpus} GPUs on {slot.server_id}: they aren't empty"
            )
        if server.spec.pool is Pool.INFERENCE:
            tenure = tenures.get(slot.server_id, server.tenure)
            if tenure is not Tenure.ON_LOAN:
                raise IllegalTransitionError(
                    f"job {job_id} can't be placed on {slot.server_id}, which is {tenure.value}"
                )


def _check_tenure(cluster: Cluster, server_id: str, tenures: dict[str, Tenure], new: Tenure) -> Server:
    server = _server(cluster, server_id)
    check_tenure_edge(server_id, tenures.get(server_id, server.tenure), new)
    tenures[server_id] = new
    return server


def _server(cluster: Cluster, server_id: str) -> Server:
    server = cluster.server_by_id.get(server_id)
    if server is None:
        raise IllegalTransitionError(f"there is no server {server_id}")
    return server
