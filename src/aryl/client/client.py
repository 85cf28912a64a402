"""The client: one method for each thing that the API can do, typed with the views that the API answers with.

Every method raises the errors of `aryl.errors` and no others: InputError for a request that the server finds
wrong, NotFoundError, ConflictError, NotAllowedError, and UnreachableError where nobody answers.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter

from aryl.client.answers import ServerEvent
from aryl.client.patience import DEFAULT_OUTAGE_S, Patience
from aryl.client.stream import PAUSE_S, LogReader, follow_events
from aryl.client.transport import DEFAULT_SERVER, Parameters, Transport
from aryl.client.waiting import wait_for
from aryl.core.model import FINAL_STATES, JobState
from aryl.errors import UnreachableError
from aryl.wire.job_file import JobFile, to_mapping
from aryl.wire.views import (
    AttemptView,
    DemandRequest,
    DrainRequest,
    DryRunView,
    GiveRequest,
    HealthView,
    JobHistory,
    JobList,
    JobView,
    LoanList,
    ReadyRequest,
    ReclaimRequest,
    ResizeRequest,
    ServerList,
    ServerView,
    WhatIfRequest,
    WhatIfView,
    WhoAmI,
    WhyView,
)

PAGE = 200
# A simulation of the whole cluster takes its time.
WHATIF_S = 600.0
Answer = TypeVar("Answer")


class ArylClient:
    """A client of one control plane. A context manager; usable from several threads.

    `base_url` and `token` default to the environment's ARYL_SERVER and ARYL_TOKEN. `timeout_s` is the longest
    time that one answer may take, `retries` how often a request is sent again after a broken connection or
    while the server is unavailable, and `outage_s` how long what goes on (`wait`, `events`, `logs`) bears a
    server that has gone away after it had answered. Raises InputError for an address that is none.
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = 4,
        outage_s: float = DEFAULT_OUTAGE_S,
    ) -> None:
        url = base_url or os.environ.get("ARYL_SERVER") or DEFAULT_SERVER
        secret = token or os.environ.get("ARYL_TOKEN") or None
        self._transport = Transport(url, secret, timeout_s=timeout_s, retries=retries)
        self._outage_s = outage_s

    @property
    def base_url(self) -> str:
        """The server's address."""
        return self._transport.base_url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    # Jobs

    def submit(self, job: JobFile, idempotency_key: str | None = None) -> JobView:
        """Submit a job. With the same key it is submitted once, however often this is called; by default
        each call has a key of its own, so that a retry within it makes no second job.
        """
        key = idempotency_key or uuid.uuid4().hex
        headers = {"Idempotency-Key": key}
        return self._ask(JobView, "POST", "/v1/jobs", content=_json(job), headers=headers)

    def dry_run(self, job: JobFile) -> DryRunView:
        """Whether and when a job would start; nothing changes."""
        parameters: Parameters = {"dry_run": "true"}
        return self._ask(DryRunView, "POST", "/v1/jobs", content=_json(job), parameters=parameters)

    def job(self, job_id: str) -> JobView:
        """A job as it stands."""
        return self._ask(JobView, "GET", _job(job_id))

    def job_page(
        self,
        *,
        state: JobState | None = None,
        project: str | None = None,
        user: str | None = None,
        limit: int = PAGE,
        cursor: str | None = None,
    ) -> JobList:
        """The newest `limit` jobs, or the next ones after those that `cursor` came with."""
        parameters: Parameters = {
            "state": state.value if state else None,
            "project": project,
            "user": user,
            "limit": limit,
            "cursor": cursor,
        }
        return self._ask(JobList, "GET", "/v1/jobs", parameters=parameters)

    def jobs(
        self, *, state: JobState | None = None, project: str | None = None, user: str | None = None
    ) -> Iterator[JobView]:
        """All jobs, newest first, fetched as they are asked for."""
        page = self.job_page(state=state, project=project, user=user)
        yield from page.jobs
        while page.next is not None:
            page = self.job_page(state=state, project=project, user=user, cursor=page.next)
            yield from page.jobs

    def cancel(self, job_id: str) -> JobView:
        """Ask for the end of a job. One that is over stays as it is."""
        return self._ask(JobView, "POST", _job(job_id, "cancel"))

    def resize(
        self, job_id: str, *, min_workers: int | None = None, max_workers: int | None = None
    ) -> JobView:
        """Change a job's limits; one that is left out stays."""
        body = ResizeRequest(min_workers=min_workers, max_workers=max_workers)
        return self._ask(JobView, "PATCH", _job(job_id), body=body)

    def why(self, job_id: str) -> WhyView:
        """Why a job waits."""
        return self._ask(WhyView, "GET", _job(job_id, "why"))

    def history(self, job_id: str) -> JobHistory:
        """All that happened to a job, oldest first."""
        return self._ask(JobHistory, "GET", _job(job_id, "history"))

    def attempts(self, job_id: str) -> list[AttemptView]:
        """The workers of all attempts that have left a log."""
        return self._ask(list[AttemptView], "GET", _job(job_id, "attempts"))

    def logs(
        self,
        job_id: str,
        *,
        attempt: int | None = None,
        rank: int | None = None,
        tail: int | None = None,
        follow: bool = False,
    ) -> Generator[str, None, None]:
        """The lines that a worker printed, of the last attempt and its first rank by default.

        `tail`: only the last so many. `follow`: goes on until the attempt is over, across broken connections.
        """
        patience = Patience(self._outage_s)
        if follow:
            attempt, rank = self._worker(job_id, attempt, rank, patience)
        parameters: Parameters = {"attempt": attempt, "rank": rank, "tail": None if follow else tail}
        reader = LogReader(self._transport, _job(job_id, "logs"), parameters, patience)
        if not follow:
            yield from reader.lines(follow=False)
            return
        if tail is not None:
            yield from reader.skip_to_tail(tail)
        yield from reader.follow(lambda: self._attempt_is_over(job_id, attempt))

    def _worker(
        self, job_id: str, attempt: int | None, rank: int | None, patience: Patience
    ) -> tuple[int | None, int | None]:
        """The worker whose log is meant, so that a new attempt doesn't change what is read. Without a named
        attempt it waits for the first one.
        """
        while True:
            try:
                # In this order: a job that is over leaves no further log.
                state = self.job(job_id).state
                places = self.attempts(job_id)
            except UnreachableError as error:
                patience.lost(error)
                continue
            patience.answered()
            fitting = [
                place for place in places if attempt in (None, place.attempt) and rank in (None, place.rank)
            ]
            if fitting:
                last = max(place.attempt for place in fitting)
                return last, min(place.rank for place in fitting if place.attempt == last)
            if attempt is not None or state in FINAL_STATES:
                return attempt, rank
            time.sleep(PAUSE_S)

    def _attempt_is_over(self, job_id: str, attempt: int | None) -> bool:
        job = self.job(job_id)
        return (
            job.state in FINAL_STATES or job.state is JobState.PENDING or attempt not in (None, job.attempt)
        )

    def wait(
        self,
        job_ids: str | Iterable[str],
        timeout_s: float | None = None,
        until: Collection[JobState] = FINAL_STATES,
        on_change: Callable[[JobView], None] | None = None,
    ) -> list[JobView]:
        """Wait until each job is in one of the states `until`, or over, and return them in the given order.

        `on_change` is called with a job whenever its state is another one. Raises WaitTimeoutError.
        """
        wanted = [job_ids] if isinstance(job_ids, str) else list(job_ids)
        return wait_for(self.job, wanted, timeout_s, until, on_change, Patience(self._outage_s))

    # Servers and loans

    def servers(self) -> list[ServerView]:
        """All servers, training first."""
        return self._ask(ServerList, "GET", "/v1/servers").servers

    def drain(self, server_id: str, deadline_s: float | None = None) -> ServerView:
        """Let a server take nothing new, and be empty in `deadline_s` seconds; None lets its jobs finish."""
        body = DrainRequest(deadline_s=deadline_s)
        return self._ask(ServerView, "POST", _server(server_id, "drain"), body=body)

    def undrain(self, server_id: str) -> ServerView:
        """Let a drained, quarantined or suspect server take work again."""
        return self._ask(ServerView, "POST", _server(server_id, "undrain"))

    def loans(self) -> LoanList:
        """The loans, newest first, and the inference side's account."""
        return self._ask(LoanList, "GET", "/v1/loans")

    def give(self, server_id: str) -> LoanList:
        """Lend a server. Raises ConflictError where the inference side would fall short or a limit is in the
        way.
        """
        body = GiveRequest(server=server_id)
        return self._ask(LoanList, "POST", "/v1/loans", body=body, repeatable=False)

    def reclaim(self, server_id: str | None = None, deadline_s: float | None = None) -> LoanList:
        """Take a server back, by default one of the policy's choice, within `deadline_s` seconds."""
        body = ReclaimRequest(server=server_id, deadline_s=deadline_s)
        return self._ask(LoanList, "POST", "/v1/loans/reclaim", body=body, repeatable=False)

    def report_demand(
        self,
        need_servers: float,
        forecast_servers: float | None = None,
        *,
        headroom_servers: float | None = None,
        measured_at: float | None = None,
        hosting: Mapping[str, Sequence[int]] | None = None,
    ) -> LoanList:
        """The inference side's word: what it needs now, and at most until its next word, in servers.

        `headroom_servers` are kept on top (None: as configured). `measured_at` is when this was so, in Unix
        seconds (None: now). `hosting` gives the GPUs of each replica by server (None: nobody knows).
        """
        body = DemandRequest(
            need_servers=need_servers,
            forecast_servers=forecast_servers,
            headroom_servers=headroom_servers,
            measured_at=measured_at,
            hosting=None if hosting is None else {name: list(gpus) for name, gpus in hosting.items()},
        )
        return self._ask(LoanList, "PUT", "/v1/inference/demand", body=body)

    def report_ready(self, server_id: str) -> LoanList:
        """The inference side's word that a server which came home serves again. Raises ConflictError for one
        that isn't being restored.
        """
        body = ReadyRequest(server=server_id)
        return self._ask(LoanList, "POST", "/v1/inference/ready", body=body, repeatable=False)

    # The cluster

    def whatif(self, policies: Iterable[str]) -> WhatIfView:
        """What other policies would do from here on."""
        body = WhatIfRequest(policies=list(policies))
        return self._ask(WhatIfView, "POST", "/v1/whatif", body=body, timeout_s=WHATIF_S)

    def events(self, after: int | None = None) -> Generator[ServerEvent, None, None]:
        """Everything that happens after event number `after` (None: from now on), without an end and
        across broken connections.
        """
        return follow_events(self._transport, after, Patience(self._outage_s))

    def whoami(self) -> WhoAmI:
        """Whom the server takes this client for."""
        return self._ask(WhoAmI, "GET", "/v1/whoami")

    def health(self) -> HealthView:
        """Whether the server leads and its loop turns. One that says it doesn't has answered, too."""
        response = self._transport.ask_once("GET", "/readyz")
        return self._transport.read(TypeAdapter(HealthView), response)

    def _ask(
        self,
        kind: type[Answer],
        method: str,
        path: str,
        *,
        repeatable: bool = True,
        parameters: Parameters | None = None,
        body: BaseModel | None = None,
        content: str | None = None,
        headers: dict[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        return self._transport.ask(
            TypeAdapter(kind),
            method,
            path,
            repeatable=repeatable,
            parameters=parameters,
            content=content if body is None else body.model_dump_json(),
            headers=headers,
            timeout_s=timeout_s,
        )


def _json(job: JobFile) -> str:
    return json.dumps(to_mapping(job), ensure_ascii=False, allow_nan=False)


def _job(job_id: str, part: str = "") -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}" + (f"/{part}" if part else "")


def _server(server_id: str, part: str) -> str:
    return f"/v1/servers/{quote(server_id, safe='')}/{part}"
