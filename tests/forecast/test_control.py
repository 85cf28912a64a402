"""Loan control: what is kept, how long, and what is kept on top of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.files.inference_fields import ForecastConfig
from aryl.forecast.account import excess_margin
from aryl.forecast.catalogue import build_predictor
from aryl.forecast.control import (
    TRIFLE_SERVERS,
    UPPER_LEVEL,
    WARM_S,
    FixedHeadroom,
    Foreseen,
    HeadroomRule,
    LoanControl,
    LoanRules,
    QuantileHeadroom,
    RiskHeadroom,
)
from aryl.forecast.history import DAY_S, WEEK_S, Floats, History
from aryl.forecast.predictor import MEDIAN, Predictor

NOTHING = FixedHeadroom(0.0)
RULES = (
    NOTHING,
    FixedHeadroom(2.0),
    QuantileHeadroom(0.99, 1.0),
    QuantileHeadroom(0.5),
    RiskHeadroom(0.09, 1.0),
    RiskHeadroom(0.5),
)
NEEDS = st.lists(st.integers(0, 40).map(lambda quarters: quarters / 4), min_size=1, max_size=60)


@dataclass
class Scripted:
    """Foresees what it is told to, by slot; notes what it was asked."""

    forecasts: Sequence[float]
    asked: list[tuple[int, int, tuple[float, ...]]] = field(default_factory=list)

    def predict(self, history: History, steps: int, levels: Sequence[float] = MEDIAN) -> Floats:
        self.asked.append((history.slot, steps, tuple(levels)))
        return np.full(len(levels), self.forecasts[history.slot])


def last() -> Predictor:
    return build_predictor(ForecastConfig(predictor="last"))


def kept(
    needs: Sequence[float],
    forecasts: Sequence[float],
    *,
    settle_s: float = 0.0,
    headroom: HeadroomRule = NOTHING,
) -> list[Foreseen]:
    """What is said in each slot of 60 s."""
    control = LoanControl(LoanRules(60.0, settle_s=settle_s, headroom=headroom), Scripted(forecasts))
    return [control.hear(slot * 60.0, need) for slot, need in enumerate(needs)]


def test_a_forecast_is_kept_and_at_least_the_present_need() -> None:
    assert kept([1.0, 4.0, 2.0], [3.0, 3.0, 2.0]) == [
        Foreseen(3.0, 0.0),
        Foreseen(4.0, 0.0),
        Foreseen(2.0, 0.0),
    ]


def test_less_is_kept_once_it_has_been_enough_for_as_long_as_is_settled() -> None:
    said = kept([1.0] * 8, [2.0, 5.0, 2.0, 3.0, 2.0, 2.0, 2.0, 2.0], settle_s=180.0)
    assert [foreseen.forecast_servers for foreseen in said] == [2, 5, 5, 5, 5, 3, 3, 2]


def test_without_settling_less_is_kept_at_once() -> None:
    said = kept([1.0] * 4, [2.0, 5.0, 2.0, 3.0])
    assert [foreseen.forecast_servers for foreseen in said] == [2, 5, 2, 3]


@settings(max_examples=200)
@given(
    slots=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40),
    settle_s=st.sampled_from((0.0, 30.0, 60.0, 150.0, 600.0)),
)
def test_what_is_kept_is_the_highest_forecast_of_the_time_that_is_settled(
    slots: list[tuple[int, int]], settle_s: float
) -> None:
    needs, forecasts = zip(*((float(need), float(ahead)) for need, ahead in slots), strict=True)
    said = [foreseen.forecast_servers for foreseen in kept(needs, forecasts, settle_s=settle_s)]
    slots_settled = math.ceil(settle_s / 60.0)
    for slot, servers in enumerate(said):
        since = range(max(slot - slots_settled, 0), slot + 1)
        assert servers == max(max(needs[before], forecasts[before]) for before in since)
        assert servers >= needs[slot]


def test_within_a_slot_more_is_kept_at_once_and_nothing_is_forecast_anew() -> None:
    predictor = Scripted([2.0, 2.0, 2.0])
    control = LoanControl(LoanRules(60.0), predictor)
    said = [control.hear(at_s, need).forecast_servers for at_s, need in ((0, 1), (10, 5), (20, 1), (60, 1))]
    assert said == [2.0, 5.0, 5.0, 2.0]
    assert [slot for slot, *_ in predictor.asked] == [0, 1]


def test_a_forecast_by_the_inference_side_takes_the_place_of_ours() -> None:
    control = LoanControl(LoanRules(60.0), Scripted([9.0] * 9))
    words = [(0.0, 1.0, 3.0), (30.0, 1.0, 6.0), (60.0, 4.0, 2.0), (120.0, 1.0, None)]
    said = [control.hear(at_s, need, forecast).forecast_servers for at_s, need, forecast in words]
    assert said == [3.0, 6.0, 4.0, 9.0]


def test_what_exceeds_a_whole_number_by_next_to_nothing_keeps_no_further_server() -> None:
    trifle = TRIFLE_SERVERS / 2
    said = kept([1.0] * 4, [4.0 + trifle, 4.0 - trifle, 4.0 + 3 * trifle, 4.5])
    assert [foreseen.forecast_servers for foreseen in said] == [4.0, 4.0 - trifle, 4.0 + 3 * trifle, 4.5]
    # A need is one, however small.
    assert kept([4.0 + trifle], [4.0 + trifle]) == [Foreseen(4.0 + trifle, 0.0)]


def test_what_was_only_noticed_keeps_nothing_but_belongs_to_the_slot() -> None:
    control = LoanControl(LoanRules(60.0), last())
    assert control.hear(0.0, 1.0) == Foreseen(1.0, 0.0)
    control.notice(30.0, 7.0)
    assert control.history.values.tolist() == [7.0]
    assert control.hear(60.0, 2.0) == Foreseen(2.0, 0.0)


def test_the_first_word_may_come_in_a_slot_in_which_something_was_noticed() -> None:
    control = LoanControl(LoanRules(60.0), Scripted([5.0, 4.0]))
    control.notice(0.0, 1.0)
    assert [control.hear(at_s, 1.0) for at_s in (30.0, 60.0)] == [Foreseen(5.0, 0.0), Foreseen(4.0, 0.0)]


@pytest.mark.parametrize(
    ("interval_s", "give_back_s", "lead_s", "steps", "delay"),
    [
        (60.0, 420.0, None, 7, 7),
        (300.0, 420.0, None, 2, 2),
        (300.0, 0.0, None, 1, 0),
        (300.0, 300.0, None, 1, 1),
        (300.0, 301.0, None, 2, 2),
        (300.0, 420.0, 0.0, 1, 2),
        (300.0, 420.0, 3600.0, 11, 2),
        (0.1, 0.3, None, 3, 3),
    ],
)
def test_every_slot_that_begins_before_the_lead_is_over_is_looked_at(
    interval_s: float, give_back_s: float, lead_s: float | None, steps: int, delay: int
) -> None:
    predictor = Scripted([1.0])
    control = LoanControl(LoanRules(interval_s, give_back_s, lead_s), predictor)
    control.hear(0.0, 1.0)
    assert (control.steps, control.delay, predictor.asked) == (steps, delay, [(0, steps, MEDIAN)])


def test_a_give_back_time_that_was_measured_makes_the_lead_longer() -> None:
    predictor = Scripted([1.0] * 2)
    control = LoanControl(LoanRules(60.0, 60.0), predictor)
    control.hear(0.0, 1.0)
    control.give_back_s = 300.0
    control.hear(60.0, 1.0)
    assert [steps for _, steps, _ in predictor.asked] == [1, 5]
    assert control.delay == 5


@pytest.mark.parametrize(
    ("headroom", "levels"),
    [
        (FixedHeadroom(1.0), MEDIAN),
        (QuantileHeadroom(0.9), (UPPER_LEVEL,)),
        (RiskHeadroom(0.1), (UPPER_LEVEL,)),
    ],
)
def test_where_errors_say_what_is_kept_on_top_the_upper_quantile_is_asked_for(
    headroom: HeadroomRule, levels: tuple[float, ...]
) -> None:
    predictor = Scripted([1.0])
    LoanControl(LoanRules(60.0, headroom=headroom), predictor).hear(0.0, 1.0)
    assert predictor.asked == [(0, 1, levels)]


def test_a_fixed_headroom_is_kept_on_top_and_never_changes() -> None:
    assert kept([1.0, 9.0], [2.0, 2.0], headroom=FixedHeadroom(3.0)) == [
        Foreseen(2.0, 3.0),
        Foreseen(9.0, 3.0),
    ]


@pytest.mark.parametrize("headroom", [QuantileHeadroom(0.99, 2.0), RiskHeadroom(0.09, 2.0)])
def test_until_a_day_s_errors_are_known_the_least_is_kept_on_top(headroom: HeadroomRule) -> None:
    day = int(DAY_S / 60.0)
    said = kept([1.0] * (day + 2), [1.0] * (day + 2), headroom=headroom)
    assert said == [Foreseen(1.0, 2.0)] * day + [Foreseen(1.0, 0.0)] * 2


@pytest.mark.parametrize("headroom", [QuantileHeadroom(0.99, 2.0), RiskHeadroom(0.0, 2.0)])
def test_errors_that_call_for_more_than_the_least_count_at_once(headroom: HeadroomRule) -> None:
    # Five servers are missed in every other slot, from the second on.
    needs = [1.0, 6.0] * 100
    said = kept(needs, [1.0] * 200, headroom=headroom)
    assert said[0] == Foreseen(1.0, 2.0)
    assert said[-1].headroom_servers >= 2.0


def test_the_headroom_is_that_of_the_errors_of_what_was_kept_at_each_slot_s_first_word() -> None:
    chance = np.random.default_rng(3)
    needs = chance.integers(0, 30, 2000) / 2
    forecasts = chance.integers(0, 30, 2000) / 2
    rules = LoanRules(60.0, 120.0, None, 300.0, RiskHeadroom(0.2))
    control = LoanControl(rules, Scripted(forecasts.tolist()))
    for slot, need in enumerate(needs.tolist()):
        said = control.hear(slot * 60.0, need)
    ahead = np.maximum(needs, forecasts)
    settled = np.array([ahead[max(slot - 5, 0) : slot + 1].max() for slot in range(2000)])
    short = [needs[slot] - settled[max(slot - 2, 0) : slot + 1].min() for slot in range(1999)]
    reactive = [needs[slot] - needs[max(slot - 2, 0) : slot + 1].min() for slot in range(1999)]
    margin = excess_margin(np.array(short), 0.2 * sum(reactive))
    assert said.headroom_servers - max(-margin, 0.0) == pytest.approx(margin)


def test_a_forecast_that_is_more_than_enough_is_lowered_but_not_below_the_need() -> None:
    day = int(DAY_S / 60.0)
    needs, forecasts = [3.0] * day + [3.0, 6.0], [8.0] * (day + 2)
    said = kept(needs, forecasts, headroom=QuantileHeadroom(0.99, 1.0))
    # All errors are -5: the forecast was 5 too high all day.
    assert said[day - 1 :] == [Foreseen(8.0, 1.0), Foreseen(3.0, 0.0), Foreseen(6.0, 0.0)]


@settings(deadline=None, max_examples=150)
@given(
    words=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 40), st.none() | st.integers(0, 40)),
        min_size=1,
        max_size=60,
    ),
    settle_s=st.sampled_from((0.0, 90.0, 900.0)),
    headroom=st.sampled_from(RULES),
)
def test_nobody_is_ever_told_less_than_the_present_need(
    words: list[tuple[int, int, int | None]], settle_s: float, headroom: HeadroomRule
) -> None:
    control = LoanControl(LoanRules(60.0, 130.0, None, settle_s, headroom), last())
    at_s = 0.0
    for gap_s, need, forecast in words:
        at_s += gap_s
        said = control.hear(at_s, need / 4, None if forecast is None else forecast / 4)
        assert said.forecast_servers >= need / 4
        assert said.headroom_servers >= 0.0
        assert math.isfinite(said.forecast_servers + said.headroom_servers)


@pytest.mark.parametrize("predictor", ["last", "day", "week", "regression"])
@settings(deadline=None, max_examples=8)
@given(
    seed=st.integers(0, 99),
    days=st.sampled_from((0.5, 3.0, 7.2)),
    headroom=st.sampled_from(RULES),
    settle_s=st.sampled_from((0.0, 900.0, 7200.0)),
)
def test_remembering_a_week_is_as_good_as_having_heard_it(
    predictor: str, seed: int, days: float, headroom: HeadroomRule, settle_s: float
) -> None:
    rules = LoanRules(900.0, 1500.0, None, settle_s, headroom)
    chance = np.random.default_rng(seed)
    times = np.cumsum(chance.uniform(100.0, 2500.0, int(days * DAY_S / 1300.0))) - 3 * DAY_S
    times = times[times >= times[-1] - WARM_S]
    heard = [*zip(times.tolist(), chance.uniform(0.0, 9.0, len(times)).tolist(), strict=True)]
    one, two = (LoanControl(rules, build_predictor(ForecastConfig(predictor=predictor))) for _ in range(2))
    for at_s, need in heard:
        one.hear(at_s, need)
    two.remember(heard)
    for later_s, need in ((600.0, 1.0), (2000.0, 8.0), (9000.0, 2.0), (9100.0, 3.0), (200_000.0, 3.0)):
        at_s = heard[-1][0] + later_s
        assert one.hear(at_s, need) == two.hear(at_s, need)


@pytest.mark.parametrize("offset_s", [0.0, 1.0, 450.0, 899.0])
def test_what_is_older_than_a_week_is_remembered_without_its_errors(offset_s: float) -> None:
    rules = LoanRules(900.0, 900.0, None, 0.0, QuantileHeadroom(0.999))
    control = LoanControl(rules, last())
    # Long ago the need jumped by 8 every hour; for a week and a bit it has been still.
    times = np.arange(-3 * WEEK_S, 0.0, 900.0) + offset_s
    needs = np.where((times < -WARM_S - 7200.0) & (times % 7200.0 < 3600.0), 9.0, 1.0)
    control.remember([*zip(times.tolist(), needs.tolist(), strict=True)])
    assert len(control.history) == len(times)
    assert control.hear(900.0, 1.0) == Foreseen(1.0, 0.0)


def test_a_week_that_begins_within_a_slot_can_be_remembered() -> None:
    control = LoanControl(LoanRules(900.0), last())
    heard = [(-WARM_S - 100.0, 5.0), (-WARM_S + 100.0, 2.0), (50.0, 3.0)]
    control.remember(heard)
    assert control.hear(900.0, 1.0) == Foreseen(1.0, 0.0)


def test_nothing_to_remember_is_nothing() -> None:
    control = LoanControl(LoanRules(60.0), last())
    control.remember([])
    assert control.hear(0.0, 2.0) == Foreseen(2.0, 0.0)


def test_a_silence_of_hours_counts_no_errors_that_nobody_saw() -> None:
    control = LoanControl(LoanRules(60.0, 60.0, None, 0.0, QuantileHeadroom(0.99)), last())
    for at_s in (0.0, 60.0, 120.0, 7200.0, 7260.0):
        said = control.hear(at_s, 2.0)
    assert said == Foreseen(2.0, 0.0)
    assert len(control.history) == 122
