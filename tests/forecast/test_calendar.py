"""What may be lent at which hours, against a walk along the clock on the wall, minute by minute."""

from __future__ import annotations

import bisect
import functools
import math
import pickle
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aryl.files.calendar_fields import CalendarSection
from aryl.files.yaml_source import YamlSource
from aryl.forecast.calendar import DAY_S, MOST_CHUNKS, Calendar, Window, calendar_of

EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)
NIGHTS = {"from": "22:00", "to": "06:30", "max_lent": 6}
# Nights with a change, and what is special about it.
CHANGES = [
    ("Europe/Berlin", date(2026, 3, 29)),  # 02:00 to 03:00
    ("Europe/Berlin", date(2026, 10, 25)),  # 03:00 to 02:00
    ("Australia/Sydney", date(2026, 4, 5)),  # the southern half goes back in April
    ("Australia/Sydney", date(2026, 10, 4)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),  # half an hour
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("America/Asuncion", date(2024, 3, 24)),  # 24:00 to 23:00
    ("America/Asuncion", date(2023, 10, 1)),  # 00:00 to 01:00
    ("Africa/Cairo", date(2026, 4, 24)),  # 00:00 to 01:00
    ("Africa/Cairo", date(2026, 10, 30)),  # 24:00 to 23:00
    ("America/Havana", date(2026, 11, 1)),  # 01:00 to 00:00: midnight comes twice
    ("America/St_Johns", date(2006, 10, 29)),  # 00:01 to 23:01 of the day before
    ("Antarctica/Troll", date(2026, 3, 29)),  # two hours
    ("Antarctica/Troll", date(2026, 10, 25)),
    ("Pacific/Chatham", date(2026, 4, 5)),  # 03:45 to 02:45
    ("Pacific/Apia", date(2011, 12, 30)),  # there was no such day
    ("Asia/Tokyo", date(2026, 3, 29)),  # no change
]

minutes = st.integers(0, 1439) | st.sampled_from([0, 1, 60, 90, 105, 120, 121, 150, 165, 180, 1380, 1410])
limits = st.none() | st.integers(0, 4)
windows = st.builds(
    lambda begin, length, days, most: Window(begin, (begin + length) % 1440, tuple(days), most),
    minutes,
    st.integers(1, 1439) | st.sampled_from([20, 60, 1380]),
    st.lists(st.sampled_from(EVERY_DAY), min_size=1, unique=True) | st.just(list(EVERY_DAY)),
    limits,
) | st.builds(
    lambda days, most: Window(0, 1440, tuple(days), most), st.sets(st.sampled_from(EVERY_DAY)), limits
)


def calendar(*rules: Mapping[str, object], zone: str = "Europe/Berlin", otherwise: object = 0) -> Calendar:
    written = {"zone": zone, "windows": list(rules), "otherwise": otherwise}
    return calendar_of(YamlSource(written).validate(CalendarSection))


def at(text: str) -> float:
    """An instant, with its distance from UTC."""
    return datetime.fromisoformat(text).timestamp()


def changes(rules: Calendar, after: str, until: str) -> list[tuple[str, int | None]]:
    """Every change of the limit within a span, in UTC."""
    found = []
    unix_s = rules.next_change(at(after))
    while unix_s <= at(until):
        found.append((datetime.fromtimestamp(unix_s, UTC).strftime("%d %H:%M"), rules.most_lent(unix_s)))
        unix_s = rules.next_change(unix_s)
    return found


def ranked(limit: int | None) -> float:
    return math.inf if limit is None else limit


def by_the_wall(rules: Calendar, local: datetime) -> float:
    """The limit at a local time, window by window."""
    minute = local.weekday() * 1440 + local.hour * 60 + local.minute
    allowed = [
        ranked(window.most_lent)
        for window in rules.windows
        for day in window.days
        if (minute - day * 1440 - window.from_min) % 10080
        < window.to_min - window.from_min + (0 if window.to_min > window.from_min else 1440)
    ]
    return max(allowed, default=ranked(rules.otherwise))


@functools.cache
def walk_around(zone: str, day: date) -> Walk:
    return Walk(zone, day)


class Walk:
    """The clock on the wall at every minute of some days around a date, and where it jumps."""

    def __init__(self, zone: str, day: date, days: int = 2) -> None:
        midday = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
        self.start_s = (midday - timedelta(days=days)).timestamp()
        self.count = 2 * days * 1440
        place = ZoneInfo(zone)
        self.walls = [
            datetime.fromtimestamp(self.start_s + 60 * n, place).replace(tzinfo=None, fold=0)
            for n in range(self.count)
        ]
        self.shown: dict[datetime, list[int]] = {}
        for n, wall in enumerate(self.walls):
            self.shown.setdefault(wall, []).append(n)

    def readings(self, local: datetime) -> tuple[int, int]:
        """The first and the last minute of the walk that a local time can stand for."""
        if local in self.shown:
            return self.shown[local][0], self.shown[local][-1]
        jump = next(n for n in range(1, self.count) if self.walls[n - 1] < local < self.walls[n])
        by_the_old_clock = jump - 1 + round((local - self.walls[jump - 1]).total_seconds() / 60)
        by_the_new_clock = jump - round((self.walls[jump] - local).total_seconds() / 60)
        return by_the_new_clock, by_the_old_clock

    def limits(self, rules: Calendar) -> list[float]:
        """The least at each minute of all stretches of local time that may be in force."""
        first, last = min(self.walls), max(self.walls)
        span = round((last - first).total_seconds() / 60) + 1
        local = [first + timedelta(minutes=n) for n in range(span)]
        wanted = [by_the_wall(rules, wall) for wall in local]
        begins = [0, *(n for n in range(1, span) if wanted[n] != wanted[n - 1])]
        least = [math.inf] * self.count
        for begin, end in zip(begins, [*begins[1:], span], strict=True):
            earliest = self.readings(local[begin])[0] if begin else 0
            latest = self.readings(local[end])[1] if end < span else self.count
            for n in range(earliest, latest):
                least[n] = min(least[n], wanted[begin])
        return least


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(CHANGES), st.lists(windows, min_size=1, max_size=4), limits)
@example(CHANGES[10], [Window(0, 1440, (5,), 2), Window(0, 1440, (6,), 3)], 0)
@example(CHANGES[1], [Window(120, 150, EVERY_DAY, 2), Window(140, 200, EVERY_DAY, 1)], None)
def test_on_nights_with_a_change_the_reading_counts_that_lends_less(
    change: tuple[str, date], rules: list[Window], otherwise: int | None
) -> None:
    calendar = Calendar(change[0], tuple(rules), otherwise)
    walk = walk_around(*change)
    expected = walk.limits(calendar)
    instants = [walk.start_s + 60 * n for n in range(walk.count)]
    assert [ranked(calendar.most_lent(unix_s)) for unix_s in instants] == expected
    for wall, limit in zip(walk.walls, expected, strict=True):
        assert limit <= by_the_wall(calendar, wall)

    turns = [n for n in range(1, walk.count) if expected[n] != expected[n - 1]]
    for n in [0, *turns, *(turn - 1 for turn in turns), *range(7, walk.count, 501)]:
        later = [instants[turn] for turn in turns if turn > n]
        found = calendar.next_change(instants[n])
        assert found == later[0] if later else found > instants[-1]
        for minutes_on in (0, 1, 20, 600):
            until = min(n + minutes_on, walk.count - 1)
            least = min(expected[n : until + 1])
            assert ranked(calendar.tightest(instants[n], instants[until])) == least


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted({zone for zone, _ in CHANGES})),
    st.lists(windows, min_size=1, max_size=3),
    st.floats(-2e9, 8e9),
)
def test_far_away_in_time_the_limit_follows_the_wall_and_holds_until_the_next_change(
    zone: str, rules: list[Window], unix_s: float
) -> None:
    calendar = Calendar(zone, tuple(rules))
    place = ZoneInfo(zone)
    for _ in range(4):
        limit = calendar.most_lent(unix_s)
        day = datetime.fromtimestamp(unix_s, place)
        offsets = {(day + timedelta(hours=hours)).utcoffset() for hours in range(-49, 50)}
        if len(offsets) == 1:
            assert ranked(limit) == by_the_wall(calendar, day.replace(tzinfo=None))
        found = calendar.next_change(unix_s)
        if found == math.inf:
            break
        assert unix_s < found <= unix_s + 17 * DAY_S
        assert calendar.most_lent(math.nextafter(found, -math.inf)) == limit != calendar.most_lent(found)
        unix_s = found


def test_an_ordinary_night_lends_from_ten_until_half_past_six() -> None:
    rules = calendar(NIGHTS)
    assert changes(rules, "2026-06-10T12:00+02:00", "2026-06-11T12:00+02:00") == [
        ("10 20:00", 6),
        ("11 04:30", 0),
    ]
    assert rules.most_lent(at("2026-06-11T06:29:59.999+02:00")) == 6
    assert rules.most_lent(at("2026-06-11T06:30+02:00")) == 0


def test_both_nights_on_which_the_clock_changes_end_at_half_past_six_too() -> None:
    rules = calendar(NIGHTS)
    spring = changes(rules, "2026-03-28T12:00+01:00", "2026-03-29T12:00+02:00")
    assert spring == [("28 21:00", 6), ("29 04:30", 0)]  # seven and a half hours
    autumn = changes(rules, "2026-10-24T12:00+02:00", "2026-10-25T12:00+01:00")
    assert autumn == [("24 20:00", 6), ("25 05:30", 0)]  # nine and a half hours


def test_with_the_way_home_ahead_servers_are_back_before_a_window_closes() -> None:
    rules, lead_s = calendar(NIGHTS), 900.0
    for close in ("2026-03-29T06:30+02:00", "2026-10-25T06:30+01:00", "2026-06-11T06:30+02:00"):
        close_s = at(close)
        assert rules.tightest(close_s - lead_s - 1.0, close_s - 1.0) == 6
        assert rules.tightest(close_s - lead_s, close_s) == 0
    opens_s = at("2026-06-11T22:00+02:00")
    assert rules.tightest(opens_s - 1.0, opens_s + lead_s) == 0
    assert rules.tightest(opens_s, opens_s + lead_s) == 6


def test_a_time_that_is_skipped_or_comes_twice_is_read_so_that_less_is_lent() -> None:
    until, since = {"from": "20:00", "to": "02:30"}, {"from": "02:30", "to": "09:00"}
    spring = ("2026-03-29T00:00+01:00", "2026-03-29T07:00+02:00")
    autumn = ("2026-10-25T00:00+02:00", "2026-10-25T07:00+01:00")
    assert changes(calendar(until), *spring) == [("29 00:30", 0)]
    assert changes(calendar(since), *spring) == [("29 01:30", None)]
    assert changes(calendar(until), *autumn) == [("25 00:30", 0)]
    assert changes(calendar(since), *autumn) == [("25 01:30", None)]


def test_windows_that_meet_at_such_a_time_leave_no_hole() -> None:
    meeting = calendar(
        {"from": "20:00", "to": "02:30", "max_lent": 3}, {"from": "02:30", "to": "09:00", "max_lent": 3}
    )
    assert changes(meeting, "2026-10-25T00:00+02:00", "2026-10-25T07:00+01:00") == []
    assert changes(meeting, "2026-03-29T00:00+01:00", "2026-03-29T07:00+02:00") == []


def test_a_window_between_two_times_that_come_twice_is_left_out_in_that_night() -> None:
    short = calendar({"from": "02:10", "to": "02:50"})
    assert changes(short, "2026-10-24T00:00+02:00", "2026-10-27T00:00+01:00") == [
        ("24 00:10", None),
        ("24 00:50", 0),
        ("26 01:10", None),
        ("26 01:50", 0),
    ]


def test_days_are_those_on_which_a_window_begins() -> None:
    rules = calendar({"from": "22:00", "to": "06:00", "days": ["sun", "fri"], "max_lent": 2}, zone="UTC")
    assert changes(rules, "2026-06-03T00:00Z", "2026-06-10T00:00Z") == [
        ("05 22:00", 2),  # a Friday
        ("06 06:00", 0),
        ("07 22:00", 2),
        ("08 06:00", 0),
    ]


def test_where_windows_overlap_the_one_that_allows_most_counts() -> None:
    rules = calendar(
        {"from": "00:00", "to": "10:00", "max_lent": 2},
        {"from": "02:00", "to": "08:00", "max_lent": 5},
        {"from": "04:00", "to": "05:00"},
        {"from": "06:00", "to": "12:00", "max_lent": 1},
        zone="UTC",
        otherwise=3,  # outside of all windows only
    )
    assert changes(rules, "2026-06-02T23:00Z", "2026-06-03T23:00Z") == [
        ("03 00:00", 2),
        ("03 02:00", 5),
        ("03 04:00", None),
        ("03 05:00", 5),
        ("03 08:00", 2),
        ("03 10:00", 1),
        ("03 12:00", 3),
    ]


def test_whole_days_are_lent_through_midnight_and_through_both_changes() -> None:
    weekend = {"from": "00:00", "to": "24:00", "days": ["sat", "sun"], "max_lent": 8}
    assert changes(calendar(weekend), "2026-10-21T00:00+02:00", "2026-10-28T00:00+01:00") == [
        ("23 22:00", 8),
        ("25 23:00", 0),
    ]
    havana = calendar(weekend, zone="America/Havana")
    assert changes(havana, "2026-10-28T00:00Z", "2026-11-04T00:00Z") == [("31 04:00", 8), ("02 05:00", 0)]


def test_a_calendar_that_always_allows_the_same_never_changes() -> None:
    always = calendar({"from": "00:00", "to": "24:00", "max_lent": 4})
    halves = calendar({"from": "00:00", "to": "12:00"}, {"from": "12:00", "to": "24:00"})
    same = calendar({"from": "01:00", "to": "02:00", "max_lent": 0})
    free = calendar({"from": "01:00", "to": "02:00", "max_lent": "all"}, otherwise="all")
    for rules, limit in ((always, 4), (halves, None), (same, 0), (free, None)):
        assert rules.next_change(0.0) == math.inf
        assert (rules.most_lent(0.0), rules.tightest(0.0, 1e12)) == (limit, limit)


def test_a_long_span_is_as_tight_as_the_whole_week() -> None:
    rules = calendar({"from": "00:00", "to": "24:00", "days": ["mon"], "max_lent": 1}, otherwise="all")
    tuesday_s = at("2026-06-09T00:00+02:00")
    assert rules.tightest(tuesday_s, tuesday_s + 6 * DAY_S - 1.0) is None
    assert rules.tightest(tuesday_s, tuesday_s + 6 * DAY_S) == 1
    assert rules.tightest(tuesday_s, math.inf) == 1


def test_beyond_all_dates_nothing_is_lent_by_a_window_and_nothing_changes() -> None:
    rules = calendar(NIGHTS)
    for unix_s in (1e15, math.inf):
        assert (rules.most_lent(unix_s), rules.next_change(unix_s)) == (0, math.inf)
    assert (rules.most_lent(-1e15), rules.tightest(-math.inf, 1e15)) == (0, 0)
    assert rules.next_change(-1e15) < at("0200-01-01T00:00Z")


def test_years_of_changes_are_found_one_after_the_other_however_they_are_asked_for() -> None:
    rules, fresh = calendar(NIGHTS), calendar(NIGHTS)
    unix_s, found = at("2020-01-01T12:00Z"), []
    while unix_s < at("2036-01-01T12:00Z"):
        unix_s = rules.next_change(unix_s)
        found.append(unix_s)
    assert len(found) == 2 * 5844 + 1
    assert len(rules._known) <= MOST_CHUNKS  # a year has thirteen
    assert all(
        fresh.next_change(before) == after for before, after in zip(found[-2::-9], found[:0:-9], strict=True)
    )
    assert bisect.bisect(found, at("2030-03-31T06:30+02:00")) % 2 == 0


def test_calendars_are_equal_by_their_rules_and_travel_between_processes() -> None:
    rules = calendar(NIGHTS)
    rules.most_lent(0.0)
    other = pickle.loads(pickle.dumps(rules))
    assert other == rules == calendar(NIGHTS)
    assert hash(other) == hash(calendar(NIGHTS))
    assert other.next_change(0.0) == rules.next_change(0.0)
    assert rules != calendar(NIGHTS, otherwise=1)


def test_a_zone_that_this_machine_does_not_know_is_refused() -> None:
    with pytest.raises(ZoneInfoNotFoundError, match="Europe/Nowhere"):
        Calendar("Europe/Nowhere", ())
