"""The queue: waiting jobs in the policy's order, and by demand.

Jobs with the same demand fit or don't fit together, so a pass looks at the head of each demand class instead
of at every job: with thousands waiting and nothing free, a pass costs as many looks as there are classes
(about twenty on real traces).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace, merge
from typing import NamedTuple

QueueKey = tuple[float, ...]


class DemandClass(NamedTuple):
    """What decides whether a waiting job fits: its gang, where it may stand, and whom it may displace."""

    workers: int
    gpus_per_worker: int
    fungible: bool
    heterogeneous: bool
    gpu_types: tuple[tuple[str, float], ...]
    priority: int
    project: str


class Entry(NamedTuple):
    """A waiting job in the queue. `key` ends in (submission, sequence), so no two are equal."""

    key: QueueKey
    job_id: str


class PendingQueue:
    """Waiting jobs by demand class, each class in the order of the key."""

    __slots__ = ("_class_of", "classes")

    def __init__(self) -> None:
        self.classes: dict[DemandClass, list[Entry]] = {}
        self._class_of: dict[str, tuple[DemandClass, Entry]] = {}

    def __len__(self) -> int:
        return len(self._class_of)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._class_of

    def add(self, demand: DemandClass, key: QueueKey, job_id: str) -> None:
        """Put a job in its place."""
        entry = Entry(key, job_id)
        insort(self.classes.setdefault(demand, []), entry)
        self._class_of[job_id] = (demand, entry)

    def discard(self, job_id: str) -> None:
        """Take a job out, if it is in."""
        found = self._class_of.pop(job_id, None)
        if found is None:
            return
        demand, entry = found
        entries = self.classes[demand]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self.classes[demand]

    def __iter__(self) -> Iterator[Entry]:
        """All waiting jobs in order."""
        return merge(*self.classes.values())

    def walk(self) -> Walk:
        """Go through the queue in order, leaving out whole classes at will."""
        return Walk(self)


class Walk:
    """Heads of the classes in the queue's order. After each job say `placed()`, `skip_job()` or
    `skip_class()`.
    """

    __slots__ = ("_heap", "demand", "job_id")

    def __init__(self, queue: PendingQueue) -> None:
        self._heap = [
            (entries[0], rank, 0, demand, entries)
            for rank, (demand, entries) in enumerate(queue.classes.items())
        ]
        heapify(self._heap)
        self.job_id = ""
        self.demand: DemandClass | None = None

    def next(self) -> bool:
        """Move to the first job that is left; False if there is none."""
        if not self._heap:
            return False
        entry, _, _, self.demand, _ = self._heap[0]
        self.job_id = entry.job_id
        return True

    def skip_job(self) -> None:
        """Go on with the next job of the same class."""
        _, rank, at, demand, entries = self._heap[0]
        if at + 1 < len(entries):
            heapreplace(self._heap, (entries[at + 1], rank, at + 1, demand, entries))
        else:
            heappop(self._heap)

    def skip_class(self) -> None:
        """Leave out the rest of this job's class: what doesn't fit for one doesn't fit for the others."""
        heappop(self._heap)
