"""Decides which elastic job gets how many flexible workers: an exact multiple-choice knapsack.

A group is a job, an item is a number of further workers. An item weighs GPUs and is worth the JCT reduction
in seconds. At most one item a group is taken; a group without one counts as weight 0 and value 0. This is
phase 2 of elastic scaling in *Aryl: An Elastic Cluster Scheduler for Deep Learning* (arXiv 2202.07896),
which states the problem and that dynamic programming solves it exactly. Values may have any shape, so a
list of allowed sizes or a speed-up curve with kinks is no special case.

The scheduler calls this at every event, hence three stages, each exact:

1. if every group's best item fits, that is the answer;
2. otherwise a Lagrangian bound fixes most groups (`knapsack_core`);
3. the dynamic programme runs over what is left undecided.

**Ties.** Among the choices of the greatest value the lightest wins; among those the last group takes the
least, then the one before it, and so on: earlier groups are served first. Between items of one group that
are alike in weight and value the first wins. Values whose sums differ only by rounding count as whatever
the rounding makes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aryl.policies.knapsack_core import FloatArray, IntArray, Items, choice_type, extend, solve_by_core


@dataclass(frozen=True, slots=True)
class Group:
    """One job's options: `weights[i]` in GPUs (whole, above 0), `values[i]` in seconds (any finite one)."""

    weights: Sequence[int] | NDArray[Any]
    values: Sequence[float] | NDArray[Any]


@dataclass(frozen=True, slots=True)
class Solution:
    """`items[g]` is the index of the item that group g takes, -1 for none; their total value and weight."""

    items: tuple[int, ...]
    value: float
    weight: int


def solve(groups: Sequence[Group], capacity: int) -> Solution:
    """The most valuable choice of at most one item a group within `capacity` GPUs.

    Raises ValueError for a weight that isn't above 0, a value that isn't finite, or columns of unequal
    length.
    """
    return solve_flat(*_flatten(groups), capacity)


def solve_flat(weights: IntArray, values: FloatArray, starts: IntArray, capacity: int) -> Solution:
    """`solve` over flat arrays: group g owns the items `starts[g]` up to `starts[g + 1]`.

    `weights` is int64[n], `values` float64[n], `starts` int64[groups + 1], rising from 0 to n. Item indices
    in the answer count from the group's own start. The arrays are read, never written.
    """
    prepared = _prepare(weights, values, starts, capacity)
    if prepared is None:
        return Solution((-1,) * (len(starts) - 1), 0.0, 0)
    items, scaled_capacity = prepared
    best, best_weight = items.lightest_best(items.values)
    picks = best if best_weight <= scaled_capacity else solve_by_core(items, scaled_capacity)
    return _answer(picks, items, weights, values, starts)


def solve_by_dynamic_programme(groups: Sequence[Group], capacity: int) -> Solution:
    """The same answer by the textbook programme over every group, item and unit of capacity.

    `best[c]` is the greatest value within c: best[c] = max(best[c], best_before[c - weight] + value). The
    yardstick for `solve`, whose time doesn't depend on the data: groups * items * capacity.
    """
    weights, values, starts = _flatten(groups)
    prepared = _prepare(weights, values, starts, capacity)
    if prepared is None:
        return Solution((-1,) * len(groups), 0.0, 0)
    items, scaled_capacity = prepared
    best = np.zeros(scaled_capacity + 1)
    taken: list[tuple[list[int], NDArray[Any]]] = []
    for group in range(items.groups):
        options = items.lightest_first(group)
        before = best.copy()
        # Option 0 is the empty one; the others are the group's items from the lightest on.
        choice = np.zeros(scaled_capacity + 1, dtype=choice_type(len(options) + 1))
        for option, item in enumerate(options, start=1):
            weight = int(items.weights[item])
            extend(before[:-weight], float(items.values[item]), option, best[weight:], choice[weight:])
        taken.append((options, choice))
    at = int(np.searchsorted(best, best[-1]))
    picks = np.full(items.groups, -1, dtype=np.int64)
    for group in range(items.groups - 1, -1, -1):
        options, choice = taken[group]
        if choice[at]:
            picks[group] = options[choice[at] - 1]
            at -= int(items.weights[picks[group]])
    return _answer(picks, items, weights, values, starts)


def _flatten(groups: Sequence[Group]) -> tuple[IntArray, FloatArray, IntArray]:
    starts = np.zeros(len(groups) + 1, dtype=np.int64)
    if not groups:
        return np.zeros(0, dtype=np.int64), np.zeros(0), starts
    for place, group in enumerate(groups):
        if len(group.weights) != len(group.values):
            raise ValueError(f"group {place}: {len(group.weights)} weights but {len(group.values)} values")
    np.cumsum([len(group.weights) for group in groups], out=starts[1:])
    weights = np.concatenate([np.asarray(group.weights, dtype=np.int64) for group in groups])
    values = np.concatenate([np.asarray(group.values, dtype=np.float64) for group in groups])
    return weights, values, starts


def _prepare(
    weights: IntArray, values: FloatArray, starts: IntArray, capacity: int
) -> tuple[Items, int] | None:
    """The items that can matter, weights and capacity divided by the weights' gcd; None if no item can."""
    if len(weights) != len(values) or len(weights) != starts[-1]:
        raise ValueError(f"{len(weights)} weights, {len(values)} values, and groups that end at {starts[-1]}")
    if not len(weights):
        return None
    if weights.min() <= 0:
        raise ValueError(f"a weight must be above 0, found {weights.min()}")
    if not np.isfinite(values).all():
        raise ValueError("a value must be finite")
    kept = ((values > 0) & (weights <= capacity)).nonzero()[0]
    if not len(kept):
        return None
    group_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[kept]
    kept_weights, kept_values = weights[kept], values[kept]
    # A weight of 1 settles the gcd; anything else is worth the division, which shrinks the programme by as
    # much.
    divisor = 1 if kept_weights.min() == 1 else int(np.gcd.reduce(kept_weights))
    if divisor > 1:
        kept_weights = kept_weights // divisor
    return Items(kept_weights, kept_values, group_of, kept), capacity // divisor


def _answer(
    picks: IntArray, items: Items, weights: IntArray, values: FloatArray, starts: IntArray
) -> Solution:
    picks = picks[picks >= 0]
    original, owners = items.origin[picks], items.owner[picks]
    chosen = np.full(len(starts) - 1, -1, dtype=np.int64)
    chosen[owners] = original - starts[owners]
    return Solution(tuple(chosen.tolist()), float(values[original].sum()), int(weights[original].sum()))
