"""What a planner wants to know of a trace: how much work it is, in what sizes, for how long, and when.

Load is the GPUs that would be busy if every job started the moment it was submitted. It depends on the trace
alone, so it says how many GPUs the work needs and not how well some scheduler did.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from aryl.traces.assign import AssignmentSummary, summarise_assignment
from aryl.traces.curves import PEAK_PERCENTILE, mean_busy
from aryl.traces.model import DemandCurve, Trace

DAY_S = 86400.0
HOUR_S = 3600.0
PERCENTILES = (5, 25, 50, 75, 95, 99)


@dataclass(frozen=True, slots=True)
class SizeRow:
    """Jobs that ask for `gpus` GPUs at base demand, and their share of all jobs and of all GPU time."""

    gpus: int
    jobs: int
    share_of_jobs: float
    share_of_gpu_time: float


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A trace in numbers. Lists by day and by hour of day begin at the trace's start."""

    name: str
    source: str
    jobs: int
    days: float
    first_submit_s: float
    last_submit_s: float
    gpu_hours: float
    mean_gpus: float
    mean_gpus_by_service: float
    duration_s: dict[str, float]
    sizes: tuple[SizeRow, ...]
    busy_gpus_mean: float
    busy_gpus_peak: int
    busy_gpus_by_day: tuple[float, ...]
    jobs_per_hour: float
    jobs_by_hour_of_day: tuple[float, ...]
    users: int
    projects: int
    assignment: AssignmentSummary

    def as_dict(self) -> dict[str, Any]:
        """The summary as plain values, for JSON."""
        return asdict(self)


def describe_trace(trace: Trace) -> TraceSummary:
    """The summary of a trace with at least one job.

    `days` is from the first submission to the last; `busy_gpus_mean` spreads all work over that time. The
    numbers by day run from the trace's start to its last submission; `jobs_by_hour_of_day` are jobs an hour.
    """
    submit_s = np.array([job.submit_s for job in trace.jobs])
    duration_s = np.array([job.duration_s for job in trace.jobs])
    gpus = np.array([job.gpus for job in trace.jobs])
    gpu_s = gpus * duration_s
    total_gpu_s = float(gpu_s.sum())
    span_s = float(submit_s[-1] - submit_s[0])
    quantiles = np.percentile(duration_s, PERCENTILES)
    return TraceSummary(
        name=trace.name,
        source=trace.source,
        jobs=len(trace.jobs),
        days=span_s / DAY_S,
        first_submit_s=float(submit_s[0]),
        last_submit_s=float(submit_s[-1]),
        gpu_hours=total_gpu_s / HOUR_S,
        mean_gpus=float(gpus.mean()),
        mean_gpus_by_service=float((gpus * gpu_s).sum() / total_gpu_s) if total_gpu_s else 0.0,
        duration_s={
            "mean": float(duration_s.mean()),
            "min": float(duration_s.min()),
            **{f"p{rank}": float(value) for rank, value in zip(PERCENTILES, quantiles, strict=True)},
            "max": float(duration_s.max()),
        },
        sizes=_sizes(gpus, gpu_s),
        busy_gpus_mean=total_gpu_s / span_s if span_s else 0.0,
        busy_gpus_peak=_peak(submit_s, duration_s, gpus),
        busy_gpus_by_day=tuple(busy_gpus_by_day(trace).tolist()),
        jobs_per_hour=len(trace.jobs) / (span_s / HOUR_S) if span_s else 0.0,
        jobs_by_hour_of_day=_by_hour_of_day(submit_s),
        users=len({job.user for job in trace.jobs} - {None}),
        projects=len({job.project for job in trace.jobs} - {None}),
        assignment=summarise_assignment(trace),
    )


def _sizes(gpus: npt.NDArray[np.int64], gpu_s: npt.NDArray[np.float64]) -> tuple[SizeRow, ...]:
    total = float(gpu_s.sum()) or 1.0
    return tuple(
        SizeRow(
            int(size),
            int((gpus == size).sum()),
            float((gpus == size).mean()),
            float(gpu_s[gpus == size].sum() / total),
        )
        for size in np.unique(gpus)
    )


def _peak(
    submit_s: npt.NDArray[np.float64], duration_s: npt.NDArray[np.float64], gpus: npt.NDArray[np.int64]
) -> int:
    times = np.concatenate([submit_s, submit_s + duration_s])
    changes = np.concatenate([gpus, -gpus])
    # At one instant the finished jobs leave before the new ones come.
    order = np.lexsort((changes, times))
    return int(max(0, np.cumsum(changes[order]).max(initial=0)))


def busy_gpus_by_day(trace: Trace, step_s: float = DAY_S) -> npt.NDArray[np.float64]:
    """Mean busy GPUs in each step up to the last submission, if every job started when submitted."""
    submit_s = np.array([job.submit_s for job in trace.jobs])
    finish_s = submit_s + np.array([job.duration_s for job in trace.jobs])
    gpus = np.array([job.gpus for job in trace.jobs], dtype=np.float64)
    edges = np.arange(int(submit_s[-1] // step_s) + 2) * step_s

    def work_before(times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """GPU-seconds up to each edge that jobs would add if they ran from `times` for ever."""
        order = np.argsort(times, kind="stable")
        places = np.searchsorted(times[order], edges, side="right")
        count = np.concatenate([[0.0], np.cumsum(gpus[order])])[places]
        moment = np.concatenate([[0.0], np.cumsum(gpus[order] * times[order])])[places]
        return np.asarray(count * edges - moment, dtype=np.float64)

    return np.asarray(np.diff(work_before(submit_s) - work_before(finish_s)) / step_s, dtype=np.float64)


def _by_hour_of_day(submit_s: npt.NDArray[np.float64]) -> tuple[float, ...]:
    hour = (submit_s // HOUR_S).astype(np.int64)
    counts = np.bincount(hour % 24, minlength=24)
    # How often each hour of the day lies between the first submission and the last.
    passed = np.bincount(np.arange(hour[0], hour[-1] + 1) % 24, minlength=24)
    return tuple((counts / np.maximum(passed, 1)).tolist())


def describe_curve(curve: DemandCurve) -> dict[str, Any]:
    """A curve in numbers, in its own unit: length, step, mean, and the percentiles by which it is scaled."""
    low, median, top = np.percentile(curve.busy, (1, 50, PEAK_PERCENTILE))
    mean = mean_busy(curve)
    return {
        "name": curve.name,
        "source": curve.source,
        "unit": curve.unit,
        "rows": len(curve.busy),
        "days": curve.end_s / DAY_S,
        "step_s": float(np.median(np.diff(curve.time_s))) if len(curve.time_s) > 1 else None,
        "mean": mean,
        "min": float(curve.busy.min()),
        "p1": float(low),
        "median": float(median),
        "p99_5": float(top),
        "max": float(curve.busy.max()),
        "mean_of_p99_5": mean / float(top) if top > 0 else None,
    }
