"""The bound on the mean JCT: below every schedule, close to the best one, and right where paper suffices."""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aryl.report import bound
from aryl.report.bound import Bound, JobLoad, Load, Room, mean_jct_bound_s

UNIT_S = 600.0

Jobs = tuple[tuple[int, int, int], ...]  # arrival and work in units of time and GPU times time; most GPUs


def load(*jobs: tuple[float, float, float]) -> Load:
    """Jobs as (submission, shortest time, work)."""
    return Load(*(np.array(column, dtype=np.float64) for column in zip(*jobs, strict=True)))


def room(*steps: tuple[float, float]) -> Room:
    return Room(np.array([at for at, _ in steps]), np.array([gpus for _, gpus in steps]))


def units(jobs: Jobs) -> Load:
    return load(*((a * UNIT_S, work / most * UNIT_S, work * UNIT_S) for a, work, most in jobs))


def least_mean_jct_s(jobs: Jobs, gpus: tuple[int, ...]) -> float:
    """By trying everything: each unit of time each job gets any whole number of GPUs. `gpus[t]` are there in
    unit t, and the last for ever.
    """

    @cache
    def least(unit: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        there = gpus[min(unit, len(gpus) - 1)]
        choices = [
            range(min(most, rest, there) + 1) if arrival <= unit else range(1)
            for (arrival, _, most), rest in zip(jobs, left, strict=True)
        ]
        best = 1 << 30
        for given_ in product(*choices):
            if sum(given_) > there or (not any(given_) and unit > 40):
                continue
            after = tuple(rest - one for rest, one in zip(left, given_, strict=True))
            done = sum(
                unit + 1 - job[0]
                for job, rest, now in zip(jobs, left, after, strict=True)
                if rest and not now
            )
            best = min(best, done + least(unit + 1, after))
        return best

    return least(0, tuple(work for _, work, _ in jobs)) * UNIT_S / len(jobs)


small_jobs = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=3
).map(lambda jobs: tuple((a, work, min(work, most)) for a, work, most in jobs))
small_rooms = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


def steps_of(gpus: tuple[int, ...]) -> Room:
    return room(*((unit * UNIT_S, float(there)) for unit, there in enumerate(gpus)))


@given(jobs=small_jobs, gpus=small_rooms)
def test_it_is_below_the_best_of_all_schedules(jobs: Jobs, gpus: tuple[int, ...]) -> None:
    assert mean_jct_bound_s(units(jobs), steps_of(gpus)) <= least_mean_jct_s(jobs, gpus) * (1 + 1e-9)


@given(jobs=small_jobs, gpus=small_rooms)
def test_it_is_never_below_the_jobs_running_alone(jobs: Jobs, gpus: tuple[int, ...]) -> None:
    alone_s = float(units(jobs).shortest_s.mean())
    assert mean_jct_bound_s(units(jobs), steps_of(gpus)) >= alone_s * (1 - 1e-9)


@given(jobs=small_jobs, gpus=small_rooms, seed=st.integers(0, 99))
def test_it_holds_for_any_prices_and_levels(jobs: Jobs, gpus: tuple[int, ...], seed: int) -> None:
    """So that it holds doesn't hang on how well they are found."""
    random = np.random.Generator(np.random.PCG64(seed))
    of_all = units(jobs)
    edge_s = np.arange(12, dtype=np.float64) * UNIT_S
    dual = bound._Dual(of_all, edge_s, steps_of(gpus).integral(edge_s), np.ones(11, dtype=np.bool_))
    gain_s, _ = dual.at(random.exponential(1.0 / of_all.work_gpu_s.max(), 11), rounds=int(seed % 4))
    best_s = least_mean_jct_s(jobs, gpus) * len(jobs)
    assert float(of_all.shortest_s.sum()) + gain_s <= best_s * (1 + 1e-9)


def test_it_is_close_to_the_best_of_all_schedules() -> None:
    """On crowded small cases: at least 0.85 of it on average, where running alone is half of it."""
    random = np.random.Generator(np.random.PCG64(5))
    shares, alone = [], []
    for _ in range(10):
        jobs = tuple(
            (int(random.integers(0, 2)), work := int(random.integers(2, 5)), min(work, 3)) for _ in range(4)
        )
        best_s = least_mean_jct_s(jobs, (2, 3))
        shares.append(mean_jct_bound_s(units(jobs), steps_of((2, 3))) / best_s)
        alone.append(float(units(jobs).shortest_s.mean()) / best_s)
    assert max(shares) <= 1.0 + 1e-9
    assert np.mean(shares) > 0.85
    assert np.mean(alone) < 0.55


def test_two_jobs_that_each_fill_the_cluster_take_turns() -> None:
    """One is done after 600 s, the other after 1,200 s, and nothing is better."""
    two = load((0.0, 600.0, 4800.0), (0.0, 600.0, 4800.0))
    assert mean_jct_bound_s(two, room((0.0, 8.0))) == pytest.approx(900.0, rel=2e-3)


def test_the_shorter_of_two_goes_first() -> None:
    """100 s and 1,000 s on the whole cluster: done after 100 and 1,100 s."""
    two = load((0.0, 1000.0, 8000.0), (0.0, 100.0, 800.0))
    assert mean_jct_bound_s(two, room((0.0, 8.0))) == pytest.approx(600.0, rel=2e-3)


def test_jobs_that_fit_side_by_side_have_no_price() -> None:
    two = load((0.0, 600.0, 2400.0), (0.0, 300.0, 1200.0))
    assert mean_jct_bound_s(two, room((0.0, 8.0))) == 450.0


def test_room_that_comes_later_is_waited_for() -> None:
    """4 of 8 GPUs until 1,000 s: 4,000 of 8,000 GPU-seconds are done then, the rest in 500 s."""
    one = load((0.0, 1000.0, 8000.0))
    with_help = mean_jct_bound_s(one, room((0.0, 4.0), (1000.0, 8.0)))
    # Its work is done at 500 s and at 1,250 s on average, half of it each; and half of 1,000 s is put on top.
    assert with_help == pytest.approx(0.5 * 500.0 + 0.5 * 1250.0 + 500.0, rel=2e-3)


def test_room_is_added_up_across_its_steps() -> None:
    there = room((0.0, 4.0), (1000.0, 8.0))
    assert there.integral(np.array([-100.0, 500.0, 1500.0, 2000.0])).tolist() == [2400.0, 6000.0, 4000.0]


def test_a_job_without_work_and_no_jobs_at_all() -> None:
    assert mean_jct_bound_s(load((0.0, 0.0, 0.0), (5.0, 10.0, 10.0)), room((0.0, 1.0))) == 5.0
    assert math.isnan(Bound({}, None).mean_jct_s([]))


def test_only_the_jobs_asked_for_count() -> None:
    jobs = {"A": JobLoad(0.0, 600.0, 4800.0), "B": JobLoad(0.0, 600.0, 4800.0)}
    limit = Bound(jobs, room((0.0, 8.0)))
    assert limit.mean_jct_s(["A"]) == 600.0
    assert limit.mean_jct_s(["B", "A"]) == limit.mean_jct_s(["A", "B"]) > 890.0
    with pytest.raises(KeyError):
        limit.mean_jct_s(["C"])
