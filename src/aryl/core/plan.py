"""The ordered steps by which a decision becomes real, and the claims that protect GPUs on their way to a new
owner.

*Preempt now, place later*: GPUs being vacated are not given out until the world says that they are free. A
`Claim` holds the whole place of the job they are vacated for, the free part and the part still occupied, so
that no third job takes them. A server that is RECLAIMING is a claim of the inference pool in itself: nothing
is placed on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from aryl.core.model import Slot


class Cause(Enum):
    """Why a job was stopped or resized, or a claim was dropped."""

    BASE_DEMAND = "base-demand"  # room for the base demand of a waiting job
    GROWTH = "growth"  # free GPUs handed to an elastic job, or moved to the one that gains more
    RECLAIM = "reclaim"  # the inference side needs its server
    PRIORITY = "priority"  # a job of higher priority needs the place
    QUOTA = "quota"  # a project claims its guaranteed share
    ORDER = "order"  # a preemptive queue order (srtf, las)
    SERVER_LOST = "server-lost"
    LIMITS = "limits"  # the user changed min or max
    CANCELLED = "cancelled"
    DRAIN = "drain"
    STALLED = "stalled"  # it has fallen silent
    WITHDRAWN = "withdrawn"


class Weighed(NamedTuple):
    """One alternative that a decision looked at: what it was and what it would have cost."""

    what: str
    cost: float


@dataclass(frozen=True, slots=True)
class Claim:
    """A place that is being made for a job: `slots` hold `GPUs` on their servers until the job is launched
    there.
    """

    claim_id: int
    job_id: str
    slots: tuple[Slot, ...]
    cause: Cause


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a gang. If it had a claim, the claim is used up."""

    job_id: str
    attempt: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Resize:
    """Add workers to, or take them from, a live job. `revision` counts the resizes of an attempt."""

    job_id: str
    attempt: int
    revision: int
    add: tuple[Slot, ...]
    remove: tuple[Slot, ...]
    cause: Cause


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a job below its base demand. `save`: it is asked to save first, and keeps all its progress.

    `beneficiary` names who the place is for: a job, or the servers to be returned.
    """

    job_id: str
    attempt: int
    cause: Cause
    save: bool
    beneficiary: str
    weighed: tuple[Weighed, ...] = ()
    collateral_gpus: int = 0


@dataclass(frozen=True, slots=True)
class Reserve:
    """Hold a place for a job while it is being vacated."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Release:
    """Drop a claim that can no longer be used."""

    claim_id: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Loan:
    """An inference server goes to training use, or a reclaim is withdrawn and the loan goes on."""

    server_id: str


@dataclass(frozen=True, slots=True)
class Reclaim:
    """An on-loan server is to go back by `deadline_s` (absolute). Nothing more is placed on it."""

    server_id: str
    deadline_s: float
    weighed: tuple[Weighed, ...] = ()


@dataclass(frozen=True, slots=True)
class Return:
    """A reclaimed server is empty and goes back to the inference pool."""

    server_id: str


Step = Launch | Resize | Stop | Reserve | Release | Loan | Reclaim | Return


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to happen, in this order."""

    steps: tuple[Step, ...]
