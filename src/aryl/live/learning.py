"""From what programs report to what the scheduler knows: remaining time, saved work, and the speed-up curve.

A program says at which step it is, how many there are, which one it saved last, and how many it does in a
second with how many workers. The engine counts in base seconds, the time that the work takes at base demand
on the reference GPU. The speed at base demand is what links them: measured there if the job ever ran at that
size, else inferred from the present size through the curve that is assumed. Once a job has been seen at two
sizes its own curve takes the place of the assumed one: the concave hull of what was measured, which bridges
noise, continued with its last slope.

What a program says is only its word. Numbers that no job can mean teach nothing, so that one that is wrong
about itself doesn't upset the decisions about all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aryl.core.cluster import Cluster, Job
from aryl.core.events import Learned
from aryl.core.speedup import Points

# How much a new measurement counts against the older ones at the same size.
WEIGHT = 0.3
# What is worth an event: this share of change in the estimate or the speed, or this much time since the last.
NOTEWORTHY = 0.05
AT_LEAST_EVERY_S = 30.0
# What a program may mean: steps a second, and base seconds (three hundred years).
LEAST_SPEED, MOST_SPEED = 1e-9, 1e9
MOST_S = 1e10


@dataclass(slots=True)
class _Seen:
    """What is known of one job. Speeds in steps a second, as if all GPUs were of the reference type."""

    speeds: dict[int, float] = field(default_factory=dict)
    attempt: int = 0
    told_s: float = float("-inf")
    told_estimate_s: float | None = None
    told_saved: float = -1.0
    told_speeds: dict[int, float] = field(default_factory=dict)  # of which the last curve was made


class Learner:
    """Remembers measurements by job. `clock_speed` cluster seconds pass in each real one."""

    def __init__(self, clock_speed: float = 1.0) -> None:
        self._clock_speed = clock_speed
        self._seen: dict[str, _Seen] = {}

    def heard(
        self, cluster: Cluster, job_id: str, attempt: int, report: Mapping[str, float], now_s: float
    ) -> Learned | None:
        """What a report teaches, or None if that isn't worth an event."""
        job = cluster.jobs.get(job_id)
        if job is None or job.attempt != attempt:
            return None
        seen = self._seen.setdefault(job_id, _Seen())
        if seen.attempt != attempt:
            seen.attempt, seen.told_s, seen.told_saved = attempt, float("-inf"), -1.0
        self._measure(cluster, job, seen, report)
        base_speed = _speed_at(job, seen)
        step = report.get("step")
        if base_speed is None or step is None:
            return None
        total, saved = report.get("total_steps"), max(report.get("saved_step", 0.0), 0.0)
        estimate_s = total / base_speed if total is not None and total > 0.0 else None
        done_s = max(step, 0.0) / base_speed
        if max(done_s, estimate_s or 0.0) > MOST_S:
            return None
        curve = _curve(job, seen.speeds) if self._curve_is_news(seen, now_s) else None
        if not self._noteworthy(seen, estimate_s, saved, curve is not None, now_s):
            return None
        seen.told_s, seen.told_saved = now_s, saved
        seen.told_estimate_s = estimate_s
        if curve is not None:
            seen.told_speeds = dict(seen.speeds)
        return Learned(now_s, job_id, attempt, done_s, min(saved / base_speed, done_s), estimate_s, curve)

    def forget(self, job_id: str) -> None:
        """The job is over."""
        self._seen.pop(job_id, None)

    def _measure(self, cluster: Cluster, job: Job, seen: _Seen, report: Mapping[str, float]) -> None:
        speed, workers = report.get("steps_per_s", 0.0), int(report.get("workers", job.workers))
        if not LEAST_SPEED <= speed <= MOST_SPEED:
            return
        if workers != job.workers or workers == 0:
            return  # measured at a size that the job has left, or before it had one
        spec = job.spec
        ratio = spec.speedup(workers) / spec.speedup(spec.min_workers)
        of_types = cluster.rate(spec, job.kinds) / ratio if ratio > 0.0 else 1.0
        speed /= self._clock_speed * (of_types or 1.0)
        old = seen.speeds.get(workers)
        seen.speeds[workers] = speed if old is None else old + WEIGHT * (speed - old)

    @staticmethod
    def _curve_is_news(seen: _Seen, now_s: float) -> bool:
        """A new size is told at once. The first measurement there may be far off, though, and a job that
        seems to gain nothing from its workers gets no more of them: so what it becomes is told as well.
        """
        if seen.speeds.keys() != seen.told_speeds.keys():
            return True
        return now_s - seen.told_s >= AT_LEAST_EVERY_S and any(
            abs(speed - seen.told_speeds[workers]) > NOTEWORTHY * seen.told_speeds[workers]
            for workers, speed in seen.speeds.items()
        )

    @staticmethod
    def _noteworthy(
        seen: _Seen, estimate_s: float | None, saved: float, has_curve: bool, now_s: float
    ) -> bool:
        if has_curve or saved != seen.told_saved or now_s - seen.told_s >= AT_LEAST_EVERY_S:
            return True
        if estimate_s is None or seen.told_estimate_s is None:
            return estimate_s is not seen.told_estimate_s
        return abs(estimate_s - seen.told_estimate_s) > NOTEWORTHY * seen.told_estimate_s


def _speed_at(job: Job, seen: _Seen) -> float | None:
    """Steps a second at base demand."""
    spec = job.spec
    if spec.min_workers in seen.speeds:
        return seen.speeds[spec.min_workers]
    known = job.workers if job.workers in seen.speeds else next(iter(seen.speeds), None)
    if known is None:
        return None
    return seen.speeds[known] * spec.speedup(spec.min_workers) / spec.speedup(known)


def _curve(job: Job, speeds: Mapping[int, float]) -> Points | None:
    """The job's own curve, once it has been seen at two sizes."""
    if len(speeds) < 2:
        return None
    hull: list[tuple[int, float]] = [(0, 0.0)]
    for workers, speed in sorted(speeds.items()):
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (workers, speed)):
            hull.pop()
        # A bigger gang that was seen to be slower is taken to be as fast.
        hull.append((workers, max(speed, hull[-1][1])))
    slope = max(_slope(hull[-2], hull[-1]), 0.0)
    last_workers, last_speed = hull[-1]
    most = max(job.spec.max_workers, job.max_workers)
    if most > last_workers:
        hull.append((most, last_speed + slope * (most - last_workers)))
    return Points(tuple(hull[1:]))


def _slope(left: tuple[int, float], right: tuple[int, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
