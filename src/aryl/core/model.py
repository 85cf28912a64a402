"""The nouns: what a server and a job are, and the states they can be in. Specs never change; runtime state
lives in `cluster.py`, and only `evolve` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from aryl.core.speedup import LINEAR, Speedup
from aryl.errors import IllegalTransitionError


class Pool(Enum):
    """Who owns a server."""

    TRAINING = "training"
    INFERENCE = "inference"


class Tenure(Enum):
    """How a server stands between the pools."""

    OWNED = "owned"
    ON_LOAN = "on-loan"
    RECLAIMING = "reclaiming"


class Hosting(NamedTuple):
    """What an inference server carries: the GPUs of each replica."""

    server_id: str
    replicas: tuple[int, ...]


class Health(Enum):
    """What is known of a server. Only a healthy one takes new work."""

    HEALTHY = "healthy"
    RESTING = "resting"  # a launch has just failed there; the next one goes elsewhere if it can
    QUARANTINED = "quarantined"  # launches of several jobs failed there; an operator has to look
    SUSPECT = "suspect"  # a worker there doesn't die


class Demand(Enum):
    """What a worker is to its job: part of the gang it can't run without, or an addition."""

    BASE = "base"
    FLEXIBLE = "flexible"


class Accounting(Enum):
    """How a slower GPU is accounted for: a worker takes more of them (the paper), or runs slower."""

    MORE_GPUS = "more-gpus"
    SLOWER = "slower"


class JobState(Enum):
    """Where a job stands. The edges are in `JOB_EDGES`."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    RESIZING = "RESIZING"
    PREEMPTING = "PREEMPTING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"


# Tuples, not sets: membership is then a look at identity, where hashing an enum member is a Python call.
_S = JobState
JOB_EDGES: dict[JobState, tuple[JobState, ...]] = {
    _S.PENDING: (_S.STARTING, _S.CANCELLED),
    # PENDING: the attempt crashed, and there will be another.
    _S.STARTING: (_S.RUNNING, _S.RESIZING, _S.PREEMPTING, _S.CANCELLING, _S.SUCCEEDED, _S.FAILED, _S.PENDING),
    _S.RUNNING: (_S.RESIZING, _S.PREEMPTING, _S.CANCELLING, _S.SUCCEEDED, _S.FAILED, _S.PENDING),
    _S.RESIZING: (
        _S.RUNNING,
        _S.RESIZING,
        _S.PREEMPTING,
        _S.CANCELLING,
        _S.SUCCEEDED,
        _S.FAILED,
        _S.PENDING,
    ),
    _S.PREEMPTING: (_S.PENDING, _S.CANCELLING, _S.SUCCEEDED, _S.FAILED),
    _S.CANCELLING: (_S.CANCELLED, _S.SUCCEEDED, _S.FAILED),
    _S.SUCCEEDED: (),
    _S.FAILED: (),
    _S.CANCELLED: (),
}
LIVE_STATES = (_S.STARTING, _S.RUNNING, _S.RESIZING)
FINAL_STATES = (_S.SUCCEEDED, _S.FAILED, _S.CANCELLED)

TENURE_EDGES: dict[Tenure, tuple[Tenure, ...]] = {
    Tenure.OWNED: (Tenure.ON_LOAN,),
    Tenure.ON_LOAN: (Tenure.RECLAIMING,),
    Tenure.RECLAIMING: (Tenure.OWNED, Tenure.ON_LOAN),  # back home, or the request was withdrawn
}


def check_job_edge(job_id: str, old: JobState, new: JobState) -> None:
    """Raise IllegalTransitionError unless a job may go from `old` to `new`."""
    if new not in JOB_EDGES[old]:
        raise IllegalTransitionError(f"job {job_id} can't go from {old.value} to {new.value}")


def check_tenure_edge(server_id: str, old: Tenure, new: Tenure) -> None:
    """Raise IllegalTransitionError unless a server's tenure may go from `old` to `new`."""
    if new not in TENURE_EDGES[old]:
        raise IllegalTransitionError(f"server {server_id} can't go from {old.value} to {new.value}")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A machine with GPUs. `speed` is its GPU type's speed relative to the reference type."""

    server_id: str
    pool: Pool
    gpu_type: str
    gpus: int
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What is known of a job when it is submitted. Times in seconds.

    `sequence` is its position in the trace or the order of acceptance; `estimate_s` the running time at base
    demand on the reference GPU type that the scheduler is told, or None; `checkpoint_s` how often it saves
    (0: continuously, None: never); `gpu_types` the accepted types with their speeds, empty for the training
    pool's types. A job that has crashed `max_failures` times isn't tried again.
    """

    job_id: str
    sequence: int
    submit_s: float
    min_workers: int
    max_workers: int
    gpus_per_worker: int = 1
    sizes: tuple[int, ...] = ()
    estimate_s: float | None = None
    priority: int = 0
    user: str = ""
    project: str = ""
    model: str = ""
    gpu_types: tuple[tuple[str, float], ...] = ()
    fungible: bool = False
    heterogeneous: bool = False
    mixed_efficiency: float = 1.0
    checkpoint_s: float | None = None
    speedup: Speedup = LINEAR
    max_failures: int = 1

    @property
    def base_gpus(self) -> int:
        """GPUs of the reference type at base demand."""
        return self.min_workers * self.gpus_per_worker

    @property
    def elastic(self) -> bool:
        """Has flexible demand."""
        return self.max_workers > self.min_workers


class Slot(NamedTuple):
    """Workers of one job on one server: `base` and `flexible` workers of `gpus_per_worker` GPUs each
    *there*.
    """

    server_id: str
    base: int
    flexible: int
    gpus_per_worker: int

    @property
    def workers(self) -> int:
        """Base and flexible workers together."""
        return self.base + self.flexible

    @property
    def gpus(self) -> int:
        """GPUs held on that server."""
        return (self.base + self.flexible) * self.gpus_per_worker


def allowed_size(sizes: tuple[int, ...], workers: int) -> bool:
    """Whether a job with these allowed sizes (empty: any) may run with `workers` workers."""
    return not sizes or workers in sizes


def largest_allowed(sizes: tuple[int, ...], workers: int) -> int:
    """The largest allowed number of workers that is not above `workers`; 0 if there is none."""
    if not sizes:
        return workers
    return max((size for size in sizes if size <= workers), default=0)
