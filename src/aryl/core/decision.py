"""What a policy answers: only what is to change, each change with its cause and what it was weighed
against.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aryl.core.model import Slot
from aryl.core.plan import Cause, Weighed


@dataclass(frozen=True, slots=True)
class Start:
    """Start a waiting job here. Where the place isn't free yet, it is claimed, and the job starts when it
    is.
    """

    job_id: str
    slots: tuple[Slot, ...]
    cause: Cause = Cause.BASE_DEMAND


@dataclass(frozen=True, slots=True)
class Rescale:
    """Add flexible workers to a live job, or take some away."""

    job_id: str
    add: tuple[Slot, ...]
    remove: tuple[Slot, ...]
    cause: Cause


@dataclass(frozen=True, slots=True)
class Preemption:
    """Stop a live job for somebody's sake. `save`: it may save first and keeps its progress."""

    job_id: str
    cause: Cause
    beneficiary: str
    save: bool = False
    weighed: tuple[Weighed, ...] = ()
    collateral_gpus: int = 0


@dataclass(frozen=True, slots=True)
class Recall:
    """An on-loan server is to go back by `deadline_s`, absolute."""

    server_id: str
    deadline_s: float
    weighed: tuple[Weighed, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """All that a policy wants changed now. `wake_at_s`: when it wants to be asked again even if nothing
    happens.
    """

    starts: tuple[Start, ...] = ()
    rescales: tuple[Rescale, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    lend: tuple[str, ...] = ()
    recall: tuple[Recall, ...] = ()
    release: tuple[int, ...] = ()
    wake_at_s: float = field(default=float("inf"))

    @property
    def empty(self) -> bool:
        """Nothing is to change."""
        return not (
            self.starts or self.rescales or self.preemptions or self.lend or self.recall or self.release
        )


NOTHING = Decision()
