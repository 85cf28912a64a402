"""The knapsack against a worked example, brute force, and the textbook programme."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.policies.knapsack import Group, Solution, solve, solve_by_dynamic_programme, solve_flat

Instance = tuple[list[Group], int]


def jct_reductions(time_at_base_s: float, base: int, most: int, gpus_per_worker: int = 1) -> Group:
    """What 1, 2, ... further workers save a job with linear speed-up."""
    further = range(1, most - base + 1)
    return Group(
        [k * gpus_per_worker for k in further],
        [time_at_base_s - time_at_base_s * base / (base + k) for k in further],
    )


def brute_force(groups: list[Group], capacity: int) -> tuple[float, int, tuple[int, ...]]:
    """Value, weight and items of the best choice, by trying all; ties as the module documents them."""
    best: tuple[float, tuple[int, ...]] | None = None
    answer: tuple[float, int, tuple[int, ...]] = (0.0, 0, ())
    for items in itertools.product(*(range(-1, len(group.weights)) for group in groups)):
        taken = [(group, item) for group, item in zip(groups, items, strict=True) if item >= 0]
        weight = sum(int(group.weights[item]) for group, item in taken)
        if weight > capacity:
            continue
        value = sum(float(group.values[item]) for group, item in taken)
        weights = [int(g.weights[i]) if i >= 0 else 0 for g, i in zip(groups, items, strict=True)]
        rank = (-value, (weight, *reversed(weights), *reversed(items)))
        if best is None or rank < best:
            best, answer = rank, (value, weight, items)
    return answer


def random_groups(draw: random.Random, groups: int, items: int, whole: bool, unit: int) -> list[Group]:
    made = []
    for _ in range(groups):
        size = draw.randint(0, items)
        weights = [unit * draw.randint(1, 9) for _ in range(size)]
        values = [
            float(draw.randint(-3, 12)) if whole else draw.choice([draw.uniform(-1, 9), 2.5])
            for _ in range(size)
        ]
        made.append(Group(weights, values))
    return made


def check(groups: list[Group], solution: Solution, capacity: int) -> None:
    """The solution is what it says it is: it fits, and its totals are those of its items."""
    taken = [(group, item) for group, item in zip(groups, solution.items, strict=True) if item >= 0]
    assert sum(int(group.weights[item]) for group, item in taken) == solution.weight <= max(capacity, 0)
    assert sum(float(group.values[item]) for group, item in taken) == pytest.approx(solution.value, rel=1e-12)


def test_the_papers_two_jobs_share_four_gpus_three_to_one() -> None:
    groups = [jct_reductions(150, 2, 6), jct_reductions(60, 2, 6)]
    solution = solve(groups, 4)
    assert solution.items == (2, 0)
    assert solution.value == pytest.approx(110)
    assert solution.weight == 4
    assert solve([groups[0], Group([], [])], 4).value == pytest.approx(100)


def test_everything_is_granted_when_it_fits() -> None:
    groups = [jct_reductions(150, 2, 6, 2), jct_reductions(60, 2, 4)]
    assert solve(groups, 10) == Solution((3, 1), 130.0, 10)


@pytest.mark.parametrize(
    "groups", [[], [Group([], [])], [Group([3], [5.0])], [Group([1], [-1.0]), Group([2], [0.0])]]
)
def test_nothing_is_taken_where_nothing_helps_or_fits(groups: list[Group]) -> None:
    for capacity in (0, 2, -1):
        assert solve(groups, capacity) == Solution((-1,) * len(groups), 0.0, 0)
        assert solve_by_dynamic_programme(groups, capacity) == Solution((-1,) * len(groups), 0.0, 0)


def test_a_tie_goes_to_less_weight_and_then_to_the_earlier_group() -> None:
    assert solve([Group([2, 1], [5.0, 5.0])], 4).items == (1,)
    assert solve([Group([1], [5.0]), Group([1], [5.0])], 1).items == (0, -1)
    assert solve([Group([1, 2], [3.0, 6.0]), Group([1, 2], [3.0, 6.0])], 3).items == (1, 0)
    assert solve([Group([1, 1], [5.0, 5.0])], 1).items == (0,)
    # Both halves of the first group's item, or it alone: 4 for 2 GPUs beats 4 for 3.
    assert solve([Group([3], [4.0]), Group([1], [2.0]), Group([1], [2.0])], 3).items == (-1, 0, 0)


def test_a_size_that_only_pays_as_a_whole_is_taken_as_a_whole() -> None:
    jumps = Group([8, 24], [1.0, 100.0])
    smooth = Group([1, 2, 3, 4, 5, 6, 7, 8], [20.0, 30.0, 35.0, 38.0, 40.0, 41.0, 41.5, 41.8])
    assert solve([jumps, smooth], 24).items == (1, -1)
    assert solve([jumps, smooth], 23).items == (0, 7)


@pytest.mark.parametrize("seed", range(12))
def test_it_equals_brute_force_items_and_all_on_whole_values(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(150):
        groups = random_groups(draw, draw.randint(1, 5), 4, whole=True, unit=draw.choice([1, 1, 2, 8]))
        capacity = draw.randint(0, 60)
        value, weight, items = brute_force(groups, capacity)
        assert solve(groups, capacity) == Solution(items, value, weight)
        assert solve_by_dynamic_programme(groups, capacity) == Solution(items, value, weight)


@pytest.mark.parametrize("seed", range(12))
def test_it_equals_brute_force_on_real_values(seed: int) -> None:
    draw = random.Random(1000 + seed)
    for _ in range(150):
        groups = random_groups(draw, draw.randint(1, 5), 4, whole=False, unit=draw.choice([1, 3]))
        capacity = draw.randint(0, 40)
        solution = solve(groups, capacity)
        check(groups, solution, capacity)
        assert solution.value == pytest.approx(brute_force(groups, capacity)[0], rel=1e-12, abs=1e-12)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    item = st.tuples(st.integers(1, 12), st.one_of(st.integers(-4, 20).map(float), st.floats(-1e3, 1e6)))
    groups = draw(st.lists(st.lists(item, max_size=4), min_size=1, max_size=5))
    return [Group([w for w, _ in g], [v for _, v in g]) for g in groups], draw(st.integers(0, 50))


@settings(max_examples=400, deadline=None)
@given(instances())
def test_it_equals_brute_force_on_whatever_hypothesis_finds(instance: Instance) -> None:
    groups, capacity = instance
    solution = solve(groups, capacity)
    check(groups, solution, capacity)
    assert solution.value == pytest.approx(brute_force(groups, capacity)[0], rel=1e-12, abs=1e-12)


def mid_size(seed: int, shape: str) -> list[Group]:
    """30 groups of up to 30 items: concave, bumpy, whole numbers with many ties, or value = weight."""
    rng = np.random.default_rng(seed)
    groups = []
    for _ in range(30):
        steps = np.arange(1, int(rng.integers(1, 31)) + 1)
        base = int(rng.integers(1, len(steps) + 1))
        weights = steps * int(rng.choice([1, 2, 4, 8]))
        values = float(np.exp(rng.normal(6, 2))) * steps / (base + steps)
        if shape == "bumpy":
            values = values * rng.uniform(0.5, 1.5, len(steps))
        elif shape == "whole":
            values = np.floor(values / 40) - 1
        elif shape == "flat":
            values = weights.astype(float)
        groups.append(Group(weights, values))
    return groups


@pytest.mark.parametrize("shape", ["concave", "bumpy", "whole", "flat"])
@pytest.mark.parametrize("seed", range(6))
def test_the_core_equals_the_textbook_programme(shape: str, seed: int) -> None:
    groups = mid_size(seed, shape)
    for capacity in (1, 7, 50, 333, 1000):
        mine, textbook = solve(groups, capacity), solve_by_dynamic_programme(groups, capacity)
        check(groups, mine, capacity)
        assert mine.value == pytest.approx(textbook.value, rel=1e-12)
        if shape in ("whole", "flat"):
            assert mine == textbook


@pytest.mark.parametrize("shape", ["concave", "bumpy", "whole"])
def test_more_capacity_is_never_worth_less(shape: str) -> None:
    groups = mid_size(99, shape)
    values = [solve(groups, capacity).value for capacity in range(0, 400, 3)]
    assert all(later >= earlier * (1 - 1e-12) for earlier, later in itertools.pairwise(values))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12])
def test_the_scale_of_the_values_changes_nothing(scale: float) -> None:
    groups = mid_size(5, "bumpy")
    scaled = [Group(group.weights, np.asarray(group.values) * scale) for group in groups]
    assert solve(scaled, 200).items == solve(groups, 200).items


def test_values_of_very_different_size_are_all_weighed() -> None:
    # One giant must not drown the tie-break among dwarfs that are still well within double precision.
    groups = [Group([1], [1e9]), Group([2], [1.0]), Group([1], [0.75]), Group([1], [0.5])]
    assert solve(groups, 3) == Solution((0, -1, 0, 0), 1e9 + 1.25, 3)


def test_weights_in_servers_of_eight_cost_no_more_than_in_units() -> None:
    groups = mid_size(3, "concave")
    eightfold = [Group(np.asarray(group.weights) * 8, group.values) for group in groups]
    assert solve(eightfold, 807).items == solve(groups, 100).items


def test_flat_arrays_give_what_groups_give_and_are_left_alone() -> None:
    groups = mid_size(2, "bumpy")
    weights = np.concatenate([np.asarray(group.weights) for group in groups])
    values = np.concatenate([np.asarray(group.values) for group in groups])
    starts = np.cumsum([0, *(len(group.weights) for group in groups)])
    for array in (weights, values, starts):
        array.flags.writeable = False
    assert solve_flat(weights, values, starts, 150) == solve(groups, 150)


def test_the_same_question_gets_the_same_answer() -> None:
    groups = mid_size(8, "whole")
    assert len({solve(groups, 123) for _ in range(5)}) == 1


@pytest.mark.parametrize(
    ("weights", "values", "message"),
    [([0], [1.0], "above 0"), ([1], [float("nan")], "finite"), ([1, 2], [1.0], "2 weights but 1 values")],
)
def test_a_group_that_makes_no_sense_is_refused(
    weights: list[int], values: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        solve([Group(weights, values)], 5)
