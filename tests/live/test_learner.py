"""What reports teach: how far a job is, how long it takes, and how its speed depends on its size."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.helpers import cluster_of, commit, happen, job, resize, run

from aryl.core.cluster import Cluster
from aryl.core.events import Crashed, DemandReported, Finished, Learned, Resized, Vacated
from aryl.core.model import Accounting, Slot
from aryl.core.plan import Launch, Loan
from aryl.core.speedup import Amdahl, Points
from aryl.live.learning import AT_LEAST_EVERY_S, Learner

MOST = 8


def running(workers: int = 2, **more: Any) -> Cluster:
    """The job `e` of 2 to 8 workers, with so many."""
    cluster = cluster_of(1)
    run(cluster, job("e", 2, MOST, **more), Slot("T1", 2, workers - 2, 1))
    return cluster


def at_size(cluster: Cluster, workers: int) -> None:
    """Let it have so many workers."""
    change = workers - cluster.jobs["e"].workers
    slot = (Slot("T1", 0, abs(change), 1),)
    if change:
        step = resize(cluster, "e", add=slot) if change > 0 else resize(cluster, "e", remove=slot)
        commit(cluster, step)
        if change < 0:
            happen(cluster, Vacated(cluster.now, "e", 1, slot))
        happen(cluster, Resized(cluster.now, "e", 1, step.revision))


def report(step: float, speed: float, **more: float) -> dict[str, float]:
    return {"step": step, "total_steps": 1000.0, "steps_per_s": speed, **more}


def hear(
    learner: Learner, cluster: Cluster, said: Mapping[str, float], now_s: float = 10.0
) -> Learned | None:
    return learner.heard(cluster, "e", cluster.jobs["e"].attempt, said, now_s)


def test_steps_become_base_seconds_by_the_speed_at_base_demand() -> None:
    learned = hear(Learner(), running(), report(50, 5.0, saved_step=40, workers=2))
    assert learned == Learned(10.0, "e", 1, done_s=10.0, saved_s=8.0, estimate_s=200.0, speedup=None)


def test_a_job_seen_only_at_another_size_is_judged_by_the_curve_that_is_assumed() -> None:
    """Linear: with four workers twice as fast as with two."""
    learned = hear(Learner(), running(4), report(50, 10.0))
    assert learned == Learned(10.0, "e", 1, done_s=10.0, saved_s=0.0, estimate_s=200.0, speedup=None)


def test_on_a_clock_that_hurries_a_step_takes_more_seconds() -> None:
    learned = hear(Learner(60.0), running(), report(50, 5.0))
    assert learned is not None
    assert (learned.done_s, learned.estimate_s) == (600.0, 12000.0)


def test_without_a_total_nothing_is_said_of_the_whole() -> None:
    learned = hear(Learner(), running(), {"step": 50, "steps_per_s": 5.0})
    assert learned == Learned(10.0, "e", 1, 10.0, 0.0, None, None)


def test_a_slower_gpu_says_nothing_of_the_job() -> None:
    """Where a worker runs slower on a slow GPU, its speed is counted as if the GPU were the reference."""
    cluster = cluster_of(1, 1, accounting=Accounting.SLOWER)
    happen(cluster, DemandReported(0.0, 0.0, 0.0))
    commit(cluster, Loan("I1"))
    run(cluster, job("e", 2, fungible=True, gpu_types=(("V100", 1.0), ("T4", 0.5))), Slot("I1", 2, 0, 1))
    learned = hear(Learner(), cluster, report(50, 2.5))
    assert learned is not None
    assert (learned.done_s, learned.estimate_s) == (10.0, 200.0)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"step": 5.0},
        {"steps_per_s": 5.0},
        report(5, 0.0),
        report(5, -1.0),
        report(5, 5.0, workers=3),
        report(5, 5.0, workers=0),
    ],
)
def test_what_cannot_be_measured_teaches_nothing(said: dict[str, float]) -> None:
    assert hear(Learner(), running(), said) is None


@pytest.mark.parametrize(
    "said",
    [
        report(1e300, 1e-300),
        report(1e308, 5.0),
        report(1, 1e-320),
        report(1, 1e300),
        report(1, 5.0, total_steps=1e308),
    ],
)
def test_numbers_that_no_job_can_mean_teach_nothing(said: dict[str, float]) -> None:
    """Endless times would make those of all other jobs incomparable."""
    learner, cluster = Learner(), running()
    assert hear(learner, cluster, said) is None
    assert hear(learner, cluster, report(50, 5.0), 11.0) == Learned(11.0, "e", 1, 10.0, 0.0, 200.0, None)


def test_a_whole_that_is_less_than_nothing_is_none() -> None:
    learned = hear(Learner(), running(), report(50, 5.0, total_steps=-5.0))
    assert learned == Learned(10.0, "e", 1, 10.0, 0.0, None, None)


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(st.integers(2, MOST), numbers, numbers, numbers, numbers), max_size=8))
def test_whatever_a_program_says_of_itself_the_state_stays_one_of_numbers(
    history: list[tuple[int, float, float, float, float]],
) -> None:
    learner, cluster = Learner(), running()
    for now_s, (workers, step, total, saved, speed) in enumerate(history):
        at_size(cluster, workers)
        said = {"step": step, "total_steps": total, "saved_step": saved, "steps_per_s": speed}
        learned = hear(learner, cluster, said, float(now_s))
        if learned is not None:
            happen(cluster, learned)
    found = cluster.jobs["e"]
    for value in (found.progress.rate, found.finishes_in_s(100.0), found.lost_gpu_s(100.0)):
        assert value >= 0.0
    assert found.progress.rate < 1e20


def test_an_older_attempt_and_an_unknown_job_teach_nothing() -> None:
    learner, cluster = Learner(), running()
    assert learner.heard(cluster, "e", 0, report(5, 5.0), 1.0) is None
    assert learner.heard(cluster, "e", 2, report(5, 5.0), 1.0) is None
    assert learner.heard(cluster, "x", 1, report(5, 5.0), 1.0) is None


def test_only_what_is_worth_it_becomes_an_event() -> None:
    learner, cluster = Learner(), running()
    assert hear(learner, cluster, report(10, 5.0), 0.0) is not None
    assert hear(learner, cluster, report(11, 5.0), 1.0) is None
    assert hear(learner, cluster, report(12, 5.1), 2.0) is None
    assert hear(learner, cluster, report(13, 5.1, saved_step=10), 3.0) is not None
    assert hear(learner, cluster, report(14, 5.1, saved_step=10), 4.0) is None
    assert hear(learner, cluster, report(14, 8.0, saved_step=10), 5.0) is not None
    assert hear(learner, cluster, report(15, 0.0, saved_step=10), 4.9 + AT_LEAST_EVERY_S) is None
    assert hear(learner, cluster, report(15, 0.0, saved_step=10), 5.0 + AT_LEAST_EVERY_S) is not None


def test_a_new_attempt_is_told_at_once_and_keeps_what_was_measured() -> None:
    learner, cluster = Learner(), running(max_failures=3)
    assert hear(learner, cluster, report(50, 5.0)) is not None
    happen(cluster, Crashed(11.0, "e", 1, 0.0))
    commit(cluster, Launch("e", 2, (Slot("T1", 2, 0, 1),)), at=11.0)
    learned = hear(learner, cluster, {"step": 0.0, "total_steps": 1000.0}, 12.0)
    assert learned == Learned(12.0, "e", 2, 0.0, 0.0, 200.0, None)


def test_a_job_that_is_over_is_forgotten() -> None:
    learner, cluster = Learner(), running()
    hear(learner, cluster, report(50, 5.0))
    happen(cluster, Finished(11.0, "e", 1))
    learner.forget("e")
    learner.forget("e")
    assert not learner._seen


def test_nobody_has_saved_more_than_was_done_or_less_than_nothing() -> None:
    learner, cluster = Learner(), running()
    most = hear(learner, cluster, report(50, 5.0, saved_step=60))
    assert most is not None
    assert most.saved_s == most.done_s == 10.0
    least = hear(learner, cluster, report(-50, 5.0, saved_step=-60), 100.0)
    assert least is not None
    assert (least.done_s, least.saved_s) == (0.0, 0.0)


def curve_of(speeds: Mapping[int, float]) -> Points:
    """What a job teaches that runs at these sizes with these speeds, one after the other."""
    learner, cluster, curve = Learner(), running(), None
    for now_s, (workers, speed) in enumerate(speeds.items()):
        at_size(cluster, workers)
        learned = hear(learner, cluster, report(1, speed, workers=workers), float(now_s))
        if learned is not None:
            happen(cluster, learned)
            curve = learned.speedup or curve
    assert isinstance(curve, Points)
    return curve


sizes = st.lists(st.integers(2, MOST), min_size=2, unique=True)


@given(sizes, st.floats(0.01, 100.0))
def test_linear_scaling_is_learned_as_it_is(workers: list[int], each: float) -> None:
    curve = curve_of({size: each * size for size in workers})
    for size in range(1, MOST + 1):
        assert curve(size) == pytest.approx(each * size)


@given(sizes, st.floats(0.0, 0.9))
def test_a_curve_with_a_serial_part_is_met_where_it_was_seen_and_never_undercut_between(
    workers: list[int], serial: float
) -> None:
    real = Amdahl(serial)
    curve = curve_of({size: real(size) for size in workers})
    for size in workers:
        assert curve(size) == pytest.approx(real(size))
    for size in range(max(workers), MOST + 1):
        assert curve(size) >= real(size) * (1 - 1e-9)


@given(st.dictionaries(st.integers(2, MOST), st.floats(1e-6, 1e6), min_size=2))
def test_whatever_is_measured_the_curve_is_concave_ascends_and_bridges_what_was_seen(
    speeds: dict[int, float],
) -> None:
    curve = curve_of(speeds)  # `Points` refuses anything that bends upwards or falls
    points = dict(curve.points)
    assert max(points) == MOST
    for size, speed in speeds.items():
        assert curve(size) >= speed * (1 - 1e-9)
    # It promises no more than was seen at some size, or than straight lines between and beyond allow.
    assert curve(max(speeds)) == pytest.approx(max(speeds.values()))


@given(
    st.lists(st.tuples(st.integers(2, MOST), st.floats(1e-3, 1e3), st.integers(0, 1000)), max_size=30),
)
def test_any_history_of_reports_is_something_that_the_state_accepts(
    history: list[tuple[int, float, int]],
) -> None:
    learner, cluster = Learner(), running()
    for now_s, (workers, speed, step) in enumerate(history):
        at_size(cluster, workers)
        said = report(step, speed, workers=workers, saved_step=step - 1.0)
        learned = hear(learner, cluster, said, float(now_s))
        if learned is not None:
            assert 0.0 <= learned.saved_s <= learned.done_s
            assert learned.estimate_s is None or learned.estimate_s > 0.0
            happen(cluster, learned)


@pytest.mark.parametrize("seed", range(5))
def test_the_estimate_comes_to_rest_near_the_truth_though_measurements_vary(seed: int) -> None:
    """A fifth up or down: what is told stays within a tenth of the truth, after a while, nearly always."""
    dice, learner, cluster = random.Random(seed), Learner(), running()
    told: list[float] = []
    for now_s in range(400):
        speed = 5.0 * dice.uniform(0.8, 1.2)
        learned = hear(learner, cluster, report(now_s * 5.0, speed), float(now_s))
        if learned is not None and learned.estimate_s is not None:
            told.append(learned.estimate_s)
    settled = told[len(told) // 3 :]
    assert len(told) < 200
    assert sum(settled) / len(settled) == pytest.approx(200.0, rel=0.05)
    assert all(estimate_s == pytest.approx(200.0, rel=0.2) for estimate_s in settled)


def test_a_job_that_gets_slower_for_good_is_believed_within_a_dozen_reports() -> None:
    learner, cluster = Learner(), running()
    hear(learner, cluster, report(0, 5.0), 0.0)
    told = [hear(learner, cluster, report(now_s, 2.5), float(now_s)) for now_s in range(1, 13)]
    estimates = [learned.estimate_s for learned in told if learned is not None]
    assert estimates == sorted(estimates, key=lambda seconds: seconds or 0.0)
    assert estimates[-1] == pytest.approx(400.0, rel=0.06)


def test_a_curve_that_was_measured_badly_at_first_is_told_again() -> None:
    learner, cluster = Learner(), running()
    hear(learner, cluster, report(50, 5.0))
    at_size(cluster, 4)
    first = hear(learner, cluster, report(60, 5.0))  # it had hardly begun
    assert first is not None
    assert isinstance(first.speedup, Points)
    assert first.speedup(4) == first.speedup(2)
    for _ in range(20):
        hear(learner, cluster, report(70, 10.0), now_s=11.0)
    again = hear(learner, cluster, report(80, 10.0), now_s=10.0 + AT_LEAST_EVERY_S)
    assert again is not None
    assert isinstance(again.speedup, Points)
    assert again.speedup(4) / again.speedup(2) == pytest.approx(2.0, rel=0.01)
    unchanged = hear(learner, cluster, report(90, 10.0), now_s=10.0 + 2 * AT_LEAST_EVERY_S)
    assert unchanged is not None
    assert unchanged.speedup is None
