"""Folds the events of a run into its outcome, one by one, as they happen.

It sits on the hot path, so it does the least that is needed: one small record a job, one row of levels for
each instant at which one of them changed, and running sums. Everything that can be computed from the levels
afterwards (usage, shortfall, plots) is left to `figures.py`, which does it for all instants at once.
Holdings are read from the state and not from the steps of plans, so that they can't drift away from it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import assert_never

import numpy as np

from aryl.core import events as ev
from aryl.core.cluster import Cluster, Job
from aryl.core.model import Accounting, JobSpec, JobState, Pool
from aryl.core.plan import Cause, Launch, Loan, Reclaim, Release, Reserve, Resize, Return, Stop
from aryl.report import figures
from aryl.report.bound import Bound
from aryl.report.job_record import JobRecord, job_table
from aryl.report.outcome import SUCCEEDED, Loans, Outcome, ServerColumn, Totals
from aryl.report.stretches import Stretches

# Stops that aren't preemptions: nobody else got the place.
NO_PREEMPTION = frozenset({Cause.CANCELLED, Cause.LIMITS, Cause.SERVER_LOST})

_NEVER = float("nan")


class Recorder:
    """A `Watcher` that turns a run into an `Outcome`.

    `schedule`: keep the rows of schedule.csv and trace.json too, which costs time and memory.
    """

    def __init__(self, *, schedule: bool = False) -> None:
        self._stretches = Stretches() if schedule else None
        self._cluster: Cluster | None = None
        self._servers: tuple[ServerColumn, ...] = ()
        self._owned: list[tuple[float, int, int, int]] = []  # rows of `figures.Owned`
        self._accounting = Accounting.MORE_GPUS
        self._inference: frozenset[str] = frozenset()
        self._jobs: dict[str, JobRecord] = {}
        self._first_submit_s = self._last_submit_s = -math.inf
        self._now_s = 0.0  # the instant of the latest event
        self._events = 0

        # Levels that hold now, and their history: a flat array, a row for each instant at which one changed.
        self._training_gpus = self._loaned_gpus = self._pending = 0
        self._need_servers = self._forecast_servers = 0.0
        self._on_loan = self._have_servers = 0
        self._demand_since_s = float("inf")
        self._changed = False
        self._levels = array("d")

        self._open_loans: dict[str, int] = {}
        self._loans: list[tuple[int, float, float, float]] = []  # server's place, lent, reclaimed, returned
        self._preemptions = self._collateral_gpus = self._resizes = self._reclaims = 0

    def saw(self, event: ev.Event, cluster: Cluster) -> None:
        """Take in one event. `cluster` is the state after it."""
        now_s = event.at
        self._events += 1
        if now_s != self._now_s:
            if self._changed:
                self._levels.extend(self._level_row())
                self._changed = False
            self._now_s = now_s
        match event:
            case (
                ev.Launched()
                | ev.Resized()
                | ev.Tick()
                | ev.ServerDrained()
                | ev.HandedOver()
                | ev.LendingLimited()
                | ev.GiveRequested()
                | ev.ReclaimRequested()
                | ev.TelemetryLost()
                | ev.Learned()
                | ev.Stalled()
                | ev.WorkerReplaced()
            ):
                pass
            case ev.PlanCommitted():
                for step in event.plan.steps:
                    match step:
                        case Launch():
                            self._launched(step, cluster)
                        case Resize():
                            self._resized(step, cluster)
                        case Stop():
                            self._told_to_stop(step, cluster)
                        case Loan():
                            self._lent(step.server_id, cluster)
                        case Reclaim():
                            self._recalled(step.server_id, cluster)
                        case Return():
                            self._returned(step.server_id, cluster)
                        case Reserve() | Release():
                            pass
                        case _:
                            assert_never(step)
            case ev.Submitted():
                self._submitted(event)
            case ev.Finished() | ev.Failed():
                self._maybe_over(event.job_id, cluster)
            case ev.Stopped():
                self._stopped(event, cluster)
            case ev.Vacated():
                job = cluster.jobs.get(event.job_id)
                if job is not None and job.attempt == event.attempt:
                    record = self._jobs[event.job_id]
                    if self._stretches is not None:
                        self._stretches.gone(record.number, event.slots)
                    self._settle(record, job, cluster)
            case ev.DemandReported():
                self._need_servers, self._forecast_servers = event.need_servers, event.forecast_servers
                self._demand_since_s = min(self._demand_since_s, now_s)
                self._changed = True
            case ev.NeedChanged():
                self._need_servers = event.need_servers
                self._changed = True
            case ev.BackInService():
                self._count_servers(cluster)
            case ev.Crashed():
                self._crashed(event, cluster)
            case ev.WorkersDone():
                job = cluster.jobs.get(event.job_id)
                if job is not None:
                    self._settle(self._jobs[event.job_id], job, cluster)
            case ev.HealthChanged():
                self._count_servers(cluster)
            case ev.LoanCalledOff():
                self._returned(event.server_id, cluster)
            case ev.CancelRequested():
                self._maybe_over(event.job_id, cluster)
            case ev.LimitsChanged():
                job = cluster.jobs.get(event.job_id)
                if job is not None:
                    self._settle(self._jobs[event.job_id], job, cluster)
            case ev.ServerLost() | ev.ServerReturned():
                for job_id, job in cluster.jobs.items():
                    self._settle(self._jobs[job_id], job, cluster)
                self._count_servers(cluster)
            case ev.Refused():
                # A known id that is refused is a second submission of it: the job itself is here already.
                if event.job_id not in self._jobs:
                    self._jobs[event.job_id] = JobRecord(event.job_id, len(self._jobs), now_s, None)
            case ev.ClusterDeclared():
                self._cluster = cluster
                self._accounting = event.accounting
                self._note_servers(cluster)
            case ev.ServersJoined():
                self._note_servers(cluster)
            case _:
                assert_never(event)

    def outcome(
        self,
        *,
        policy: str,
        trace: str,
        seed: int,
        durations_s: Mapping[str, float],
        bound: Bound,
        policy_wall_s: float = 0.0,
        wall_s: float = 0.0,
        events: int | None = None,
        end_s: float | None = None,
        refused: Mapping[str, JobSpec] | None = None,
        notes: tuple[str, ...] = (),
    ) -> Outcome:
        """What the run has come to so far; the recorder may go on afterwards.

        `durations_s` are true running times at base demand by job; `bound` knows what any scheduler could
        reach; `end_s` is when the run ended if that was after its last event; `refused` holds the specs of
        refused jobs, so that jobs.csv can say what they wanted; `notes` go before the recorder's own. Raises
        KeyError for a finished job that `bound` doesn't know.
        """
        end_s = self._now_s if end_s is None else max(end_s, self._now_s)
        levels = figures.Levels.of(self._levels, self._level_row(), end_s)
        jobs = job_table(self._jobs.values(), self._states(), durations_s, refused or {}, end_s)
        loans = self._loan_table()
        finished = [name for name, state in zip(jobs.job_id, jobs.state, strict=True) if state == SUCCEEDED]
        totals = Totals(
            makespan_s=self._makespan_s(),
            preemptions=self._preemptions,
            preempted_jobs=int((jobs.preemptions > 0).sum()),
            lost_gpu_s=float(jobs.lost_gpu_s.sum()),
            collateral_gpus=self._collateral_gpus,
            resizes=self._resizes,
            loans=len(self._loans),
            reclaims=self._reclaims,
            loaned_server_s=levels.loaned_server_s,
            inference_shortfall_server_s=levels.shortfall_server_s,
            wasted_claims=self._cluster.claims_dropped if self._cluster is not None else 0,
            end_s=end_s,
            jct_bound_s=bound.mean_jct_s(finished),
        )
        owned = figures.Owned.of(self._owned)
        usage = levels.usage(owned, self._first_submit_s, self._last_submit_s)
        return Outcome(
            policy=policy,
            trace=trace,
            seed=seed,
            jobs=jobs,
            totals=totals,
            usage=usage,
            series=levels.series(owned),
            loans=loans,
            demand=levels.demand_table(self._demand_since_s),
            schedule=self._stretches.schedule(end_s) if self._stretches is not None else None,
            servers=self._servers,
            events=self._events if events is None else events,
            policy_wall_s=policy_wall_s,
            wall_s=wall_s,
            notes=(*notes, *figures.notes(jobs, totals, self._accounting, self._servers)),
        )

    def _note_servers(self, cluster: Cluster) -> None:
        """Who owns what from now on."""
        specs = [server.spec for server in cluster.servers]
        self._servers = tuple(ServerColumn(spec.server_id, spec.pool, spec.gpus) for spec in specs)
        training = [spec.gpus for spec in specs if spec.pool is Pool.TRAINING]
        inference = {spec.server_id: spec.gpus for spec in specs if spec.pool is Pool.INFERENCE}
        self._inference = frozenset(inference)
        self._owned.append((self._now_s, sum(training), sum(inference.values()), len(inference)))
        self._count_servers(cluster)

    def _submitted(self, event: ev.Submitted) -> None:
        spec, now_s = event.job, event.at
        self._jobs[spec.job_id] = JobRecord(spec.job_id, len(self._jobs), now_s, spec)
        if self._last_submit_s == -math.inf:
            self._first_submit_s = now_s
        self._last_submit_s = now_s
        self._pending += 1
        self._changed = True

    def _launched(self, step: Launch, cluster: Cluster) -> None:
        record = self._jobs[step.job_id]
        if record.attempts == 0:
            record.first_start_s = self._now_s
        record.attempts += 1
        self._leave_queue(record)
        self._settle(record, cluster.jobs[step.job_id], cluster)

    def _leave_queue(self, record: JobRecord) -> None:
        record.queuing_s += self._now_s - record.pending_since_s
        record.waiting = False
        self._pending -= 1
        self._changed = True

    def _resized(self, step: Resize, cluster: Cluster) -> None:
        record = self._jobs[step.job_id]
        if step.add or step.remove:
            self._resizes += 1
            record.resizes += 1
        if self._stretches is not None and step.remove:
            self._stretches.told_to_leave(record.number, step.remove)
        self._settle(record, cluster.jobs[step.job_id], cluster)

    def _told_to_stop(self, step: Stop, cluster: Cluster) -> None:
        record, job = self._jobs[step.job_id], cluster.jobs[step.job_id]
        if step.cause not in NO_PREEMPTION:
            self._preemptions += 1
            self._collateral_gpus += step.collateral_gpus
            record.preemptions += 1
        record.stopping_attempt = step.attempt
        record.done_s = job.progress.done_s  # a stopped job stands still, and `Stopped` will overwrite this
        if self._stretches is not None:
            self._stretches.all_told_to_leave(record.number, cluster)

    def _stopped(self, event: ev.Stopped, cluster: Cluster) -> None:
        record = self._jobs.get(event.job_id)
        if record is None or record.stopping_attempt != event.attempt or record.over:
            return
        record.stopping_attempt = 0
        if self._maybe_over(event.job_id, cluster):
            return
        job = cluster.jobs[event.job_id]
        record.lost_gpu_s += (record.done_s - event.kept_s) * job.spec.base_gpus
        self._waits_again(record, job, cluster)

    def _crashed(self, event: ev.Crashed, cluster: Cluster) -> None:
        record = self._jobs.get(event.job_id)
        if record is None or record.waiting or self._maybe_over(event.job_id, cluster):
            return
        job = cluster.jobs.get(event.job_id)
        if job is not None and job.state is JobState.PENDING:
            self._waits_again(record, job, cluster)

    def _waits_again(self, record: JobRecord, job: Job, cluster: Cluster) -> None:
        record.waiting = True
        record.pending_since_s = self._now_s
        self._pending += 1
        self._changed = True
        self._settle(record, job, cluster)

    def _maybe_over(self, job_id: str, cluster: Cluster) -> bool:
        """Note the end of a job if it came with this event; late reports change nothing."""
        record = self._jobs.get(job_id)
        if record is None or record.over or job_id not in cluster.ended:
            return False
        if record.waiting:
            self._leave_queue(record)
        record.end_s = self._now_s
        self._settle(record, None, cluster)
        return True

    def _settle(self, record: JobRecord, job: Job | None, cluster: Cluster) -> None:
        """Add up what a job held until now, and note what it holds from now on."""
        now_s = self._now_s
        record.gpu_s += (record.training_gpus + record.loaned_gpus) * (now_s - record.held_since_s)
        record.held_since_s = now_s
        training = loaned = 0
        if job is not None:
            for server_id, slot in job.slots.items():
                if server_id in self._inference:
                    loaned += (slot.base + slot.flexible) * slot.gpus_per_worker
                else:
                    training += (slot.base + slot.flexible) * slot.gpus_per_worker
            for server_id, gpus in job.leaving.items():
                if server_id in self._inference:
                    loaned += gpus
                else:
                    training += gpus
        if training != record.training_gpus or loaned != record.loaned_gpus:
            self._training_gpus += training - record.training_gpus
            self._loaned_gpus += loaned - record.loaned_gpus
            record.training_gpus, record.loaned_gpus = training, loaned
            self._changed = True
        if self._stretches is not None:
            self._stretches.follow(record.number, job, cluster, now_s)

    def _lent(self, server_id: str, cluster: Cluster) -> None:
        number = self._open_loans.get(server_id)
        if number is None:
            self._open_loans[server_id] = len(self._loans)
            self._loans.append((cluster.server_by_id[server_id].place, self._now_s, _NEVER, _NEVER))
        else:
            # The reclaim was withdrawn: the loan goes on as if nobody had asked.
            place, lent_s, _, _ = self._loans[number]
            self._loans[number] = (place, lent_s, _NEVER, _NEVER)
            self._reclaims -= 1
        self._count_servers(cluster)

    def _recalled(self, server_id: str, cluster: Cluster) -> None:
        number = self._open_loans[server_id]
        place, lent_s, _, _ = self._loans[number]
        self._loans[number] = (place, lent_s, self._now_s, _NEVER)
        self._reclaims += 1
        self._count_servers(cluster)

    def _returned(self, server_id: str, cluster: Cluster) -> None:
        number = self._open_loans.pop(server_id)
        place, lent_s, reclaim_s, _ = self._loans[number]
        self._loans[number] = (place, lent_s, reclaim_s, self._now_s)
        self._count_servers(cluster)

    def _count_servers(self, cluster: Cluster) -> None:
        self._on_loan = (cluster.on_loan_mask | cluster.reclaiming_mask).bit_count()
        self._have_servers = cluster.serving
        self._changed = True

    def _level_row(self) -> tuple[float, ...]:
        """The levels of the instant that is over, in the order of `figures.Levels`."""
        return (
            self._now_s,
            self._training_gpus,
            self._loaned_gpus,
            self._pending,
            self._need_servers,
            self._forecast_servers,
            self._on_loan,
            self._have_servers,
        )

    def _states(self) -> dict[str, JobState]:
        """The present state of every job that was accepted."""
        if self._cluster is None:
            return {}
        return self._cluster.ended | {job_id: job.state for job_id, job in self._cluster.jobs.items()}

    def _makespan_s(self) -> float:
        ends = [record.end_s for record in self._jobs.values() if record.over]
        return max(ends) - self._first_submit_s if ends else 0.0

    def _loan_table(self) -> Loans:
        table = np.array(self._loans, dtype=np.float64).reshape(-1, 4)
        return Loans(table[:, 0].astype(np.int64), table[:, 1].copy(), table[:, 2].copy(), table[:, 3].copy())
