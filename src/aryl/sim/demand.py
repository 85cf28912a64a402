"""What the inference side does in a simulation: its true need over time, what it reports, what it forecasts.

At each tick loan control hears the need, as it would live, and its report is made of what it has heard until
then, never of what comes. Between the ticks the need goes on changing, which only the accounts see. `oracle`
is the exception, and results made with it say so: it looks up the highest need until the lead is over in the
curve itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aryl.core.events import DemandReported, Event, LendingLimited, NeedChanged
from aryl.forecast.control import LoanControl
from aryl.forecast.history import KEPT_S
from aryl.forecast.limits import LimitClock
from aryl.traces.need import Floats, Need

# A need that changes along a line is told so often.
LINE_STEP_S = 60.0


@dataclass(frozen=True, slots=True)
class InferenceSide:
    """`need` from 0 on, and before as far as it is known; `control` None: an oracle.

    Nothing is said after `end_s`. `limits` None: no calendar.
    """

    need: Need
    interval_s: float
    lead_s: float
    control: LoanControl | None
    limits: LimitClock | None = None
    end_s: float = 0.0

    def events(self) -> Iterator[Event]:
        """Everything in the order of time; at one instant limits first, then reports."""
        ticks = np.arange(int(self.end_s // self.interval_s) + 1, dtype=np.float64) * self.interval_s
        streams = (self._limits(), self._reports(ticks), self._changes(ticks))
        return heapq.merge(*streams, key=lambda event: event.at)

    def _limits(self) -> Iterator[LendingLimited]:
        if self.limits is None:
            return
        at_s = 0.0
        while at_s < float("inf"):
            yield self.limits.at(at_s)
            at_s = self.limits.next_change_s(at_s)

    def _reports(self, ticks: Floats) -> Iterator[DemandReported]:
        if self.control is None:
            columns = (ticks, self.need.at(ticks), self.need.highest(ticks, self.lead_s))
            for at_s, now, most in zip(*(column.tolist() for column in columns), strict=True):
                yield DemandReported(at_s, now, most)
            return
        self._remember(self.control)
        changes = self._changes(ticks)
        change = next(changes, None)
        for at_s, now in zip(ticks.tolist(), self.need.at(ticks).tolist(), strict=True):
            # Whoever measures the need does so more often than decisions are made.
            while change is not None and change.at < at_s:
                self.control.notice(change.at, change.need_servers)
                change = next(changes, None)
            foreseen = self.control.hear(at_s, now)
            yield DemandReported(at_s, now, foreseen.forecast_servers, foreseen.headroom_servers)

    def _remember(self, control: LoanControl) -> None:
        """What was before the simulation begins is known."""
        first_s = float(self.need.time_s[0])
        count = int(min(-first_s, KEPT_S) // self.interval_s)
        before = np.arange(-count, 0, dtype=np.float64) * self.interval_s
        if count:
            before = np.union1d(before, self._instants(float(before[0]), 0.0))
        control.remember([*zip(before.tolist(), self.need.at(before).tolist(), strict=True)])

    def _changes(self, ticks: Floats) -> Iterator[NeedChanged]:
        """The true need where it changes between two ticks."""
        between = self._instants(0.0, self.end_s)
        between = between[~np.isin(between, ticks)]
        for at_s, servers in zip(between.tolist(), self.need.at(between).tolist(), strict=True):
            yield NeedChanged(at_s, servers)

    def _instants(self, from_s: float, until_s: float) -> Floats:
        """When the need changes between these instants, both left out; along a line every so often."""
        changes = self.need.time_s
        if self.need.is_line:
            changes = np.union1d(np.arange(from_s, until_s, LINE_STEP_S), changes)
        return changes[(changes > from_s) & (changes < until_s)]
