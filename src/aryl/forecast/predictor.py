"""The protocol of all predictors: history in, quantiles for a horizon out.

What is asked for is always the same: the *highest* need from the present slot until `steps` slots later,
because that is what has to be kept at home. A predictor is asked once a slot, in the order of time, and may
learn whenever it is asked; the same history and the same questions give the same answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from aryl.forecast.history import DAY_S, WEEK_S, Floats, History

MEDIAN = (0.5,)


class Predictor(Protocol):
    """Foresees the highest need."""

    def predict(self, history: History, steps: int, levels: Sequence[float] = MEDIAN) -> Floats:
        """Quantiles of the highest need in the present slot and the `steps` after it.

        Args:
            history: not empty; its last slot is the present. steps: at least 1.
            levels: ascending, each above 0 and below 1.

        Returns:
            Servers, shape (len(levels),), not descending.
        """


class PointPredictor(Protocol):
    """Foresees one number: the highest need, as a best guess."""

    def peak(self, history: History, steps: int) -> float:
        """The highest need in the present slot and the `steps` after it, in servers."""


class Spread:
    """Makes a `Predictor` of a `PointPredictor`: quantiles are its guess plus those of its own past errors.

    The median is the guess itself. Until errors are known, all quantiles are. Errors of the last week count.
    """

    def __init__(self, point: PointPredictor, window_s: float = WEEK_S) -> None:
        self._point = point
        self._window_s = window_s
        self._asked: deque[tuple[int, int, float]] = deque()  # slot, steps, guess: outcome not known yet
        self._errors: deque[float] = deque()
        self._steps = 0

    def predict(self, history: History, steps: int, levels: Sequence[float] = MEDIAN) -> Floats:
        """See `Predictor`."""
        guess = self._point.peak(history, steps)
        if steps != self._steps:  # errors over another horizon say nothing
            self._asked.clear()
            self._errors.clear()
            self._steps = steps
        self._settle(history)
        self._asked.append((history.slot, steps, guess))
        if (len(levels) == 1 and levels[0] == 0.5) or not self._errors:
            return np.full(len(levels), guess)
        shifts = np.quantile(np.array(self._errors), levels)
        shifts = np.where(np.array(levels) == 0.5, 0.0, shifts)
        return np.maximum.accumulate(np.maximum(guess + shifts, 0.0))

    def _settle(self, history: History) -> None:
        """Note the errors of guesses whose time is over: the present slot may still rise."""
        values = history.values
        while self._asked and self._asked[0][0] + self._asked[0][1] < history.slot:
            slot, steps, guess = self._asked.popleft()
            first = len(values) - 1 - (history.slot - slot)
            if first >= 0:
                self._errors.append(float(values[first : first + steps + 1].max()) - guess)
        while len(self._errors) > history.slots(self._window_s):
            self._errors.popleft()


def season_of(history: History, period_s: float, steps: int) -> int:
    """The slots of a season, or 0 if the history doesn't reach back that far."""
    season = history.slots(period_s)
    return season if season > steps and len(history) > season else 0


SEASONS_S = {"day": DAY_S, "week": WEEK_S}
