"""Calendar rules: how many servers may be on loan at which hours, right on the nights when clocks change.

Rules are given in local time: every window comes again on its days of the week. Together they say for each
local time how many servers may be lent, and that changes at some local times of the week. An instant follows
from a local time by the zone's rules. Where a local time occurs twice (clocks go back) or not at all (clocks
go forward: then it can be counted from the time before the change or from the time after it, which gives two
instants), *the reading counts that lends less*:

* a rise of the limit happens at the later reading, a fall at the earlier one. So a window begins at the later
  and ends at the earlier one. In Europe/Berlin a window until 02:30 ends in March at 01:30 by the old clock,
  and in October at the first 02:30; one from 02:30 begins in March at 03:30 by the new clock, and in October
  at the second 02:30. Of a window that lies between two such times nothing is left in that night;
* the lower limit between two higher ones lasts from the earlier reading of its begin to the later one of its
  end;
* nothing changes between windows that allow the same and follow each other without a gap in local time,
  even if they do so at such a time: no server comes home for that.

All times are unix seconds. Nothing here asks for the time. The same questions have the same answers as long
as the data of the time zones, which belong to the machine, are the same.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from aryl.files.calendar_fields import DAY_MIN, DAYS, CalendarSection

WEEK_MIN = 7 * DAY_MIN
DAY_S = 86_400.0
# Limits are worked out for this long at a time: short enough for a simulation of an hour to pay little.
CHUNK_S = 28 * DAY_S
# An instant and its local time, both as if in UTC, are never as far apart, nor are two readings of a time.
MARGIN_S = 3 * DAY_S
# Any stretch of this length sees every hour of the week, even in a week in which a zone skips a day.
WHOLE_WEEK_S = 9 * DAY_S
# Within these years, 100 to 9000, dates can be computed with. Outside of them nothing is lent by a window.
FIRST_CHUNK, LAST_CHUNK = -24_000, 91_000
MOST_CHUNKS = 64
EPOCH = datetime(1970, 1, 1)
EPOCH_WEEKDAY = EPOCH.weekday()


@dataclass(frozen=True, slots=True)
class Window:
    """From one minute of the day until another, not after it on the next day; half open.

    `days` are those on which it begins, Monday is 0. `most_lent` None: no limit.
    """

    from_min: int
    to_min: int
    days: tuple[int, ...]
    most_lent: int | None

    @property
    def length_min(self) -> int:
        """How long it lasts by the clock on the wall: up to a whole day."""
        return (self.to_min - self.from_min) % DAY_MIN or DAY_MIN


# From which minute of the week on which limit is in force, ascending from 0; inf: no limit.
_Week = tuple[tuple[int, float], ...]
# From which instant on which limit is in force.
_Stretches = tuple[list[float], list[float]]


@dataclass(frozen=True, slots=True)
class Calendar:
    """How many servers may be on loan at any instant; see the module. None is no limit.

    `otherwise` holds outside of all windows; where windows overlap, the one that allows most counts. Raises
    `ZoneInfoNotFoundError` for a zone that the machine doesn't know.
    """

    zone: str
    windows: tuple[Window, ...]
    otherwise: int | None = 0
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)
    _week: _Week = field(init=False, repr=False, compare=False)
    _known: dict[int, _Stretches] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_zone", ZoneInfo(self.zone))
        object.__setattr__(self, "_week", _week(self.windows, _as_number(self.otherwise)))

    def most_lent(self, unix_s: float) -> int | None:
        """How many servers may be on loan at this instant; None: no limit."""
        return _as_limit(self._limit_at(unix_s))

    def tightest(self, from_unix_s: float, until_unix_s: float) -> int | None:
        """The smallest limit in force at an instant of the span, both ends included.

        Asked until as long ahead as servers take to come home, it has them home when a window closes.
        `until_unix_s` is not before `from_unix_s`.
        """
        if until_unix_s - from_unix_s >= WHOLE_WEEK_S:
            return _as_limit(self._least)
        least = self._limit_at(from_unix_s)
        for start_s, limit in self._starts_after(from_unix_s):
            if start_s > until_unix_s:
                break
            least = min(least, limit)
        return _as_limit(least)

    def next_change(self, after_unix_s: float) -> float:
        """The first instant after this one at which `most_lent` is another number; inf if there is none."""
        limit = self._limit_at(after_unix_s)
        changes = (start_s for start_s, other in self._starts_after(after_unix_s) if other != limit)
        return next(changes, math.inf)

    @property
    def _least(self) -> float:
        return min(limit for _, limit in self._week)

    def _limit_at(self, unix_s: float) -> float:
        starts, limits = self._stretches(_chunk(unix_s))
        return limits[bisect.bisect_right(starts, unix_s) - 1]

    def _starts_after(self, unix_s: float) -> Iterator[tuple[float, float]]:
        """The stretches that begin after an instant; some only go on with the limit of the one before."""
        if len(self._week) == 1:
            return
        for chunk in range(_chunk(unix_s), LAST_CHUNK + 1):
            starts, limits = self._stretches(chunk)
            first = bisect.bisect_right(starts, unix_s)
            yield from zip(starts[first:], limits[first:], strict=True)

    def _stretches(self, chunk: int) -> _Stretches:
        known = self._known.get(chunk)
        if known is None:
            known = self._computed(chunk)
            if len(self._known) >= MOST_CHUNKS:
                self._known.clear()
            self._known[chunk] = known
        return known

    def _computed(self, chunk: int) -> _Stretches:
        """The limits within a chunk.

        A part of the local week may be in force from the earlier reading of its begin until the later reading
        of its end. Of all that may be, the least is.
        """
        begin_s, end_s = chunk * CHUNK_S, (chunk + 1) * CHUNK_S
        if not FIRST_CHUNK < chunk < LAST_CHUNK or len(self._week) == 1:
            return [-math.inf], [self._least]
        edges = [
            (*self._readings(minute), limit)
            for minute, limit in self._edges(begin_s - MARGIN_S, end_s + MARGIN_S)
        ]
        parts = sorted((edge[0], following[1], edge[2]) for edge, following in pairwise(edges))
        bounds = {bound_s for part in parts for bound_s in part[:2] if begin_s < bound_s < end_s}
        starts: list[float] = []
        limits: list[float] = []
        in_force: list[tuple[float, float]] = []  # limit and end
        at = 0
        for bound_s in (begin_s, *sorted(bounds)):
            while at < len(parts) and parts[at][0] <= bound_s:
                heapq.heappush(in_force, (parts[at][2], parts[at][1]))
                at += 1
            while in_force[0][1] <= bound_s:
                heapq.heappop(in_force)
            if not limits or in_force[0][0] != limits[-1]:
                starts.append(bound_s)
                limits.append(in_force[0][0])
        return starts, limits

    def _edges(self, from_s: float, until_s: float) -> Iterator[tuple[int, float]]:
        """Local minutes at which the limit changes, at least all of a span, and the limits from there on.

        Both are counted as if the zone were UTC.
        """
        monday_min = -EPOCH_WEEKDAY * DAY_MIN
        first = math.floor((from_s / 60.0 - monday_min) / WEEK_MIN) - 1
        last = math.ceil((until_s / 60.0 - monday_min) / WEEK_MIN) + 1
        for week in range(first, last):
            for minute, limit in self._week:
                yield monday_min + week * WEEK_MIN + minute, limit

    def _readings(self, minute: int) -> tuple[float, float]:
        """The earlier and the later instant that a local time can stand for; mostly the same."""
        local = (EPOCH + timedelta(minutes=minute)).replace(tzinfo=self._zone)
        first, second = local.timestamp(), local.replace(fold=1).timestamp()
        return min(first, second), max(first, second)


def calendar_of(section: CalendarSection) -> Calendar:
    """The calendar that a file describes."""
    windows = tuple(
        Window(
            window.from_min,
            window.to_min,
            tuple(sorted(DAYS.index(day) for day in window.days)),
            None if window.max_lent == "all" else window.max_lent,
        )
        for window in section.windows
    )
    return Calendar(section.zone, windows, None if section.otherwise == "all" else section.otherwise)


def _week(windows: tuple[Window, ...], otherwise: float) -> _Week:
    """The week by the clock on the wall. One entry if the limit is always the same."""
    spans: list[tuple[int, int, float]] = []
    for window in windows:
        for day in window.days:
            begin = day * DAY_MIN + window.from_min
            span = (begin, begin + window.length_min, _as_number(window.most_lent))
            spans.append(span)
            if span[1] > WEEK_MIN:  # what begins on a Sunday may end on a Monday
                spans.append((begin - WEEK_MIN, span[1] - WEEK_MIN, span[2]))
    edges = {0, *(edge for span in spans for edge in span[:2] if 0 <= edge < WEEK_MIN)}
    week: list[tuple[int, float]] = []
    for edge in sorted(edges):
        limit = max((most for begin, end, most in spans if begin <= edge < end), default=otherwise)
        if not week or limit != week[-1][1]:
            week.append((edge, limit))
    return tuple(week)


def _chunk(unix_s: float) -> int:
    """The number of the chunk with this instant, or of the last one on its side."""
    number = max(float(FIRST_CHUNK), min(unix_s / CHUNK_S, float(LAST_CHUNK)))
    return math.floor(number)


def _as_number(limit: int | None) -> float:
    return math.inf if limit is None else limit


def _as_limit(number: float) -> int | None:
    return None if number == math.inf else int(number)
