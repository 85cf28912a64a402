"""The bodies that the API answers with, and those that it takes besides the job file.

Times are seconds since the Unix epoch, durations seconds. A view of something that belongs to another
project has its names left out (None), never made up.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from aryl.core.model import JobState, Pool, Tenure
from aryl.policies.reasons import Wait


def _named(reason: object) -> object:
    return Wait.__members__.get(reason, reason) if isinstance(reason, str) else reason


# Scripts rely on the names; the values are texts for people.
WaitName = Annotated[
    Wait,
    BeforeValidator(_named),
    PlainSerializer(lambda reason: reason.name, return_type=str),
    WithJsonSchema({"type": "string", "enum": [reason.name for reason in Wait], "title": "Wait"}),
]


class View(BaseModel):
    """Base of what the API sends."""

    model_config = ConfigDict(frozen=True)


class Request(BaseModel):
    """Base of what the API takes: unknown keys are errors, and so is `true` or `"1"` for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PlaceView(View):
    """Workers of a job on one server."""

    server: str
    base: int
    flexible: int
    gpus: int


class JobView(View):
    """A job as it stands, or as it ended."""

    job_id: str
    name: str
    project: str
    user: str
    state: JobState
    attempt: int
    workers: int
    min_workers: int
    max_workers: int
    gpus_per_worker: int
    priority: int
    gpus: int
    preemptions: int
    failures: int
    resizes: int
    submitted: float
    started: float | None = None
    finished: float | None = None
    estimate_s: float | None = None
    remaining_s: float | None = None
    placement: list[PlaceView] = Field(default_factory=list)
    message: str = ""


class JobList(View):
    """A page of jobs, newest first; `next` is the cursor of the next page."""

    jobs: list[JobView]
    next: str | None = None


class HistoryEntry(View):
    """Something that happened to a job. `kind` is a past participle: submitted, launched, preempted, ..."""

    sequence: int
    at: float
    kind: str
    attempt: int = 0
    cause: str | None = None
    text: str
    beneficiary: str | None = None
    alternatives: list[AlternativeView] = Field(default_factory=list)


class AlternativeView(View):
    """What a preemption was weighed against. `what` is None for another project's eyes."""

    what: str | None
    cost: float


class JobHistory(View):
    """All that happened to a job, oldest first."""

    job_id: str
    entries: list[HistoryEntry]


class WhyView(View):
    """Why a job waits, or what it does instead of waiting."""

    job_id: str
    state: JobState
    reason: WaitName | None
    text: str
    needed_gpus: int = 0
    free_gpus: int = 0
    best_server_free_gpus: int = 0
    behind: list[str | None] = Field(default_factory=list)
    starts: float | None = None


class DryRunView(View):
    """Would it fit? `starts` is an estimate; None where it never starts, and `text` says why."""

    verdict: Literal["now", "later", "never", "unknown"]
    starts: float | None = None
    text: str
    servers: list[str] = Field(default_factory=list)


class WhatIfRequest(Request):
    """What would another policy do from here on?"""

    policies: list[str] = Field(min_length=1, max_length=8)


class WhatIfOutcome(View):
    """What one policy would make of the jobs that are here now, by their estimates."""

    policy: str
    finished: int
    unfinished: int
    mean_jct_s: float | None
    mean_queuing_s: float | None
    preemptions: int


class WhatIfView(View):
    """One outcome a policy."""

    outcomes: list[WhatIfOutcome]


class ResizeRequest(Request):
    """New limits; one that is left out stays."""

    min_workers: int | None = Field(default=None, ge=1)
    max_workers: int | None = Field(default=None, ge=1)


class ServerView(View):
    """A server as it stands. `health`: healthy, resting, quarantined, suspect. `restoring`: it is at home
    again and doesn't serve yet.
    """

    server: str
    pool: Pool
    tenure: Tenure
    gpu_type: str
    gpus: int
    free_gpus: int
    used_gpus: int
    leaving_gpus: int
    up: bool
    draining: bool
    health: str
    handing_over: bool = False
    restoring: bool = False
    reclaim_by: float | None = None
    jobs: list[str | None] = Field(default_factory=list)


class ServerList(View):
    """All servers, training first."""

    servers: list[ServerView]


class DrainRequest(Request):
    """`deadline_s`: seconds until it has to be empty; None lets jobs finish."""

    deadline_s: float | None = Field(default=None, ge=0)


class LoanView(View):
    """A loan, past or present."""

    server: str
    lent: float
    reclaim_asked: float | None = None
    deadline: float | None = None
    returned: float | None = None


# What keeps servers from being lent, whatever inference needs.
Limit = Literal["calendar", "max_lent", "min_servers"]


class LoanList(View):
    """The loans, newest first, and the inference side's account.

    Of the `inference_servers` that are up, `serving_servers` serve and `restoring_servers` are at home and
    don't yet. `headroom_servers` are kept on top of what is needed. At most `lending_cap` may be on loan;
    `limit` names what says so, and is None where nothing does.
    """

    loans: list[LoanView]
    inference_servers: int
    on_loan: int
    need_servers: float | None
    forecast_servers: float | None
    reported: float | None
    degraded: bool
    shortfall_servers: float
    serving_servers: int
    restoring_servers: int
    headroom_servers: float
    lending_cap: int
    limit: Limit | None = None


class ReclaimRequest(Request):
    """Take a certain server back, or `count` of the policy's choice."""

    server: str | None = None
    deadline_s: float | None = Field(default=None, ge=0)


class GiveRequest(Request):
    """Lend a server."""

    server: str


# More than anybody has; it keeps sums finite.
MOST_HEADROOM_SERVERS = 1_000_000


class ReadyRequest(Request):
    """A server that came home serves again."""

    server: str


class DemandRequest(Request):
    """What the inference side needs now, in servers, and at most until its next word.

    `headroom_servers` are kept on top; None: as configured. `measured_at`: when this was so, in seconds since
    the Unix epoch; None: now. `hosting`: the GPUs of each replica by server; a server that isn't named
    carries none; None or empty: nobody knows.
    """

    need_servers: float = Field(ge=0)
    forecast_servers: float | None = Field(default=None, ge=0)
    headroom_servers: float | None = Field(default=None, ge=0, le=MOST_HEADROOM_SERVERS)
    measured_at: float | None = Field(default=None, ge=0)
    hosting: dict[str, list[Annotated[int, Field(ge=1)]]] | None = None


class RoleName(Enum):
    """What somebody may do; each may do what those before may."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"


class WhoAmI(View):
    """Whose token it is. `project` null: all projects."""

    name: str
    role: RoleName
    project: str | None


class AttemptView(View):
    """A worker that has left a log: attempts count from 1, ranks from 0."""

    attempt: int
    rank: int


class HealthView(View):
    """`ok`, or what is wrong."""

    status: Literal["ok", "starting", "standby", "stalled", "failed"]
    detail: str = ""


class Fault(View):
    """One field of a request that is wrong."""

    field: str | None = None
    line: int | None = None
    message: str
    expected: str | None = None
    nearest: str | None = None


class Problem(View):
    """RFC 9457 problem document."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    instance: str | None = None
    faults: list[Fault] = Field(default_factory=list)


HistoryEntry.model_rebuild()
