"""When the calendar's limits change for whoever has to have servers back in time."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.core.events import LendingLimited
from aryl.forecast.calendar import Calendar, Window
from aryl.forecast.limits import LOOK_AHEAD_S, LimitClock

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
EVERY_DAY = tuple(range(7))
# A Monday in UTC.
EPOCH_S = datetime(2026, 6, 1, tzinfo=UTC).timestamp()
NIGHTS = Calendar("UTC", (Window(22 * 60, 6 * 60 + 30, EVERY_DAY, 6),))


def clock(calendar: Calendar = NIGHTS, give_back_s: float = 0.0, speed: float = 1.0) -> LimitClock:
    """Cluster seconds begin on a Monday, and `speed` of them pass in a real one."""
    return LimitClock(
        calendar,
        give_back_s,
        lambda at_s: EPOCH_S + at_s / speed,
        lambda unix_s: (unix_s - EPOCH_S) * speed,
    )


def changes(limits: LimitClock, until_s: float) -> list[tuple[float, int | None]]:
    """The limit from 0 on, and what it becomes."""
    found, at_s = [], 0.0
    while at_s <= until_s:
        found.append((at_s, limits.at(at_s).most_servers))
        at_s = limits.next_change_s(at_s)
    return found


def test_the_limit_is_an_event_of_the_instant_at_which_it_is_asked_for() -> None:
    assert clock().at(5.0) == LendingLimited(5.0, 6)
    assert clock().at(12 * HOUR_S) == LendingLimited(12 * HOUR_S, 0)


def test_without_anything_to_give_back_it_changes_with_the_calendar() -> None:
    assert changes(clock(), DAY_S) == [(0.0, 6), (6.5 * HOUR_S, 0), (22 * HOUR_S, 6)]


def test_a_window_closes_earlier_by_what_giving_back_takes_and_opens_when_it_does() -> None:
    assert changes(clock(give_back_s=420.0), DAY_S) == [(0.0, 6), (6.5 * HOUR_S - 420.0, 0), (22 * HOUR_S, 6)]


def test_a_window_that_is_over_before_servers_could_be_back_never_opens() -> None:
    short = Calendar("UTC", (Window(12 * 60, 12 * 60 + 5, EVERY_DAY, 6),))
    assert changes(clock(short, give_back_s=299.0), DAY_S) == [
        (0.0, 0),
        (12 * HOUR_S, 6),
        (12 * HOUR_S + 1.0, 0),
    ]
    never = clock(short, give_back_s=301.0)
    assert {most for _, most in changes(never, 400 * DAY_S)} == {0}
    # Exactly as long: it would have to be called back at the instant at which it was lent.
    assert clock(short, give_back_s=300.0).at(12 * HOUR_S).most_servers == 0


def test_a_gap_that_is_shorter_than_giving_back_takes_begins_early_and_ends_when_it_is_over() -> None:
    two = Calendar("UTC", (Window(0, 720, EVERY_DAY, 4), Window(725, 24 * 60, EVERY_DAY, 2)))
    assert changes(clock(two, give_back_s=600.0), DAY_S) == [
        (0.0, 4),
        (12 * HOUR_S - 600.0, 0),
        (12 * HOUR_S + 300.0, 2),
        (24 * HOUR_S, 4),
    ]


def test_a_calendar_that_always_says_the_same_never_changes() -> None:
    always = Calendar("UTC", (Window(0, 24 * 60, EVERY_DAY, None),))
    assert clock(always).at(0.0) == LendingLimited(0.0, None)
    assert clock(always, give_back_s=1e6).next_change_s(0.0) == math.inf


def test_on_a_hurried_clock_giving_back_takes_cluster_seconds() -> None:
    """An hour passes in a real minute. So 420 s before the end are 7 s of real time."""
    hurried = clock(give_back_s=420.0, speed=60.0)
    closes_s = 60.0 * 6.5 * HOUR_S
    assert hurried.next_change_s(0.0) == pytest.approx(closes_s - 420.0, abs=1e-3)
    assert hurried.at(closes_s - 421.0).most_servers == 6
    assert hurried.at(closes_s - 419.0).most_servers == 0


def test_where_nothing_changes_for_weeks_it_is_asked_again_and_not_searched_for_until_the_end_of_days() -> (
    None
):
    yearly = Calendar("Europe/Berlin", (Window(120, 150, (6,), 6),))
    limits = clock(yearly, give_back_s=2 * HOUR_S)
    again_s = limits.next_change_s(0.0)
    assert LOOK_AHEAD_S <= again_s < LOOK_AHEAD_S + 7 * DAY_S
    assert limits.at(again_s).most_servers == limits.at(0.0).most_servers == 0


windows = st.builds(
    lambda start, length, days, most: Window(start, (start + length) % (24 * 60), tuple(sorted(days)), most),
    st.integers(0, 24 * 60 - 1),
    st.integers(1, 24 * 60 - 1),
    st.sets(st.integers(0, 6), min_size=1),
    st.none() | st.integers(0, 8),
)


@settings(max_examples=60)
@given(st.lists(windows, min_size=1, max_size=4), st.integers(0, 600), st.integers(0, 7 * 24 * 60))
def test_the_limit_is_the_tightest_of_all_minutes_in_reach_and_changes_when_that_does(
    drawn: list[Window], give_back_min: int, from_min: int
) -> None:
    """Against every minute looked at by itself; limits of these windows change on whole minutes."""
    calendar = Calendar("UTC", tuple(drawn), 1)
    limits = clock(calendar, give_back_s=60.0 * give_back_min)
    reach_min = 300
    by_minute = [
        calendar.most_lent(EPOCH_S + 60.0 * (from_min + minute))
        for minute in range(reach_min + give_back_min + 1)
    ]

    def tightest(minute: int) -> int | None:
        known = [most for most in by_minute[minute : minute + give_back_min + 1] if most is not None]
        return min(known, default=None)

    told = [limits.at(60.0 * (from_min + minute)).most_servers for minute in range(reach_min)]
    wanted = [tightest(minute) for minute in range(reach_min)]
    assert told == wanted
    others = [minute for minute, most in enumerate(wanted) if most != wanted[0]]
    at_s = limits.next_change_s(60.0 * from_min)
    if others:
        assert at_s == 60.0 * (from_min + others[0])
    else:
        assert at_s >= 60.0 * (from_min + reach_min)
