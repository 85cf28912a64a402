"""Who held how many workers where, and from when to when: the rows of `schedule.csv`.

A stretch is a span of time in which a job held the same number of workers of one demand kind on one server.
Holding is what counts, not running: workers that were told to leave keep their GPUs until the world says
that they are gone, and keep the label, base or flexible, that they had when they were told. The state only
knows how many GPUs are leaving, so those labels are remembered here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from aryl.core.cluster import Cluster, Job
from aryl.core.model import Slot
from aryl.report.outcome import Schedule

_Key = tuple[int, int]  # the server's place, and 0 for base or 1 for flexible workers
_COLUMNS = 8


class Stretches:
    """Follows the holdings of jobs. Jobs are numbered by the recorder."""

    def __init__(self) -> None:
        # One flat array of doubles, a row a stretch: an object a row would take four times the memory.
        self._rows = array("d")
        self._open: dict[int, dict[_Key, tuple[int, int, int, float]]] = {}  # attempt, workers, gpus, since
        self._leaving: dict[int, dict[str, Slot]] = {}

    def told_to_leave(self, number: int, slots: Iterable[Slot]) -> None:
        """These workers of a job have been told to go; they hold their GPUs until they are gone."""
        leaving = self._leaving.setdefault(number, {})
        for slot in slots:
            old = leaving.get(slot.server_id)
            leaving[slot.server_id] = slot if old is None else _plus(old, slot, 1)

    def all_told_to_leave(self, number: int, cluster: Cluster) -> None:
        """Everything that a job holds has been told to go."""
        leaving: dict[str, Slot] = {}
        for (place, demand), (_, workers, gpus, _) in self._open.get(number, {}).items():
            server_id = cluster.servers[place].spec.server_id
            slot = Slot(server_id, 0 if demand else workers, workers if demand else 0, gpus // workers)
            leaving[server_id] = _plus(leaving[server_id], slot, 1) if server_id in leaving else slot
        self._leaving[number] = leaving

    def gone(self, number: int, slots: Iterable[Slot]) -> None:
        """These workers of a job have gone."""
        leaving = self._leaving.get(number, {})
        for slot in slots:
            old = leaving.pop(slot.server_id, None)
            left = None if old is None else _plus(old, slot, -1)
            if left is not None and left.workers > 0:
                leaving[slot.server_id] = left

    def follow(self, number: int, job: Job | None, cluster: Cluster, now_s: float) -> None:
        """Close the stretches that ended by now and begin new ones. `job` is None when it is over."""
        held: dict[_Key, tuple[int, int]] = {}
        if job is not None:
            for slot in self._slots(number, job):
                place = cluster.server_by_id[slot.server_id].place
                for demand, workers in enumerate((slot.base, slot.flexible)):
                    if workers:
                        more = held.get((place, demand), (0, 0))
                        held[place, demand] = (more[0] + workers, more[1] + workers * slot.gpus_per_worker)
        began = self._open.get(number, {})
        kept = {}
        for key, (attempt, workers, gpus, since_s) in began.items():
            if held.get(key) == (workers, gpus):
                kept[key] = (attempt, workers, gpus, since_s)
                del held[key]
            elif now_s > since_s:
                self._rows.extend((number, attempt, key[0], key[1], workers, gpus, since_s, now_s))
        if job is not None:
            for key, (workers, gpus) in held.items():
                kept[key] = (job.attempt, workers, gpus, now_s)
        if kept:
            self._open[number] = kept
        else:
            self._open.pop(number, None)
        if job is None:
            self._leaving.pop(number, None)

    def schedule(self, end_s: float) -> Schedule:
        """All stretches, by start, job, server and demand; what is still held is cut at `end_s`."""
        rows = array("d", self._rows)
        for number, began in self._open.items():
            for (place, demand), (attempt, workers, gpus, since_s) in began.items():
                if end_s > since_s:
                    rows.extend((number, attempt, place, demand, workers, gpus, since_s, end_s))
        table = np.frombuffer(rows, dtype=np.float64).reshape(-1, _COLUMNS)
        table = table[np.lexsort((table[:, 3], table[:, 2], table[:, 0], table[:, 6]))]
        whole = table[:, :6].astype(np.int64)
        return Schedule(
            job=whole[:, 0],
            attempt=whole[:, 1],
            server=whole[:, 2],
            demand=whole[:, 3],
            workers=whole[:, 4],
            gpus=whole[:, 5],
            start_s=table[:, 6].copy(),
            end_s=table[:, 7].copy(),
        )

    def _slots(self, number: int, job: Job) -> Iterator[Slot]:
        """Live workers and leaving ones. A server that was lost took the leaving ones with it."""
        yield from job.slots.values()
        leaving = self._leaving.get(number)
        if leaving:
            for server_id in [server_id for server_id in leaving if server_id not in job.leaving]:
                del leaving[server_id]
            yield from leaving.values()


def _plus(slot: Slot, other: Slot, sign: int) -> Slot:
    return slot._replace(base=slot.base + sign * other.base, flexible=slot.flexible + sign * other.flexible)
