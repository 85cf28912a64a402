"""What flexible workers are worth to a job on a shelf, and when nothing could be worth more elsewhere."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import pytest

from aryl.core.cluster import Job, Stand
from aryl.core.model import JobSpec, Slot
from aryl.core.speedup import LINEAR, Amdahl, Points, Speedup
from aryl.policies.candidate import Candidate, could_move, leaving_slots, pays, whole_gain_s, worth
from aryl.policies.gain import PRIOR_S, guess_s, relative_times, remaining_or_guess_s
from aryl.testing import Scene, servers


def candidate(
    least: int = 2,
    most: int = 4,
    here: int = 0,
    *,
    left_s: float = 120.0,
    weight: int = 1,
    slower: float = 1.0,
    cost_s: float = 0.0,
    sizes: tuple[int, ...] = (),
    speedup: Speedup = LINEAR,
    may_grow: bool = True,
) -> Candidate:
    """A job with `least` base workers elsewhere and up to `most` flexible ones here."""
    spec = JobSpec("J", 0, 0.0, least, least + most, weight, sizes, speedup=speedup)
    stand = Stand(0, weight, 1.0)
    return Candidate(Job(spec, 0.0), stand, least, here, most, left_s, slower, cost_s, may_grow)


def table(one: Candidate) -> dict[int, float]:
    """The items as {flexible workers: value}."""
    values, workers = worth(one)
    return dict(zip(workers.tolist(), values.tolist(), strict=True))


def test_an_item_is_worth_the_time_by_which_the_job_ends_sooner() -> None:
    # 120 s at two workers are 240 worker-seconds: 80, 60, 48 and 40 s with three to six.
    assert table(candidate()) == pytest.approx({1: 40.0, 2: 60.0, 3: 72.0, 4: 80.0})


def test_a_job_that_has_no_flexible_workers_pays_for_every_item() -> None:
    assert table(candidate(cost_s=15.0)) == pytest.approx({1: 25.0, 2: 45.0, 3: 57.0, 4: 65.0})


def test_the_present_number_is_worth_what_a_change_costs_more_than_the_time_it_saves() -> None:
    assert table(candidate(here=2, cost_s=15.0)) == pytest.approx({1: 40.0, 2: 75.0, 3: 72.0, 4: 80.0})


def test_a_job_that_may_not_grow_has_no_item_above_its_present_one() -> None:
    assert table(candidate(here=2, cost_s=15.0, may_grow=False)) == pytest.approx({1: 40.0, 2: 75.0})
    assert table(candidate(may_grow=False)) == {}


def test_only_allowed_sizes_are_items() -> None:
    assert table(candidate(sizes=(2, 3, 6))) == pytest.approx({1: 40.0, 4: 80.0})


def test_a_curve_replaces_the_linear_speed() -> None:
    # Speeds 2, 3, 3.5, 3.5, 3.5 from two workers up: 120 s become 80 and then 68.57 s.
    curve = Points(((1, 1.0), (3, 3.0), (4, 3.5)))
    expected = {1: 40.0, 2: 120.0 - 240.0 / 3.5, 3: 120.0 - 240.0 / 3.5, 4: 120.0 - 240.0 / 3.5}
    assert table(candidate(speedup=curve)) == pytest.approx(expected)


def test_mixing_slows_all_workers_down() -> None:
    # 80 and 60 s over 0.5 are no gain; 48 and 40 s become 96 and 80 s.
    values = table(candidate(slower=2.0))
    assert values == pytest.approx({1: -40.0, 2: 0.0, 3: 24.0, 4: 40.0})


def test_slow_workers_are_worth_less() -> None:
    one = candidate(most=2)
    one.speed_here = 0.5
    # Two full workers and one or two halves: 240 / 2.5 and 240 / 3 seconds.
    assert table(one) == pytest.approx({1: 120.0 - 96.0, 2: 120.0 - 80.0})


def test_a_job_on_slow_gpus_gains_more_from_each_further_one() -> None:
    one = candidate(most=2)
    one.speed_fixed = one.speed_here = 0.5
    assert table(one) == pytest.approx({1: 240.0 - 160.0, 2: 240.0 - 120.0})


@pytest.mark.parametrize("here", [0, 1, 3])
def test_an_item_and_the_time_to_the_end_agree(here: int) -> None:
    one = candidate(here=here, slower=1.25, speedup=Amdahl(0.1), cost_s=7.0)
    one.speed_fixed, one.speed_here = 0.8, 0.4
    for flexible, value in table(one).items():
        lift = (7.0 if flexible == here else 0.0) if here else -7.0
        assert value == pytest.approx(one.time_s(0) - one.time_s(flexible) + lift)


def test_the_whole_gain_is_counted_from_the_present_size() -> None:
    assert whole_gain_s(candidate(here=1)) == pytest.approx(80.0 - 40.0)


def test_a_growth_pays_only_above_its_cost() -> None:
    assert not pays(candidate(cost_s=40.0), 1)
    assert pays(candidate(cost_s=39.9), 1)
    assert not pays(candidate(here=1, cost_s=20.0), 1)
    assert pays(candidate(here=1, cost_s=20.0), 2)


def test_a_growth_to_a_size_that_is_not_allowed_does_not_pay() -> None:
    assert [pays(candidate(sizes=(2, 4, 6)), count) for count in (0, 1, 2, 3, 4)] == [
        False,
        False,
        True,
        False,
        True,
    ]


def test_nothing_moves_to_a_job_that_gains_less_than_the_other_loses() -> None:
    long, short = candidate(left_s=300.0, here=2), candidate(left_s=60.0)
    short.job.spec = JobSpec("S", 1, 0.0, 2, 6)
    # The long one's fourth worker saves 50 s; the first further one of the short one 20 s.
    assert not could_move([short], [long])
    assert could_move([candidate(left_s=300.0)], [candidate(left_s=60.0, here=2)])


def test_nothing_moves_from_a_job_with_large_workers_for_a_smaller_gain_per_gpu() -> None:
    # The holder loses 20 s with its worker of two GPUs: 10 s a GPU.
    holder = candidate(left_s=60.0, here=1, weight=2)
    assert not could_move([candidate(left_s=29.0)], [holder])
    assert could_move([candidate(left_s=31.0)], [holder])


def test_with_allowed_sizes_or_mixed_types_anything_may_move() -> None:
    holder = candidate(left_s=3600.0, here=1)
    mixed_speeds = candidate(left_s=1.0)
    mixed_speeds.speed_here = 0.5
    assert not could_move([candidate(left_s=1.0)], [holder])
    for grower in (candidate(left_s=1.0, sizes=(2, 6)), candidate(left_s=1.0, slower=1.1), mixed_speeds):
        assert could_move([grower], [holder])


def _random_curve(rng: random.Random) -> Speedup:
    match rng.randrange(3):
        case 0:
            return LINEAR
        case 1:
            return Amdahl(rng.choice((0.02, 0.1, 0.4)))
        case _:
            slope, speed, points = 1.0, 0.0, []
            for workers in range(1, 9):
                speed += slope
                points.append((workers, speed))
                slope *= rng.choice((1.0, 0.8, 0.5))
            return Points(tuple(points))


def _random_candidate(rng: random.Random, *, grows: bool) -> Candidate:
    most = rng.randint(1, 4)
    return candidate(
        rng.randint(1, 3),
        most,
        rng.randrange(most) if grows else rng.randint(1, most),
        left_s=rng.choice((30.0, 100.0, 400.0, 2000.0)) * rng.uniform(0.5, 1.5),
        weight=rng.choice((1, 1, 2, 3)),
        speedup=_random_curve(rng),
        may_grow=grows,
    )


def _best_exchange_s(growers: Sequence[Candidate], holders: Sequence[Candidate]) -> float:
    """By how much sum of the ends can be brought forward with the GPUs that these jobs hold here."""
    everybody = [*growers, *holders]
    held_gpus = sum(one.here * one.weight for one in everybody)
    choices = [range((one.most if one.may_grow else one.here) + 1) for one in everybody]
    return max(
        sum(one.time_s(one.here) - one.time_s(count) for one, count in zip(everybody, counts, strict=True))
        for counts in product(*choices)
        if sum(one.weight * count for one, count in zip(everybody, counts, strict=True)) <= held_gpus
    )


def test_where_nothing_could_move_no_exchange_helps() -> None:
    rng = random.Random(7)
    certain = 0
    for _ in range(600):
        growers = [_random_candidate(rng, grows=True) for _ in range(rng.randint(1, 2))]
        holders = [_random_candidate(rng, grows=False) for _ in range(rng.randint(0, 2))]
        if not could_move(growers, holders):
            certain += 1
            assert _best_exchange_s(growers, holders) <= 1e-9
    assert certain > 100


def test_with_workers_of_one_gpu_an_exchange_helps_exactly_where_one_could_move() -> None:
    rng = random.Random(8)
    seen: set[bool] = set()
    for _ in range(300):
        growers = [_random_candidate(rng, grows=True) for _ in range(rng.randint(1, 2))]
        holders = [_random_candidate(rng, grows=False) for _ in range(rng.randint(1, 2))]
        if all(one.weight == 1 for one in (*growers, *holders)):
            moves = could_move(growers, holders)
            seen.add(moves)
            assert moves == (_best_exchange_s(growers, holders) > 1e-9)
    assert seen == {False, True}


def test_workers_leave_the_servers_with_fewest_of_them_first() -> None:
    scene = Scene(*servers(3))
    spec = scene.run("E", {"T1": (2, 3), "T2": (0, 1), "T3": (0, 4)})
    job = scene.cluster.jobs["E"]
    stand = scene.cluster.stands(spec)[0]
    one = Candidate(job, stand, 2, 8, 8, 120.0, 1.0, 0.0, may_grow=False)
    assert leaving_slots(scene.cluster, one, 3) == [Slot("T2", 0, 1, 1), Slot("T1", 0, 2, 1)]


def test_workers_leave_servers_of_the_shelf_only() -> None:
    scene = Scene(*servers(1), *servers(1, "I")).lend("I1")
    spec = scene.run("E", {"T1": (2, 1), "I1": (0, 2)}, fungible=True)
    stands = {scene.cluster.free.shelves[stand.shelf].loaned: stand for stand in scene.cluster.stands(spec)}
    one = Candidate(scene.cluster.jobs["E"], stands[True], 3, 2, 2, 120.0, 1.0, 0.0, may_grow=False)
    assert leaving_slots(scene.cluster, one, 2) == [Slot("I1", 0, 2, 1)]


def test_a_running_time_that_nobody_estimated_is_guessed_from_what_has_been_run() -> None:
    scene = Scene(*servers(1))
    scene.run("known", {"T1": 2}, estimate_s=1000.0)
    scene.run("unknown", {"T1": 2}, estimate_s=None)
    job = scene.at("5m").cluster.jobs
    assert remaining_or_guess_s(job["known"], 300.0) == pytest.approx(700.0)
    assert remaining_or_guess_s(job["unknown"], 300.0) == pytest.approx(300.0 + PRIOR_S)
    assert guess_s(job["known"], 300.0) == pytest.approx(300.0 + PRIOR_S)


def test_relative_times_are_one_at_base_demand() -> None:
    assert relative_times(LINEAR, 2, 4) == pytest.approx((float("inf"), 2.0, 1.0, 2 / 3, 0.5))
