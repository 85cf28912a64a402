"""What a committed plan changes, step by step. Called by `evolve` once `plan_edges` has found it legal."""

from __future__ import annotations

from typing import assert_never

from aryl.core.cluster import Cluster, Job
from aryl.core.gang import add_slot, enter_live, leave_live, note_growth, shed, to_state
from aryl.core.model import JobState, Tenure
from aryl.core.plan import Cause, Launch, Loan, Reclaim, Release, Reserve, Resize, Return, Step, Stop
from aryl.core.server import Server


def evolve_step(cluster: Cluster, step: Step) -> None:
    """Change the cluster by one step of a plan that is being committed."""
    match step:
        case Launch():
            _launch(cluster, step)
        case Resize():
            _resize(cluster, step)
        case Stop():
            _stop(cluster, step)
        case Reserve():
            _reserve(cluster, step)
        case Release():
            for claimant, claim in tuple(cluster.claims.items()):
                if claim.claim_id == step.claim_id:
                    drop_claim(cluster, claimant)
        case Loan():
            _lend(cluster, cluster.server_by_id[step.server_id])
        case Reclaim():
            change_tenure(cluster, cluster.server_by_id[step.server_id], Tenure.RECLAIMING, step.deadline_s)
        case Return():
            go_home(cluster, cluster.server_by_id[step.server_id])
        case _:
            assert_never(step)


def drop_claim(cluster: Cluster, claimant: str) -> None:
    """The claim will not be used; its GPUs go back to everybody."""
    if claimant in cluster.claims:
        _unhold(cluster, claimant)
        cluster.claims_dropped += 1
        job = cluster.jobs.get(claimant)
        if job is not None and job.state is JobState.PENDING:
            _queue_again(cluster, job)


def drop_claims_on(cluster: Cluster, server_id: str) -> None:
    """Nothing new may be placed on this server: claims that need it can't be used."""
    for claimant, claim in tuple(cluster.claims.items()):
        if any(slot.server_id == server_id for slot in claim.slots):
            drop_claim(cluster, claimant)


def _launch(cluster: Cluster, step: Launch) -> None:
    job = cluster.jobs[step.job_id]
    to_state(job, JobState.STARTING)
    cluster.pending.discard(step.job_id)
    if step.job_id in cluster.claims:
        _unhold(cluster, step.job_id)
    job.attempt = step.attempt
    job.revision = 0
    job.launched_s = cluster.now
    job.grown_s = job.scaled_in_s = float("-inf")
    for slot in step.slots:
        add_slot(cluster, job, slot, cluster.now)
    enter_live(cluster, job)
    if job.elastic:
        cluster.elastic_launched_s = cluster.now


def _resize(cluster: Cluster, step: Resize) -> None:
    job = cluster.live[step.job_id]
    to_state(job, JobState.RESIZING)
    job.revision = step.revision
    job.trouble = None
    job.progress.set_rate(cluster.now, 0.0)
    for slot in step.remove:
        shed(cluster, job, slot, cluster.now)
    for slot in step.add:
        add_slot(cluster, job, slot, cluster.now)
    note_growth(cluster, job)
    if step.add:
        job.grown_s = cluster.grown_s = cluster.now
    if step.remove:
        job.scaled_in_s = cluster.now
        if step.cause in (Cause.BASE_DEMAND, Cause.RECLAIM):
            cluster.scaled_in_s = cluster.now
        elif step.cause is Cause.GROWTH:
            cluster.moved_s = cluster.now
    cluster.troubled.pop(step.job_id, None)


def _stop(cluster: Cluster, step: Stop) -> None:
    job = cluster.live[step.job_id]
    if job.state is not JobState.CANCELLING:
        to_state(job, JobState.PREEMPTING)
    if step.cause not in (Cause.CANCELLED, Cause.SERVER_LOST, Cause.LIMITS, Cause.STALLED):
        job.preemptions += 1
    job.at_front = step.cause in (Cause.SERVER_LOST, Cause.STALLED)
    job.stopping = True
    job.trouble = None
    job.progress.set_rate(cluster.now, 0.0)
    for slot in tuple(job.slots.values()):
        shed(cluster, job, slot, cluster.now)
    leave_live(cluster, job)
    cluster.troubled.pop(step.job_id, None)


def _reserve(cluster: Cluster, step: Reserve) -> None:
    claim = step.claim
    cluster.pending.discard(claim.job_id)
    cluster.claims[claim.job_id] = claim
    cluster.claims_made += 1
    for slot in claim.slots:
        server = cluster.server_by_id[slot.server_id]
        server.held += slot.gpus
        cluster.refresh(server)


def _unhold(cluster: Cluster, claimant: str) -> None:
    for slot in cluster.claims.pop(claimant).slots:
        server = cluster.server_by_id[slot.server_id]
        server.held -= slot.gpus
        cluster.refresh(server)


def _queue_again(cluster: Cluster, job: Job) -> None:
    cluster.pending.add(cluster.demand_class(job), cluster.queue_key(job), job.spec.job_id)


def _lend(cluster: Cluster, server: Server) -> None:
    # A reclaim that is withdrawn finds the server where it was.
    if server.tenure is Tenure.OWNED:
        server.handing_over = cluster.confirms_loans
    server.given = False
    server.recall_by_s = float("inf")
    cluster.note_asked(server)
    note_restoring(cluster, server, restoring=False)
    change_tenure(cluster, server, Tenure.ON_LOAN, 0.0)


def go_home(cluster: Cluster, server: Server) -> None:
    """The loan is over, and whatever was asked of it with it."""
    server.handing_over = False
    server.recall_by_s = float("inf")
    cluster.note_asked(server)
    change_tenure(cluster, server, Tenure.OWNED, 0.0)
    note_restoring(cluster, server, restoring=cluster.confirms_returns)


def note_restoring(cluster: Cluster, server: Server, *, restoring: bool) -> None:
    """Whether a server at home still has to load what it serves."""
    bit = 1 << server.place
    server.restoring = restoring
    cluster.restoring_mask = cluster.restoring_mask | bit if restoring else cluster.restoring_mask & ~bit


def change_tenure(cluster: Cluster, server: Server, tenure: Tenure, deadline_s: float) -> None:
    """The server stands between the pools in another way from now on."""
    bit = 1 << server.place
    server.tenure = tenure
    server.deadline_s = deadline_s
    cluster.on_loan_mask &= ~bit
    cluster.reclaiming_mask &= ~bit
    if tenure is Tenure.ON_LOAN:
        cluster.on_loan_mask |= bit
    elif tenure is Tenure.RECLAIMING:
        cluster.reclaiming_mask |= bit
        drop_claims_on(cluster, server.spec.server_id)
    cluster.refresh(server)
