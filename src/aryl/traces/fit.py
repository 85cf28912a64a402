"""Fits a small model to a trace, so that traces like it can be drawn without carrying the trace.

The model is what a scheduler feels of a workload and no more: how arrivals vary over the week, how many GPUs
jobs ask for, and how long jobs of each size run. Running times are kept as quantiles, because those of real
clusters have no simple shape: on itp a lognormal fitted to all jobs misses the median and the tail at once.

Not in the model, and so not in what is drawn from it: bursts of like jobs, users, and trends over weeks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aryl.errors import InputError
from aryl.traces.model import Trace
from aryl.whole_files import atomic_path

HOURS_A_WEEK = 168
LEVELS: tuple[float, ...] = (
    *(0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0),
)
_FORMAT = "aryl-fitted-trace-1"


@dataclass(frozen=True, slots=True)
class SizeModel:
    """Jobs of one size: their share of all jobs, and the quantiles of their running time at the levels."""

    gpus: int
    share: float
    duration_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TraceModel:
    """A fitted trace. `hour_of_week` is the relative rate of arrivals (mean 1) from the trace's start."""

    source: str
    jobs: int
    days: float
    hour_of_week: tuple[float, ...]
    levels: tuple[float, ...]
    sizes: tuple[SizeModel, ...]

    @property
    def jobs_per_day(self) -> float:
        """The mean rate of arrivals."""
        return self.jobs / self.days


def fit_trace(trace: Trace) -> TraceModel:
    """The model of a trace; hours of the week that it doesn't reach get its mean rate.

    Raises:
        InputError: all jobs are submitted at one instant, so that there is no rate to fit.
    """
    submit_s = np.array([job.submit_s for job in trace.jobs])
    duration_s = np.array([job.duration_s for job in trace.jobs])
    gpus = np.array([job.gpus for job in trace.jobs])
    span_s = float(submit_s[-1] - submit_s[0])
    if span_s <= 0:
        raise InputError(
            "all jobs are submitted at one instant", file=trace.source, expected="jobs over some time"
        )
    hour = (submit_s // 3600).astype(np.int64)
    counts = np.bincount(hour % HOURS_A_WEEK, minlength=HOURS_A_WEEK)
    passed = np.bincount(np.arange(hour[0], hour[-1] + 1) % HOURS_A_WEEK, minlength=HOURS_A_WEEK)
    rate = np.where(passed > 0, counts / np.maximum(passed, 1), len(submit_s) / (hour[-1] - hour[0] + 1))
    rate = rate / rate.mean()
    sizes = tuple(
        SizeModel(
            int(size),
            round(float((gpus == size).mean()), 8),
            tuple(np.round(np.quantile(duration_s[gpus == size], LEVELS), 1).tolist()),
        )
        for size in np.unique(gpus)
    )
    return TraceModel(
        source=trace.name,
        jobs=len(trace.jobs),
        days=round(span_s / 86400, 4),
        hour_of_week=tuple(np.round(rate, 4).tolist()),
        levels=LEVELS,
        sizes=sizes,
    )


def write_model(model: TraceModel, path: Path, *, force: bool = False) -> None:
    """Writes the model as JSON.

    Raises:
        InputError: the folder doesn't exist, or the file exists and `force` isn't set.
    """
    with atomic_path(path, force=force) as temporary:
        temporary.write_text(model_json(model), encoding="utf-8")


def model_json(model: TraceModel) -> str:
    """The model as JSON, a line per key and per size, so that two models can be compared by eye."""
    content = asdict(model)
    sizes = ",\n    ".join(json.dumps(size) for size in content.pop("sizes"))
    lines = [f'  "{key}": {json.dumps(value)}' for key, value in {"format": _FORMAT, **content}.items()]
    return "{\n" + ",\n".join([*lines, f'  "sizes": [\n    {sizes}\n  ]']) + "\n}\n"


def read_model(path: Path) -> TraceModel:
    """The model in a JSON file.

    Raises:
        InputError: the file can't be read or holds no such model.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=str(path)) from None
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", file=str(path)) from None
    try:
        return _model(content)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"is not a fitted model: {reason}", file=str(path), expected="what 'aryl trace fit' writes"
        ) from None


def _model(content: Any) -> TraceModel:
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"'format' is not '{_FORMAT}'")
    model = TraceModel(
        source=str(content["source"]),
        jobs=int(content["jobs"]),
        days=float(content["days"]),
        hour_of_week=tuple(map(float, content["hour_of_week"])),
        levels=tuple(map(float, content["levels"])),
        sizes=tuple(
            SizeModel(int(size["gpus"]), float(size["share"]), tuple(map(float, size["duration_s"])))
            for size in content["sizes"]
        ),
    )
    if len(model.hour_of_week) != HOURS_A_WEEK or not min(model.hour_of_week) >= 0 < sum(model.hour_of_week):
        raise ValueError(f"'hour_of_week' must hold {HOURS_A_WEEK} rates >= 0")
    if list(model.levels) != sorted(set(model.levels)) or (model.levels[0], model.levels[-1]) != (0.0, 1.0):
        raise ValueError("'levels' must ascend from 0 to 1")
    for size in model.sizes:
        ascending = list(size.duration_s) == sorted(size.duration_s) and len(size.duration_s) == len(
            model.levels
        )
        if size.gpus < 1 or size.share < 0 or not ascending or not size.duration_s[0] >= 0:
            raise ValueError(f"the size of {size.gpus} GPUs is malformed")
    if not sum(size.share for size in model.sizes) > 0 or not model.days > 0:
        raise ValueError("there are no jobs in it")
    return model
