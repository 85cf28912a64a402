"""What the API may ask of the daemon. `daemon.py` answers; tests of the API may put anything in its place.

Every method may be called from any thread. Those that change something return once the change is in the
journal. Nothing here is filtered for the eyes of a project: that is the API's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from aryl.wire.job_file import JobFile
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


class Role(IntEnum):
    """What somebody may do; each may do what those below may."""

    VIEWER = 1  # see the jobs of the own project
    USER = 2  # submit, cancel and resize them
    OPERATOR = 3  # all projects; drain, lend and reclaim; speak for the inference side
    ADMIN = 4  # manage tokens


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. `project` None: all of them."""

    name: str
    role: Role
    project: str | None = None


@dataclass(frozen=True, slots=True)
class LogFile:
    """Where what a worker printed is kept."""

    attempt: int
    rank: int
    path: Path


class Control(Protocol):
    """The running control plane, as the API sees it."""

    def submit(self, job: JobFile, principal: Principal, idempotency_key: str | None) -> tuple[JobView, bool]:
        """Accept a job; the flag says whether it is new, or the answer to a repeated key.

        Raises InputError for a job that could never run here, IdempotencyError for a key that came with
        another body, NotAllowedError for a project that isn't the principal's.
        """

    def cancel(self, job_id: str) -> JobView:
        """Ask for the end of a job. One that is over already stays as it is. Raises NotFoundError."""

    def resize(self, job_id: str, limits: ResizeRequest) -> JobView:
        """Change a job's limits. Raises NotFoundError, InputError, ConflictError for a job that is over."""

    def job(self, job_id: str) -> JobView:
        """A job as it stands. Raises NotFoundError."""

    def why(self, job_id: str) -> WhyView:
        """Why a job waits. Raises NotFoundError."""

    def dry_run(self, job: JobFile, principal: Principal) -> DryRunView:
        """Whether and when a job would start; nothing changes."""

    def whatif(self, request: WhatIfRequest) -> WhatIfView:
        """What other policies would do from here on. Raises InputError for an unknown policy."""

    def servers(self) -> list[ServerView]:
        """All servers."""

    def drain(self, server_id: str, deadline_s: float | None) -> ServerView:
        """Let a server take nothing new, and be empty in `deadline_s` seconds. Raises NotFoundError."""

    def undrain(self, server_id: str) -> ServerView:
        """Let a drained, quarantined or suspect server take work again. Raises NotFoundError."""

    def loans(self) -> LoanList:
        """Loans, and the inference side's account."""

    def give(self, server_id: str) -> LoanList:
        """Lend a server. Raises NotFoundError, ConflictError where the inference side would fall short or a
        limit is in the way.
        """

    def reclaim(self, request: ReclaimRequest) -> LoanList:
        """Take a server back. Raises NotFoundError, ConflictError if it isn't on loan."""

    def report_demand(self, demand: DemandRequest) -> LoanList:
        """The inference side's word. Raises InputError for one that can't be about these servers, or about
        the past.
        """

    def report_ready(self, server_id: str) -> LoanList:
        """The inference side's word that a server which came home serves again. Raises NotFoundError,
        ConflictError for one that isn't being restored.
        """

    def log_files(self, job_id: str) -> list[LogFile]:
        """What the workers of all attempts printed. Raises NotFoundError."""

    def health(self) -> HealthView:
        """Whether the loop turns."""

    def gauges(self) -> Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]:
        """Metrics: name without prefix -> labels -> value. Counters end in `_total`."""
