"""Limits of lending that the calendar sets, in time: a server has to be *back* when a window closes.

So the limit in force at t is the tightest of the calendar between t and t + the time that giving back takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aryl.core.events import LendingLimited
from aryl.forecast.calendar import Calendar

# Windows that are shorter than giving back takes never open, and would be looked through until the year 9000.
LOOK_AHEAD_S = 14 * 86_400.0


@dataclass(frozen=True, slots=True)
class LimitClock:
    """Says when the limit changes. `unix` turns cluster seconds into Unix time, `cluster` the other way."""

    calendar: Calendar
    give_back_s: float
    unix: Callable[[float], float]
    cluster: Callable[[float], float]

    def at(self, now_s: float) -> LendingLimited:
        """The limit in force now, as an event."""
        return LendingLimited(now_s, self._tightest(now_s))

    def next_change_s(self, after_s: float) -> float:
        """The next instant at which the limit becomes another one, in cluster seconds; inf if never. Where
        nothing changes for `LOOK_AHEAD_S`: one at which it has to be asked again.
        """
        present = self._tightest(after_s)
        enough_unix_s = self.unix(after_s) + LOOK_AHEAD_S
        at_s = after_s
        while True:
            # It becomes looser when a tight stretch is over, tighter when one comes within reach.
            looser_s = self.cluster(self.calendar.next_change(self.unix(at_s)))
            tighter_s = self.cluster(self.calendar.next_change(self.unix(at_s + self.give_back_s)))
            at_s = min(looser_s, tighter_s - self.give_back_s)
            if self.unix(at_s) >= enough_unix_s or self._tightest(at_s) != present:
                return at_s

    def _tightest(self, now_s: float) -> int | None:
        return self.calendar.tightest(self.unix(now_s), self.unix(now_s + self.give_back_s))
