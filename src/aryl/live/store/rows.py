"""What goes into the store and what comes out. Times are seconds since the Unix epoch unless said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from aryl.core.model import JobState
from aryl.core.plan import Weighed
from aryl.errors import ArylError
from aryl.live.control import Role
from aryl.wire.views import AlternativeView, HistoryEntry, JobView, LoanView, PlaceView


class IdempotencyError(ArylError):
    """An idempotency key came again with another request."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be accepted. `body` is the whole job file as JSON; the rest is what lists and filters need."""

    name: str
    project: str
    user: str
    body: str
    min_workers: int
    max_workers: int
    gpus_per_worker: int
    priority: int = 0
    estimate_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as the store has it. `sequence` counts the acceptances; `journaled` is the journal's number of
    its submission, None while it has none.
    """

    job_id: str
    sequence: int
    name: str
    project: str
    user: str
    min_workers: int
    max_workers: int
    gpus_per_worker: int
    priority: int
    estimate_s: float | None
    state: JobState
    attempt: int
    workers: int
    gpus: int
    placement: tuple[PlaceView, ...]
    preemptions: int
    failures: int
    resizes: int
    submitted: float
    started: float | None
    finished: float | None
    message: str
    journaled: int | None

    def view(self) -> JobView:
        """As the API shows it. What only the running cluster knows (`remaining_s`) is left out."""
        return JobView(
            job_id=self.job_id,
            name=self.name,
            project=self.project,
            user=self.user,
            state=self.state,
            attempt=self.attempt,
            workers=self.workers,
            min_workers=self.min_workers,
            max_workers=self.max_workers,
            gpus_per_worker=self.gpus_per_worker,
            priority=self.priority,
            gpus=self.gpus,
            preemptions=self.preemptions,
            failures=self.failures,
            resizes=self.resizes,
            submitted=self.submitted,
            started=self.started,
            finished=self.finished,
            estimate_s=self.estimate_s,
            placement=list(self.placement),
            message=self.message,
        )


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """Something that happened to a job. `sequence` is the journal's number of the event, `part` the place
    within it. `text` names servers but no other job: those are in `beneficiary` and `alternatives`.
    """

    job_id: str
    sequence: int
    part: int
    at: float
    kind: str
    attempt: int
    text: str
    cause: str | None = None
    beneficiary: str | None = None
    alternatives: tuple[Weighed, ...] = ()

    def view(self) -> HistoryEntry:
        """As the API shows it to somebody who may see every name in it."""
        return HistoryEntry(
            sequence=self.sequence,
            at=self.at,
            kind=self.kind,
            attempt=self.attempt,
            cause=self.cause,
            text=self.text,
            beneficiary=self.beneficiary,
            alternatives=[AlternativeView(what=one.what, cost=one.cost) for one in self.alternatives],
        )


@dataclass(frozen=True, slots=True)
class LoanRow:
    """A loan, past or present. `deadline` is None where there is none."""

    server: str
    lent: float
    reclaim_asked: float | None
    deadline: float | None
    returned: float | None

    def view(self) -> LoanView:
        """As the API shows it."""
        return LoanView(
            server=self.server,
            lent=self.lent,
            reclaim_asked=self.reclaim_asked,
            deadline=self.deadline,
            returned=self.returned,
        )


@dataclass(frozen=True, slots=True)
class LeaderRow:
    """Who leads. `token` rises with each leader, `beat` with each sign of life; `holder` None: resigned."""

    holder: str | None
    token: int
    beat: int


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token that may be used, or that was. The secret isn't kept anywhere."""

    name: str
    role: Role
    project: str | None
    created: float
    revoked: float | None


class JournalLine(NamedTuple):
    """One event as JSON, without a line end, and the one job that it names, if it is one."""

    sequence: int
    body: str
    job_id: str | None


@dataclass(slots=True)
class JobChange:
    """What becomes of a job's row: columns that get a value, and counters that rise."""

    values: dict[str, object] = field(default_factory=dict)
    rises: dict[str, int] = field(default_factory=dict)


class LoanMove(Enum):
    """What becomes of a loan."""

    LENT = "lent"  # a new loan, or a reclaim was withdrawn and the old one goes on
    RECLAIMED = "reclaimed"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class LoanChange:
    """One move of one server. `sequence` is the journal's number of the event."""

    move: LoanMove
    server: str
    sequence: int
    at: float
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """What a batch of events changes in the tables beside the journal."""

    jobs: Mapping[str, JobChange] = field(default_factory=dict)
    history: tuple[HistoryRow, ...] = ()
    loans: tuple[LoanChange, ...] = ()


NO_CHANGES = Changes()
