"""The wall clock, on the cluster's scale: seconds since the journal's zero, times a speed that tests set."""

from __future__ import annotations

import time


class WallClock:
    """Implements `Clock`. `epoch_s` is the zero in Unix time; `speed` cluster seconds pass in each real
    one.
    """

    def __init__(self, epoch_s: float, speed: float = 1.0) -> None:
        self.epoch_s, self.speed = epoch_s, speed

    def now(self) -> float:
        """Seconds since the cluster's zero."""
        return self.at(time.time())

    def at(self, unix_s: float) -> float:
        """An instant in Unix time, in cluster seconds."""
        return (unix_s - self.epoch_s) * self.speed

    def unix(self, at_s: float) -> float:
        """An instant in cluster seconds, in Unix time."""
        return self.epoch_s + at_s / self.speed

    def seconds_until(self, at_s: float) -> float:
        """Real seconds to wait for an instant; never negative, inf for one that never comes."""
        return max((at_s - self.now()) / self.speed, 0.0)
