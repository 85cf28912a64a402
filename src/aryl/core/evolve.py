"""`evolve(cluster, event)`: the only door through which a cluster changes.

Each event has one handler. A handler checks before it writes, so an illegal event raises and leaves the state
as it was. Reports about an attempt or a revision that is over change nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from aryl.core import events as ev
from aryl.core.cluster import Cluster, Demand, Job
from aryl.core.evolve_plan import drop_claim, drop_claims_on, evolve_step
from aryl.core.evolve_server import evolve_server
from aryl.core.gang import (
    dismiss,
    drop_slot,
    end_job,
    note_growth,
    queue_again,
    regauge,
    relabel,
    release_leaving,
    to_state,
)
from aryl.core.joining import declare, join
from aryl.core.model import LIVE_STATES, JobSpec, JobState, allowed_size, largest_allowed
from aryl.core.plan import Cause
from aryl.core.plan_edges import refuse_illegal
from aryl.core.server import Server
from aryl.errors import IllegalTransitionError

ENDLESS_S = float("inf")


def evolve(cluster: Cluster, event: ev.Event) -> None:
    """Change the cluster by one fact. Raises IllegalTransitionError, changing nothing, for a fact that can't
    be.
    """
    if not cluster.now <= event.at < ENDLESS_S:  # nor is NaN a time
        raise IllegalTransitionError(
            f"{type(event).__name__} at {event.at} s is no time, or before the cluster's time {cluster.now} s"
        )
    match event:
        case ev.Finished():
            _finished(cluster, event)
        case ev.PlanCommitted():
            refuse_illegal(cluster, event.plan)
            cluster.now = event.at
            for step in event.plan.steps:
                evolve_step(cluster, step)
        case ev.Submitted():
            _submitted(cluster, event)
        case ev.Launched():
            job = _current(cluster, event.job_id, event.attempt)
            if job and job.state is JobState.STARTING:
                _running(cluster, job, event.at)
        case ev.Resized():
            job = _current(cluster, event.job_id, event.attempt)
            if job and job.state is JobState.RESIZING and job.revision == event.revision:
                _running(cluster, job, event.at)
        case ev.Vacated():
            job = _current(cluster, event.job_id, event.attempt)
            if job:
                for slot in event.slots:
                    release_leaving(cluster, job, slot.server_id, slot.gpus)
        case ev.Stopped():
            _stopped(cluster, event)
        case ev.DemandReported():
            headroom = event.headroom_servers
            cluster.demand = Demand(
                event.at if event.measured_s is None else event.measured_s,
                event.need_servers,
                event.forecast_servers,
                cluster.headroom_servers if headroom is None else headroom,
                dict(event.hosting),
            )
            cluster.telemetry_lost = False
        case ev.CancelRequested():
            _cancel_requested(cluster, event)
        case ev.LimitsChanged():
            _limits_changed(cluster, event)
        case ev.Failed():
            job = _current(cluster, event.job_id, event.attempt)
            if job:
                end_job(cluster, job, JobState.FAILED, event.at)
        case ev.ServerLost():
            _server_lost(cluster, event)
        case (
            ev.ServerReturned()
            | ev.ServerDrained()
            | ev.HealthChanged()
            | ev.HandedOver()
            | ev.BackInService()
            | ev.LoanCalledOff()
            | ev.GiveRequested()
            | ev.ReclaimRequested()
        ):
            evolve_server(cluster, server_named(cluster, event.server_id), event)
        case ev.Crashed():
            _crashed(cluster, event)
        case ev.WorkersDone():
            _workers_done(cluster, event)
        case ev.Stalled():
            job = _current(cluster, event.job_id, event.attempt)
            if job and job.state in LIVE_STATES:
                _trouble(cluster, job, Cause.STALLED)
        case ev.Learned():
            _learned(cluster, event)
        case ev.TelemetryLost():
            cluster.telemetry_lost = True
        case ev.ClusterDeclared():
            declare(cluster, event)
        case ev.ServersJoined():
            join(cluster, event)
        case ev.LendingLimited():
            cluster.lending_limit = event.most_servers
        case ev.Tick() | ev.Refused() | ev.WorkerReplaced() | ev.NeedChanged():
            pass
        case _:
            assert_never(event)
    cluster.now = event.at


def _submitted(cluster: Cluster, event: ev.Submitted) -> None:
    spec = event.job
    if spec.job_id in cluster.jobs or spec.job_id in cluster.ended:
        raise IllegalTransitionError(f"job {spec.job_id} was submitted before")
    _check_limits(spec, spec.min_workers, spec.max_workers)
    job = Job(spec, event.at)
    cluster.jobs[spec.job_id] = job
    cluster.now = event.at
    cluster.pending.add(cluster.demand_class(job), cluster.queue_key(job), spec.job_id)


def _check_limits(spec: JobSpec, min_workers: int, max_workers: int) -> None:
    if not 1 <= min_workers <= max_workers:
        raise IllegalTransitionError(f"job {spec.job_id}: workers {min_workers}..{max_workers} is no range")
    if not allowed_size(spec.sizes, min_workers):
        raise IllegalTransitionError(
            f"job {spec.job_id}: a gang of {min_workers} workers is none of its sizes {spec.sizes}"
        )


def _running(cluster: Cluster, job: Job, now_s: float) -> None:
    to_state(job, JobState.RUNNING)
    # One that has just lost workers stands still until `upkeep` has regrouped it.
    if job.trouble is not Cause.SERVER_LOST:
        regauge(cluster, job, now_s)


def _finished(cluster: Cluster, event: ev.Finished) -> None:
    job = _current(cluster, event.job_id, event.attempt)
    if job:
        end_job(cluster, job, JobState.SUCCEEDED, event.at)


def _stopped(cluster: Cluster, event: ev.Stopped) -> None:
    job = _current(cluster, event.job_id, event.attempt)
    if job is None or not job.stopping:
        return
    if job.state is JobState.CANCELLING:
        end_job(cluster, job, JobState.CANCELLED, event.at)
    else:
        queue_again(cluster, job, event.at, event.kept_s)


def _crashed(cluster: Cluster, event: ev.Crashed) -> None:
    job = _current(cluster, event.job_id, event.attempt)
    if job is None:
        return
    if job.state is JobState.CANCELLING:
        end_job(cluster, job, JobState.CANCELLED, event.at)
        return
    if not job.stopping:
        job.failures += 1
        if job.failures >= job.spec.max_failures:
            end_job(cluster, job, JobState.FAILED, event.at)
            return
        job.at_front = True
    queue_again(cluster, job, event.at, event.kept_s)


def _workers_done(cluster: Cluster, event: ev.WorkersDone) -> None:
    """The gang is on its way out: it needs those that are left, and no others."""
    job = _current(cluster, event.job_id, event.attempt)
    if job is None or job.spec.job_id not in cluster.live:
        return
    job.finishing = True
    for slot in event.slots:
        dismiss(cluster, job, slot, event.at)
    # One that has lost a server in the same breath isn't whole without the workers that were there.
    missing = 1 if job.trouble is Cause.SERVER_LOST else 0
    job.min_workers = job.max_workers = job.workers + missing
    if job.trouble is Cause.LIMITS:
        job.trouble = None
        cluster.troubled.pop(event.job_id, None)
    relabel(cluster, job)
    note_growth(cluster, job)
    if job.progress.rate > 0.0 and job.workers:
        regauge(cluster, job, event.at)


def _learned(cluster: Cluster, event: ev.Learned) -> None:
    job = _current(cluster, event.job_id, event.attempt)
    if job is None:
        return
    job.progress.learn(event.at, event.done_s, event.saved_s)
    if event.estimate_s is not None or event.speedup is not None:
        job.spec = replace(
            job.spec,
            estimate_s=job.spec.estimate_s if event.estimate_s is None else event.estimate_s,
            speedup=event.speedup or job.spec.speedup,
        )
        if job.progress.rate > 0.0:
            regauge(cluster, job, event.at)


def _cancel_requested(cluster: Cluster, event: ev.CancelRequested) -> None:
    job = cluster.jobs.get(event.job_id)
    if job is None or job.state is JobState.CANCELLING:
        return
    if job.state is JobState.PENDING:
        drop_claim(cluster, event.job_id)
        cluster.pending.discard(event.job_id)
        end_job(cluster, job, JobState.CANCELLED, event.at)
        return
    to_state(job, JobState.CANCELLING)
    if not job.stopping:
        _trouble(cluster, job, Cause.CANCELLED)


def _limits_changed(cluster: Cluster, event: ev.LimitsChanged) -> None:
    job = cluster.jobs.get(event.job_id)
    if job is None or job.state is JobState.CANCELLING:
        return
    _check_limits(job.spec, event.min_workers, event.max_workers)
    job.limits = event.min_workers, event.max_workers
    if job.finishing:
        return
    job.min_workers, job.max_workers = event.min_workers, event.max_workers
    if job.state is JobState.PENDING:
        drop_claim(cluster, event.job_id)
        cluster.pending.discard(event.job_id)
        cluster.now = event.at
        cluster.pending.add(cluster.demand_class(job), cluster.queue_key(job), event.job_id)
    elif job.state in LIVE_STATES:
        relabel(cluster, job)
        note_growth(cluster, job)
        wanted = largest_allowed(job.spec.sizes, min(job.workers, job.max_workers))
        if job.trouble is None and (wanted != job.workers or wanted < job.min_workers):
            _trouble(cluster, job, Cause.LIMITS)


def _server_lost(cluster: Cluster, event: ev.ServerLost) -> None:
    server = server_named(cluster, event.server_id)
    if not server.up:
        return
    server.up = False
    cluster.note_asked(server)
    drop_claims_on(cluster, event.server_id)
    for job_id in tuple(server.jobs):
        job = cluster.jobs[job_id]
        drop_slot(cluster, job, event.server_id, event.at)
        # The others can't go on alone: they stand still until `upkeep` regroups or stops them.
        job.progress.set_rate(event.at, 0.0)
        relabel(cluster, job)
        note_growth(cluster, job)
        if job.trouble not in (Cause.CANCELLED, Cause.STALLED):
            _trouble(cluster, job, Cause.SERVER_LOST)
    for job in cluster.jobs.values() if server.leaving else ():
        if event.server_id in job.leaving:
            release_leaving(cluster, job, event.server_id, job.leaving[event.server_id])
    cluster.refresh(server)


def _trouble(cluster: Cluster, job: Job, cause: Cause) -> None:
    job.trouble = cause
    cluster.troubled[job.spec.job_id] = None


def server_named(cluster: Cluster, server_id: str) -> Server:
    """The server of that name. Raises IllegalTransitionError if there is none."""
    server = cluster.server_by_id.get(server_id)
    if server is None:
        raise IllegalTransitionError(f"there is no server {server_id}")
    return server


def _current(cluster: Cluster, job_id: str, attempt: int) -> Job | None:
    """The job, if the report is about its present attempt; None for a late one. A waiting job has none."""
    job = cluster.jobs.get(job_id)
    if job is None or job.attempt != attempt or job.state is JobState.PENDING:
        return None
    return job
