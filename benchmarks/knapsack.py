"""How long the knapsack takes, beside its budgets and beside the textbook programme.

    python -m benchmarks.knapsack

A job is drawn with 1, 2, 4 or 8 GPUs a worker, a lognormal time at base demand (median 1,100 s, sigma 2)
and a base demand of up to as many workers as it may get on top; `linear` gives each item the JCT reduction
of linear speed-up, `bumpy` multiplies each by a factor in 0.7..1.3, so that values are far from concave,
and `flat` makes value proportional to weight, where nothing can be ruled out: the worst case, without a
budget. Times are the best of three runs; median and worst of the instances. Values must agree with the
textbook programme. Exits 1 above a budget.
"""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass

import numpy as np

from aryl.policies.knapsack import Group, Solution, solve_by_dynamic_programme, solve_flat
from aryl.policies.knapsack_core import FloatArray, IntArray


@dataclass(frozen=True)
class Case:
    name: str
    shape: str
    groups: int
    items: int
    all_items: bool
    capacity: int
    instances: int
    budget_s: float | None


CASES = (
    Case("an event, small", "linear", 30, 64, False, 50, 40, 0.001),
    Case("an event, middling", "linear", 45, 64, False, 500, 40, 0.001),
    Case("an event, large", "linear", 60, 64, False, 2000, 40, 0.001),
    Case("an event, bumpy", "bumpy", 60, 64, False, 500, 40, None),
    Case("an event, flat", "flat", 60, 64, False, 500, 10, None),
    Case("2,000 jobs", "linear", 2000, 8, True, 8000, 5, 0.1),
    Case("2,000 jobs, bumpy", "bumpy", 2000, 8, True, 8000, 5, 0.1),
    Case("2,000 jobs, flat", "flat", 2000, 8, True, 8000, 2, None),
)


def draw(case: Case, rng: np.random.Generator) -> tuple[IntArray, FloatArray, IntArray]:
    """Flat weights, values and starts."""
    sizes = (
        np.full(case.groups, case.items) if case.all_items else rng.integers(1, case.items + 1, case.groups)
    )
    starts = np.concatenate([[0], np.cumsum(sizes)])
    further = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes) + 1
    base = np.repeat(rng.integers(1, sizes + 1), sizes)
    weights = further * np.repeat(rng.choice([1, 2, 4, 8], case.groups), sizes)
    values = np.repeat(np.exp(rng.normal(7, 2, case.groups)), sizes) * further / (base + further)
    if case.shape == "bumpy":
        values = values * rng.uniform(0.7, 1.3, len(values))
    if case.shape == "flat":
        values = weights * 10.0
    return weights, values, starts


def best_of_three_s(
    weights: IntArray, values: FloatArray, starts: IntArray, capacity: int
) -> tuple[float, Solution]:
    runs = []
    for _ in range(3):
        begin_s = time.perf_counter()
        answer = solve_flat(weights, values, starts, capacity)
        runs.append(time.perf_counter() - begin_s)
    return min(runs), answer


def measure(case: Case) -> bool:
    """Print the case's line; whether it kept its budget (in the median) and its answers were right."""
    times: list[float] = []
    ratio, right = 0.0, True
    for seed in range(case.instances):
        weights, values, starts = draw(case, np.random.default_rng(seed))
        took, answer = best_of_three_s(weights, values, starts, case.capacity)
        times.append(took)
        if seed == 0:
            groups = [
                Group(weights[begin:end], values[begin:end]) for begin, end in itertools.pairwise(starts)
            ]
            begin_s = time.perf_counter()
            textbook = solve_by_dynamic_programme(groups, case.capacity)
            ratio = (time.perf_counter() - begin_s) / took
            right = abs(textbook.value - answer.value) <= 1e-9 * textbook.value
    median = float(np.median(times))
    kept = case.budget_s is None or median <= case.budget_s
    budget = "-" if case.budget_s is None else f"{case.budget_s * 1e3:.0f}"
    verdict = "WRONG" if not right else "ok" if kept else "OVER BUDGET"
    print(
        f"{case.name:20}{case.groups:>7}{case.items:>6}{case.capacity:>9}"
        f"{median * 1e3:>11.2f}{max(times) * 1e3:>10.2f}{budget:>11}{ratio:>12.0f}x  {verdict}"
    )
    return kept and right


def main() -> int:
    print(
        f"{'case':20}{'groups':>7}{'items':>6}{'capacity':>9}{'median ms':>11}{'worst ms':>10}"
        f"{'budget ms':>11}{'vs textbook':>13}"
    )
    verdicts = [measure(case) for case in CASES]
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
