"""What more workers are worth to a job: the JCT reduction T(w_min) - T(w_min + k), with the remaining work
(the paper, phase 2).
"""

from __future__ import annotations

from functools import lru_cache

from aryl.core.cluster import Job
from aryl.core.speedup import Speedup

# Running times are heavy-tailed: what a job has run says how long it will still run. This much is assumed for
# one that has just begun (ours).
PRIOR_S = 300.0


def remaining_or_guess_s(job: Job, now_s: float) -> float:
    """Estimated base seconds left; without an estimate as much again as has been done, plus a prior."""
    remaining_s = job.remaining_s(now_s)
    return guess_s(job, now_s) if remaining_s is None else remaining_s


def guess_s(job: Job, now_s: float) -> float:
    """Base seconds left, guessed without any estimate."""
    return job.progress.done_at(now_s) + PRIOR_S


@lru_cache(maxsize=4096)
def relative_times(speedup: Speedup, base_workers: int, most_workers: int) -> tuple[float, ...]:
    """`times[w]` = running time with w workers over that with `base_workers`, for w in 0..most_workers;
    times[0] is inf.
    """
    base_speed = speedup(base_workers)
    return (float("inf"), *(base_speed / speedup(workers) for workers in range(1, most_workers + 1)))
