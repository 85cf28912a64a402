"""Shrinks a multiple-choice knapsack to its undecided core, then solves the core by dynamic programming.

Theory. Put a price p on each unit of weight. An item then earns value - p * weight, a group earns the most
that one of its items does (or 0), and for *any* p >= 0

    bound(p) = p * capacity + sum over groups of what the group earns

is at least the value of every choice that fits. The *loss* of an item is what it earns less than its
group's best. A choice is worth exactly bound(p), less the losses of its items, less p times the weight it
leaves unused. So, given a choice of value v that fits, an item whose loss exceeds bound(p) - v is in no
better choice and in no equal one, and a partial choice whose losses add up to more than that can be
dropped. The price that makes the bound lowest is found by intersecting tangents of the convex, piecewise
linear bound; exactness doesn't hinge on finding the best one.

The classic form of this reduction works on the upper hulls of the groups: Dyer, Riha and Walker, "A hybrid
dynamic programming/branch-and-bound algorithm for the multiple-choice knapsack problem", 1995; Pisinger, "A
minimal algorithm for the multiple-choice knapsack problem", 1995. The price form needs no hulls and is a
handful of array operations.

Every comparison with the bound leaves room for rounding (`_SLACK` of the bound, some thousand times what
the sums can be off), so that rounding never drops a best choice, nor one that ties with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_SLACK = 1e-11
_MOST_PRICES = 60
# The shares of the gap tried as the most that the best choice can lose. Measured: most often 1/8 does.
_SHARES = (1 / 8, 1.0)
# On arrays longer than this, the search for hopeless states pauses for so many groups where it finds few.
_LONG, _LONGEST_PAUSE = 1000, 15
_HEAVY = np.iinfo(np.int64).max


class Items:
    """Items that can be taken, group by group; groups without any are left out, the rest renumbered."""

    __slots__ = ("ends", "group_of", "groups", "origin", "owner", "starts", "values", "weights")

    def __init__(self, weights: IntArray, values: FloatArray, owner: IntArray, origin: IntArray) -> None:
        """`owner` is each item's group, rising, by the caller's count; `origin` its place in the arrays."""
        self.weights, self.values, self.owner, self.origin = weights, values, owner, origin
        opens = np.ones(len(owner), dtype=bool)
        np.not_equal(owner[1:], owner[:-1], out=opens[1:])
        self.starts: IntArray = opens.nonzero()[0]
        self.groups = len(self.starts)
        self.ends: IntArray = np.append(self.starts[1:], len(owner))
        self.group_of: IntArray = np.repeat(np.arange(self.groups), self.ends - self.starts)

    def lightest_first(self, group: int) -> list[int]:
        """The items of a group by weight; alike in weight, in their own order."""
        start, end = int(self.starts[group]), int(self.ends[group])
        order: list[int] = (np.argsort(self.weights[start:end], kind="stable") + start).tolist()
        return order

    def lightest_best(self, scores: FloatArray) -> tuple[IntArray, int]:
        """Each group's item of the highest score (among equals the lightest, then first); their weight."""
        highest = np.maximum.reduceat(scores, self.starts)
        best = scores == highest[self.group_of]
        light = np.minimum.reduceat(np.where(best, self.weights, _HEAVY), self.starts)
        places = (best & (self.weights == light[self.group_of])).nonzero()[0]
        if len(places) > self.groups:
            owner = self.group_of[places]
            places = places[np.append(True, owner[1:] != owner[:-1])]
        return places, int(light.sum())


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The bound at one price, what each group earns there, and the value of some choice that fits."""

    price: float
    bound: float
    earned: FloatArray
    losses: FloatArray
    reached: float

    @property
    def gap(self) -> float:
        """The most that a choice as good as the one reached can lose."""
        return max(self.bound - self.reached, 0.0)

    @property
    def slack(self) -> float:
        """More than rounding can amount to."""
        return _SLACK * self.bound


def solve_by_core(items: Items, capacity: int) -> IntArray:
    """The item that each group takes, -1 for none, at the greatest total value within `capacity`.

    Meant for items whose groups' best do not all fit. Every item has a value above 0 and fits by itself.
    """
    relaxed = relax(items, capacity)
    # Most often the best choice loses far less than the one reached. Whatever loses no more than a smaller
    # limit was seen under that limit, so an answer from there is final, and a failure was cheap.
    for share in _SHARES:
        limit = share * relaxed.gap
        picks = _solve_survivors(items, capacity, relaxed, limit + relaxed.slack)
        if picks is not None:
            value = float(items.values[picks[picks >= 0]].sum())
            if relaxed.bound - value <= limit + relaxed.slack / 2:
                return picks
    assert picks is not None, "the choice reached is itself within the last limit"
    return picks


def relax(items: Items, capacity: int) -> Relaxation:
    """The price of the lowest bound, and the value of a choice that fits: its greedy rounding."""
    weights, values, starts = items.weights, items.values, items.starts
    best, low_weight = items.lightest_best(values)
    low_value = float(values[best].sum())
    high_value, high_weight = 0.0, 0
    price, bound = 0.0, np.inf
    earned, scores = np.zeros(items.groups), values
    for _ in range(_MOST_PRICES):
        trial = max((low_value - high_value) / (low_weight - high_weight), 0.0)
        trial_scores = values - trial * weights
        trial_earned = np.maximum(np.maximum.reduceat(trial_scores, starts), 0.0)
        total = float(trial_earned.sum())
        if total + trial * capacity < bound:
            price, bound, earned, scores = trial, total + trial * capacity, trial_earned, trial_scores
        if total + trial * capacity <= (high_value + trial * (capacity - high_weight)) * (1.0 + _SLACK):
            break
        weight = int(_lightest(items, trial_scores, trial_earned).sum())
        if weight in (low_weight, high_weight):
            break
        if weight > capacity:
            low_value, low_weight = total + trial * weight, weight
        else:
            high_value, high_weight = total + trial * weight, weight
    losses = earned[items.group_of] - scores
    return Relaxation(price, bound, earned, losses, _round(items, capacity, price, earned, losses))


def _lightest(items: Items, scores: FloatArray, earned: FloatArray) -> IntArray:
    """The least weight with which each group earns what it does; 0 where that is nothing."""
    best = scores == earned[items.group_of]
    light = np.minimum.reduceat(np.where(best, items.weights, _HEAVY), items.starts)
    light[earned <= 0.0] = 0
    return light


def _round(items: Items, capacity: int, price: float, earned: FloatArray, losses: FloatArray) -> float:
    """The value of a choice that fits, near the bound at `price`.

    Groups that are (but for rounding) indifferent between a lighter and a heavier item get the heavier one
    in turn as long as it fits; then come the exchanges in one group that gain the most in what is left.
    """
    near = losses <= _SLACK * float(items.values.max())
    starts = items.starts
    light = np.minimum.reduceat(np.where(near, items.weights, _HEAVY), starts)
    heavy = np.maximum.reduceat(np.where(near, items.weights, 0), starts)
    light[earned <= _SLACK * float(items.values.max())] = 0
    left = capacity - int(light.sum())
    if left < 0:
        light[:], left = 0, capacity
        heavy[:] = 0
    widening = np.cumsum(heavy - light)
    served = int(np.searchsorted(widening, left, side="right"))
    taken_weight = np.append(heavy[:served], light[served:])
    taken_value = np.zeros(items.groups)
    exact = near & (items.weights == taken_weight[items.group_of])
    owners = items.group_of[exact]
    np.maximum.at(taken_value, owners, items.values[exact])
    return _fill(items, capacity, taken_weight, taken_value)


def _fill(items: Items, capacity: int, taken_weight: IntArray, taken_value: FloatArray) -> float:
    """The value of a choice that fits, after the one-group exchanges that gain the most in what is left."""
    left = capacity - int(taken_weight.sum())
    more = items.weights - taken_weight[items.group_of]
    gains = items.values - taken_value[items.group_of]
    value = float(taken_value.sum())
    while left > 0:
        fitting = np.where(more <= left, gains, 0.0)
        best = int(fitting.argmax())
        if fitting[best] <= 0.0:
            break
        value += float(gains[best])
        left -= int(more[best])
        group = items.group_of[best]
        own = slice(items.starts[group], items.ends[group])
        more[own] -= more[best]
        gains[own] -= gains[best]
    return value


def _solve_survivors(items: Items, capacity: int, relaxed: Relaxation, limit: float) -> IntArray | None:
    """The best choice of those that lose at most `limit`; None if there is none, or one that loses more.

    Groups with a single survivor are settled; the programme runs over the others.
    """
    kept = (relaxed.losses <= limit).nonzero()[0]
    may_be_empty = relaxed.earned <= limit
    settled = np.bincount(items.group_of[kept], minlength=items.groups) + may_be_empty == 1
    lone = kept[settled[items.group_of[kept]]]
    picks = np.full(items.groups, -1, dtype=np.int64)
    picks[items.group_of[lone]] = lone
    room = capacity - int(items.weights[lone].sum())
    if room < 0:
        return None
    if settled.all():
        return picks
    core = _Core.of(items, relaxed, kept, may_be_empty, ~settled)
    chosen = _programme(core, relaxed.price, limit, room)
    if chosen is None:
        return None
    picks[~settled] = chosen
    return picks


@dataclass(frozen=True, slots=True)
class _Core:
    """The open groups, in order. Group g has options `starts[g]` up to `starts[g + 1]`, lightest first."""

    items: IntArray
    """The item behind an option, -1 for taking none."""
    weights: list[int]
    values: list[float]
    starts: list[int]
    earned: list[float]
    """What each group earns at the price."""
    least: list[int]
    """The weight that groups g, g + 1, ... take at least."""
    most: list[int]

    @classmethod
    def of(
        cls,
        items: Items,
        relaxed: Relaxation,
        kept: IntArray,
        may_be_empty: NDArray[np.bool_],
        is_open: NDArray[np.bool_],
    ) -> _Core:
        """The core of the items kept; in a group that `may_be_empty`, taking none is an option too."""
        kept = kept[is_open[items.group_of[kept]]]
        empty = (may_be_empty & is_open).nonzero()[0]
        option_items = np.append(np.full(len(empty), -1, dtype=np.int64), kept)
        owner = np.append(empty, items.group_of[kept])
        weights = np.append(np.zeros(len(empty), dtype=np.int64), items.weights[kept])
        values = np.append(np.zeros(len(empty)), items.values[kept])
        # Stable: options alike in group and weight keep the items' order.
        order = np.lexsort((weights, owner))
        option_items, weights, values = option_items[order], weights[order], values[order]
        groups = is_open.nonzero()[0]
        starts = np.append(np.searchsorted(owner[order], groups), len(order))
        return cls(
            option_items,
            weights.tolist(),
            values.tolist(),
            starts.tolist(),
            relaxed.earned[groups].tolist(),
            [*np.cumsum(weights[starts[:-1]][::-1])[::-1].tolist(), 0],
            [*np.cumsum(weights[starts[1:] - 1][::-1])[::-1].tolist(), 0],
        )


def choice_type(options: int) -> type[np.signedinteger[Any]]:
    """The smallest integer that numbers so many options; a byte where it can be, for the memory's sake."""
    return np.int8 if options < 128 else np.int16 if options < 32768 else np.int32


def extend(before: FloatArray, value: float, option: int, reached: FloatArray, choice: NDArray[Any]) -> None:
    """One item of the recurrence: where `before + value` is strictly more than `reached`, it replaces that.

    `choice` gets `option` in the same places. Options must come in rising order: then the largest number is
    the latest improvement, and a product and a maximum do what a masked copy does several times slower.
    """
    candidate = before + value
    improved = (candidate > reached).view(np.int8)
    np.maximum(reached, candidate, out=reached)
    np.maximum(choice, np.multiply(improved, choice.dtype.type(option), dtype=choice.dtype), out=choice)


def _programme(core: _Core, price: float, limit: float, room: int) -> IntArray | None:
    """The best item of each open group within `room` over states that lose at most `limit`, None without any.

    A state is a weight used exactly by the groups so far; `best[i]` is the greatest value at weight low + i.
    A weight that the groups to come can't bring to within `spare` of the room loses too much at the end.
    """
    starts, weights = core.starts, core.weights
    spare = room if limit >= price * room else int(limit / price) + 1
    priced = price * np.arange(min(room, core.most[0]) + 1)
    low, best, earned = 0, np.zeros(1), 0.0
    look_again = pause = 0
    steps: list[tuple[int, NDArray[Any]]] = []
    for group, first in enumerate(starts[:-1]):
        end = starts[group + 1]
        floor = max(low + weights[first], room - spare - core.most[group + 1])
        ceiling = min(low + len(best) - 1 + weights[end - 1], room - core.least[group + 1])
        size = ceiling - floor + 1
        if size <= 0:
            return None
        reached = np.full(size, -np.inf)
        choice = np.zeros(size, dtype=choice_type(end - first))
        for option in range(first, end):
            shift = low + weights[option] - floor
            begin, stop = max(0, -shift), min(len(best), size - shift)
            if begin < stop:
                target = slice(begin + shift, stop + shift)
                extend(best[begin:stop], core.values[option], option - first, reached[target], choice[target])
        steps.append((floor, choice))
        earned += core.earned[group]
        low, best = floor, reached
        if group < look_again and group + 2 < len(starts):
            continue
        alive = priced[floor : ceiling + 1] + earned - reached <= limit
        span = alive.nonzero()[0]
        if not len(span):
            return None
        begin, stop = int(span[0]), int(span[-1]) + 1
        low, best = floor + begin, np.where(alive, reached, -np.inf)[begin:stop]
        pause = 0 if size < _LONG or 2 * len(span) < size else min(2 * pause + 1, _LONGEST_PAUSE)
        look_again = group + 1 + pause
    picks = np.empty(len(steps), dtype=np.int64)
    at = low + int(best.argmax())
    for group in range(len(steps) - 1, -1, -1):
        floor, choice = steps[group]
        option = starts[group] + int(choice[at - floor])
        picks[group] = core.items[option]
        at -= weights[option]
    return picks
