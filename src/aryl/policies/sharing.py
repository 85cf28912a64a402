"""From targets to changes: where growth goes, and who has to leave for it (the second half of phase 2).

The knapsack counts GPUs; here they get places. What may be used is what is free, what is leaving already (so
that nobody is asked twice for the same growth), and what those give up who are to have less. Workers are
taken from these one by one, and only until all growth has a place. Growth that finds none even then is cut to
what fits, and the knapsack is asked again.

A running job whose growth needs GPUs that others still hold waits until it can have all of it: grown by a
part it would pay twice, and rest in between. A job that starts takes what there is at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from aryl.core.cluster import Cluster
from aryl.core.free_index import OFF_SHELF, Content, FreeIndex
from aryl.core.plan import Cause
from aryl.policies.candidate import Candidate, leaving_slots, pays
from aryl.policies.draft import Draft
from aryl.policies.placement import Scatter, as_slots, place_on_shelf, place_some

Worker = tuple[Candidate, str]  # a flexible worker: whose, and on which server


def ground_of(draft: Draft, shelf: int) -> FreeIndex:
    """What will be free on a shelf once everything that is leaving has left; a fork of the draft's index."""
    cluster, index = draft.cluster, draft.untouched_index.fork()
    for server in cluster.places(draft.vacating()):
        coming = draft.unclaimed_gpus(server)
        if server.shelf == shelf and coming > 0 and index.lane[server.place] != OFF_SHELF:
            index.give(server.place, coming)
    return index


def capacity_of(cluster: Cluster, ground: FreeIndex, candidates: Sequence[Candidate]) -> int:
    """GPUs for flexible workers if all that the candidates have here were given out anew: at most so many
    that whole workers fill on each server. What less would let lie idle, the next pass would give away.
    """
    index, shelf = ground.fork(), candidates[0].stand.shelf
    for candidate in candidates:
        for slot in leaving_slots(cluster, candidate, candidate.here):
            index.give(cluster.server_by_id[slot.server_id].place, slot.gpus)
    weights = tuple(sorted({candidate.weight for candidate in candidates}))
    return index.shelf_filled(shelf, _fillings(weights, index.shelves[shelf].gpus_per_server))


@lru_cache(maxsize=1024)
def _fillings(weights: tuple[int, ...], most: int) -> tuple[int, ...]:
    """How many of 0, 1, ... `most` free GPUs whole workers of these weights can fill."""
    filled = [0]
    for free in range(1, most + 1):
        filled.append(max((one + filled[free - one] for one in weights if one <= free), default=0))
    return tuple(filled)


def share_out(
    draft: Draft, ground: FreeIndex, candidates: Sequence[Candidate], set_targets: Callable[[], None]
) -> None:
    """Let `set_targets` say how many workers each is to have, and carry that out on the draft."""
    for attempt in range(3 * len(candidates) + 1):
        set_targets()
        growing = [candidate for candidate in candidates if candidate.target > candidate.here]
        leaving, misfit = _make_place(draft.cluster, ground, candidates, growing)
        if misfit is None:
            break
        # Cut it to what fits; after too many cuts, to nothing.
        candidate, fitting = misfit
        candidate.most = candidate.here + (fitting if attempt < 2 * len(candidates) else 0)
    for candidate in _best_fit_decreasing(growing):
        wanted = candidate.target - candidate.here
        if _grow(draft, candidate, wanted, whole=candidate.cost_s > 0.0) < wanted:
            draft.awaiting.add(candidate.job.spec.job_id)
    for candidate, server_id in leaving:
        draft.shed(candidate.job, server_id, 1, Cause.GROWTH)


def _make_place(
    cluster: Cluster, ground: FreeIndex, candidates: Sequence[Candidate], growing: Sequence[Candidate]
) -> tuple[list[Worker], tuple[Candidate, int] | None]:
    """The workers that have to leave so that all growth fits; or else who doesn't fit, and how many would."""
    index = ground.fork()
    givers = _givers(cluster, candidates)
    leaving: list[Worker] = []
    needed = sum((candidate.target - candidate.here) * candidate.weight for candidate in growing)
    while True:
        shelf = candidates[0].stand.shelf
        misfit = _first_misfit(index, growing) if index.shelf_free(shelf) >= needed else (growing[0], 0)
        if misfit is None:
            return leaving, None
        worker = next(givers, None)
        if worker is None:
            return leaving, _first_misfit(index, growing)
        leaving.append(worker)
        index.give(cluster.server_by_id[worker[1]].place, worker[0].weight)


def _givers(cluster: Cluster, candidates: Sequence[Candidate]) -> Iterator[Worker]:
    """Workers of those that are to have less, one by one."""
    for candidate in candidates:
        if candidate.target < candidate.here:
            for slot in leaving_slots(cluster, candidate, candidate.here - candidate.target):
                for _ in range(slot.flexible):
                    yield candidate, slot.server_id


def _first_misfit(index: FreeIndex, growing: Sequence[Candidate]) -> tuple[Candidate, int] | None:
    """The first whose growth finds no place, with the number of workers that would find one."""
    trial = index.fork()
    for candidate in _best_fit_decreasing(growing):
        wanted = candidate.target - candidate.here
        if place_on_shelf(trial, candidate.stand, wanted, Content.FLEXIBLE, Scatter.ALLOWED) is None:
            return candidate, trial.shelf_slots(candidate.stand.shelf, candidate.weight)
    return None


def _grow(draft: Draft, candidate: Candidate, wanted: int, *, whole: bool) -> int:
    """Give a job as many of the wanted workers as are free (`whole`: all or none), if that pays; how many."""
    trial = draft.index.fork()
    placed = place_some(trial, candidate.stand, wanted, Content.FLEXIBLE)
    count = sum(placed.values())
    if (whole and count < wanted) or not pays(candidate, count):
        return 0
    draft.adopt(trial)
    draft.add_flexible(candidate.job, as_slots(draft.cluster, {candidate.stand: placed}, base=False))
    return count


def _best_fit_decreasing(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: -candidate.weight)
