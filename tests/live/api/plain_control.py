"""A control plane without a scheduler: it keeps jobs in a real store, and does what it is told at once."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path

from aryl.core import events as ev
from aryl.core.model import FINAL_STATES, JobSpec, JobState, Pool, Tenure
from aryl.core.plan import Weighed
from aryl.errors import ConflictError, InputError, NotFoundError
from aryl.live.control import LogFile, Principal
from aryl.live.store import Changes, HistoryRow, JobChange, NewJob, Store
from aryl.policies.reasons import Wait
from aryl.wire.job_file import JobFile, to_mapping
from aryl.wire.views import (
    DemandRequest,
    DryRunView,
    HealthView,
    JobView,
    LoanList,
    LoanView,
    ReclaimRequest,
    ResizeRequest,
    ServerView,
    WhatIfOutcome,
    WhatIfRequest,
    WhatIfView,
    WhyView,
)

ALL_GPUS = 16
POLICIES = ("fifo", "aryl")


class PlainControl:
    """Two servers, T1 for training and I1 for inference. Tests may set `broken`, `state`, `whys`, `gauge`."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.broken: Exception | None = None
        self.state = HealthView(status="ok")
        self.whys: dict[str, WhyView] = {}
        self.busy: dict[str, list[str | None]] = {}
        self.gauge: dict[str, dict[tuple[tuple[str, str], ...], float]] = {"queue_jobs": {(): 0.0}}
        self.dry_text = "it fits"
        self.in_whatif = threading.Event()
        self.let_whatif_go = threading.Event()
        self.let_whatif_go.set()
        self._draining: set[str] = set()
        self._loans: list[LoanView] = []
        self._lock = threading.RLock()
        token = store.take("tests", None)
        assert token is not None
        self._token = token
        self._sequence = 0

    # What tests do to it.

    def journal(self, *events: ev.Event, changes: Changes | None = None) -> None:
        """Write events, all at once."""
        with self._lock:
            self.store.append(self._token, self._sequence, events, changes or Changes())
            self._sequence += len(events)

    def change(self, job_id: str, **values: object) -> None:
        """Change columns of a job's row, such as `state`."""
        plain = {key: value.value if isinstance(value, JobState) else value for key, value in values.items()}
        self.journal(ev.Tick(0.0), changes=Changes(jobs={job_id: JobChange(values=plain)}))

    def happened(
        self,
        job_id: str,
        text: str,
        cause: str | None = None,
        beneficiary: str | None = None,
        *weighed: Weighed,
        kind: str = "preempted",
    ) -> None:
        """Put something into a job's history."""
        with self._lock:
            row = HistoryRow(
                job_id, self._sequence, 0, 1_000.0, kind, 1, text, cause, beneficiary, tuple(weighed)
            )
            self.journal(ev.Tick(0.0), changes=Changes(history=(row,)))

    def log(self, job_id: str, attempt: int, rank: int) -> Path:
        """Where a worker's log is; made empty if it isn't there."""
        path = self.folder / job_id / f"attempt-{attempt}" / f"rank-{rank}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    # What the API asks.

    def submit(self, job: JobFile, principal: Principal, idempotency_key: str | None) -> tuple[JobView, bool]:
        self._check()
        gpus = job.workers.min * job.gpus_per_worker
        if gpus > ALL_GPUS:
            raise InputError(
                "can never run here", field="workers", found=gpus, expected=f"<= {ALL_GPUS} GPUs"
            )
        body = json.dumps(to_mapping(job), sort_keys=True)
        new = NewJob(
            name=job.name,
            project=job.project or "default",
            user=job.user or principal.name,
            body=body,
            min_workers=job.workers.min,
            max_workers=job.workers.max,
            gpus_per_worker=job.gpus_per_worker,
            priority=job.priority,
            estimate_s=job.estimate,
        )
        with self._lock:
            digest = hashlib.sha256(body.encode()).hexdigest()
            row, fresh = self.store.accept(new, principal.name, idempotency_key, digest, 1_000.0)
            if fresh:
                spec = JobSpec(row.job_id, row.sequence, 0.0, new.min_workers, new.max_workers)
                self.journal(ev.Submitted(0.0, spec))
        return row.view(), fresh

    def cancel(self, job_id: str) -> JobView:
        view = self.job(job_id)
        if view.state not in FINAL_STATES:
            self.change(job_id, state=JobState.CANCELLED)
        return self.job(job_id)

    def resize(self, job_id: str, limits: ResizeRequest) -> JobView:
        view = self.job(job_id)
        if view.state in FINAL_STATES:
            raise ConflictError(f"{job_id} is over")
        least = limits.min_workers or view.min_workers
        most = limits.max_workers or view.max_workers
        if least > most or least > ALL_GPUS:
            raise InputError("wrong limits", field="min_workers", found=least, expected="at most max_workers")
        self.change(job_id, min_workers=least, max_workers=min(most, 10**6))
        return self.job(job_id)

    def job(self, job_id: str) -> JobView:
        self._check()
        row = self.store.job(job_id)
        if row is None:
            raise NotFoundError(f"no such job: {job_id}")
        return row.view()

    def why(self, job_id: str) -> WhyView:
        view = self.job(job_id)
        default = WhyView(job_id=job_id, state=view.state, reason=Wait.NEXT_PASS, text=Wait.NEXT_PASS.value)
        return self.whys.get(job_id, default)

    def dry_run(self, job: JobFile, principal: Principal) -> DryRunView:
        self._check()
        return DryRunView(verdict="now", starts=1_000.0, text=self.dry_text, servers=["T1"])

    def whatif(self, request: WhatIfRequest) -> WhatIfView:
        self._check()
        for policy in request.policies:
            if policy not in POLICIES:
                raise InputError("unknown policy", field="policies", found=policy, nearest="fifo")
        self.in_whatif.set()
        assert self.let_whatif_go.wait(60)
        return WhatIfView(
            outcomes=[
                WhatIfOutcome(
                    policy=policy,
                    finished=1,
                    unfinished=0,
                    mean_jct_s=1.0,
                    mean_queuing_s=None,
                    preemptions=0,
                )
                for policy in request.policies
            ]
        )

    def servers(self) -> list[ServerView]:
        self._check()
        return [self._server("T1"), self._server("I1")]

    def drain(self, server_id: str, deadline_s: float | None) -> ServerView:
        self._server(server_id)
        self._draining.add(server_id)
        return self._server(server_id)

    def undrain(self, server_id: str) -> ServerView:
        self._server(server_id)
        self._draining.discard(server_id)
        return self._server(server_id)

    def loans(self) -> LoanList:
        self._check()
        return LoanList(
            loans=self._loans,
            inference_servers=1,
            on_loan=len(self._loans),
            need_servers=0.0,
            forecast_servers=None,
            reported=None,
            degraded=False,
            shortfall_servers=0.0,
            serving_servers=1 - len(self._loans),
            restoring_servers=0,
            headroom_servers=0.0,
            lending_cap=1,
        )

    def give(self, server_id: str) -> LoanList:
        if self._server(server_id).pool is Pool.TRAINING:
            raise ConflictError(f"{server_id} is a training server")
        if not self._loans:
            self._loans.append(LoanView(server=server_id, lent=1_000.0))
        return self.loans()

    def reclaim(self, request: ReclaimRequest) -> LoanList:
        if request.server is not None:
            self._server(request.server)
        if not self._loans:
            raise ConflictError("nothing is on loan")
        self._loans.pop()
        return self.loans()

    def report_demand(self, demand: DemandRequest) -> LoanList:
        return self.loans()

    def report_ready(self, server_id: str) -> LoanList:
        if self._server(server_id).pool is Pool.TRAINING:
            raise ConflictError(f"{server_id} is a training server")
        return self.loans()

    def log_files(self, job_id: str) -> list[LogFile]:
        self.job(job_id)
        return [
            LogFile(int(path.parent.name.split("-")[1]), int(path.stem.split("-")[1]), path)
            for path in (self.folder / job_id).glob("attempt-*/rank-*.log")
        ]

    def health(self) -> HealthView:
        return self.state

    def gauges(self) -> Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]:
        return self.gauge

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken

    def _server(self, server_id: str) -> ServerView:
        self._check()
        if server_id not in ("T1", "I1"):
            raise NotFoundError(f"no such server: {server_id}")
        training = server_id == "T1"
        return ServerView(
            server=server_id,
            pool=Pool.TRAINING if training else Pool.INFERENCE,
            tenure=Tenure.OWNED,
            gpu_type="V100" if training else "T4",
            gpus=8,
            free_gpus=8,
            used_gpus=0,
            leaving_gpus=0,
            up=True,
            draining=server_id in self._draining,
            health="healthy",
            jobs=self.busy.get(server_id, []),
        )
