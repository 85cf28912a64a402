"""What the API asks for, answered: implements `Control` for the daemon.

A submission is safe once the store has it, and doesn't wait for the loop. Everything else that changes
something goes through the loop and is answered when the journal has it. What jobs look like is read from the
store; why one waits, and how servers stand, only the loop knows.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aryl.core.cluster import Cluster
from aryl.core.events import CancelRequested, Event, LimitsChanged
from aryl.core.model import FINAL_STATES, Hosting, Pool, allowed_size
from aryl.errors import (
    ConflictError,
    FencedError,
    InputError,
    NotAllowedError,
    NotFoundError,
    UnreachableError,
    nearest_word,
)
from aryl.live import answers, operators
from aryl.live.config import ServeConfig
from aryl.live.control import LogFile, Principal, Role
from aryl.live.demand import Word
from aryl.live.foresight import Foresight
from aryl.live.hooks import Handover
from aryl.live.lead import Lead
from aryl.live.store import JobRow, NewJob, Store
from aryl.live.submission import confined
from aryl.live.world import Yardstick, declare
from aryl.policies.catalogue import parse_policy
from aryl.policies.policy import Policy
from aryl.wire.job_file import JobFile, to_mapping
from aryl.wire.views import (
    DemandRequest,
    DryRunView,
    HealthView,
    JobView,
    LoanList,
    ReclaimRequest,
    ResizeRequest,
    ServerView,
    WhatIfRequest,
    WhatIfView,
    WhyView,
)

LOANS_SHOWN = 200
METRICS_WITHIN_S = 2.0
# What is good to know, but nothing to wait for.
ASIDE_S = 1.0
# Clocks of two machines differ; what was measured later than this is a mistake.
MOST_AHEAD_S = 5.0
# A dry run's job stands behind all that are here.
LAST = 2**62

Gauges = Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]


class LiveControl:
    """Implements `Control`. `lead` is set while this daemon leads."""

    def __init__(
        self, config: ServeConfig, store: Store, policy: Policy, foresight: Foresight | None
    ) -> None:
        self.lead: Lead | None = None
        self.starting = False
        self.failed = ""
        self._config, self._store, self._policy, self._foresight = config, store, policy, foresight
        self._roots = [Path(root) for root in config.workdirs]
        self._yardstick = Yardstick(declare(config), policy)
        self._measuring = threading.Lock()
        self._gauges: Gauges = {}

    def submit(self, job: JobFile, principal: Principal, idempotency_key: str | None) -> tuple[JobView, bool]:
        """Accept a job; see `Control`."""
        lead = self._leading()
        if job.user not in (None, principal.name) and principal.role < Role.OPERATOR:
            raise NotAllowedError(f"{principal.name} can't submit a job as {job.user}")
        job = self._checked(job, principal, lead)
        body = json.dumps(to_mapping(job), sort_keys=True, separators=(",", ":"))
        new = NewJob(
            job.name,
            job.project or "",
            job.user or principal.name,
            body,
            job.workers.min,
            job.workers.max,
            job.gpus_per_worker,
            job.priority,
            job.estimate,
        )
        body_hash = hashlib.sha256(body.encode()).hexdigest()
        row, created = self._store.accept(
            new, principal.name, idempotency_key, body_hash, time.time(), lead.token
        )
        if created:
            lead.accepted(row, job)
        return row.view(), created

    def cancel(self, job_id: str) -> JobView:
        """Ask for the end of a job."""
        self._row(job_id)
        self._leading().driver.inbox.do(lambda _, now_s: (CancelRequested(now_s, job_id),))
        return self.job(job_id)

    def resize(self, job_id: str, limits: ResizeRequest) -> JobView:
        """Change a job's limits."""
        row, lead = self._row(job_id), self._leading()
        if row.state in FINAL_STATES:
            raise ConflictError(f"job {job_id} is over")
        job_file = lead.job_file(job_id)

        def events(cluster: Cluster, now_s: float) -> Sequence[Event]:
            job = cluster.jobs.get(job_id)
            if job is None:
                raise ConflictError(f"job {job_id} is over, or not taken up yet")
            least = job.limits[0] if limits.min_workers is None else limits.min_workers
            most = job.limits[1] if limits.max_workers is None else limits.max_workers
            _check_limits(job_file, least, most)
            return (LimitsChanged(now_s, job_id, least, most),)

        lead.driver.inbox.do(events, alone=True)
        return self.job(job_id)

    def job(self, job_id: str) -> JobView:
        """A job as it stands. How long it will still run only the loop knows; a job doesn't wait for it."""
        view, lead = self._row(job_id).view(), self.lead
        if view.state in FINAL_STATES or lead is None:
            return view
        try:
            left_s = lead.driver.inbox.ask(
                lambda cluster: answers.left_s(cluster, lead.clock, job_id), ASIDE_S
            )
        except UnreachableError:
            return view
        return view.model_copy(update={"remaining_s": left_s})

    def why(self, job_id: str) -> WhyView:
        """Why a job waits."""
        row = self._row(job_id)
        if row.state in FINAL_STATES:
            return answers.why_over(row.view())
        lead = self._leading()
        return lead.driver.inbox.ask(
            lambda cluster: answers.why(cluster, self._policy, lead.clock, row.view())
        )

    def dry_run(self, job: JobFile, principal: Principal) -> DryRunView:
        """Whether and when a job would start."""
        lead, foresight = self._leading(), self._foresight
        job = self._checked(job, principal, lead, could_run=False)
        if foresight is None:
            return DryRunView(verdict="unknown", text="This server can't look ahead.")
        blob = lead.driver.inbox.ask(foresight.snapshot)
        spec = lead.spec(job, f"{job.name}-dry-run", LAST, lead.clock.now())
        view = foresight.dry_run(blob, self._policy, spec)
        if view.starts is None:
            return view
        return view.model_copy(update={"starts": lead.clock.unix(view.starts)})

    def whatif(self, request: WhatIfRequest) -> WhatIfView:
        """What other policies would do from here on."""
        for policy in request.policies:
            parse_policy(policy)
        lead, foresight = self._leading(), self._foresight
        if foresight is None:
            raise ConflictError("this server can't look ahead")
        blob = lead.driver.inbox.ask(foresight.snapshot)
        return WhatIfView(outcomes=foresight.compare(blob, request.policies))

    def servers(self) -> list[ServerView]:
        """All servers."""
        lead = self._leading()
        return lead.driver.inbox.ask(lambda cluster: answers.servers(cluster, lead.clock))

    def drain(self, server_id: str, deadline_s: float | None) -> ServerView:
        """Let a server take nothing new."""
        within_s = None if deadline_s is None else deadline_s * self._config.clock.speed
        self._operate(lambda cluster, now_s: operators.drain(cluster, now_s, server_id, within_s))
        return self._server(server_id)

    def undrain(self, server_id: str) -> ServerView:
        """Let a server take work again."""
        self._operate(lambda cluster, now_s: operators.undrain(cluster, now_s, server_id))
        return self._server(server_id)

    def loans(self) -> LoanList:
        """Loans, and the inference side's account."""
        lead = self._leading()
        rows = [row.view() for row in self._store.loans(LOANS_SHOWN)]
        return lead.driver.inbox.ask(lambda cluster: answers.loans(cluster, lead.clock, rows))

    def give(self, server_id: str) -> LoanList:
        """Lend a server."""
        self._operate(lambda cluster, now_s: operators.give(cluster, now_s, server_id))
        return self.loans()

    def reclaim(self, request: ReclaimRequest) -> LoanList:
        """Take a server back."""
        within_s = None if request.deadline_s is None else request.deadline_s * self._config.clock.speed
        self._operate(
            lambda cluster, now_s: operators.reclaim(cluster, now_s, request.server, within_s, self._policy)
        )
        return self.loans()

    def report_demand(self, demand: DemandRequest) -> LoanList:
        """The inference side's word."""
        if demand.measured_at is not None and demand.measured_at > time.time() + MOST_AHEAD_S:
            raise InputError(
                "the report is of the future",
                field="measured_at",
                found=demand.measured_at,
                expected="Unix seconds, not later than now",
            )
        self._operate(self._demand_events(demand))
        return self.loans()

    def report_ready(self, server_id: str) -> LoanList:
        """The inference side's word that a server serves again."""
        self._operate(lambda cluster, now_s: operators.ready(cluster, now_s, server_id))
        return self.loans()

    def log_files(self, job_id: str) -> list[LogFile]:
        """What the workers of all attempts printed."""
        self._row(job_id)
        found = []
        for path in (Path(self._config.state) / "jobs" / job_id).glob("attempt-*/rank-*.log"):
            attempt, rank = path.parent.name.removeprefix("attempt-"), path.stem.removeprefix("rank-")
            if attempt.isdecimal() and rank.isdecimal():
                found.append(LogFile(int(attempt), int(rank), path))
        return sorted(found, key=lambda log: (log.attempt, log.rank))

    def health(self) -> HealthView:
        """Whether the loop turns."""
        lead = self.lead
        if self.failed:
            return HealthView(status="failed", detail=self.failed)
        if lead is None:
            if self.starting:
                return HealthView(status="starting", detail="the state is being brought back")
            return HealthView(status="standby", detail="another daemon leads")
        if lead.over.is_set():
            return HealthView(status="failed", detail="the loop has stopped")
        return (
            HealthView(status="ok") if lead.ready else HealthView(status="stalled", detail="the loop stands")
        )

    def gauges(self) -> Gauges:
        """Metrics; the last ones known of the loop where it doesn't answer."""
        lead = self.lead
        up: dict[str, Mapping[tuple[tuple[str, str], ...], float]] = {
            "leading": {(): float(lead is not None)},
            "ready": {(): float(self.health().status == "ok")},
        }
        if lead is None or lead.loop is None:
            return up
        loop, driver = lead.loop, lead.driver
        try:
            self._gauges = driver.inbox.ask(answers.gauges, METRICS_WITHIN_S)
        except Exception:  # a loop that stands still is what metrics are there to tell
            up["ready"] = {(): 0.0}
        return (
            up
            | dict(self._gauges)
            | {
                "events_total": {(): float(loop.events)},
                "passes_total": {(): float(loop.passes)},
                "policy_seconds_total": {(): loop.policy_wall_s},
                "last_pass_seconds": {(): loop.last_pass_s},
                "longest_pass_seconds": {(): loop.longest_pass_s},
                "stalled_jobs_total": {(): float(driver.stalls)},
                "invariant_violations_total": {(): float(lead.audit.violations)},
                "policy_defects_total": {(): float(lead.defects.count)},
                "handovers_total": {
                    (("outcome", outcome.value),): float(driver.handovers[outcome]) for outcome in Handover
                },
                "failed_restores_total": {(): float(driver.failed_restores)},
            }
        )

    def _checked(self, job: JobFile, principal: Principal, lead: Lead, *, could_run: bool = True) -> JobFile:
        """The job as it will be run. Raises InputError."""
        job = confined(job, self._roots)
        if could_run:
            spec = lead.spec(job, job.name, 0, 0.0)
            with self._measuring:
                fits = self._yardstick.could_ever_start(spec, lead.servers)
            if not fits:
                raise InputError(
                    "the gang could never run here, even if nothing else did",
                    field="workers",
                    found=f"{job.workers.min} workers of {job.gpus_per_worker} GPUs",
                    expected="a gang that fits the servers that accept its GPU types",
                )
        return job

    def _leading(self) -> Lead:
        lead = self.lead
        if lead is None or lead.over.is_set():
            raise FencedError("this daemon doesn't lead at the moment")
        return lead

    def _row(self, job_id: str) -> JobRow:
        row = self._store.job(job_id)
        if row is None:
            raise NotFoundError(f"there is no job {job_id}")
        return row

    def _demand_events(self, request: DemandRequest) -> Callable[[Cluster, float], Sequence[Event]]:
        """What a report means, to be asked by the loop. Raises InputError there."""
        lead = self._leading()

        def events(cluster: Cluster, now_s: float) -> Sequence[Event]:
            hosting = _hosting(cluster, request.hosting or {})
            measured_s = now_s if request.measured_at is None else lead.clock.at(request.measured_at)
            word = Word(
                min(measured_s, now_s),
                request.need_servers,
                request.forecast_servers,
                request.headroom_servers,
                hosting,
            )
            return lead.desk.told(word, now_s)

        return events

    def _operate(self, events: Callable[[Cluster, float], Sequence[Event]]) -> None:
        self._leading().driver.inbox.do(events, alone=True)

    def _server(self, server_id: str) -> ServerView:
        return next(server for server in self.servers() if server.server == server_id)


def _hosting(cluster: Cluster, told: Mapping[str, Sequence[int]]) -> tuple[Hosting, ...]:
    """Where replicas stand. Raises InputError for a server that there isn't, or that has too few GPUs."""
    known = {
        server.spec.server_id: server.spec.gpus
        for server in cluster.servers
        if server.spec.pool is Pool.INFERENCE
    }
    for server_id, replicas in told.items():
        if server_id not in known:
            raise InputError(
                "no inference server",
                field="hosting",
                found=server_id,
                expected="names of inference servers",
                nearest=nearest_word(server_id, known),
            )
        if sum(replicas) > known[server_id]:
            raise InputError(
                "replicas on more GPUs than the server has",
                field=f"hosting.{server_id}",
                found=sum(replicas),
                expected=f"at most {known[server_id]} GPUs",
            )
    return tuple(Hosting(server_id, tuple(replicas)) for server_id, replicas in told.items())


def _check_limits(job: JobFile, least: int, most: int) -> None:
    if least > most:
        raise InputError(
            f"min_workers {least} exceeds max_workers {most}", field="min_workers", expected="min <= max"
        )
    sizes = job.workers.sizes or ()
    if not allowed_size(tuple(sizes), least):
        raise InputError("none of the allowed sizes", field="min_workers", found=least, expected=str(sizes))
    if most > least and job.launcher != "torchft" and job.checkpoint is None:
        raise InputError(
            "a resize would lose the work of a job that has no checkpoint", field="max_workers", found=most
        )
