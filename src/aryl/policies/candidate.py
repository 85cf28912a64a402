"""One elastic job on one shelf, as phase 2 sees it: what it has there, what more would be worth, what a
change costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from aryl.core.cluster import Cluster, Job, Stand
from aryl.core.model import Slot, allowed_size
from aryl.policies.gain import relative_times

GuessLeft = Callable[[Job, float], float]


@dataclass(slots=True)
class Candidate:
    """An elastic job on one shelf.

    `fixed`: workers that aren't decided here; `here`: flexible workers that it has here; `most`: how many it
    may have here; `left_s`: base seconds left; `slower`: by how much workers here slow down all, beyond what
    the speed-up curve says; `speed_fixed`, `speed_here`: mean speed of the workers that aren't decided here,
    and of one that is, relative to the reference; `cost_s`: what a change costs; `target`: flexible workers
    that it is to have here.
    """

    job: Job
    stand: Stand
    fixed: int
    here: int
    most: int
    left_s: float
    slower: float
    cost_s: float
    may_grow: bool
    speed_fixed: float = 1.0
    speed_here: float = 1.0
    target: int = 0
    times: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        spec = self.job.spec
        self.times = relative_times(spec.speedup, spec.min_workers, self.fixed + self.most)

    @property
    def weight(self) -> int:
        """GPUs a worker."""
        return self.stand.gpus_per_worker

    def time_s(self, flexible: int) -> float:
        """Seconds until the job ends with this many flexible workers here."""
        time_s = self.left_s * self.times[self.fixed + flexible]
        if flexible:
            time_s *= self.slower
        return time_s if self.speed_fixed == self.speed_here == 1.0 else time_s / self._mean_speed(flexible)

    def _mean_speed(self, flexible: int) -> float:
        fixed = self.fixed
        return (fixed * self.speed_fixed + flexible * self.speed_here) / (fixed + flexible)


def worth(candidate: Candidate) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """The value in seconds of each allowed number of flexible workers here, and those numbers; shapes alike.

    What a change costs is taken off every item but the present one; where the job has none here, staying is
    the empty item.
    """
    fixed, here, cost_s = candidate.fixed, candidate.here, candidate.cost_s
    workers = _counts(candidate.job.spec.sizes, fixed, candidate.most if candidate.may_grow else here)
    times_s = candidate.left_s * candidate.slower * _table(candidate.times)[fixed + workers]
    if candidate.speed_fixed != 1.0 or candidate.speed_here != 1.0:
        total = fixed * candidate.speed_fixed + workers * candidate.speed_here
        times_s = times_s * (fixed + workers) / total
    values = candidate.time_s(0) - times_s
    if cost_s:
        if here:
            # Going down to none costs as well: instead of lowering all others, lift the present one.
            values[workers == here] += cost_s
        else:
            values -= cost_s
    return values, workers


def whole_gain_s(candidate: Candidate) -> float:
    """By how much the job could end sooner with more workers here."""
    best_s = candidate.time_s(candidate.most)
    if candidate.speed_fixed != candidate.speed_here:
        # More slow workers may be worse than fewer, so the most isn't always the best.
        best_s = min(candidate.time_s(count) for count in range(candidate.here, candidate.most + 1))
    return candidate.time_s(candidate.here) - best_s


def pays(candidate: Candidate, count: int) -> bool:
    """Whether growing by `count` workers is allowed and worth its cost."""
    here = candidate.here
    if count <= 0 or not allowed_size(candidate.job.spec.sizes, candidate.fixed + here + count):
        return False
    return candidate.time_s(here) - candidate.time_s(here + count) > candidate.cost_s


def could_move(growers: Sequence[Candidate], holders: Sequence[Candidate]) -> bool:
    """Whether a GPU could be worth more with another job than where it is; False is certain.

    Speed-up curves are concave, so the first further worker gains most a GPU and the last one's loss is
    least. If no gain a GPU exceeds any loss a GPU, no exchange pays. Allowed sizes and mixed types break
    concavity; then anything may be.
    """
    everybody = [*growers, *holders]
    if any(one.job.spec.sizes or one.slower != 1.0 or one.speed_fixed != one.speed_here for one in everybody):
        return True
    gain = max((one.time_s(one.here) - one.time_s(one.here + 1)) / one.weight for one in growers)
    loss = min(
        ((one.time_s(one.here - 1) - one.time_s(one.here)) / one.weight for one in everybody if one.here),
        default=float("inf"),
    )
    return gain > loss


def leaving_slots(cluster: Cluster, candidate: Candidate, workers: int) -> list[Slot]:
    """Which of a job's flexible workers here go: from the servers with fewest of them, so that servers become
    empty.
    """
    shelf = candidate.stand.shelf
    here = [
        slot
        for slot in candidate.job.slots.values()
        if slot.flexible and cluster.server_by_id[slot.server_id].shelf == shelf
    ]
    leaving: list[Slot] = []
    for slot in sorted(here, key=lambda slot: slot.flexible):
        if workers <= 0:
            break
        count = min(workers, slot.flexible)
        leaving.append(slot._replace(base=0, flexible=count))
        workers -= count
    return leaving


@lru_cache(maxsize=4096)
def _table(times: tuple[float, ...]) -> npt.NDArray[np.float64]:
    return np.array(times)


@lru_cache(maxsize=4096)
def _counts(sizes: tuple[int, ...], fixed: int, most: int) -> npt.NDArray[np.int64]:
    """The allowed numbers of flexible workers, 1..most, on top of `fixed` others."""
    counts = [count for count in range(1, most + 1) if allowed_size(sizes, fixed + count)]
    return np.array(counts, dtype=np.int64)
