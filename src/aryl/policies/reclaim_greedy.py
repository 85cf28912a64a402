"""Decides which servers on loan go back, by one of the named rules.

In this order, and only as far as servers are wanted:

1. idle servers;
2. servers that scaling in empties, those with the fewest flexible workers first;
3. with a deadline: servers that will be empty by then, the soonest first;
4. the server that the rule names. Its jobs are preempted everywhere, its flexible workers scaled in. Every
   server that this leaves without base workers is free and comes next, as in 1 to 3. The costs of the
   neighbours change.

Steps 1, 2 and 4 are the paper's heuristic (*Aryl*, arXiv 2202.07896); `server-fraction` is its cost as we
reconstruct it. A choice is never taken back, so a later one can make an earlier preemption unnecessary:
that is the heuristic, and the distance to `exact` shows what it costs.

Ties: fewer collateral GPUs, less lost work, then the server's place in the list.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Collection

from aryl.policies.reclaim_problem import (
    Board,
    Reason,
    ReclaimAnswer,
    ReclaimInstance,
    ReclaimStep,
    Rule,
    Weighed,
)

Cost = Callable[[Board, int], float]

_ALTERNATIVES = 3
# Sums of fractions that are equal on paper must be equal here: 1/3 + 1/3 + 1/3 ties with 1.
_DIGITS = 9


def solve(
    instance: ReclaimInstance, wanted: int, rule: Rule, seed: int = 0, deadline_s: float | None = None
) -> ReclaimAnswer:
    """The servers to return, `wanted` of them or all there are, and what that takes.

    `seed` matters to the rule `random` only. With `deadline_s`, servers that are expected to be empty
    within so many seconds are waited for rather than others emptied by preemption. Raises InputError if the
    rule is `exact` and its solver isn't installed.
    """
    if rule is Rule.EXACT:
        from aryl.policies.reclaim_exact import solve_exactly

        return solve_exactly(instance, wanted, deadline_s)
    board = Board(instance, deadline_s)
    steps = take_free(board, wanted, rule)
    steps += take_by_rule(board, wanted, rule, cost_of(rule, seed))
    return board.answer(wanted, steps)


def take_free(board: Board, wanted: int, rule: Rule) -> list[ReclaimStep]:
    """Steps 1 to 3: whatever can be had without a preemption, as far as it is wanted."""
    return [
        _take_clear(board, place, board.reason(place), rule)
        for place in board.free(range(len(board.open)))[: max(wanted - len(board.taken), 0)]
    ]


def take_by_rule(
    board: Board, wanted: int, rule: Rule, cost: Cost, among: Collection[int] | None = None
) -> list[ReclaimStep]:
    """Step 4, repeated until enough servers are taken or none is left; with `among`, only out of those."""
    steps: list[ReclaimStep] = []
    if len(board.taken) >= wanted:
        return steps
    queue = _Queue(board, cost, range(len(board.open)) if among is None else among)
    while len(board.taken) < wanted and (chosen := queue.pop()) is not None:
        preempts, touched = board.take(chosen.server)
        steps.append(ReclaimStep(chosen, Reason.RULE, rule, preempts, queue.best(_ALTERNATIVES)))
        for place in board.free(queue.members & touched)[: wanted - len(board.taken)]:
            steps.append(_take_clear(board, place, Reason.EMPTIED, rule))
            touched.update(*(board.hosts[job] for job in board.flexible[place]))
        queue.refresh(touched)
    return steps


def _take_clear(board: Board, place: int, reason: Reason, rule: Rule) -> ReclaimStep:
    board.take(place)
    return ReclaimStep(Weighed(place, 0.0, 0, 0.0), reason, rule)


class _Queue:
    """Open servers with base workers by rising cost. Outdated entries stay in the heap until they surface."""

    def __init__(self, board: Board, cost: Cost, members: Collection[int]) -> None:
        self._board, self._cost, self.members = board, cost, set(members)
        self._ranks = {
            place: self._rank(place)
            for place in sorted(self.members)
            if board.open[place] and board.base[place]
        }
        self._heap = list(self._ranks.values())
        heapq.heapify(self._heap)

    def _rank(self, place: int) -> tuple[float, int, float, int]:
        board = self._board
        cost = round(self._cost(board, place), _DIGITS)
        return cost, board.collateral_gpus(place), board.lost_work_gpu_s(place), place

    def pop(self) -> Weighed | None:
        """The cheapest server, which leaves the queue; None if there is none."""
        while self._heap:
            rank = heapq.heappop(self._heap)
            if self._ranks.get(rank[3]) == rank:
                del self._ranks[rank[3]]
                return _weighed(rank)
        return None

    def best(self, most: int) -> tuple[Weighed, ...]:
        """The cheapest of those still in the queue, at their costs when it was last refreshed."""
        found: list[tuple[float, int, float, int]] = []
        while self._heap and len(found) < most:
            rank = heapq.heappop(self._heap)
            if self._ranks.get(rank[3]) == rank and rank not in found:
                found.append(rank)
        for rank in found:
            heapq.heappush(self._heap, rank)
        return tuple(_weighed(rank) for rank in found)

    def refresh(self, places: set[int]) -> None:
        """Weigh these servers anew; those taken or freed meanwhile leave the queue."""
        for place in sorted(places & self._ranks.keys()):
            if self._board.open[place] and self._board.base[place]:
                rank = self._rank(place)
                if rank != self._ranks[place]:
                    self._ranks[place] = rank
                    heapq.heappush(self._heap, rank)
            else:
                del self._ranks[place]


def _weighed(rank: tuple[float, int, float, int]) -> Weighed:
    cost, collateral_gpus, lost_work_gpu_s, place = rank
    return Weighed(place, cost, collateral_gpus, lost_work_gpu_s)


def cost_of(rule: Rule, seed: int = 0) -> Cost:
    """The rule's cost of a server, given what still stands on it."""
    match rule:
        case Rule.SERVER_FRACTION | Rule.EXACT:
            return _server_fraction
        case Rule.GPU_FRACTION:
            return _gpu_fraction
        case Rule.COUNT:
            return lambda board, place: float(len(board.base[place]))
        case Rule.IN_ORDER:
            return lambda _board, place: float(place)
        case Rule.RANDOM:
            return lambda _board, place: _drawn(seed, place)


def _server_fraction(board: Board, place: int) -> float:
    jobs = board.instance.jobs
    return sum(1 / jobs[job].base_servers for job in board.base[place])


def _gpu_fraction(board: Board, place: int) -> float:
    jobs = board.instance.jobs
    return sum(gpus / jobs[job].base_gpus for job, gpus in board.base[place].items())


def _drawn(seed: int, place: int) -> float:
    """A number in [0, 1) that depends on nothing but the seed and the place."""
    digest = hashlib.blake2b(f"{seed}:{place}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
