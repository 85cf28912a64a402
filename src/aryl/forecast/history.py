"""What the inference side has needed so far: one number a slot of time.

Everybody reports at other times: a curve at every tick, a service when it likes. Predictors want a regular
series. So time is cut into slots of `step_s`, and a slot's value is the highest need that was heard of in it;
one in which nothing was heard has the value of the slot before.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
# Enough for a forecast that looks at the last four weeks, and to learn from a fifth.
KEPT_S = 5 * WEEK_S


class History:
    """The need by slot, in servers; times in seconds, which may be negative but never go back by a slot."""

    def __init__(self, step_s: float, kept_s: float = KEPT_S) -> None:
        self.step_s = step_s
        self._most = max(math.ceil(kept_s / step_s), 1)
        self._room = np.empty((2, 1024))  # the highest and the first need of each slot
        self._begin = self._end = 0
        self.slot = 0  # the number of the last slot; slot 0 begins at 0 s

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def values(self) -> Floats:
        """The need by slot, the present one last; shape (n,), servers. A view: not to be kept or written."""
        return self._room[0, self._begin : self._end]

    @property
    def firsts(self) -> Floats:
        """The first need that was heard in each slot, like `values`. The present slot isn't over, and can
        only be compared with the beginnings of others.
        """
        return self._room[1, self._begin : self._end]

    def slots(self, period_s: float) -> int:
        """How many slots a period has, at least one."""
        return max(round(period_s / self.step_s), 1)

    def observe(self, at_s: float, need_servers: float) -> int:
        """Note a need. Returns how many slots have begun with it: 0 while the slot is the same."""
        slot = math.floor(at_s / self.step_s + 1e-9)
        if len(self) == 0:
            self._append(need_servers, 1)
            self.slot = slot
            return 1
        ahead = slot - self.slot
        if ahead <= 0:
            self._room[0, self._end - 1] = max(self._room[0, self._end - 1], need_servers)
            return 0
        # A gap longer than all that is kept says nothing about time any more.
        if ahead > 1:
            self._append(float(self._room[0, self._end - 1]), min(ahead - 1, self._most))
        self._append(need_servers, 1)
        self.slot = slot
        return ahead

    def _append(self, value: float, count: int) -> None:
        room = self._room
        if self._end + count > room.shape[1]:
            kept = room[:, max(self._end - self._most, self._begin) : self._end].copy()
            length = kept.shape[1]
            if length + count > room.shape[1] // 2:
                room = np.empty((2, 2 * (length + count)))
            room[:, :length] = kept
            self._room, self._begin, self._end = room, 0, length
        room[:, self._end : self._end + count] = value
        self._end += count
        self._begin = max(self._begin, self._end - self._most)
