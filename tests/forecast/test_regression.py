"""Regression on the last hours, on yesterday and on last week: exact where the need follows such a rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.forecast.history import DAY_S, Floats, History
from aryl.forecast.plain import Seasonal
from aryl.forecast.predictor import MEDIAN, Spread
from aryl.forecast.regression import LEARNED_S, Regression

STEP_S = 1800.0
DAY = 48  # slots
WEEK = 7 * DAY
UPPER = (0.5, 0.9)


def history_of(values: Sequence[float] | Floats) -> History:
    history = History(STEP_S)
    for slot, need in enumerate(values):
        history.observe(slot * STEP_S, float(need))
    return history


def answers(
    values: Sequence[float] | Floats, first: int, steps: int = 3, levels: Sequence[float] = MEDIAN
) -> Floats:
    """What one predictor answers in each slot from `first` on; shape (slots, levels)."""
    history, predictor, said = History(STEP_S), Regression(), []
    for slot, need in enumerate(values):
        history.observe(slot * STEP_S, float(need))
        if slot >= first:
            said.append(predictor.predict(history, steps, levels))
    return np.array(said)


def coming(values: Floats, first: int, steps: int) -> Floats:
    """The highest need in each slot from `first` on and the `steps` after it, as far as it is known."""
    return np.array([values[slot : slot + steps + 1].max() for slot in range(first, len(values) - steps)])


def daily(days: float, seed: int | None = None, noise: float = 1.0) -> Floats:
    """A need that swings over the day and is less at weekends."""
    slots = np.arange(round(days * DAY))
    need = 40.0 + 20.0 * np.sin(2 * math.pi * slots / DAY) - 8.0 * ((slots // DAY) % 7 >= 5)
    if seed is not None:
        need += np.random.default_rng(seed).normal(0.0, noise, len(slots))
    return need


def test_a_need_that_repeats_itself_daily_is_foreseen_almost_exactly() -> None:
    chance = np.random.default_rng(5)
    values = np.tile(chance.uniform(10.0, 60.0, DAY), 12)
    first = 10 * DAY
    assert answers(values, first)[:-3, 0] == pytest.approx(coming(values, first, 3), abs=0.05)


def test_a_week_is_learned_once_it_has_been_seen_twice() -> None:
    chance = np.random.default_rng(6)
    values = np.tile(chance.uniform(10.0, 60.0, WEEK), 6)
    first = 5 * WEEK
    foreseen = answers(values, first)[:-3, 0]
    assert foreseen == pytest.approx(coming(values, first, 3), abs=0.1)
    by_day = [Seasonal("day").peak(history_of(values[: slot + 1]), 3) for slot in range(first, first + DAY)]
    assert np.abs(np.array(by_day) - coming(values, first, 3)[:DAY]).mean() > 5.0


def test_a_recurrence_on_the_last_values_is_found() -> None:
    # A swing whose period isn't that of any season: each value follows from the two before it.
    slots = np.arange(14 * DAY)
    values = 30.0 + 10.0 * np.cos(2 * math.pi * slots / 37.3)
    first = 12 * DAY
    said = answers(values, first, steps=1)[:-1, 0]
    assert said == pytest.approx(np.maximum(values[first:-1], values[first + 1 :]), abs=0.6)


def test_on_a_noisy_day_it_errs_less_than_yesterday_does() -> None:
    values = daily(28, seed=3, noise=3.0)
    first, steps = 21 * DAY, 3
    truth = coming(values, first, steps)
    regression = np.abs(answers(values, first, steps)[:-steps, 0] - truth).mean()
    yesterday = np.array(
        [Seasonal("day").peak(history_of(values[: slot + 1]), steps) for slot in range(first, first + DAY)]
    )
    assert regression < 0.9 * np.abs(yesterday - truth[:DAY]).mean()


def test_an_upper_quantile_is_exceeded_about_as_often_as_it_says() -> None:
    values = daily(35, seed=9, noise=3.0)
    first, steps = 28 * DAY, 3
    said = answers(values, first, steps, UPPER)[:-steps]
    exceeded = (coming(values, first, steps)[:, None] > said + 1e-9).mean(axis=0)
    assert 0.35 < exceeded[0] < 0.65
    assert 0.03 < exceeded[1] < 0.2


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_before_a_day_is_known_it_is_the_last_value(steps: int) -> None:
    values = daily(1, seed=1)
    assert answers(values, 0, steps)[:, 0].tolist() == values.tolist()


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_until_two_days_are_known_it_is_yesterday(steps: int) -> None:
    values = daily(2, seed=1)[:-1]
    for slot in range(DAY, len(values), 5):
        history = history_of(values[: slot + 1])
        assert Regression().predict(history, steps).tolist() == [Seasonal("day").peak(history, steps)]


def test_a_horizon_beyond_the_day_leaves_the_last_value_as_long_as_no_week_is_known() -> None:
    values = daily(9, seed=1)
    assert Regression().predict(history_of(values), DAY + 2).tolist() == [values[-1]]


def test_it_is_fitted_anew_once_a_day() -> None:
    values = daily(12, seed=2)
    changed = values.copy()
    # From the day after the tenth on the need is another; what was learned before that doesn't know it.
    changed[10 * DAY :] = 5.0
    said = answers(changed, 9 * DAY)[:, 0]
    assert said[-1] == pytest.approx(5.0, abs=3.0)
    assert (said >= changed[9 * DAY :] - 1e-9).all()


def test_what_lies_further_back_than_is_learned_from_changes_nothing() -> None:
    reach = int((LEARNED_S + 8 * DAY_S) / STEP_S) + 60
    recent = daily(reach / DAY, seed=4)
    one, two = (np.concatenate((before, recent)) for before in (np.zeros(DAY), np.full(DAY, 900.0)))
    assert (
        answers(one, len(one) - 1, levels=UPPER).tolist() == answers(two, len(two) - 1, levels=UPPER).tolist()
    )


def test_the_same_history_has_the_same_answers() -> None:
    values = daily(16, seed=8)
    assert answers(values, 9 * DAY, levels=UPPER).tolist() == answers(values, 9 * DAY, levels=UPPER).tolist()


def test_what_comes_later_changes_no_answer() -> None:
    values = daily(16, seed=8)
    changed = values.copy()
    changed[15 * DAY :] = 0.0
    one, two = (answers(need, 14 * DAY, levels=UPPER) for need in (values, changed))
    assert one[:DAY].tolist() == two[:DAY].tolist()
    assert one[DAY:].tolist() != two[DAY:].tolist()


@pytest.mark.parametrize("factor", [10.0, 0.001])
def test_the_unit_of_the_need_makes_no_difference(factor: float) -> None:
    values = daily(16, seed=8)
    first = 14 * DAY
    assert answers(factor * values, first, levels=UPPER) == pytest.approx(
        factor * answers(values, first, levels=UPPER), rel=1e-4
    )


@settings(deadline=None, max_examples=25)
@given(
    kind=st.sampled_from(
        (
            lambda chance, count: np.zeros(count),
            lambda chance, count: np.full(count, 7.0),
            lambda chance, count: chance.integers(0, 2, count) * 50.0,
            lambda chance, count: np.arange(count) / 10.0,
            lambda chance, count: chance.pareto(1.1, count),
            lambda chance, count: np.repeat(chance.integers(0, 9, count // 100 + 1), 100)[:count] * 1.0,
        )
    ),
    seed=st.integers(0, 9),
    count=st.sampled_from((1, 2, DAY, DAY + 1, 2 * DAY, 2 * DAY + 1, 4 * DAY, 15 * DAY)),
    steps=st.integers(1, 60),
    levels=st.sampled_from((MEDIAN, (0.9,), (0.05, 0.5, 0.95))),
)
def test_answers_to_anything_are_finite_ascend_and_are_at_least_the_present_need(
    kind: Callable[[np.random.Generator, int], Floats],
    seed: int,
    count: int,
    steps: int,
    levels: Sequence[float],
) -> None:
    history = history_of(kind(np.random.default_rng(seed), count))
    said = Regression().predict(history, steps, levels)
    assert said.shape == (len(levels),)
    assert np.isfinite(said).all()
    assert said.tolist() == sorted(said.tolist())
    assert said.min() >= history.values[-1] or count <= 2 * DAY


def test_a_need_that_never_changes_is_foreseen_to_a_hundredth_of_a_server() -> None:
    values = np.full(20 * DAY, 4.0)
    assert answers(values, 4 * DAY, levels=UPPER) == pytest.approx(4.0, abs=0.005)


def test_without_a_season_behind_it_a_spread_of_yesterday_s_errors_is_used() -> None:
    values = daily(2, seed=1)[:-1]
    history, regression, yesterday = History(STEP_S), Regression(), Spread(Seasonal("day"))
    for slot, need in enumerate(values):
        history.observe(slot * STEP_S, float(need))
        assert regression.predict(history, 3, UPPER).tolist() == yesterday.predict(history, 3, UPPER).tolist()


def test_a_peak_that_comes_within_its_slot_each_day_is_foreseen_when_the_slot_begins() -> None:
    history, predictor, at_peak = History(STEP_S), Regression(), []
    for slot in range(10 * DAY):
        history.observe(slot * STEP_S, 1.0 + 0.01 * (slot % DAY % 7))
        if slot >= 4 * DAY:
            said = float(predictor.predict(history, 2)[0])
            if slot % DAY == 20:
                at_peak.append(said)
        if slot % DAY == 20:
            history.observe((slot + 0.5) * STEP_S, 7.0)
    assert at_peak == pytest.approx([7.0] * len(at_peak), abs=0.5)


def test_a_median_does_not_sink_because_its_slot_has_only_begun() -> None:
    """Each slot is heard of several times; asked at its first word, half of what comes lies above."""
    noise = np.random.default_rng(3).normal(0.0, 3.0, (21 * DAY, 6))
    needs = 60.0 + daily(21)[:, np.newaxis] + noise
    history, predictor, above = History(STEP_S), Regression(), []
    for slot, heard in enumerate(needs):
        history.observe(slot * STEP_S, float(heard[0]))
        if 14 * DAY <= slot < 21 * DAY - 2:
            said = float(predictor.predict(history, 1)[0])
            above.append(needs[slot : slot + 2].max() > said)
        for part, need in enumerate(heard[1:], start=1):
            history.observe((slot + part / 6) * STEP_S, float(need))
    assert 0.35 < np.mean(above) < 0.65
