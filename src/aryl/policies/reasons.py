"""Why a job waits: a closed list of reasons, each with the numbers behind it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Wait(Enum):
    """The reasons. The texts are for people; the names are for scripts."""

    NEXT_PASS = "fits and starts at the next pass"
    NO_MATCHING_GPU = (
        "no server that is up has a GPU type that the job accepts and is large enough for a worker"
    )
    TOO_LARGE = "the gang would not fit even if nothing else were here"
    VACATING = "its place is being vacated"
    BEHIND_THE_HEAD = "the head of the queue has to start first"
    NOT_ENOUGH_FREE = "too few GPUs are free"
    FRAGMENTED = "enough GPUs are free, but in pieces too small"
    RESERVED = "it would delay a large gang that has a reservation"
    VICTIMS_REST = "those it may preempt have not run for their minimum time yet"
    FASTER_LATER = "it is expected to finish sooner if it waits for faster GPUs"
    NOT_WAITING = "it isn't waiting"


@dataclass(frozen=True, slots=True)
class WaitReason:
    """One job's reason. GPU counts are of GPUs that the job could use together: of the type of which most of
    its workers would find room, or of all types if it may be mixed. `starts_s` is an estimate, absolute, or
    None.

    `behind` names what is in the way: the head of the queue, the jobs to end before it can start, those that
    are leaving its place, those that it may preempt once they have rested, or who holds the reservation.
    """

    job_id: str
    wait: Wait
    needed_gpus: int = 0
    free_gpus: int = 0
    best_server_free_gpus: int = 0
    behind: tuple[str, ...] = ()
    starts_s: float | None = None
