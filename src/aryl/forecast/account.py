"""How far a forecast alone would have let the inference side down, and the headroom that follows from it.

A server that is called back at one tick serves `delay` slots later. So in a slot those servers are ready that
the lowest of the last `delay + 1` forecasts kept at home, and

    error(slot) = need(slot) - min(kept(slot - delay .. slot))

is by how much too few they were (below 0: too many). A headroom of m servers would have lowered every error
by m. Hence:

* `quantile` q: the headroom that would have been enough in that share of the slots;
* `risk` r: the smallest headroom with which the shortfall, sum of max(0, error - m), would have been at most
  the share r of what a rule without any forecast would have had (one that keeps the present need).

Both look at the last `window_s`, so they follow a service that becomes wilder or calmer.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from aryl.forecast.history import WEEK_S, Floats


class Account:
    """Errors of the last slots, of the forecast and of the rule that keeps the present need; in servers."""

    def __init__(self, step_s: float, window_s: float = WEEK_S) -> None:
        self._most = max(round(window_s / step_s), 1)
        self._kept: deque[float] = deque()
        self._need: deque[float] = deque()
        # Rings: in which order the errors came makes no difference.
        self._errors = np.zeros(self._most)
        self._reactive = np.zeros(self._most)
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, self._most)

    def close_slot(self, need_servers: float, kept_servers: float, delay: int) -> None:
        """A slot is over: what it needed at most, and what the forecast made at its beginning kept."""
        self._kept.append(kept_servers)
        self._need.append(need_servers)
        while len(self._kept) > delay + 1:
            self._kept.popleft()
            self._need.popleft()
        place = self._count % self._most
        self._errors[place] = need_servers - min(self._kept)
        self._reactive[place] = need_servers - min(self._need)
        self._count += 1

    def quantile(self, level: float) -> float:
        """The headroom that would have been enough in this share of the slots; below 0 where the forecast
        alone was more than enough.
        """
        return float(np.quantile(self._errors[: len(self)], level)) if len(self) else 0.0

    def for_risk(self, share: float) -> float:
        """The smallest headroom that would have kept the shortfall at this share of the reactive rule's;
        below 0 where the forecast alone was more than enough.
        """
        if not len(self):
            return 0.0
        reactive = self._reactive[: len(self)]
        return excess_margin(self._errors[: len(self)], share * float(reactive[reactive > 0.0].sum()))


def excess_margin(errors: Floats, budget: float) -> float:
    """The smallest m with sum of max(0, errors - m) <= budget; errors of shape (n,), n >= 1."""
    falling = np.sort(errors)[::-1]
    sums = np.cumsum(falling)
    counts = np.arange(1, len(falling) + 1)
    # With m at the k-th largest error, what sticks out of m are the k - 1 larger ones.
    sticking_out = sums - falling * counts
    reached = int(np.searchsorted(sticking_out, budget, side="right"))
    return float((sums[reached - 1] - budget) / reached)
