"""Draws traces from a fitted model and demand curves with a daily cycle; the same seed gives the same bytes.

Arrivals follow a Poisson process with the model's rate over the week, given their number: sorted uniform
draws, taken through the inverse of the summed rate. A job's size is drawn by its share, its running time by
the inverse of the fitted quantiles, straight between them on a log scale. Everything ends up in whole
seconds, which also keeps the last bit of a logarithm, where machines differ, out of the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aryl.errors import InputError
from aryl.traces.fit import HOURS_A_WEEK, TraceModel
from aryl.traces.model import DemandCurve, Trace, TraceJob

_DAY_S, _HOUR_S = 86400.0, 3600.0


@dataclass(frozen=True, slots=True)
class TraceRecipe:
    """What `draw` is called with, beside the model."""

    jobs: int
    days: float
    seed: int
    max_gpus: int | None = None
    max_duration_s: float | None = None
    busy_gpus: float | None = None


@dataclass(frozen=True, slots=True)
class CurveRecipe:
    """What `draw_curve` is called with."""

    days: float
    seed: int
    trough: float = 0.25
    peak: float = 0.92
    noise: float = 0.015
    step_s: float = 300.0


# What the bundled samples were drawn with. 158 GPUs are 90 % of 22 servers with 8.
SMALL = TraceRecipe(jobs=1500, days=3, seed=1, max_gpus=32, max_duration_s=_DAY_S, busy_gpus=158)
DAY = CurveRecipe(days=5, seed=1)


def draw(
    model: TraceModel,
    jobs: int,
    days: float,
    seed: int,
    *,
    max_gpus: int | None = None,
    max_duration_s: float | None = None,
    busy_gpus: float | None = None,
    name: str = "synthetic",
) -> Trace:
    """A trace of so many jobs, submitted over so many days.

    Args:
        model: fitted to a real trace. jobs: at least 1. days: above 0. seed: whole number >= 0. max_gpus:
            leave larger jobs out; the others take their share. max_duration_s: leave longer jobs out, size
            by size. busy_gpus: stretch all running times by one factor, so that this many GPUs are busy on
            average if all work is spread over `days`. The limit on running times applies before that. name:
            of the trace; jobs are called `<name>-00000` and so on.

    Raises:
        InputError: a number is out of its range, or the limits leave no job of the model.
    """
    for field, value, least in (("jobs", jobs, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError("too small", field=field, found=value, expected=f"a whole number >= {least}")
    for field, number in (("days", days), ("max_duration_s", max_duration_s), ("busy_gpus", busy_gpus)):
        if number is not None and not 0 < number < math.inf:
            raise InputError("not a positive number", field=field, found=number, expected="a number above 0")
    shortest = (
        model.sizes
        if max_duration_s is None
        else [s for s in model.sizes if s.duration_s[0] < max_duration_s]
    )
    sizes = [size for size in shortest if size.share > 0 and (max_gpus is None or size.gpus <= max_gpus)]
    if not sizes:
        raise InputError(
            "the limits leave no job of the model", found=f"max_gpus {max_gpus}, {max_duration_s} s"
        )
    random = np.random.Generator(np.random.PCG64(seed))
    submit_s = _arrivals(model, np.sort(random.random(jobs)), days)
    share = np.cumsum([size.share for size in sizes])
    kind = np.minimum(np.searchsorted(share / share[-1], random.random(jobs), side="right"), len(sizes) - 1)
    rank = random.random(jobs)
    duration_s = np.empty(jobs)
    for place, size in enumerate(sizes):
        log_s = np.log(np.maximum(size.duration_s, 1.0))
        # Jobs that run longer than the limit are the top ranks; drawing below them leaves these jobs out.
        top = (
            1.0 if max_duration_s is None else float(np.interp(math.log(max_duration_s), log_s, model.levels))
        )
        chosen = kind == place
        duration_s[chosen] = np.exp(np.interp(rank[chosen] * top, model.levels, log_s))
    gpus = np.array([size.gpus for size in sizes])[kind]
    if busy_gpus is not None:
        duration_s *= busy_gpus * days * _DAY_S / float((gpus * duration_s).sum())
    seconds = np.maximum(np.round(duration_s), 1.0)
    rows = zip(submit_s.tolist(), gpus.tolist(), seconds.tolist(), strict=True)
    width = max(5, len(str(jobs - 1)))
    drawn = (
        TraceJob(f"{name}-{number:0{width}d}", at, size, time) for number, (at, size, time) in enumerate(rows)
    )
    return Trace(name, name, tuple(drawn))


def _arrivals(model: TraceModel, quantile: npt.NDArray[np.float64], days: float) -> npt.NDArray[np.float64]:
    hours = math.ceil(days * _DAY_S / _HOUR_S)
    edges = np.minimum(np.arange(hours + 1) * _HOUR_S, days * _DAY_S)
    rate = np.array(model.hour_of_week)[np.arange(hours) % HOURS_A_WEEK]
    if not rate.any():
        raise InputError("no job arrives in these hours of the model's week", field="days", found=days)
    expected = np.concatenate([[0.0], np.cumsum(rate * np.diff(edges))])
    times: npt.NDArray[np.float64] = np.floor(np.interp(quantile * expected[-1], expected, edges))
    return times


def draw_curve(
    days: float,
    seed: int,
    *,
    trough: float = 0.25,
    peak: float = 0.92,
    noise: float = 0.015,
    step_s: float = 300.0,
    name: str = "synthetic",
) -> DemandCurve:
    """A demand curve as a share of the pool: a daily cycle from `trough` (03:00) to `peak` (15:00) and slow
    noise.

    Args:
        days: its length, above 0; time 0 is midnight.
        seed: whole number >= 0.
        trough: the lowest share of the cycle.
        peak: the highest.
        noise: standard deviation of the noise, a first-order autoregression with a memory of about an hour.
        step_s: seconds between rows.
        name: of the curve.

    Raises:
        InputError: a number is out of its range.
    """
    if not (0 < days < math.inf and 0 < step_s <= days * _DAY_S):
        raise InputError("not a length", field="days", found=days, expected="above 0 and at least one step")
    if not 0 <= trough <= peak <= 1 or not 0 <= noise <= 1:
        raise InputError(
            "not shares", found=f"trough {trough}, peak {peak}, noise {noise}", expected="shares in 0..1"
        )
    if seed < 0:
        raise InputError("not a seed", field="seed", found=seed, expected="a whole number >= 0")
    random = np.random.Generator(np.random.PCG64(seed))
    time_s = np.arange(math.ceil(days * _DAY_S / step_s), dtype=np.float64) * step_s
    cycle = (1 - np.cos(2 * math.pi * (time_s / _DAY_S - 3 / 24))) / 2
    memory = math.exp(-step_s / _HOUR_S)
    # A sum of uniform draws is near enough to normal and the same on every machine.
    shocks = (random.random((len(time_s), 12)).sum(axis=1) - 6) * noise * math.sqrt(1 - memory**2)
    wander, level = np.empty(len(time_s)), 0.0
    for place, shock in enumerate(shocks.tolist()):
        level = memory * level + shock
        wander[place] = level
    share = np.round(np.clip(trough + (peak - trough) * cycle + wander, 0.0, 1.0), 4)
    return DemandCurve(name, name, time_s, np.asarray(share, dtype=np.float64), "share")
