"""What a daemon that takes over tells of the inference side, after what the journal says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.live.desks import (
    ENDLESS_S,
    HOUR_S,
    ONE_MORE,
    after,
    foreseeing,
    heard,
    pushed_desk,
    taken_over,
    took,
)

from aryl.core.events import DemandReported, Event, LendingLimited, TelemetryLost
from aryl.core.model import Hosting
from aryl.forecast.control import HeadroomRule, QuantileHeadroom
from aryl.forecast.lead import GiveBack
from aryl.live.demand import Word


def test_a_side_that_spoke_a_moment_ago_is_not_missed_after_a_restart_until_its_word_is_old() -> None:
    spoken = [DemandReported(100.0, 2.0, 5.0, 3.0, (Hosting("I1", (1,)),))]
    desk = taken_over(pushed_desk(180.0), spoken)
    assert desk.due(100.0) == []  # the state has it
    assert desk.next_s() == 280.0
    assert desk.due(280.0) == [TelemetryLost(280.0)]
    # One that was lost stays so, and isn't told twice.
    desk = taken_over(pushed_desk(180.0), [*spoken, TelemetryLost(280.0)])
    assert desk.next_s() == ENDLESS_S
    assert desk.due(1e6) == []
    assert desk.told(Word(90.0, 9.0), 120.0) == []


def test_a_daemon_that_is_started_again_and_again_does_not_take_an_old_word_for_a_young_one() -> None:
    journal: list[Event] = [DemandReported(0.0, 2.0, 2.0)]
    for start_s in range(100, 1000, 100):
        desk = taken_over(pushed_desk(180.0), journal)
        journal += desk.due(float(start_s))
    assert journal == [DemandReported(0.0, 2.0, 2.0), TelemetryLost(200.0)]


def test_after_a_restart_the_forecast_is_made_anew_when_the_next_slot_begins() -> None:
    hosting = (Hosting("I1", (1,)),)
    desk = taken_over(pushed_desk(180.0, interval_s=60.0), [DemandReported(100.0, 2.0, 2.0, 0.0, hosting)])
    assert desk.due(119.0) == []
    assert desk.due(120.0) == [DemandReported(120.0, 2.0, 2.0, 0.0, hosting, 100.0)]
    late = after([DemandReported(100.0, 2.0, 2.0), LendingLimited(500.0, None)])
    desk = pushed_desk(1e4, interval_s=60.0)
    desk.take_over(late)
    assert desk.next_s() == 500.0
    # How old a word is doesn't depend on what else has happened since.
    desk = pushed_desk(410.0)
    desk.take_over(late)
    assert desk.due(510.0) == [TelemetryLost(510.0)]


hours = st.lists(st.integers(0, 8).map(float), min_size=30, max_size=80)


@given(hours, st.integers(1, 70), st.sampled_from([ONE_MORE, QuantileHeadroom(0.9, 2.0)]))
def test_a_restart_changes_nothing_of_what_is_told(
    needs: list[float], restart: int, headroom: HeadroomRule
) -> None:
    words = [(1800.0 * half, Word(1800.0 * half, need)) for half, need in enumerate(needs)]
    restart = min(restart, len(words) - 1)
    whole = heard(foreseeing(headroom=headroom), words)
    before = heard(foreseeing(headroom=headroom), words[:restart])
    desk = taken_over(foreseeing(headroom=headroom), before)
    then = heard(desk, words[restart:])
    assert {event.at: event for event in [*before, *then]} == {event.at: event for event in whole}


def test_a_restart_after_weeks_of_words_in_the_midst_of_slots_is_one_like_any_other() -> None:
    events = [DemandReported(1800.0 * half + 7.0, 2.0, 2.0) for half in range(2 * 24 * 16)]
    desk = taken_over(foreseeing(), events)
    now_s = events[-1].at + 60.0
    assert desk.told(Word(now_s, 3.0), now_s) == [DemandReported(now_s, 3.0, 3.0, 1.0)]


def test_after_a_restart_errors_count_over_the_time_that_giving_back_was_seen_to_take() -> None:
    """As if it had been known all the time."""
    needs = [float(hour % 24 % 7 + hour % 5) for hour in range(80)]
    words = [(hour * HOUR_S, Word(hour * HOUR_S, need)) for hour, need in enumerate(needs)]
    rule = QuantileHeadroom(0.9, 0.0)
    seen, known = GiveBack(HOUR_S), GiveBack(2 * HOUR_S)
    desk = foreseeing(seen, headroom=rule)
    journal = heard(foreseeing(headroom=rule), words[:70])
    took(seen, 2 * HOUR_S)
    taken_over(desk, journal)
    assert heard(desk, words[70:]) == heard(taken_over(foreseeing(known, headroom=rule), journal), words[70:])


def test_a_report_made_of_an_old_word_says_how_old_it_was_to_the_next_daemon() -> None:
    desk = taken_over(pushed_desk(180.0, interval_s=60.0), [DemandReported(0.0, 2.0, 2.0)])
    journal = [DemandReported(0.0, 2.0, 2.0), *desk.due(60.0), *desk.due(120.0)]
    assert [event.measured_s for event in journal if isinstance(event, DemandReported)] == [None, 0.0, 0.0]
    again = taken_over(pushed_desk(180.0, interval_s=60.0), journal)
    assert again.next_s() <= 180.0
    assert again.due(180.0) == [TelemetryLost(180.0)]
