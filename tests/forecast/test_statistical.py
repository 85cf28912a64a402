"""Exponential smoothing, and decomposition into seasons."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
import pytest
from statsforecast.models import AutoETS

from aryl.errors import InputError
from aryl.forecast.history import Floats, History
from aryl.forecast.plain import Last
from aryl.forecast.predictor import Predictor, Spread
from aryl.forecast.statistical import Ets, Mstl, _Fit, _smooth, _Smoothed

STEP_S = 1800.0
DAY = 48
WEEK = 7 * DAY
LEVELS = (0.05, 0.5, 0.95)

Make = Callable[[], Predictor]
both = pytest.mark.parametrize("make", [Ets, Mstl])


def history_of(needs: Sequence[float] | Floats) -> History:
    history = History(STEP_S)
    for slot, need in enumerate(needs):
        history.observe(slot * STEP_S, float(need))
    return history


def asked_each_slot(predictor: Predictor, needs: Floats, first: int, steps: int) -> Floats:
    """Rows: the quantiles of LEVELS and what the highest need then was."""
    history = history_of(needs[:first])
    rows = []
    for slot in range(first, len(needs) - steps):
        history.observe(slot * STEP_S, float(needs[slot]))
        rows.append([*predictor.predict(history, steps, LEVELS), needs[slot : slot + steps + 1].max()])
    return np.array(rows)


def error_of(predictor: Predictor, needs: Floats, first: int, steps: int = 3) -> float:
    rows = asked_each_slot(predictor, needs, first, steps)
    return float(np.abs(rows[:, 1] - rows[:, 3]).mean())


def day_and_week(slots: int) -> Floats:
    """Busy by day, and twice as busy on five days of the week."""
    slot = np.arange(slots)
    shape = 20 + 15 * np.sin(2 * np.pi * slot / DAY)
    return np.where(slot % WEEK < 5 * DAY, 2 * shape, shape)


def noise(slots: int, seed: int = 7) -> Floats:
    return np.random.default_rng(seed).normal(0.0, 3.0, slots)


@both
def test_until_there_are_seventeen_slots_the_need_stays_as_it_is(make: Make) -> None:
    predictor, history = make(), History(STEP_S)
    for slot in range(16):
        history.observe(slot * STEP_S, float(slot % 5))
        assert list(predictor.predict(history, 3, LEVELS)) == [slot % 5] * 3
    history.observe(16 * STEP_S, 1.0)
    low, middle, high = predictor.predict(history, 3, LEVELS)
    assert 1.0 <= low < middle < high


@both
@pytest.mark.parametrize("need", [0.0, 12.5])
def test_a_need_that_never_moved_is_foreseen_as_it_is(make: Make, need: float) -> None:
    rows = asked_each_slot(make(), np.full(2 * WEEK + DAY, need), 1, 4)
    assert rows == pytest.approx(np.full(rows.shape, need), abs=1e-9)


@both
def test_a_need_that_was_always_nothing_may_come_up_for_the_first_time(make: Make) -> None:
    needs = np.zeros(3 * DAY)
    needs[-DAY:] = 10.0
    rows = asked_each_slot(make(), needs, 1, 2)
    assert rows[: 2 * DAY - 8, :3] == pytest.approx(0.0, abs=1e-9)
    assert rows[-1, 1:3] == pytest.approx(10.0, abs=1.0)


@both
def test_no_quantile_is_below_the_present_need_or_below_the_one_before(make: Make) -> None:
    needs = np.maximum(day_and_week(3 * WEEK) - 20 + noise(3 * WEEK), 0.0)
    rows = asked_each_slot(make(), needs, 2 * WEEK + 5, 3)
    assert (rows[:, 0] >= needs[2 * WEEK + 5 : -3]).all()
    assert (np.diff(rows[:, :3], axis=1) >= 0).all()


def test_before_two_days_are_known_a_day_has_no_shape_then_it_has() -> None:
    needs = day_and_week(3 * DAY) + noise(3 * DAY)
    ets, mstl = (asked_each_slot(make(), needs, 1, 4) for make in (Ets, Mstl))
    differs = np.flatnonzero((ets != mstl).any(axis=1))
    # A row is of the slot after its index; the first fit after two days are over.
    assert 2 * DAY - 1 <= differs[0] <= 3 * DAY - 5


def test_a_day_that_repeats_is_foreseen() -> None:
    needs = 20 + 15 * np.sin(2 * np.pi * np.arange(5 * DAY) / DAY) + 0.01 * noise(5 * DAY)
    assert error_of(Mstl(), needs, 3 * DAY) < 0.2
    assert error_of(Spread(Last()), needs, 3 * DAY) > 1.5


def test_a_week_that_repeats_is_foreseen_once_two_are_known() -> None:
    needs = day_and_week(3 * WEEK) + 0.1 * noise(3 * WEEK)
    in_third_week = 2 * WEEK + DAY
    assert 2 * error_of(Mstl(), needs, in_third_week) < error_of(_Smoothed("day"), needs, in_third_week)
    in_second_week = needs[: 2 * WEEK - DAY]
    assert error_of(Mstl(), in_second_week, WEEK) == error_of(_Smoothed("day"), in_second_week, WEEK)


def test_noise_is_not_taken_for_a_season() -> None:
    needs = 40 + noise(4 * WEEK)
    ets, mstl = (error_of(make(), needs, 3 * WEEK) for make in (Ets, Mstl))
    assert mstl < 1.1 * ets


@both
@pytest.mark.parametrize("steps", [1, 3, 12])
def test_nine_in_ten_needs_are_within_five_and_ninety_five_per_cent(make: Make, steps: int) -> None:
    """Noise with long tails, which normal intervals would get wrong."""
    needs = 60 + np.random.default_rng(3).standard_t(3, 5 * WEEK).clip(-12, 12)
    rows = asked_each_slot(make(), needs, 2 * WEEK, steps)[WEEK:]
    below, above = (rows[:, 3] < rows[:, 0]).mean(), (rows[:, 3] > rows[:, 2]).mean()
    assert 0.02 < above < 0.1  # the highest of 12: only about a hundred that don't overlap
    assert below < 0.08
    assert np.median(rows[:, 3] - rows[:, 1]) == pytest.approx(0.0, abs=0.4)


@both
def test_a_present_need_that_still_rises_leaves_no_trace(make: Make) -> None:
    needs = day_and_week(2 * WEEK + DAY) + noise(2 * WEEK + DAY)
    patient, eager = make(), make()
    history = history_of(needs[: 2 * WEEK - 4])
    for slot in range(2 * WEEK - 4, 2 * WEEK + 8):
        history.observe(slot * STEP_S, float(needs[slot]) - 9.0)
        eager.predict(history, 3)
        history.observe((slot + 0.5) * STEP_S, float(needs[slot]))
        assert list(eager.predict(history, 3, LEVELS)) == list(patient.predict(history, 3, LEVELS))


@both
def test_slots_that_nobody_asked_in_are_caught_up(make: Make) -> None:
    needs = day_and_week(2 * WEEK + DAY) + noise(2 * WEEK + DAY)
    often, seldom = make(), make()
    history = history_of(needs[: 2 * WEEK])
    seldom.predict(history, 3)
    for slot in range(2 * WEEK, 2 * WEEK + 12):
        answer = often.predict(history, 3, LEVELS)
        history.observe(slot * STEP_S, float(needs[slot]))
    assert list(often.predict(history, 3, LEVELS)) == list(seldom.predict(history, 3, LEVELS))
    assert list(answer) != list(seldom.predict(history, 3, LEVELS))


def test_between_fits_each_slot_is_learned_once_it_is_over() -> None:
    needs = 40 + noise(2 * WEEK) + np.cumsum(noise(2 * WEEK, 8)) / 20
    predictor, first = Ets(), 2 * WEEK - 20
    rows = asked_each_slot(predictor, needs, first, 1)
    fit, errors = _smooth(needs[:first], (), first - 1)
    for slot, row in enumerate(rows, first):
        highest = np.maximum(fit.ahead(slot, needs[slot], 1) + errors[-WEEK:], needs[slot])
        assert row[:3] == pytest.approx(np.quantile(highest, LEVELS), rel=1e-9)
        errors = np.append(errors, fit.take(slot, needs[slot]))


def test_a_young_history_is_fitted_again_whenever_it_is_twice_as_long() -> None:
    needs = 40 + noise(40)
    old = Ets()
    history = history_of(needs[:16])
    for slot in range(16, 33):
        history.observe(slot * STEP_S, float(needs[slot]))
        old.predict(history, 1)
        fresh = Ets()
        fresh.predict(history, 1)
        assert (old._fit == fresh._fit) == (slot in (16, 32))


@both
def test_a_gap_longer_than_all_history_begins_anew(make: Make) -> None:
    predictor, fresh = make(), make()
    history = History(STEP_S, kept_s=3 * 86_400)
    for slot in range(3 * DAY):
        history.observe(slot * STEP_S, 10.0 + slot % 7)
        predictor.predict(history, 3)
    history.observe(50 * WEEK * STEP_S, 4.0)
    answer = predictor.predict(history, 3, LEVELS)
    assert list(answer) == list(fresh.predict(history, 3, LEVELS))
    assert answer == pytest.approx(4.0, abs=1e-6)


@pytest.mark.parametrize("slope", [0.0, 0.4])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_smoothing_goes_on_as_the_library_would(slope: float, seed: int) -> None:
    steps = np.random.default_rng(seed).normal(slope, 1.0, 400)
    needs = 80 + np.cumsum(steps) + noise(400, seed)
    fit, _ = _smooth(needs[:300], (), 299)
    for slot in range(300, 399):
        fit.take(slot, float(needs[slot]))
    library = AutoETS(model="AZN", season_length=1).fit(needs[:300])
    # Not by h=6: the library adds the damping of the first step twice.
    expected: list[float] = []
    for _ in range(6):
        expected.append(library.forward(np.append(needs, expected), h=1)["mean"][0])
    assert fit.ahead(399, float(needs[399]), 6) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("trend", ["ANN", "AAN", "AAdN"])
def test_errors_spread_over_the_steps_as_the_library_says(trend: str) -> None:
    needs = 80 + np.cumsum(np.random.default_rng(5).normal(0.2, 1.0, 300))
    library = AutoETS(model=trend.replace("d", ""), damped="d" in trend, season_length=1).fit(needs)
    alpha, beta, _, phi = library.model_["par"][:4]
    has_trend, damped = trend != "ANN", "d" in trend
    fit = _Fit(alpha, beta if has_trend else 0.0, phi if damped else 1.0, 0.0, 0.0, (), 0)
    foreseen = library.predict(h=6, level=[90])
    half = (foreseen["hi-90"] - foreseen["mean"]) / NormalDist().inv_cdf(0.95)
    assert np.sqrt((fit.weights(6) ** 2).sum(axis=0)) == pytest.approx(half / half[0], rel=1e-6)


def test_a_season_shorter_than_four_slots_is_none() -> None:
    needs = 20 + noise(60)
    answers = []
    for make in (Ets, Mstl):
        history = History(86_400.0 / 2)
        for slot, need in enumerate(needs[:26]):
            history.observe(slot * history.step_s, float(need))
        answers.append(list(make().predict(history, 2, LEVELS)))
    assert answers[0] == answers[1]


@both
def test_without_statsforecast_the_error_names_the_extra(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsforecast.models", None)
    with pytest.raises(InputError, match=r"pip install 'aryl\[forecast\]'"):
        make()
