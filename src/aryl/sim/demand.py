"""What the inference side reports at each tick of the orchestrator: its need now, and a forecast.

Two forecasts: `oracle` looks up the highest need from now until `lead_s` later in the curve itself, which no
real forecast can (results made with it say so); `last` takes the present need for the future one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from aryl.core.events import DemandReported

Floats = npt.NDArray[np.float64]


class Need:
    """The need in servers over time: a step function, or straight lines between points. Held after the last
    point.
    """

    def __init__(self, time_s: Floats, servers: Floats, *, line: bool) -> None:
        self.time_s, self.servers, self._line = time_s, servers, line

    def at(self, when_s: Floats) -> Floats:
        """The need at these times, shape like `when_s`."""
        if self._line:
            return np.interp(when_s, self.time_s, self.servers)
        return self.servers[np.maximum(np.searchsorted(self.time_s, when_s, side="right") - 1, 0)]

    def highest(self, from_s: Floats, lead_s: float) -> Floats:
        """The highest need within [t, t + lead_s] for each t of `from_s`, which must ascend."""
        best = np.maximum(self.at(from_s), self.at(from_s + lead_s))
        first = np.searchsorted(self.time_s, from_s, side="left")
        last = np.searchsorted(self.time_s, from_s + lead_s, side="right")
        for step in range(int((last - first).max(initial=0))):
            inside = first + step < last
            best[inside] = np.maximum(best[inside], self.servers[first[inside] + step])
        return best


def reports(
    need: Need, *, interval_s: float, lead_s: float, oracle: bool, end_s: float
) -> Iterator[DemandReported]:
    """A report at 0 and every `interval_s` until `end_s`, and none afterwards."""
    block = 4096
    for first in range(0, int(end_s // interval_s) + 1, block):
        last = min(first + block, int(end_s // interval_s) + 1)
        ticks = np.arange(first, last, dtype=np.float64) * interval_s
        now = need.at(ticks)
        forecast = need.highest(ticks, lead_s) if oracle else now
        for at_s, servers, foreseen in zip(ticks.tolist(), now.tolist(), forecast.tolist(), strict=True):
            yield DemandReported(at_s, servers, foreseen)
