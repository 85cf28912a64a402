"""Phase 2: the GPUs that base demand leaves over are shared out among elastic jobs, by an exact knapsack (the
paper, section 3).

Group = job, item k = k flexible workers, weight = their GPUs, value = the JCT reduction with the remaining
work. The knapsack is solved shelf by shelf, loaned servers first, since that is where flexible workers go
first; what a shelf can give is what is free there plus what flexible workers hold there already.

A resize has to pay (ours): for a job that is running, every item but its present one is worth `resize_s`
less. This makes the stay-as-you-are answer win all ties, and since moving costs are additive it also makes
the knapsack quiescent: solved again after its answer has been carried out, it gives the same answer. A job
that has just grown doesn't grow again for the cool-down, or for twice that if the growth was taken back
meanwhile. A scale-in is done only as far as somebody's growth needs it, and only if that growth finds a
place.

This part runs at every event, so it looks before it solves: at the jobs that could grow; at whether they all
get what they want; and at whether any worker could be worth more elsewhere than where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aryl.core.cluster import Cluster, Job
from aryl.core.model import Accounting
from aryl.policies.candidate import Candidate, GuessLeft, could_move, whole_gain_s, worth
from aryl.policies.draft import Draft
from aryl.policies.gain import guess_s, remaining_or_guess_s
from aryl.policies.knapsack import solve_flat
from aryl.policies.sharing import capacity_of, ground_of, share_out

# Where resizes cost nothing, a tie or a rounding error is still no reason to move workers back and forth.
LEAST_GAIN_S = 1e-3
# How long the next round waits where one alone may not settle everything.
MOMENT_S = 1.0


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scaling part of a policy. `estimates` False: remaining times are guessed from what jobs have
    run.
    """

    cooldown_s: float = 300.0
    min_interval_s: float = 60.0
    estimates: bool = True

    def decide(self, draft: Draft) -> None:
        """Share out what is left of the draft's free GPUs."""
        cluster = draft.cluster
        newcomers = [
            job
            for job_id in draft.starts
            if job_id not in draft.claiming and (job := cluster.jobs[job_id]).elastic
        ]
        if not cluster.growable and not newcomers:
            return
        # Once at an instant at most; and whoever has just had to make room would take it from others again.
        next_s = cluster.grown_s + self.min_interval_s
        if cluster.now < next_s or cluster.now in (cluster.grown_s, cluster.scaled_in_s):
            draft.wake_at(next_s if cluster.now < next_s else cluster.now + self.min_interval_s)
            return
        if cluster.now == cluster.moved_s and any(job.spec.heterogeneous for job in cluster.elastic.values()):
            # Jobs that stand on several shelves tie these together, and sharing out one after the other may
            # not come to rest at once; so the next round is a moment later.
            draft.wake_at(cluster.now + MOMENT_S)
            return
        if cluster.now == cluster.elastic_launched_s and any(
            job.launched_s == cluster.now and (job.spec.heterogeneous or job.spec.sizes)
            for job in cluster.growable.values()
        ):
            # What such a job can take at its launch and what it can take later differ; so whoever has stood
            # back for it does so for a moment.
            draft.wake_at(cluster.now + MOMENT_S)
            return
        shelves = sorted(range(len(cluster.free.shelves)), key=lambda n: not cluster.free.shelves[n].loaned)
        # A job that loses efficiency by mixing GPU types gets its own type first, and mixes only what is left
        # (ours).
        mixed_too = any(
            job.spec.heterogeneous and job.spec.mixed_efficiency < 1.0
            for job in (*cluster.growable.values(), *newcomers)
        )
        for mixing in (False, True) if mixed_too else (False,):
            for shelf in shelves:
                self._share_shelf(draft, newcomers, shelf, mixing=mixing)

    def _share_shelf(self, draft: Draft, newcomers: Sequence[Job], shelf: int, *, mixing: bool) -> None:
        cluster = draft.cluster
        leaving = any(server.shelf == shelf for server in cluster.places(draft.vacating()))
        if not draft.untouched_index.shelf_free(shelf) and not cluster.shelf_flexible[shelf] and not leaving:
            return
        growers = [one for one in self._growers(draft, newcomers, shelf) if (one.slower > 1.0) == mixing]
        if not growers:
            return
        ground = ground_of(draft, shelf) if leaving else draft.untouched_index
        least = min(candidate.weight for candidate in growers)
        free = ground.shelf_slots(shelf, least) * least
        candidates = growers
        if free < sum((candidate.most - candidate.here) * candidate.weight for candidate in growers):
            holders = self._holders(draft, growers, shelf, mixing=mixing)
            if could_move(growers, holders):
                candidates = growers + holders
            elif free < least:
                return
        capacity = capacity_of(cluster, ground, candidates)
        share_out(draft, ground, candidates, lambda: _set_targets(candidates, capacity))

    def _holders(
        self, draft: Draft, growers: Sequence[Candidate], shelf: int, *, mixing: bool
    ) -> list[Candidate]:
        """Jobs that have flexible workers on a shelf and can't get more now, but might have to give some
        up.
        """
        growing = {candidate.job.spec.job_id for candidate in growers}
        holders = [
            found
            for job_id, job in draft.cluster.elastic.items()
            if shelf in job.flexible_on
            and job_id not in growing
            and draft.undecided(job)
            and job.scaled_in_s != draft.cluster.now
            and (found := self._candidate(draft, job, shelf)) is not None
            and (found.slower > 1.0) == mixing
        ]
        for holder in holders:
            holder.may_grow = False
        return holders

    def _growers(self, draft: Draft, newcomers: Sequence[Job], shelf: int) -> list[Candidate]:
        """Jobs that may get more workers on a shelf now, and for which that can pay."""
        cluster = draft.cluster
        shelf_has_room = draft.untouched_index.shelf_free(shelf) > 0
        growers = []
        for job in cluster.growable.values():
            if not draft.may_grow(job) or job.spec.job_id in draft.awaiting:
                continue
            if job.scaled_in_s == cluster.now:
                continue  # what it has just given up it must not take elsewhere in the same breath
            rested_s = job.may_grow_from_s(self.cooldown_s)
            if cluster.now < rested_s:
                if shelf_has_room:
                    draft.wake_at(rested_s)
                continue
            found = self._candidate(draft, job, shelf)
            if found is not None and found.most > found.here and whole_gain_s(found) > found.cost_s:
                growers.append(found)
        for job in newcomers:
            found = None if job.spec.job_id in draft.awaiting else self._candidate(draft, job, shelf)
            if found is not None and found.most > 0:
                growers.append(found)
        return growers

    def _candidate(self, draft: Draft, job: Job, shelf: int) -> Candidate | None:
        """A job with what it has on a shelf; None if its flexible workers can't stand there."""
        cluster, spec = draft.cluster, job.spec
        kind = cluster.free.shelves[shelf].gpu_type
        start = draft.starts.get(spec.job_id)
        if start is not None:
            kinds: dict[str, int] = {}
            for slot in start.slots:
                there = cluster.server_by_id[slot.server_id].spec.gpu_type
                kinds[there] = kinds.get(there, 0) + slot.workers
            here, cost_s = 0, 0.0
        else:
            kinds, here = job.kinds, job.flexible_on.get(shelf, 0)
            cost_s = max(cluster.resize_s, LEAST_GAIN_S)
            for slot in draft.grown(spec.job_id):
                here = 0  # what it has here isn't given up by a job that grows elsewhere in the same breath
                there = cluster.server_by_id[slot.server_id].spec.gpu_type
                kinds = {**kinds, there: kinds.get(there, 0) + slot.workers}
        if kind not in kinds and not spec.heterogeneous:
            return None
        stand = cluster.stand_on(spec, shelf)
        if stand is None:
            return None
        fixed = sum(kinds.values()) - here
        if job.max_workers <= fixed:
            return None
        left_s = self._left_s(job, cluster)
        slower = 1.0
        if len(kinds) > 1 or kind not in kinds:
            others = [there for there, count in kinds.items() if count > (here if there == kind else 0)]
            if len(others) > 1:
                left_s /= spec.mixed_efficiency
            elif others != [kind]:
                slower = 1.0 / spec.mixed_efficiency
        found = Candidate(
            job, stand, fixed, here, job.max_workers - fixed, left_s, slower, cost_s, may_grow=True
        )
        if cluster.accounting is Accounting.SLOWER:
            others_there = {there: count - (here if there == kind else 0) for there, count in kinds.items()}
            speeds = sum(count * cluster.speed_on(spec, there) for there, count in others_there.items())
            found.speed_fixed, found.speed_here = speeds / fixed, stand.speed
        return found

    def _left_s(self, job: Job, cluster: Cluster) -> float:
        guess: GuessLeft = remaining_or_guess_s if self.estimates else guess_s
        return guess(job, cluster.now)


def _set_targets(candidates: Sequence[Candidate], capacity: int) -> None:
    """Solve the knapsack."""
    items = [worth(candidate) for candidate in candidates]
    counts = [len(values) for values, _ in items]
    weights = np.concatenate(
        [workers * candidate.weight for candidate, (_, workers) in zip(candidates, items, strict=True)]
    )
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    solution = solve_flat(weights, np.concatenate([values for values, _ in items]), starts, capacity)
    for candidate, item, (_, workers) in zip(candidates, solution.items, items, strict=True):
        candidate.target = 0 if item < 0 else int(workers[item])
