"""The last value, and what was a day or a week ago."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aryl.forecast.history import History
from aryl.forecast.plain import Last, Seasonal

# Slots of three hours, so that a day has eight.
STEP_S = 10_800.0


def history_of(values: Sequence[float]) -> History:
    history = History(STEP_S)
    for slot, need in enumerate(values):
        history.observe(slot * STEP_S, need)
    return history


def test_the_last_value_stays() -> None:
    assert [Last().peak(history_of([9.0, 4.0]), steps) for steps in (1, 5)] == [4.0, 4.0]


def test_what_followed_a_day_ago_comes_again_as_far_as_is_looked() -> None:
    #         yesterday: now  +1   +2   +3
    values = [0.0, 0.0, 2.0, 3.0, 8.0, 9.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    history = history_of(values)
    assert [Seasonal("day").peak(history, steps) for steps in (1, 2, 3, 4)] == [3.0, 8.0, 9.0, 9.0]


def test_the_present_slot_may_still_rise_to_what_it_was_yesterday() -> None:
    assert Seasonal("day").peak(history_of([5.0, 9.0, 3.0, *[0.0] * 6, 1.0]), 1) == 9.0
    assert Seasonal("day").peak(history_of([9.0, 4.0, 3.0, *[0.0] * 6, 1.0]), 1) == 4.0


def test_the_present_need_is_the_least() -> None:
    assert Seasonal("day").peak(history_of([*[3.0] * 9, 7.0]), 2) == 7.0


@pytest.mark.parametrize(("season", "slots"), [("day", 8), ("week", 56)])
def test_until_a_season_is_known_the_last_value_stays(season: str, slots: int) -> None:
    values = [5.0] * slots
    assert Seasonal(season).peak(history_of([*values[1:], 1.0]), 2) == 1.0
    assert Seasonal(season).peak(history_of([*values, 1.0]), 2) == 5.0


def test_a_horizon_as_long_as_the_season_leaves_the_last_value() -> None:
    history = history_of([*[5.0] * 20, 1.0])
    assert [Seasonal("day").peak(history, steps) for steps in (7, 8, 9)] == [5.0, 1.0, 1.0]


@given(
    season=st.lists(st.integers(0, 20).map(float), min_size=8, max_size=8),
    days=st.integers(2, 5),
    more=st.integers(0, 7),
    steps=st.integers(1, 7),
)
def test_a_need_that_repeats_itself_daily_is_foreseen_exactly(
    season: list[float], days: int, more: int, steps: int
) -> None:
    history = history_of([*season * days, *season[: more + 1]])
    coming = (season * 3)[more : more + steps + 1]
    assert Seasonal("day").peak(history, steps) == max(coming)
