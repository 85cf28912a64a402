"""A control plane without a cluster behind the real API, and a proxy that loses connections, for the tests of
the client and of the commands.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aryl.core.model import FINAL_STATES, JobState, Pool, Tenure
from aryl.errors import ConflictError, InputError, NotFoundError
from aryl.live.api.app import make_app
from aryl.live.api.serving import ApiServer
from aryl.live.api.settings import Settings
from aryl.live.control import LogFile, Principal
from aryl.policies.reasons import Wait
from aryl.wire.job_file import JobFile, to_mapping
from aryl.wire.views import (
    AlternativeView,
    DemandRequest,
    DryRunView,
    HealthView,
    HistoryEntry,
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

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Viewed:
    """Something in the store, seen as it is."""

    what: Any

    def view(self) -> Any:
        return self.what


@dataclass(frozen=True)
class Event:
    """A line of the journal."""

    sequence: int
    body: str
    job_id: str | None = None


def server(name: str, pool: Pool = Pool.TRAINING, **other: Any) -> ServerView:
    plain: dict[str, Any] = {
        "tenure": Tenure.OWNED,
        "gpu_type": "V100",
        "gpus": 8,
        "free_gpus": 8,
        "used_gpus": 0,
        "leaving_gpus": 0,
        "up": True,
        "draining": False,
        "health": "healthy",
    }
    return ServerView(server=name, pool=pool, **{**plain, **other})


@dataclass
class StandIn:
    """Answers as a control plane and its store would, and does nothing by itself."""

    folder: Path
    all_jobs: dict[str, JobView] = field(default_factory=dict)
    files: dict[str, JobFile] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    all_servers: dict[str, ServerView] = field(
        default_factory=lambda: {
            "T1": server("T1", used_gpus=6, free_gpus=2, jobs=["bert-1", None]),
            "I1": server("I1", Pool.INFERENCE, gpu_type="T4"),
        }
    )
    lent: list[LoanView] = field(default_factory=list)
    demand: DemandRequest | None = None
    events: list[Event] = field(default_factory=list)
    happened: dict[str, list[HistoryEntry]] = field(default_factory=dict)
    tokens: dict[str, Principal] = field(default_factory=dict)
    verdict: DryRunView = field(
        default_factory=lambda: DryRunView(
            verdict="now", text="It would start at once on T1.", servers=["T1"]
        )
    )
    slow_s: float = 0.0
    health_view: HealthView = field(default_factory=lambda: HealthView(status="ok"))

    # What the tests do

    def reset(self, folder: Path) -> None:
        """As if nothing had ever been here."""
        self.__dict__.update(StandIn(folder).__dict__)

    def add(self, name: str, **other: Any) -> str:
        """A job that is there already."""
        job_id = f"{name}-{len(self.all_jobs) + 1}"
        plain: dict[str, Any] = {
            "name": name,
            "project": "vision",
            "user": "alice",
            "state": JobState.PENDING,
            "attempt": 0,
            "workers": 0,
            "min_workers": 2,
            "max_workers": 8,
            "gpus_per_worker": 1,
            "priority": 0,
            "gpus": 0,
            "preemptions": 0,
            "failures": 0,
            "resizes": 0,
            "submitted": time.time(),
        }
        self.all_jobs[job_id] = JobView(job_id=job_id, **{**plain, **other})
        return job_id

    def change(self, job_id: str, **values: Any) -> JobView:
        """A job changes."""
        self.all_jobs[job_id] = view = self.job(job_id).model_copy(update=values)
        return view

    def say(self, job_id: str, text: str, attempt: int = 0, rank: int = 0) -> None:
        """A worker prints."""
        file = self.folder / job_id / f"attempt-{attempt}" / f"rank-{rank}.log"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as log:
            log.write(text)

    def happen(self, kind: str, **data: Any) -> None:
        """A line is added to the journal."""
        number = len(self.events)
        self.events.append(Event(number, json.dumps({"at": 1.0, "seq": number, "type": kind, **data})))

    # What the API asks

    def submit(self, job: JobFile, principal: Principal, idempotency_key: str | None) -> tuple[JobView, bool]:
        time.sleep(self.slow_s)
        if idempotency_key in self.keys:
            return self.job(self.keys[idempotency_key]), False
        if job.workers.min > 16:
            raise InputError("larger than the cluster", field="workers", expected="at most 16 workers")
        job_id = self.add(
            job.name,
            project=job.project or "",
            user=principal.name,
            min_workers=job.workers.min,
            max_workers=job.workers.max,
            priority=job.priority,
        )
        self.files[job_id] = job
        if idempotency_key is not None:
            self.keys[idempotency_key] = job_id
        return self.job(job_id), True

    def cancel(self, job_id: str) -> JobView:
        if self.job(job_id).state in FINAL_STATES:
            return self.job(job_id)
        return self.change(job_id, state=JobState.CANCELLED, finished=time.time())

    def resize(self, job_id: str, limits: ResizeRequest) -> JobView:
        if self.job(job_id).state in FINAL_STATES:
            raise ConflictError(f"{job_id} is over")
        changes = {key: value for key, value in limits.model_dump().items() if value is not None}
        return self.change(job_id, **changes)

    def job(self, job_id: str) -> JobView:
        if job_id not in self.all_jobs:
            raise NotFoundError(f"there is no job {job_id}")
        return self.all_jobs[job_id]

    def why(self, job_id: str) -> WhyView:
        return WhyView(
            job_id=job_id,
            state=self.job(job_id).state,
            reason=Wait.NOT_ENOUGH_FREE,
            text="It needs 4 GPUs, but only 2 are free. Once bert-1 and a job of another project have ended, "
            "it is expected to start in about 12 min.",
            needed_gpus=4,
            free_gpus=2,
            best_server_free_gpus=2,
            behind=["bert-1", None],
            starts=time.time() + 720,
        )

    def dry_run(self, job: JobFile, principal: Principal) -> DryRunView:
        assert to_mapping(job)
        return self.verdict

    def whatif(self, request: WhatIfRequest) -> WhatIfView:
        outcomes = [
            WhatIfOutcome(
                policy=policy, finished=1, unfinished=0, mean_jct_s=60.0, mean_queuing_s=None, preemptions=0
            )
            for policy in request.policies
        ]
        return WhatIfView(outcomes=outcomes)

    def servers(self) -> list[ServerView]:
        return list(self.all_servers.values())

    def _server(self, server_id: str, **values: Any) -> ServerView:
        if server_id not in self.all_servers:
            raise NotFoundError(f"there is no server {server_id}")
        self.all_servers[server_id] = view = self.all_servers[server_id].model_copy(update=values)
        return view

    def drain(self, server_id: str, deadline_s: float | None) -> ServerView:
        by = None if deadline_s is None else time.time() + deadline_s
        return self._server(server_id, draining=True, reclaim_by=by)

    def undrain(self, server_id: str) -> ServerView:
        return self._server(server_id, draining=False, reclaim_by=None)

    def loans(self) -> LoanList:
        need = self.demand
        return LoanList(
            loans=self.lent,
            inference_servers=1,
            on_loan=sum(loan.returned is None for loan in self.lent),
            need_servers=need.need_servers if need else None,
            forecast_servers=need.forecast_servers if need else None,
            reported=time.time() if need else None,
            degraded=False,
            shortfall_servers=0.0,
            serving_servers=sum(
                one.pool is Pool.INFERENCE and one.tenure is Tenure.OWNED and not one.restoring
                for one in self.all_servers.values()
            ),
            restoring_servers=sum(one.restoring for one in self.all_servers.values()),
            headroom_servers=need.headroom_servers or 0.0 if need else 0.0,
            lending_cap=1,
        )

    def give(self, server_id: str) -> LoanList:
        self._server(server_id)
        if any(loan.server == server_id and loan.returned is None for loan in self.lent):
            raise ConflictError(f"{server_id} is on loan already")
        self.lent.insert(0, LoanView(server=server_id, lent=time.time()))
        return self.loans()

    def reclaim(self, request: ReclaimRequest) -> LoanList:
        current = [loan for loan in self.lent if request.server in (None, loan.server)]
        if not current:
            raise ConflictError(f"{request.server or 'nothing'} is on loan")
        now = time.time()
        deadline = None if request.deadline_s is None else now + request.deadline_s
        asked = current[0].model_copy(update={"reclaim_asked": now, "deadline": deadline})
        self.lent[self.lent.index(current[0])] = asked
        return self.loans()

    def report_demand(self, demand: DemandRequest) -> LoanList:
        self.demand = demand
        return self.loans()

    def report_ready(self, server_id: str) -> LoanList:
        if not self._server(server_id).restoring:
            raise ConflictError(f"{server_id} isn't being restored")
        self._server(server_id, restoring=False)
        return self.loans()

    def log_files(self, job_id: str) -> list[LogFile]:
        self.job(job_id)
        return [
            LogFile(int(file.parent.name.partition("-")[2]), int(file.stem.partition("-")[2]), file)
            for file in (self.folder / job_id).glob("attempt-*/rank-*.log")
        ]

    def health(self) -> HealthView:
        return self.health_view

    def gauges(self) -> Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]:
        return {}

    # What the API asks of the store

    def jobs(
        self, *, state: JobState | None, project: str | None, user: str | None, cursor: str | None, limit: int
    ) -> tuple[Sequence[Viewed], str | None]:
        found = [
            job
            for job in reversed(self.all_jobs.values())
            if state in (None, job.state) and project in (None, job.project) and user in (None, job.user)
        ]
        end = int(cursor or 0) + limit
        more = str(end) if len(found) > end else None
        return [Viewed(job) for job in found[end - limit : end]], more

    def history(self, job_id: str) -> Sequence[Viewed]:
        return [Viewed(entry) for entry in self.happened.get(job_id, [])]

    def projects_of(self, job_ids: Iterable[str]) -> Mapping[str, str]:
        return {job_id: self.all_jobs[job_id].project for job_id in job_ids if job_id in self.all_jobs}

    def lines(self, after: int, limit: int) -> Sequence[Event]:
        return self.events[after + 1 : after + 1 + limit]

    def last_sequence(self) -> int:
        return len(self.events) - 1

    def find_token(self, secret: str) -> Principal | None:
        return self.tokens.get(secret)

    def has_tokens(self) -> bool:
        return bool(self.tokens)


PREEMPTION = HistoryEntry(
    sequence=7,
    at=time.time() - 600,
    kind="preempted",
    attempt=1,
    cause="reclaim",
    text="stopped because the inference side needs its server back",
    beneficiary="I1",
    alternatives=[AlternativeView(what="bert-1", cost=0.75), AlternativeView(what=None, cost=1.0)],
)


@contextmanager
def serving(stand_in: StandIn, *, port: int = 0) -> Iterator[str]:
    """The API in front of a stand-in; gives its address."""
    app = make_app(stand_in, stand_in, Settings(open=True, poll_s=0.05, token_cache_s=0.0))
    api = ApiServer(app, "127.0.0.1", port)
    api.start()
    try:
        yield api.url
    finally:
        api.stop()


class Proxy:
    """Passes connections on, and loses them on demand."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("http://").partition(":")
        self._target = host, int(port)
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self.answers_to_drop = 0

    def __enter__(self) -> Proxy:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def cut(self) -> None:
        """Lose all connections that are open now."""
        with self._lock:
            cut, self._open = self._open, []
        for connection in cut:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _start(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._start(self._serve, near)

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(self._target) as far:
            with self._lock:
                self._open += [near, far]
            up = threading.Thread(target=self._pump, args=(near, far, False))
            up.start()
            self._pump(far, near, True)
            up.join(PATIENCE_S)

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if answers and self.answers_to_drop > 0:
                    self.answers_to_drop -= 1
                    break
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def eventually(condition: Any) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.02)


def unused_address() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"
