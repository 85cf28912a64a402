"""How far a job has come, under changing rates.

Work is counted in *base seconds*: seconds of running at base demand on the reference GPU type, the unit of
`duration_s`. With `rate` base seconds a second, the job stands at `done_s + rate * (now - since_s)`. Saving
every n seconds counts running time since the attempt began, so `saved_s` is what a restart would begin from.
"""

from __future__ import annotations

import math


class Progress:
    """Progress of one job. Written by `evolve` only."""

    __slots__ = ("_ran_s", "checkpoint_s", "done_s", "rate", "saved_s", "since_s")

    def __init__(self, checkpoint_s: float | None) -> None:
        self.checkpoint_s = checkpoint_s
        self.done_s = 0.0
        self.saved_s = 0.0
        self.rate = 0.0
        self.since_s = 0.0
        self._ran_s = 0.0

    def done_at(self, now_s: float) -> float:
        """Base seconds done at `now_s`."""
        return self.done_s + self.rate * (now_s - self.since_s)

    def saved_at(self, now_s: float) -> float:
        """Base seconds that a restart would keep if the job stopped at `now_s`."""
        every_s = self.checkpoint_s
        if every_s is None:
            return self.saved_s
        if every_s == 0.0:
            return self.done_at(now_s)
        if self.rate == 0.0:
            return self.saved_s
        ran_s = self._ran_s + (now_s - self.since_s)
        last_save_s = math.floor(ran_s / every_s) * every_s
        if last_save_s <= self._ran_s:
            return self.saved_s
        # Rounding must not put the last save into the future.
        return self.done_s + self.rate * (min(last_save_s, ran_s) - self._ran_s)

    def lost_at(self, now_s: float) -> float:
        """Base seconds that would be lost if the job stopped at `now_s`."""
        return self.done_at(now_s) - self.saved_at(now_s)

    def set_rate(self, now_s: float, rate: float) -> None:
        """From `now_s` on the job makes `rate` base seconds a second (0: it stands still)."""
        self.saved_s = self.saved_at(now_s)
        self.done_s = self.done_at(now_s)
        if self.rate > 0.0:
            self._ran_s += now_s - self.since_s
        self.since_s = now_s
        self.rate = rate

    def learn(self, now_s: float, done_s: float, saved_s: float) -> None:
        """The job itself says how far it is."""
        self.set_rate(now_s, self.rate)
        self.done_s = done_s
        self.saved_s = min(saved_s, done_s)

    def restart(self, now_s: float, kept_s: float) -> None:
        """The attempt is over; the next begins with `kept_s` base seconds done."""
        self.done_s = self.saved_s = kept_s
        self.rate = 0.0
        self.since_s = now_s
        self._ran_s = 0.0
