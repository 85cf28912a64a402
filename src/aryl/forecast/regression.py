"""Regression on what the need was lately, a day ago and a week ago (ours).

A linear model of the highest need ahead. What it looks at: the last ten values, means of the last 15 minutes
to two and a half hours, the highest of the last hour; and for each season that the history covers, what
followed a season ago, as it was, smoothed, and shifted by how far today is above or below that day. So the
fit itself finds out how much each is worth: on a smooth curve it becomes seasonal naive with a correction, on
a noisy one a mean.

The median's place is taken by the least-squares fit with a small ridge; other levels are quantile regressions
(Koenker and Bassett, 1978), found by iterated reweighted least squares from there on. So an upper quantile is
further away at hours at which the need is wilder. Everything is fitted anew once a day on the last
`LEARNED_S` of history; there is no chance in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from aryl.forecast.history import DAY_S, WEEK_S, Floats, History
from aryl.forecast.plain import Seasonal
from aryl.forecast.predictor import MEDIAN, Spread

LAGS = 10
MEANS = (3, 10, 30)
HIGHEST_OF = 12
SHIFTS = (0.5, 1.0)
SMOOTHED = 3  # slots on either side
RIDGE = 1e-5
LEARNED_S = 4 * WEEK_S
REFIT_S = DAY_S
RETRY_S = 3600.0  # as long as there was too little to learn from
# Fewer rows than that a column make a fit that only repeats them.
ROWS_PER_COLUMN = 4
# Of the iterated fit of a quantile: rounds, which rows it looks at, and the residual below which a row counts
# no more than another, as a share of the mean need.
ROUNDS = 8
EVERY = 2  # neighbouring slots say nearly the same
LEAST_RESIDUAL = 1e-3

# Seasons in slots, steps, levels: what a fit is good for.
_Shape = tuple[tuple[int, ...], int, tuple[float, ...]]


class Regression:
    """A `Predictor`. Until it can learn what a season is worth: as it went on a day ago, if that is known, or
    the last value.
    """

    def __init__(self) -> None:
        self._before = Spread(Seasonal("day"))
        self._weights: Floats | None = None  # shape (columns, levels)
        self._shape: _Shape = ((), 0, ())
        self._tried_slot = -(2**62)

    def predict(self, history: History, steps: int, levels: Sequence[float] = MEDIAN) -> Floats:
        """See `Predictor`. Asking for other levels than the last time means fitting anew."""
        values = history.values
        self._learn(history, steps, tuple(levels))
        seasons = self._shape[0]
        if self._weights is None or not seasons or len(values) < _reach(seasons, steps):
            return self._before.predict(history, steps, levels)
        reach = _reach(seasons, steps)
        row = _columns(values[-reach:], history.firsts[-reach:], seasons, steps)[0]
        return np.maximum.accumulate(np.maximum(row @ self._weights, values[-1]))

    def _learn(self, history: History, steps: int, levels: tuple[float, ...]) -> None:
        values = history.values
        day, week = history.slots(DAY_S), history.slots(WEEK_S)
        # A season counts once it has been seen twice: what it is worth has to be learned.
        seasons = tuple(season for season in (day, week) if steps < season and len(values) >= 2 * season)
        old = (seasons, steps, levels) == self._shape and self._weights is not None
        rested = history.slot >= self._tried_slot + history.slots(REFIT_S if old else RETRY_S)
        if not seasons or not rested:
            return
        self._tried_slot = history.slot
        known = slice(-(history.slots(LEARNED_S) + _reach(seasons, steps)), None)
        weights = _fit(values[known], history.firsts[known], seasons, steps, levels)
        if weights is not None:
            self._weights, self._shape = weights, (seasons, steps, levels)


def _fit(
    values: Floats, firsts: Floats, seasons: tuple[int, ...], steps: int, levels: tuple[float, ...]
) -> Floats | None:
    """Weights for `_columns`, shape (columns, levels), or None if there are too few rows. The outcome of the
    last `steps` slots isn't known, and the present slot may still rise.
    """
    rows = _columns(values[: -steps - 1], firsts[: -steps - 1], seasons, steps)
    if len(rows) < ROWS_PER_COLUMN * rows.shape[1]:
        return None
    highest = _windows(values[:-1], steps + 1)[-len(rows) :].max(axis=1)
    mean = _least_squares(rows, rows, highest)
    fits = [mean if level == 0.5 else _quantile(rows, highest, level, mean) for level in levels]
    return np.stack(fits, axis=1)


def _least_squares(rows: Floats, weighted: Floats, highest: Floats) -> Floats:
    """Solve for the weights; `weighted` are the rows times their importance."""
    gram: Floats = weighted.T @ rows
    # Relative to each column's own size, so that the unit of the need doesn't matter.
    penalty = np.diag(RIDGE * np.diag(gram) + 1e-9)
    return np.linalg.solve(gram + penalty, weighted.T @ highest).astype(np.float64, copy=False)


def _quantile(rows: Floats, highest: Floats, level: float, weights: Floats) -> Floats:
    """The quantile regression at `level`, begun at `weights`: the pinball loss |r| * (level or 1 - level) is
    a square with importance 1 / |r|.
    """
    rows, highest = rows[::EVERY], highest[::EVERY]
    least = max(LEAST_RESIDUAL * float(np.abs(highest).mean()), 1e-9)
    for _ in range(ROUNDS):
        residual = highest - rows @ weights
        importance = np.where(residual >= 0.0, level, 1.0 - level) / np.maximum(np.abs(residual), least)
        weights = _least_squares(rows, rows * importance[:, np.newaxis], highest)
    return weights


def _reach(seasons: tuple[int, ...], steps: int) -> int:
    """How many values one row of `_columns` looks at."""
    return max((season + SMOOTHED for season in seasons), default=0) + max(LAGS, *MEANS, HIGHEST_OF) + steps


def _windows(values: Floats, width: int) -> Floats:
    """All stretches of `width` values; shape (len - width + 1, width). A view that is only read."""
    if len(values) == width:  # the one row that a forecast looks at
        return values[np.newaxis, :]
    stride = values.strides[0]
    return as_strided(values, (len(values) - width + 1, width), (stride, stride), writeable=False)


def _columns(values: Floats, firsts: Floats, seasons: tuple[int, ...], steps: int) -> Floats:
    """What the model looks at, a row for each of the last slots; shape (len - reach + 1, columns).

    A row's present slot isn't over when it is asked: of it only the first need counts.
    """
    count = len(values) - _reach(seasons, steps) + 1
    if count <= 0:
        return np.empty((0, 1))
    end = len(values)

    def back(series: Floats, slots: int) -> Floats:
        """The values `slots` before each row's present."""
        return series[end - count - slots : end - slots]

    def window(width: int, slots: int) -> Floats:
        """For each row the `width` values that end `slots` before its present; shape (count, width)."""
        return _windows(values[end - count - slots - width + 1 : end - slots], width)

    now = back(firsts, 0)
    columns = [np.ones(count), now, *(back(values, lag) for lag in range(1, LAGS))]
    columns += [(window(width - 1, 1).sum(axis=1) + now) / width for width in MEANS]
    columns.append(np.maximum(window(HIGHEST_OF - 1, 1).max(axis=1), now))
    for season in seasons:
        then = back(firsts, season)
        followed = window(steps, season - steps)
        ahead = followed.max(axis=1)
        columns += [then, ahead, followed.mean(axis=1), back(values, season) - then]
        columns.append(window(2 * SMOOTHED + 1, season - SMOOTHED).mean(axis=1))
        columns.append(window(2 * SMOOTHED + 1, max(season - SMOOTHED - steps, 0)).mean(axis=1))
        columns += [np.maximum(ahead + shift * (now - then), now) for shift in SHIFTS]
    return np.stack(columns, axis=1)
