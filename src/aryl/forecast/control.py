"""Loan control: what the inference side is said to need when somebody decides what is lent.

Every interval the highest need over the *lead* is forecast: the interval, the time that a reclaimed server
takes to become empty, and the time that it takes to load its models. So a server that is called back by the
forecast serves before it is needed. Two things are put on top:

* *Hysteresis*: what was kept only becomes less if it would have been enough for the last `settle_s` as well.
  More is kept at once. So a need that flickers around a boundary moves no server.
* *Headroom*: a number of servers, or what the forecast's own errors call for (`account.py`). Until a day's
  errors are known, at least `at_least_servers`. With a fixed headroom the forecast is the predictor's median;
  where errors decide it is its quantile `UPPER_LEVEL`, because that rises at hours that are hard to foresee,
  shifted by what the errors call for; upwards this is the headroom.

The same object serves the simulator and the live control plane. It hears of needs in the order of time and
never of the future.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from aryl.forecast.account import Account
from aryl.forecast.history import DAY_S, WEEK_S, History
from aryl.forecast.predictor import MEDIAN, Predictor

# As far back as errors count.
WARM_S = WEEK_S
UPPER_LEVEL = 0.9
# No forecast is more exact than this, and a whole server would be kept for it.
TRIFLE_SERVERS = 0.01


@dataclass(frozen=True, slots=True)
class FixedHeadroom:
    """So many servers, whatever happens."""

    servers: float


@dataclass(frozen=True, slots=True)
class QuantileHeadroom:
    """Enough in the share `level` of the time, by the forecast's own errors."""

    level: float
    at_least_servers: float = 0.0


@dataclass(frozen=True, slots=True)
class RiskHeadroom:
    """So much that the shortfall is the share `share` of what a rule without any forecast would have."""

    share: float
    at_least_servers: float = 0.0


HeadroomRule = FixedHeadroom | QuantileHeadroom | RiskHeadroom


@dataclass(frozen=True, slots=True)
class LoanRules:
    """Times in seconds. `give_back_s`: from the order to come back until a server is in service again.

    `lead_s` None: the interval and `give_back_s`.
    """

    interval_s: float
    give_back_s: float = 0.0
    lead_s: float | None = None
    settle_s: float = 0.0
    headroom: HeadroomRule = FixedHeadroom(0.0)

    @property
    def lead_or_default_s(self) -> float:
        """How far ahead is looked."""
        return self.interval_s + self.give_back_s if self.lead_s is None else self.lead_s


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What is expected at most until the lead is over, and what is kept on top, in servers."""

    forecast_servers: float
    headroom_servers: float


class LoanControl:
    """Hears the need, says what to keep."""

    def __init__(self, rules: LoanRules, predictor: Predictor) -> None:
        self.rules = rules
        self.history = History(rules.interval_s)
        self._predictor = predictor
        # Where errors say how much is kept on top, it is better added to what is wilder at wilder hours.
        self._levels = MEDIAN if isinstance(rules.headroom, FixedHeadroom) else (UPPER_LEVEL,)
        self._account = Account(rules.interval_s)
        self._recent: deque[float] = deque()  # forecasts of the slots within `settle_s`, the present one last
        self.give_back_s = rules.give_back_s  # may be set: live it is measured
        self.headroom = rules.headroom  # may be set to another of its kind: live the pool may grow
        self._kept_servers = 0.0
        self._kept_at_first_servers = 0.0  # by the first word of the present slot

    def hear(self, at_s: float, need_servers: float, forecast_servers: float | None = None) -> Foreseen:
        """The inference side needs so much now. A forecast of its own takes the place of ours.

        `at_s` must not go back by more than the present slot.
        """
        first = not self._recent
        begun = self.history.observe(at_s, need_servers)
        if begun and not first:
            self._close_slots(begun)
        # The slot of the first word may have begun with something that was only noticed or remembered.
        asked = first or begun > 0
        if forecast_servers is not None:
            ahead = forecast_servers
        elif asked:
            ahead = _without_a_trifle(
                float(self._predictor.predict(self.history, self.steps, self._levels)[0])
            )
        else:
            ahead = self._recent[-1]
        ahead = max(ahead, need_servers)
        if asked:
            self._recent.append(ahead)
            while len(self._recent) > 1 + math.ceil(self.rules.settle_s / self.rules.interval_s - 1e-9):
                self._recent.popleft()
        else:
            self._recent[-1] = ahead
        settled = max(self._recent)
        self._kept_servers = ahead if first else min(max(self._kept_servers, ahead), settled)
        if asked:
            self._kept_at_first_servers = self._kept_servers
        on_top = self._on_top_servers
        # A quantile that is higher than its errors call for is lowered, but never below the present need.
        ahead = max(self._kept_servers + min(on_top, 0.0), need_servers)
        return Foreseen(ahead, max(on_top, 0.0))

    def notice(self, at_s: float, need_servers: float) -> None:
        """The need changed within the present slot; nobody asks for a forecast."""
        self.history.observe(at_s, need_servers)

    def remember(self, heard: Sequence[tuple[float, float]]) -> None:
        """What was needed before somebody asks: times and servers, ascending. Of the last `WARM_S` it is
        worked out what the forecasts would have been, so that their errors are known.
        """
        if not heard:
            return
        warm_s = heard[-1][0] - WARM_S
        for at_s, need_servers in heard:
            if at_s < warm_s:
                self.history.observe(at_s, need_servers)
            else:
                self.hear(at_s, need_servers)

    @property
    def steps(self) -> int:
        """How many slots ahead is looked: those that begin before the lead is over, at least the next one."""
        rules = self.rules
        lead_s = rules.interval_s + self.give_back_s if rules.lead_s is None else rules.lead_s
        return max(math.ceil(lead_s / rules.interval_s - 1e-9) - 1, 1)

    @property
    def delay(self) -> int:
        """How many slots it takes until a server that is called back serves."""
        return math.ceil(self.give_back_s / self.rules.interval_s - 1e-9)

    @property
    def _on_top_servers(self) -> float:
        """What is kept on top at the moment; below 0 if the forecast is more than enough."""
        match self.headroom:
            case FixedHeadroom(servers):
                return servers
            case QuantileHeadroom(level, at_least):
                return self._at_least(self._account.quantile(level), at_least)
            case RiskHeadroom(share, at_least):
                return self._at_least(self._account.for_risk(share), at_least)
            case _:
                assert_never(self.headroom)

    def _at_least(self, servers: float, at_least: float) -> float:
        return servers if len(self._account) >= self.history.slots(DAY_S) else max(servers, at_least)

    def _close_slots(self, begun: int) -> None:
        """Slots are over. In those of which nothing was heard nothing is known to have gone wrong."""
        values = self.history.values
        if len(values) <= begun:
            return
        self._account.close_slot(float(values[-1 - begun]), self._kept_at_first_servers, self.delay)


def _without_a_trifle(servers: float) -> float:
    """A forecast that exceeds a whole number by next to nothing means that number."""
    whole = math.floor(servers)
    return float(whole) if servers - whole < TRIFLE_SERVERS else servers
