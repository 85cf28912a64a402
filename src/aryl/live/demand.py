"""The desk at which the inference side is heard, live: whatever it says becomes what the loop is told.

Words come from the API, from a source that is polled, or from a curve that is replayed; each has the time at
which it was measured. Loan control makes the forecast and the headroom of them, as in a simulation. Between
two words the time goes on: once an interval the forecast is made anew. When the last word is older than
`stale_after_s` the side is lost from sight, which is an event of its own (*degraded*: nothing more is lent,
and nothing taken back on a guess). A side that never said a word lends nothing anyway.

The calendar's limits are told here too, and go on while nothing is heard: they are no guesses.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from aryl.core.cluster import Cluster
from aryl.core.events import DemandReported, Event, LendingLimited, TelemetryLost
from aryl.core.model import Hosting
from aryl.forecast.control import HeadroomRule, LoanControl
from aryl.forecast.history import KEPT_S
from aryl.forecast.lead import GiveBack
from aryl.forecast.limits import LimitClock
from aryl.traces.need import Need

_log = logging.getLogger(__name__)

ENDLESS_S = float("inf")


@dataclass(frozen=True, slots=True)
class Word:
    """What was measured, in cluster seconds and servers. None: it didn't say."""

    measured_s: float
    need_servers: float
    forecast_servers: float | None = None
    headroom_servers: float | None = None
    hosting: tuple[Hosting, ...] = ()


class Replay(Protocol):
    """Something that always knows what is needed now."""

    def word(self, now_s: float) -> Word:
        """The need at this instant."""


@dataclass(frozen=True, slots=True)
class ReplayedNeed:
    """A curve. `oracle_lead_s`: it tells what comes within that time, too, which nobody could know."""

    need: Need
    oracle_lead_s: float | None = None

    def word(self, now_s: float) -> Word:
        """The curve's value, and perhaps the highest that comes in time."""
        instant = np.array([now_s])
        now = float(self.need.at(instant)[0])
        if self.oracle_lead_s is None:
            return Word(now_s, now)
        return Word(now_s, now, float(self.need.highest(instant, self.oracle_lead_s)[0]))


class InferenceDesk:
    """Used by the loop's thread alone."""

    def __init__(
        self,
        control: LoanControl,
        give_back: GiveBack,
        *,
        stale_after_s: float,
        replay: Replay | None = None,
        limits: LimitClock | None = None,
        headroom_of: Callable[[int], HeadroomRule] | None = None,
    ) -> None:
        self._control, self._give_back = control, give_back
        self._stale_after_s = stale_after_s
        self._replay, self._limits = replay, limits
        self._headroom_of = headroom_of  # a pool of so many servers
        self._cluster: Cluster | None = None
        self._last: Word | None = None
        self._lost = False
        self._next_s = 0.0 if replay is not None else ENDLESS_S
        self._limit_s = ENDLESS_S if limits is None else 0.0
        self._limit: int | None = None  # as it was told last
        self._counted_on_s = 0.0  # how long giving back took when that was worked out
        self._past: deque[tuple[float, float]] = deque()

    # -- what was before ----------------------------------------------------------------------------------

    def remember(self, event: Event) -> None:
        """An event of the journal, in order: what was needed before this daemon began."""
        if isinstance(event, DemandReported):
            self._past.append((event.at, event.need_servers))
            while self._past[0][0] < event.at - KEPT_S:
                self._past.popleft()

    def take_over(self, cluster: Cluster) -> Sequence[Event]:
        """All of the journal has been seen. Returns what has to be told before anything is due."""
        self._cluster = cluster
        # The errors that count are those over the time that is looked ahead from now on.
        self._control.give_back_s = self._give_back.longest_s
        self._control.remember(self._past)
        self._past.clear()
        demand = cluster.demand
        if demand is not None and self._replay is None:
            # It may have spoken a moment before the last daemon ended. The state has what it said, so within
            # that slot there is nothing to tell anew.
            hosting = tuple(Hosting(server, replicas) for server, replicas in demand.hosting.items())
            self._last = Word(demand.at_s, demand.need_servers, None, None, hosting)
            self._lost = cluster.telemetry_lost
            self._next_s = ENDLESS_S if self._lost else max(self._next_slot_s(demand.at_s), cluster.now)
        if self._limits is None and cluster.lending_limit is not None:
            self._limit_s = cluster.now  # there was a calendar once
        return ()

    # -- what is said -------------------------------------------------------------------------------------

    def told(self, word: Word, now_s: float) -> list[Event]:
        """The inference side has said something. One that is too old, or older than the last, counts for
        nothing.
        """
        known_s = -ENDLESS_S if self._last is None else self._last.measured_s
        if word.measured_s < known_s or now_s - word.measured_s >= self._stale_after_s:
            return []
        self._last, self._lost = word, False
        self._next_s = min(self._next_s, self._next_slot_s(now_s))
        return [self._report(word, now_s)]

    def next_s(self) -> float:
        """When there will be something to tell by itself, in cluster seconds; inf: never."""
        return min(self._next_s, self._stale_s, self._limit_s)

    def due(self, now_s: float) -> list[Event]:
        """What there is to tell now."""
        events: list[Event] = self._limited(now_s)
        if now_s >= self._stale_s:
            self._lost, self._next_s = True, ENDLESS_S
            _log.warning("the inference side has fallen silent: nothing is lent or taken back")
            events.append(TelemetryLost(now_s))
        elif now_s >= self._next_s:
            self._next_s = self._next_slot_s(now_s)
            if self._replay is not None:
                self._last = self._replay.word(now_s)
            if self._last is not None:
                events.append(self._report(self._last, now_s))
        return events

    def _limited(self, now_s: float) -> list[Event]:
        """The limit, when it may have become another one: its time has come, or giving back takes longer or
        shorter than was counted on.
        """
        due = now_s >= self._limit_s
        if self._limits is None:
            if not due:
                return []
            self._limit_s = ENDLESS_S
            return [LendingLimited(now_s, None)]
        counted_on_s = self._give_back.longest_s
        if not due and counted_on_s == self._counted_on_s:
            return []
        limits = replace(self._limits, give_back_s=counted_on_s)
        limited = limits.at(now_s)
        changed = limited.most_servers != self._limit
        self._limit, self._counted_on_s = limited.most_servers, counted_on_s
        self._limit_s = limits.next_change_s(now_s)
        return [limited] if due or changed else []

    def _next_slot_s(self, now_s: float) -> float:
        """When the next slot of the history begins: then everything is forecast anew."""
        interval_s = self._control.rules.interval_s
        return (math.floor(now_s / interval_s + 1e-9) + 1) * interval_s

    @property
    def _stale_s(self) -> float:
        if self._last is None or self._lost or self._replay is not None:
            return ENDLESS_S
        return self._last.measured_s + self._stale_after_s

    def _report(self, word: Word, now_s: float) -> DemandReported:
        self._control.give_back_s = self._give_back.longest_s
        if self._headroom_of is not None and self._cluster is not None:
            self._control.headroom = self._headroom_of(self._cluster.inference_pool)
        foreseen = self._control.hear(now_s, word.need_servers, word.forecast_servers)
        headroom = foreseen.headroom_servers if word.headroom_servers is None else word.headroom_servers
        measured_s = word.measured_s if word.measured_s < now_s else None
        return DemandReported(
            now_s, word.need_servers, foreseen.forecast_servers, headroom, word.hosting, measured_s
        )
