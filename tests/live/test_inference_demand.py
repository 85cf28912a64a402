"""What the loop is told of the inference side: its own words, a curve, silence, and the calendar's limits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.live.desks import DAY_S, ENDLESS_S, HOUR_S, foreseeing, pushed_desk, taken_over, took

from aryl.core.events import (
    DemandReported,
    LendingLimited,
    TelemetryLost,
)
from aryl.core.model import Hosting
from aryl.forecast.calendar import Calendar, Window
from aryl.forecast.control import LoanControl, LoanRules
from aryl.forecast.lead import GiveBack
from aryl.forecast.limits import LimitClock
from aryl.forecast.plain import Last
from aryl.forecast.predictor import Spread
from aryl.live.demand import InferenceDesk, Replay, ReplayedNeed, Word
from aryl.traces.need import Need

MIDNIGHT_S = datetime(2026, 6, 1, tzinfo=UTC).timestamp()
# Up to 6 from midnight until 06:30, none by day.
NIGHTS = Calendar("UTC", (Window(0, 6 * 60 + 30, tuple(range(7)), 6),))


def limit_clock(calendar: Calendar = NIGHTS) -> LimitClock:
    """Cluster seconds begin at midnight."""
    return LimitClock(calendar, 0.0, lambda at_s: MIDNIGHT_S + at_s, lambda unix_s: unix_s - MIDNIGHT_S)


def replayed(*, line: bool = False, oracle_lead_s: float | None = None, **more: Any) -> InferenceDesk:
    """Two servers, four from 100 s on, one from 200 s on; told every 60 s."""
    need = Need(np.array([0.0, 100.0, 200.0]), np.array([2.0, 4.0, 1.0]), line=line)
    control = LoanControl(LoanRules(60.0, settle_s=0.0), Spread(Last()))
    replay: Replay = ReplayedNeed(need, oracle_lead_s)
    return InferenceDesk(control, GiveBack(0.0), stale_after_s=90.0, replay=replay, **more)


# -- words and silence --------------------------------------------------------------------------------------


def test_a_side_that_never_said_a_word_is_not_missed() -> None:
    desk = pushed_desk(10.0)
    assert desk.next_s() == ENDLESS_S
    assert desk.due(1e9) == []


def test_a_word_is_told_with_what_it_says_and_what_it_leaves_out_is_made() -> None:
    hosting = (Hosting("I1", (1, 2)),)
    desk = foreseeing()
    assert desk.told(Word(0.0, 3.0), 0.0) == [DemandReported(0.0, 3.0, 3.0, 1.0)]
    whole = Word(5.0, 3.0, 5.0, 0.5, hosting)
    assert desk.told(whole, 9.0) == [DemandReported(9.0, 3.0, 5.0, 0.5, hosting, 5.0)]


def test_a_side_that_falls_silent_is_lost_from_sight_once_and_found_when_it_speaks() -> None:
    desk = pushed_desk(10.0)
    assert desk.told(Word(5.0, 1.0), 5.0) == [DemandReported(5.0, 1.0, 1.0, 0.0)]
    assert desk.next_s() == 15.0
    assert desk.due(14.999) == []
    assert desk.due(15.0) == [TelemetryLost(15.0)]
    assert desk.next_s() == ENDLESS_S
    assert desk.due(1000.0) == []
    assert desk.told(Word(1000.0, 2.0), 1000.0) == [DemandReported(1000.0, 2.0, 2.0, 0.0)]
    assert desk.due(1009.0) == []
    assert desk.due(1011.0) == [TelemetryLost(1011.0)]


def test_what_counts_is_when_it_was_measured_and_not_when_it_was_heard() -> None:
    desk = pushed_desk(10.0)
    assert desk.told(Word(0.0, 1.0), 9.0) == [DemandReported(9.0, 1.0, 1.0, 0.0, (), 0.0)]
    assert desk.next_s() == 10.0
    assert desk.due(10.0) == [TelemetryLost(10.0)]


def test_a_word_that_is_too_old_counts_for_nothing() -> None:
    desk = pushed_desk(10.0)
    assert desk.told(Word(0.0, 1.0), 10.0) == []
    assert desk.next_s() == ENDLESS_S
    assert desk.told(Word(0.0, 1.0), 9.9) != []
    assert desk.due(10.0) == [TelemetryLost(10.0)]
    # Nor does it bring the side back into sight.
    assert desk.told(Word(5.0, 1.0), 15.0) == []
    assert desk.next_s() == ENDLESS_S


def test_a_word_that_is_older_than_the_last_counts_for_nothing() -> None:
    desk = pushed_desk(10.0)
    desk.told(Word(5.0, 1.0), 6.0)
    assert desk.told(Word(4.9, 8.0), 6.0) == []
    assert desk.next_s() == 15.0
    # One of the same instant may be put right.
    assert desk.told(Word(5.0, 2.0), 7.0) == [DemandReported(7.0, 2.0, 2.0, 0.0, (), 5.0)]


def test_the_forecast_is_made_anew_whenever_a_slot_begins_while_the_word_is_fresh() -> None:
    desk = pushed_desk(150.0, interval_s=60.0)
    hosting = (Hosting("I1", (1,)),)
    desk.told(Word(0.0, 3.0, 4.0, 2.0, hosting), 10.0)
    assert desk.next_s() == 60.0
    assert desk.due(59.0) == []
    assert desk.due(60.0) == [DemandReported(60.0, 3.0, 4.0, 2.0, hosting, 0.0)]
    # A word in between changes what is told, but not when.
    desk.told(Word(75.0, 5.0), 75.0)
    assert desk.next_s() == 120.0
    assert desk.due(133.0) == [DemandReported(133.0, 5.0, 5.0, 0.0, (), 75.0)]
    assert desk.due(193.0) == [DemandReported(193.0, 5.0, 5.0, 0.0, (), 75.0)]
    # What is told by itself makes no word younger.
    assert desk.next_s() == 225.0
    assert desk.due(225.0) == [TelemetryLost(225.0)]
    desk.told(Word(300.0, 5.0), 300.0)
    assert desk.next_s() == 360.0


def test_a_need_that_comes_every_morning_is_foreseen_without_a_word() -> None:
    """One word a day: the desk goes on by itself, and looks up yesterday's hours."""
    desk = foreseeing(stale_after_s=2 * DAY_S)
    for hour in range(25):
        desk.told(Word(hour * HOUR_S, 8.0 if hour % 24 == 9 else 2.0), hour * HOUR_S)
        desk.due(hour * HOUR_S)
    told = {}
    while desk.next_s() <= 36 * HOUR_S:
        at_s = desk.next_s()
        (report,) = desk.due(at_s)
        assert isinstance(report, DemandReported)
        told[at_s / HOUR_S - 24] = report.forecast_servers
    # An hour ahead, and no longer than two hours after it was over.
    assert {told[hour] for hour in range(1, 8)} == {2.0}
    assert (told[8], told[9], told[12]) == (8.0, 8.0, 2.0)


# -- curves -------------------------------------------------------------------------------------------------


def test_a_curve_speaks_once_a_tick_and_is_never_lost() -> None:
    desk = replayed()
    assert desk.next_s() == 0.0
    assert desk.due(0.0) == [DemandReported(0.0, 2.0, 2.0, 0.0)]
    assert desk.next_s() == 60.0
    assert desk.due(59.0) == []
    assert desk.due(120.0) == [DemandReported(120.0, 4.0, 4.0, 0.0)]
    # What was slept through isn't made up for.
    assert desk.next_s() == 180.0
    assert desk.due(9000.0) == [DemandReported(9000.0, 1.0, 1.0, 0.0)]


def test_an_oracle_knows_the_highest_need_that_comes_in_time() -> None:
    desk = replayed(oracle_lead_s=50.0)
    assert desk.due(0.0) == [DemandReported(0.0, 2.0, 2.0, 0.0)]
    assert desk.due(60.0) == [DemandReported(60.0, 2.0, 4.0, 0.0)]
    assert desk.due(180.0) == [DemandReported(180.0, 4.0, 4.0, 0.0)]
    assert desk.due(240.0) == [DemandReported(240.0, 1.0, 1.0, 0.0)]


def test_between_points_there_may_be_straight_lines() -> None:
    desk = replayed(line=True)
    assert desk.due(50.0) == [DemandReported(50.0, 3.0, 3.0, 0.0)]
    assert desk.due(1e6) == [DemandReported(1e6, 1.0, 1.0, 0.0)]


def test_what_is_said_meanwhile_does_not_move_the_curve() -> None:
    desk = replayed()
    desk.due(0.0)
    assert desk.told(Word(10.0, 7.0), 10.0) == [DemandReported(10.0, 7.0, 7.0, 0.0)]
    assert desk.next_s() == 60.0
    assert desk.due(60.0) == [DemandReported(60.0, 2.0, 2.0, 0.0)]


def test_a_curve_goes_on_at_once_after_a_restart() -> None:
    desk = taken_over(replayed(), [DemandReported(30.0, 2.0, 2.0), TelemetryLost(110.0)])
    assert desk.next_s() <= 110.0
    assert desk.due(110.0) == [DemandReported(110.0, 4.0, 4.0, 0.0)]


# -- limits -------------------------------------------------------------------------------------------------


def test_the_calendars_limit_is_told_at_the_start_and_whenever_it_changes() -> None:
    desk = pushed_desk(10.0, limits=limit_clock())
    assert desk.due(0.0) == [LendingLimited(0.0, 6)]
    assert desk.next_s() == 6.5 * HOUR_S
    assert desk.due(6.5 * HOUR_S - 1.0) == []
    assert desk.due(6.5 * HOUR_S) == [LendingLimited(6.5 * HOUR_S, 0)]
    assert desk.next_s() == DAY_S
    assert desk.due(DAY_S) == [LendingLimited(DAY_S, 6)]


def test_limits_are_told_while_nothing_is_heard_and_before_what_is_said_at_the_same_time() -> None:
    desk = pushed_desk(10.0, limits=limit_clock())
    desk.told(Word(1.0, 1.0), 1.0)
    assert desk.due(11.0) == [LendingLimited(11.0, 6), TelemetryLost(11.0)]
    assert desk.due(6.5 * HOUR_S) == [LendingLimited(6.5 * HOUR_S, 0)]
    desk = replayed(limits=limit_clock())
    assert desk.due(0.0) == [LendingLimited(0.0, 6), DemandReported(0.0, 2.0, 2.0, 0.0)]


def test_servers_are_called_back_as_long_before_a_window_closes_as_giving_back_takes() -> None:
    desk = pushed_desk(10.0, limits=limit_clock(), give_back=GiveBack(420.0))
    desk.due(0.0)
    assert desk.next_s() == 6.5 * HOUR_S - 420.0
    assert desk.due(6.5 * HOUR_S - 420.0) == [LendingLimited(6.5 * HOUR_S - 420.0, 0)]


def test_the_limit_is_worked_out_anew_when_giving_back_is_seen_to_take_longer() -> None:
    give_back = GiveBack(60.0)
    desk = pushed_desk(limits=limit_clock(), give_back=give_back)
    assert desk.due(5 * HOUR_S) == [LendingLimited(5 * HOUR_S, 6)]
    assert desk.next_s() == 6.5 * HOUR_S - 60.0
    took(give_back, 1200.0)
    assert desk.due(5 * HOUR_S + 1.0) == []
    assert desk.next_s() == 6.5 * HOUR_S - 1200.0
    # It is told at once if the time for it is over already.
    took(give_back, 3600.0)
    assert desk.due(6 * HOUR_S) == [LendingLimited(6 * HOUR_S, 0)]
    assert desk.next_s() == DAY_S


def test_a_calendar_that_was_taken_out_of_the_configuration_is_lifted_once() -> None:
    desk = taken_over(pushed_desk(), [LendingLimited(10.0, 0)])
    assert desk.next_s() <= 10.0
    assert desk.due(12.0) == [LendingLimited(12.0, None)]
    assert desk.due(13.0) == []
    assert desk.next_s() == ENDLESS_S
    assert taken_over(pushed_desk(), [LendingLimited(10.0, None)]).due(12.0) == []


def test_a_calendar_that_stays_is_told_again_after_a_restart() -> None:
    desk = taken_over(pushed_desk(limits=limit_clock()), [LendingLimited(10.0, 0)])
    assert desk.due(HOUR_S) == [LendingLimited(HOUR_S, 6)]


# -- longer lead --------------------------------------------------------------------------------------------


def test_what_giving_back_takes_is_looked_ahead() -> None:
    give_back = GiveBack(HOUR_S)
    desk = foreseeing(give_back)
    for hour in range(24):
        desk.told(Word(hour * HOUR_S, 8.0 if hour == 5 else 2.0), hour * HOUR_S)
    assert desk.told(Word(26 * HOUR_S, 2.0), 26 * HOUR_S) == [DemandReported(26 * HOUR_S, 2.0, 2.0, 1.0)]
    took(give_back, 2 * HOUR_S)
    assert desk.told(Word(27 * HOUR_S, 2.0), 27 * HOUR_S) == [DemandReported(27 * HOUR_S, 2.0, 8.0, 1.0)]


# -- whatever is said ---------------------------------------------------------------------------------------

gaps = st.floats(0.0, 90.0)
speech = st.tuples(gaps, st.none() | st.tuples(gaps, st.floats(0.0, 8.0), st.none() | st.floats(0.0, 8.0)))


@given(st.lists(speech, max_size=40), st.sampled_from([20.0, 60.0, 300.0]), st.booleans())
def test_whatever_is_said_the_loop_is_told_what_holds(
    said: list[tuple[float, tuple[float, float, float | None] | None]], interval_s: float, limited: bool
) -> None:
    """Time goes on by a gap, whatever is due is told; then somebody may say what was measured a while ago."""
    stale_s = 60.0
    desk = pushed_desk(stale_s, interval_s, limits=limit_clock() if limited else None)
    now_s, newest_s, lost = 0.0, -ENDLESS_S, False
    for gap_s, spoken in said:
        now_s += gap_s
        for event in desk.due(now_s):
            assert event.at == now_s
            match event:
                case TelemetryLost():
                    assert now_s - newest_s >= stale_s
                    assert not lost
                    lost = True
                case DemandReported():
                    assert now_s - newest_s < stale_s
                    assert not lost
                    assert event.forecast_servers >= event.need_servers
                case _:
                    assert isinstance(event, LendingLimited)
        assert lost == (now_s - newest_s >= stale_s and newest_s > -ENDLESS_S)
        assert desk.due(now_s) == []
        assert desk.next_s() > now_s
        if spoken is not None:
            age_s, need, forecast = spoken
            measured_s = now_s - age_s
            counts = age_s < stale_s and measured_s >= newest_s
            told = desk.told(Word(measured_s, need, forecast), now_s)
            assert len(told) == counts
            for event in told:
                assert isinstance(event, DemandReported)
                assert (event.at, event.need_servers) == (now_s, need)
                assert event.forecast_servers >= max(need, forecast or 0.0)
            if counts:
                newest_s, lost = measured_s, False
            assert desk.next_s() >= now_s


@given(st.lists(st.floats(0.1, 9.9), min_size=1))
def test_whoever_speaks_often_enough_is_never_lost(between: list[float]) -> None:
    desk, now_s = pushed_desk(10.0), 0.0
    desk.told(Word(now_s, 1.0), now_s)
    for gap_s in between:
        now_s += gap_s
        assert not any(isinstance(event, TelemetryLost) for event in desk.due(now_s))
        desk.told(Word(now_s, 1.0), now_s)
    assert desk.next_s() <= now_s + 10.0
