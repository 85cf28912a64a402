"""Phase 2: the GPUs that base demand leaves over are shared out among elastic jobs, by an exact knapsack (the paper, section 3).

Group = job, item k = k flexible workers, weight = their GPUs, value = the JCT reduction with the remaining work. The knapsack
is solved shelf by shelf, loaned servers first, since that is where flexible workers go first; what a shelf can give is what is
free there plus what flexible workers hold there already.

A resize has to pay (ours): for a job that is running, every item but its present one is worth `resize_s` less. This makes the
stay-as-you-are answer win all ties, and since moving costs are additive it also makes the knapsack quiescent: solved again
after its answer has been carried out, it gives the same answer. A job that has just grown doesn't grow again for the
cool-down. A scale-in is done only as far as somebody's growth needs it, and only if that growth then finds a place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aryl.core.cluster import Cluster, Job, Stand
from aryl.core.free_index import Content, FreeIndex
from aryl.core.model import Slot, allowed_size
from aryl.core.plan import Cause
from aryl.policies.draft import Draft
from aryl.policies.gain import guess_s, relative_times, remaining_or_guess_s
from aryl.policies.knapsack import solve_flat
from aryl.policies.placement import Scatter, as_slots, place_on_shelf, place_some


@dataclass(slots=True)
class Candidate:
    """An elastic job on one shelf. `fixed`: workers that aren't decided here; `here`: flexible workers it has on the shelf."""

    job: Job
    stand: Stand
    fixed: int
    here: int
    most: int  # flexible workers that it may have here
    left_s: float  # remaining base seconds
    slower: float  # running time with a worker here over that without, beyond what the speed-up curve says
    cost_s: float  # what a change costs it
    may_grow: bool
    target: int = 0

    @property
    def weight(self) -> int:
        """GPUs a worker."""
        return self.stand.gpus_per_worker


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scaling part of a policy. `estimates` False: remaining times are guessed from what jobs have run."""

    cooldown_s: float = 300.0
    min_interval_s: float = 0.0
    estimates: bool = True

    def decide(self, draft: Draft) -> None:
        """Share out what is left of the draft's free GPUs."""
        cluster = draft.cluster
        jobs = self._participants(draft)
        if not jobs:
            return
        if cluster.now < cluster.rebalanced_s + self.min_interval_s:
            draft.wake_at(cluster.rebalanced_s + self.min_interval_s)
            return
        shelves = range(len(cluster.free.shelves))
        for shelf in sorted(shelves, key=lambda number: not cluster.free.shelves[number].loaned):
            self._share_shelf(draft, jobs, shelf)

    def _participants(self, draft: Draft) -> list[Job]:
        """Running elastic jobs that the draft leaves alone, and elastic jobs that start right now."""
        jobs = [job for job in draft.cluster.elastic.values() if draft.undecided(job)]
        for job_id in draft.starts:
            if job_id not in draft.claiming:
                job = draft.cluster.jobs[job_id]
                if job.elastic:
                    jobs.append(job)
        return jobs

    def _share_shelf(self, draft: Draft, jobs: Iterable[Job], shelf: int) -> None:
        cluster = draft.cluster
        candidates = [found for job in jobs if (found := self._candidate(draft, job, shelf)) is not None]
        if not candidates:
            return
        least = min(candidate.weight for candidate in candidates)
        free = draft.untouched_index.shelf_slots(shelf, least) * least
        if free == 0 and all(candidate.here == 0 for candidate in candidates):
            return
        capacity = free + sum(candidate.here * candidate.weight for candidate in candidates)
        # Growth that finds no place although the sum would allow it is taken off the table, and the rest solved again.
        for _ in range(len(candidates) + 1):
            self._set_targets(cluster, candidates, capacity)
            misfit = self._misfit(draft, candidates)
            if misfit is None:
                break
            misfit.may_grow = False
        self._carry_out(draft, candidates)

    def _candidate(self, draft: Draft, job: Job, shelf: int) -> Candidate | None:
        cluster, spec = draft.cluster, job.spec
        stand = next((stand for stand in cluster.stands(spec) if stand.shelf == shelf), None)
        if stand is None:
            return None
        start = draft.starts.get(spec.job_id)
        slots: Iterable[Slot] = start.slots if start else job.slots.values()
        here = workers = 0
        kinds: set[str] = set()
        for slot in slots:
            server = cluster.server_by_id[slot.server_id]
            flexible_here = slot.flexible if server.shelf == shelf and not start else 0
            here += flexible_here
            rest = slot.workers - flexible_here
            if rest:
                workers += rest
                kinds.add(server.spec.gpu_type)
        if not start:
            # What earlier shelves have given or taken in this very pass.
            for grown in draft.grown(spec.job_id):
                workers += grown.flexible
                kinds.add(cluster.server_by_id[grown.server_id].spec.gpu_type)
            workers -= draft.shed_of(spec.job_id)
        kind = cluster.free.shelves[shelf].gpu_type
        if kind not in kinds and not spec.heterogeneous:
            return None
        left_s = remaining_or_guess_s(job, cluster.now) if self.estimates else guess_s(job, cluster.now)
        mixed_before, mixed_after = len(kinds) > 1, len(kinds | {kind}) > 1
        slower = 1.0
        if mixed_before:
            left_s /= spec.mixed_efficiency
        elif mixed_after:
            slower = 1.0 / spec.mixed_efficiency
        resting = not start and cluster.now < job.grown_s + self.cooldown_s
        if resting and workers + here < job.max_workers:
            draft.wake_at(job.grown_s + self.cooldown_s)
        most = job.max_workers - workers
        if most <= 0:
            return None
        return Candidate(
            job,
            stand,
            workers,
            here,
            most,
            left_s,
            slower,
            0.0 if start else cluster.resize_s,
            may_grow=not resting,
        )

    def _set_targets(self, cluster: Cluster, candidates: list[Candidate], capacity: int) -> None:
        """Solve the knapsack."""
        values: list[npt.NDArray[np.float64]] = []
        weights: list[npt.NDArray[np.int64]] = []
        starts = [0]
        for candidate in candidates:
            worth, workers = _worth(candidate)
            values.append(worth)
            weights.append(workers * candidate.weight)
            starts.append(starts[-1] + len(worth))
        solution = solve_flat(
            np.concatenate(weights), np.concatenate(values), np.array(starts, dtype=np.int64), capacity
        )
        for candidate, item, weight in zip(candidates, solution.items, weights, strict=True):
            candidate.target = 0 if item < 0 else int(weight[item]) // candidate.weight

    def _misfit(self, draft: Draft, candidates: list[Candidate]) -> Candidate | None:
        """A candidate whose growth would find no place even after all scale-ins."""
        growing = [candidate for candidate in candidates if candidate.target > candidate.here]
        if not growing:
            return None
        least = min(candidate.weight for candidate in candidates)
        if least == max(candidate.weight for candidate in candidates) == 1:
            return None
        trial = draft.untouched_index.fork()
        for candidate in candidates:
            if candidate.target < candidate.here:
                for slot in _leaving(draft.cluster, candidate, candidate.here - candidate.target):
                    trial.give(draft.cluster.server_by_id[slot.server_id].place, slot.gpus)
        for candidate in _best_fit_decreasing(growing):
            wanted = candidate.target - candidate.here
            if place_on_shelf(trial, candidate.stand, wanted, Content.FLEXIBLE, Scatter.ALLOWED) is None:
                return candidate
        return None

    def _carry_out(self, draft: Draft, candidates: list[Candidate]) -> None:
        cluster = draft.cluster
        missing_gpus = 0
        for candidate in _best_fit_decreasing([one for one in candidates if one.target > one.here]):
            wanted = candidate.target - candidate.here
            placed = place_some(draft.index, candidate.stand, wanted, Content.FLEXIBLE)
            count = sum(placed.values())
            missing_gpus += (wanted - count) * candidate.weight
            if count < wanted and not _pays(candidate, count):
                _give_back(draft.index, placed, candidate.weight)
            elif placed:
                draft.add_flexible(candidate.job, as_slots(cluster, {candidate.stand: placed}, base=False))
        for candidate in candidates:
            if missing_gpus <= 0:
                return
            if candidate.target < candidate.here:
                for slot in _leaving(cluster, candidate, candidate.here - candidate.target):
                    draft.shed(candidate.job, slot.server_id, slot.flexible, Cause.GROWTH)
                    missing_gpus -= slot.gpus


def _worth(candidate: Candidate) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """The value in seconds of each allowed number of flexible workers here, and those numbers.

    What a change costs is taken off every item but the present one; where the job has none here, staying is the empty item.
    """
    job, fixed, here = candidate.job, candidate.fixed, candidate.here
    most = candidate.most if candidate.may_grow else here
    times = relative_times(job.spec.speedup, job.spec.min_workers, max(job.max_workers, fixed))
    workers = np.arange(1, most + 1, dtype=np.int64)
    if job.spec.sizes:
        workers = np.array(
            [k for k in workers if allowed_size(job.spec.sizes, fixed + int(k))], dtype=np.int64
        )
    worth = candidate.left_s * (times[fixed] - times[fixed + workers] * candidate.slower)
    if candidate.cost_s:
        worth = worth - candidate.cost_s
        if here:
            # Going down to none costs as well: lift all others by the same amount instead.
            worth = worth + candidate.cost_s
            worth[workers == here] += candidate.cost_s
    return worth, workers


def _pays(candidate: Candidate, count: int) -> bool:
    """Whether growing by `count` workers is allowed and worth its cost."""
    job, now = candidate.job, candidate.fixed + candidate.here
    if count <= 0 or not allowed_size(job.spec.sizes, now + count):
        return False
    times = relative_times(job.spec.speedup, job.spec.min_workers, max(job.max_workers, now))
    factor_now = candidate.slower if candidate.here else 1.0
    gain_s = candidate.left_s * (times[now] * factor_now - times[now + count] * candidate.slower)
    return bool(gain_s > candidate.cost_s)


def _leaving(cluster: Cluster, candidate: Candidate, workers: int) -> list[Slot]:
    """Which of a job's flexible workers on the shelf go: from the servers with fewest of them, so that servers become empty."""
    here = [
        slot
        for slot in candidate.job.slots.values()
        if slot.flexible and cluster.server_by_id[slot.server_id].shelf == candidate.stand.shelf
    ]
    leaving: list[Slot] = []
    for slot in sorted(here, key=lambda slot: slot.flexible):
        if workers <= 0:
            break
        count = min(workers, slot.flexible)
        leaving.append(slot._replace(base=0, flexible=count))
        workers -= count
    return leaving


def _best_fit_decreasing(candidates: list[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: -candidate.weight)


def _give_back(index: FreeIndex, placed: dict[int, int], gpus_per_worker: int) -> None:
    for place, workers in placed.items():
        index.give(place, workers * gpus_per_worker)
