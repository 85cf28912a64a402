"""The closed union of facts. Everything that ever changes a cluster is one of these, each with its time in
seconds.

Reports about a job carry its `attempt` (and `revision` for resizes); a late report of an older one changes
nothing. `WAKES` names the events after which a scheduling pass could decide something new.
"""

from __future__ import annotations

from dataclasses import dataclass

from aryl.core.model import Accounting, Health, Hosting, JobSpec, ServerSpec, Slot
from aryl.core.plan import Plan
from aryl.core.speedup import Speedup


@dataclass(frozen=True, slots=True)
class ClusterDeclared:
    """The first event: the servers, in the order that breaks ties, and the rules they are accounted by.

    `resize_s`, `restart_s` and `vacate_s` are what a resize or a restart is expected to cost a job and how
    long leaving workers take; `headroom_servers` are never lent; a reclaimed server has to be empty
    `reclaim_within_s` after it was asked for; `guaranteed` gives the GPUs that each project may claim back.
    `confirms_loans`: a server that is lent takes work once the world has said that it is handed over;
    `confirms_returns`: one that comes home serves once the world has said so, which takes about `load_s`. At
    least `least_kept_servers` of the inference servers are never lent, and at most `most_lent_servers` are on
    loan (None: any number).
    """

    at: float
    servers: tuple[ServerSpec, ...]
    accounting: Accounting = Accounting.MORE_GPUS
    resize_s: float = 0.0
    restart_s: float = 0.0
    vacate_s: float = 0.0
    headroom_servers: int = 0
    reclaim_within_s: float = 0.0
    guaranteed: tuple[tuple[str, int], ...] = ()
    confirms_loans: bool = False
    confirms_returns: bool = False
    load_s: float = 0.0
    least_kept_servers: int = 0
    most_lent_servers: int | None = None


@dataclass(frozen=True, slots=True)
class ServersJoined:
    """Servers are part of the cluster from now on, up and empty, behind those that are there. One that joined
    before, was lost, and has other GPUs now is named again: it keeps its name, its pool and its place.
    """

    at: float
    servers: tuple[ServerSpec, ...]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job was accepted."""

    at: float
    job: JobSpec


@dataclass(frozen=True, slots=True)
class Refused:
    """A job could never run here; it was not accepted."""

    at: float
    job_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The user wants the job gone."""

    at: float
    job_id: str


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """The user changed a job's worker limits."""

    at: float
    job_id: str
    min_workers: int
    max_workers: int


@dataclass(frozen=True, slots=True)
class Launched:
    """All workers of the gang are up; the job makes progress from now on."""

    at: float
    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Resized:
    """The resize is over; the job makes progress at its new size."""

    at: float
    job_id: str
    attempt: int
    revision: int


@dataclass(frozen=True, slots=True)
class Vacated:
    """Workers that were told to leave are gone; `slots` says where they were."""

    at: float
    job_id: str
    attempt: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Stopped:
    """All workers of a job that was told to stop are gone. `kept_s`: the progress that was saved (see
    `Progress`).
    """

    at: float
    job_id: str
    attempt: int
    kept_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """The job ended well."""

    at: float
    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ended badly and will not be tried again."""

    at: float
    job_id: str
    attempt: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Crashed:
    """An attempt ended badly, and all its workers are gone. The job is tried again until it has crashed
    `max_failures` times.
    """

    at: float
    job_id: str
    attempt: int
    kept_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WorkersDone:
    """Some workers of a job ended well by themselves and are gone; the others go on, and nobody takes their
    place.
    """

    at: float
    job_id: str
    attempt: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class WorkerReplaced:
    """A worker ended badly and was started again in its place while the others went on."""

    at: float
    job_id: str
    attempt: int
    server_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stalled:
    """A job that used to tell how far it is has fallen silent: it has to be stopped and started again."""

    at: float
    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Learned:
    """What a job says of itself, in base seconds: how much is done, how much of that is saved, how long the
    whole takes, and how its speed depends on its size. None: nothing new.
    """

    at: float
    job_id: str
    attempt: int
    done_s: float
    saved_s: float
    estimate_s: float | None = None
    speedup: Speedup | None = None


@dataclass(frozen=True, slots=True)
class ServerLost:
    """A server is gone, with every worker on it."""

    at: float
    server_id: str


@dataclass(frozen=True, slots=True)
class ServerReturned:
    """A lost server is back, empty."""

    at: float
    server_id: str


@dataclass(frozen=True, slots=True)
class ServerDrained:
    """A server takes nothing new (`draining`), or takes work again. By `deadline_s`, absolute, it has to be
    empty.
    """

    at: float
    server_id: str
    draining: bool
    deadline_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """What is known of a server's health."""

    at: float
    server_id: str
    health: Health


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The inference side has let go of a server that is lent: it takes work from now on."""

    at: float
    server_id: str


@dataclass(frozen=True, slots=True)
class BackInService:
    """A server that came home serves inference again: its models are loaded."""

    at: float
    server_id: str


@dataclass(frozen=True, slots=True)
class LoanCalledOff:
    """The inference side didn't let go of a server in time: it stays at home."""

    at: float
    server_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GiveRequested:
    """An operator wants an inference server lent."""

    at: float
    server_id: str


@dataclass(frozen=True, slots=True)
class ReclaimRequested:
    """An operator wants a server on loan back by `deadline_s`, absolute, and kept at home until it is given
    again.
    """

    at: float
    server_id: str
    deadline_s: float


@dataclass(frozen=True, slots=True)
class DemandReported:
    """The inference side needs `need_servers` now and, as far as it can tell, `forecast_servers` at most for
    some time.

    `headroom_servers` are kept on top; None: those that were declared. `hosting` says where its replicas
    stand: a server that isn't named carries none; empty: nobody knows. `measured_s`: when that was, if it was
    before.
    """

    at: float
    need_servers: float
    forecast_servers: float
    headroom_servers: float | None = None
    hosting: tuple[Hosting, ...] = ()
    measured_s: float | None = None


@dataclass(frozen=True, slots=True)
class NeedChanged:
    """What the inference side needs in truth, between two of its reports. Accounts are kept by it; the
    scheduler doesn't hear it.
    """

    at: float
    need_servers: float


@dataclass(frozen=True, slots=True)
class LendingLimited:
    """From now on at most so many servers may be on loan, whatever inference needs (None: any number). What
    was declared holds besides.
    """

    at: float
    most_servers: int | None


@dataclass(frozen=True, slots=True)
class TelemetryLost:
    """The inference side has been silent for too long: what it said last is no ground to lend or to take
    back.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment that a policy asked to be woken at has come."""

    at: float


@dataclass(frozen=True, slots=True)
class PlanCommitted:
    """We decided; the steps are on their way to the world."""

    at: float
    plan: Plan


Event = (
    ClusterDeclared
    | ServersJoined
    | Submitted
    | Refused
    | CancelRequested
    | LimitsChanged
    | Launched
    | Resized
    | Vacated
    | Stopped
    | Finished
    | Failed
    | Crashed
    | WorkersDone
    | WorkerReplaced
    | Stalled
    | Learned
    | ServerLost
    | ServerReturned
    | ServerDrained
    | HealthChanged
    | HandedOver
    | BackInService
    | LoanCalledOff
    | GiveRequested
    | ReclaimRequested
    | DemandReported
    | NeedChanged
    | LendingLimited
    | TelemetryLost
    | Tick
    | PlanCommitted
)

# A pass after one of the others would see the same queue and the same free GPUs.
QUIET = (Launched, Resized, Refused, WorkerReplaced, BackInService, NeedChanged)
