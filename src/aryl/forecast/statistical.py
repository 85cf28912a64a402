"""Predictors by statsforecast: exponential smoothing, and decomposition into seasons.

Both look at the need as seasons and a rest. `Ets` takes no season out; `Mstl` takes out those of the day and
the week (Bandara and others 2021, arXiv 2107.13462). The rest is smoothed exponentially, by a level and
perhaps a trend, damped or not, with additive errors. Which of these and the parameters is AutoETS's choice
(Hyndman and others 2008, "Forecasting with Exponential Smoothing").

A fit is dear, and one more slot changes it little. So a fit is made once a day, on the last weeks, and in
between the smoothing goes on with the fitted parameters.

Three weeks show a slot of the week three times only, so a season's shape keeps a third of the noise of those
slots. Hence each season is drawn towards its moving average of two hours, the more the nearer its departures
from it come to what noise alone would leave (the shrinkage of James and Stein 1961).

The library's intervals are for the need in one slot, and normal. What is asked for is the highest need of
several slots, so it is played through: runs of past errors, as they really followed one another, go through
the fitted smoothing, and the highest need of each such run counts. The errors are those of forecasts by one
slot in the last week. They come from slots that the fit had not seen, but for those of the first fit.

Measured on three public curves scaled to 200 servers, slots of 300 s, the highest of 3 steps, `Mstl`: 92, 94
and 94 % of the needs are within [5 %, 95 %]. With the running maximum of normal intervals it would be 94, 91
and 81 %; with the errors of past peaks (`Spread`) 90, 91 and 92 %, but with medians that are 3 % nearer on
the smooth curve and 8 and 9 % further off on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aryl.errors import InputError
from aryl.forecast.history import DAY_S, WEEK_S, Floats, History
from aryl.forecast.predictor import MEDIAN, SEASONS_S

FIT_S = 3 * WEEK_S
# Smoothing forgets within hours; two weeks show enough errors to choose its form by.
SMOOTHED_S = 2 * WEEK_S
REFIT_S = DAY_S
ERRORS_S = WEEK_S
SHAPE_S = 2 * 3600.0
# With fewer slots the last value is all that is known. AutoETS refuses fewer than ten.
FEWEST = 16
# STL takes nothing shorter for a season, and wants two cycles of it.
FEWEST_IN_SEASON = 4
# The library's window over the cycles of a day leaves about so many of them their weight.
CYCLES_AVERAGED = 7.0
# What is left of a rest that doesn't move is rounding.
STILL = 1e-9


class _Smoothed:
    """Seasons, by name as in `SEASONS_S`, and exponential smoothing of the rest."""

    def __init__(self, *seasons: str) -> None:
        require_statsforecast()
        self._seasons = seasons
        self._fit: _Fit | None = None
        self._fit_slot = self._fit_length = 0
        self._slot = 0  # the last one that was taken in
        self._errors = np.empty(0)

    def predict(self, history: History, steps: int, levels: Sequence[float] = MEDIAN) -> Floats:
        """See `Predictor`. Until there are 17 slots, all quantiles are the present need."""
        self._follow(history)
        present = float(history.values[-1])
        if self._fit is None:
            return np.full(len(levels), present)
        needs = self._fit.ahead(history.slot, present, steps)
        if len(self._errors) < steps:
            return np.full(len(levels), max(float(needs.max()), present))
        runs = np.lib.stride_tricks.sliding_window_view(self._errors, steps)
        peaks = (needs + runs @ self._fit.weights(steps)).max(axis=1)
        quantiles: Floats = np.quantile(np.maximum(peaks, present), levels)
        return quantiles

    def _follow(self, history: History) -> None:
        """Take in the slots that are over; the present one may still rise."""
        over, last = history.values[:-1], history.slot - 1
        fresh, day = last - self._slot, history.slots(REFIT_S)
        goes_on = self._fit is not None and 0 <= fresh <= min(len(over), day)
        if self._fit is not None and goes_on:
            news = [self._fit.take(last - fresh + 1 + k, float(over[k - fresh])) for k in range(fresh)]
            self._errors = np.append(self._errors, news)[-history.slots(ERRORS_S) :]
            self._slot = last
            # A young history tells much more when it is twice as long.
            if last - self._fit_slot < min(day, self._fit_length):
                return
        if len(over) < FEWEST:
            self._fit = None
            return
        periods = sorted({history.slots(SEASONS_S[season]) for season in self._seasons})
        cycles, rest = _without_seasons(
            over[-history.slots(FIT_S) :],
            [period for period in periods if FEWEST_IN_SEASON <= period <= len(over) // 2],
            history.slots(SHAPE_S),
        )
        self._fit, errors = _smooth(rest[-history.slots(SMOOTHED_S) :], cycles, last)
        if not goes_on:
            self._errors = errors[-history.slots(ERRORS_S) :]
        self._slot = self._fit_slot = last
        self._fit_length = len(over)


class Ets(_Smoothed):
    """A `Predictor`: exponential smoothing without seasons; see the module.

    Raises InputError if statsforecast isn't installed.
    """

    def __init__(self) -> None:
        super().__init__()


class Mstl(_Smoothed):
    """A `Predictor`: the seasons of the day and the week, and exponential smoothing of the rest; see the
    module.

    Each season counts from when two cycles of it are known; until then it is as if there were none.
    Raises InputError if statsforecast isn't installed.
    """

    def __init__(self) -> None:
        super().__init__("day", "week")


@dataclass(slots=True)
class _Fit:
    """Additive smoothing in the form of innovations: `trend` is damped by `phi` a slot. Servers."""

    alpha: float
    beta: float
    phi: float
    level: float
    trend: float
    cycles: tuple[Floats, ...]  # of each season the last cycle
    end_slot: int  # the last slot of those cycles

    def season(self, slot: int) -> float:
        """What the seasons add in a slot."""
        return float(sum(cycle[(slot - self.end_slot - 1) % len(cycle)] for cycle in self.cycles))

    def take(self, slot: int, need_servers: float) -> float:
        """Learn the need of the next slot; returns the error of the forecast for it."""
        foreseen = self.level + self.phi * self.trend
        error = need_servers - self.season(slot) - foreseen
        self.level = foreseen + self.alpha * error
        self.trend = self.phi * self.trend + self.beta * error
        return error

    def ahead(self, slot: int, present_servers: float, steps: int) -> Floats:
        """The needs foreseen after the present slot, shape (steps,); the present need isn't learned yet."""
        kept = self.level, self.trend
        self.take(slot, present_servers)
        level, trend = self.level, self.trend
        self.level, self.trend = kept
        seasons = np.array([self.season(slot + step) for step in range(1, steps + 1)])
        needs: Floats = level + trend * np.cumsum(self.phi ** np.arange(1, steps + 1)) + seasons
        return needs

    def weights(self, steps: int) -> Floats:
        """How much an error of step i (row) adds to the need of step j (column), shape (steps, steps)."""
        later = self.alpha + self.beta * np.cumsum(self.phi ** np.arange(1, steps))
        effects = np.concatenate(([1.0], later))
        lag = np.arange(steps)[None, :] - np.arange(steps)[:, None]
        return np.where(lag >= 0, effects[np.maximum(lag, 0)], 0.0)


def require_statsforecast() -> None:
    """Raises InputError, naming the extra, if statsforecast isn't installed."""
    try:
        import statsforecast.models  # noqa: F401
    except ImportError:
        raise InputError(
            "exponential smoothing and decomposition into seasons need statsforecast",
            field="predictor",
            expected="an installation with the extra: pip install 'aryl[forecast]'",
        ) from None


def _without_seasons(values: Floats, periods: list[int], width: int) -> tuple[tuple[Floats, ...], Floats]:
    """The last cycle of each season, and what the values are without them.

    `width`: slots of the moving average that a season is drawn towards. `periods`: ascending, in slots.
    """
    if not periods:
        return (), values
    from statsforecast.mstl import mstl

    # Local regressions hardly bend between points as near as this. All points would take 80 times as long.
    jump = max(periods[-1] // 20, 1)
    parts = mstl(values, periods, stl_kwargs={"low_pass_jump": jump, "trend_jump": jump})
    names = ["seasonal"] if len(periods) == 1 else [f"seasonal{period}" for period in periods]
    remainder = parts["remainder"].to_numpy()
    noise = float(np.mean((remainder - _moving_average(remainder, width)) ** 2))
    cycles, rest = [], values.copy()
    for name, period in zip(names, periods, strict=True):
        cycle = parts[name].to_numpy()[-period:]
        seen = min(len(values) / period, CYCLES_AVERAGED)
        cycles.append(_shrunk(cycle, noise / (seen - 1), width))
        rest -= np.resize(cycles[-1][::-1], len(values))[::-1]
    return tuple(cycles), rest


def _shrunk(cycle: Floats, noise: float, width: int) -> Floats:
    """The cycle drawn towards its moving average, given the mean square of the noise in it."""
    smooth = _moving_average(cycle, width)
    departures = cycle - smooth
    square = float(np.mean(departures**2))
    return smooth + departures * (max(1.0 - noise / square, 0.0) if square > 0 else 0.0)


def _moving_average(values: Floats, width: int) -> Floats:
    """Centred, of `width` slots, as if the values were a ring; shape as given."""
    width = min(width, len(values))
    before = width // 2
    ring = np.concatenate((values[len(values) - before :], values, values[: width - 1 - before]))
    return np.convolve(ring, np.full(width, 1 / width), "valid")


def _smooth(rest: Floats, cycles: tuple[Floats, ...], slot: int) -> tuple[_Fit, Floats]:
    """Smoothing as AutoETS fits it to the rest up to that slot, and its errors, in servers."""
    largest = max(float(np.abs(part).max()) for part in (rest, *cycles))
    if float(np.ptp(rest)) <= STILL * largest:
        return _Fit(1.0, 0.0, 1.0, float(rest[-1]), 0.0, cycles, slot), np.zeros(len(rest))
    from statsforecast.models import AutoETS

    model = AutoETS(model="AZN", season_length=1).fit(rest).model_
    alpha, beta, _, phi = (float(parameter) for parameter in model["par"][:4])
    _, trend_type, _, damping = model["components"]
    state = model["states"][-1]
    has_trend = trend_type == "A"
    fit = _Fit(
        alpha=alpha,
        beta=beta if has_trend else 0.0,
        phi=phi if damping == "D" else 1.0,
        level=float(state[0]),
        trend=float(state[1]) if has_trend else 0.0,
        cycles=cycles,
        end_slot=slot,
    )
    return fit, np.asarray(model["residuals"], dtype=np.float64)
