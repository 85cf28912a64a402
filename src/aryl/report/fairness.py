"""Who pays for a better mean: figures beside which a gain by starving somebody is seen.

A job's *slowdown* is its JCT over its running time at base demand, that taken as at least ten seconds (the
bounded slowdown of Feitelson and Rudolph, 1998): 1 is a job that started at once, less one that was also
resized. Jain's index (Jain, Chiu and Hawe, 1984) of x is mean(x)^2 / mean(x^2): 1 where all are alike, 1 / n
where one has everything.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from aryl.report.outcome import JobTable

Floats = npt.NDArray[np.float64]

# A job that runs for a moment isn't slowed down much by waiting for another one (the usual threshold).
LEAST_S = 10.0
# From so many GPUs on a gang is a large one (algorithms, section 3).
LARGE_GPUS = 32


class Fairness(NamedTuple):
    """Of the finished jobs; NaN where there are none. `jain`: of the jobs' speed, which is 1 / slowdown;
    `jain_users`: of the users' mean speeds; `longest_wait_large_s`: the longest queuing time of a gang of
    `LARGE_GPUS` or more, jobs that wait to this moment included.
    """

    jain: float
    jain_users: float
    slowdown_p99: float
    slowdown_worst: float
    longest_wait_s: float
    longest_wait_large_s: float


def jain(values: Floats) -> float:
    """Jain's index; NaN of nothing."""
    if len(values) == 0 or not values.any():
        return math.nan
    return float(values.mean() ** 2 / (values**2).mean())


def slowdowns(jobs: JobTable) -> Floats:
    """Of the finished jobs, in their order."""
    jct_s = jobs.jct_s[jobs.finished]
    return np.maximum(jct_s, LEAST_S) / np.maximum(jobs.duration_s[jobs.finished], LEAST_S)


def fairness_of(jobs: JobTable) -> Fairness:
    """How evenly a run treated its jobs."""
    slow = slowdowns(jobs)
    users: dict[str, list[float]] = {}
    names = [user for user, done in zip(jobs.user, jobs.finished, strict=True) if done]
    for user, speed in zip(names, (1.0 / slow).tolist(), strict=True):
        users.setdefault(user, []).append(speed)
    by_user = np.array([float(np.mean(speeds)) for speeds in users.values()])
    large = jobs.base_gpus >= LARGE_GPUS
    return Fairness(
        jain(1.0 / slow),
        jain(by_user) if len(by_user) > 1 else math.nan,
        float(np.percentile(slow, 99)) if len(slow) else math.nan,
        float(slow.max()) if len(slow) else math.nan,
        _highest(jobs.queuing_s),
        _highest(jobs.queuing_s[large]),
    )


def _highest(values: Floats) -> float:
    return float(values.max()) if len(values) else math.nan
