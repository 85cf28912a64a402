"""The words of a job's history. They name servers and numbers, never another job: who else is concerned is
kept beside the words, so that it can be kept from those whom it doesn't concern.
"""

from __future__ import annotations

from collections.abc import Iterable

from aryl.core.cluster import Job
from aryl.core.model import Slot
from aryl.core.plan import Cause

# What a program said of its end may be long, and is kept for ever.
MOST_CHARACTERS = 500

WHY_STOPPED = {
    Cause.BASE_DEMAND: "stopped to make room for the base demand of a waiting job",
    Cause.GROWTH: "stopped to make room for another job's growth",
    Cause.RECLAIM: "stopped because the inference side needs its server back",
    Cause.PRIORITY: "stopped to make room for a job of higher priority",
    Cause.QUOTA: "stopped to make room for a project's guaranteed share",
    Cause.ORDER: "stopped to make room for a job that comes before it",
    Cause.SERVER_LOST: "stopped because it lost workers with their server",
    Cause.LIMITS: "stopped because its limits were changed",
    Cause.CANCELLED: "stopped because it was cancelled",
    Cause.DRAIN: "stopped because its server is being drained",
    Cause.STALLED: "stopped because it has fallen silent",
    Cause.WITHDRAWN: "stopped although nothing needs its place any more",
}


def size(min_workers: int, max_workers: int) -> str:
    """`4 workers` or `2 to 8 workers`."""
    if min_workers == max_workers:
        return f"{min_workers} {_plural('worker', min_workers)}"
    return f"{min_workers} to {max_workers} workers"


def wanted(job: Job) -> str:
    """What a job asks for."""
    gpus = job.spec.gpus_per_worker
    return f"{size(*job.limits)} of {gpus} {_plural('GPU', gpus)} wanted"


def on(slots: Iterable[Slot]) -> str:
    """`6 workers on T1 (4), T2 (2)`."""
    slots = tuple(slots)
    workers = sum(slot.workers for slot in slots)
    return f"{workers} {_plural('worker', workers)} on {places(slots)}"


def places(slots: Iterable[Slot]) -> str:
    """`T1 (4), T2 (2)`."""
    return ", ".join(f"{slot.server_id} ({slot.workers})" for slot in slots)


def kept(kept_s: float) -> str:
    """How much work the next attempt begins with."""
    return f"{kept_s:.0f} s of work are kept" if kept_s > 0.0 else "no work is kept"


def times(count: int) -> str:
    """`once`, `3 times`."""
    return "once" if count == 1 else f"{count} times"


def reason(given: str, otherwise: str) -> str:
    """A reason from outside, as text that any database takes; `otherwise` where none was given."""
    clean = given.replace("\0", " ").encode("utf-8", "replace").decode("utf-8").strip()
    return clean[:MOST_CHARACTERS] or otherwise


def because(text: str, given: str) -> str:
    """A text with the reason from outside behind it, if there is one."""
    why = reason(given, "")
    return f"{text}: {why}" if why else text


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"
