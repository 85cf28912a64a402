"""The need of the inference side over time, in servers: what a curve or points say at any instant."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Need:
    """The need in servers over time: a step function, or straight lines between points. Held after the last
    point.
    """

    def __init__(self, time_s: Floats, servers: Floats, *, line: bool) -> None:
        self.time_s, self.servers, self.is_line = time_s, servers, line

    def at(self, when_s: Floats) -> Floats:
        """The need at these times, shape like `when_s`."""
        if self.is_line:
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
