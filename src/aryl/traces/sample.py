"""Smaller, denser and longer traces out of a given one. Order and everything that a job says of itself stay.

A sample thins a trace out, so its load falls with it; `scale_arrivals` brings the load back (or beyond)
either by squeezing the time between submissions, which also shortens the daily cycle, or by submitting
copies of jobs, which keeps the clock and needs a seed.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np

from aryl.errors import InputError
from aryl.traces.model import Trace, TraceJob


def _random(seed: int) -> np.random.Generator:
    if seed < 0:
        raise InputError("not a seed", field="seed", found=seed, expected="a whole number >= 0")
    return np.random.Generator(np.random.PCG64(seed))


def sample_trace(
    trace: Trace, *, share: float | None = None, jobs: int | None = None, seed: int = 0
) -> Trace:
    """A random part of the trace: a share of its jobs (above 0, at most 1) or a number of them, each as
    likely.

    Raises:
        InputError: not exactly one of `share` and `jobs`, one out of its range, or a share that leaves no
            job.
    """
    if (share is None) == (jobs is None):
        raise InputError("say how much to keep", expected="either a share or a number of jobs")
    if share is not None and not 0 < share <= 1:
        raise InputError(
            "not a share of the jobs", field="share", found=share, expected="above 0 and at most 1"
        )
    count = round(share * len(trace.jobs)) if share is not None else jobs or 0
    if not 1 <= count <= len(trace.jobs):
        raise InputError(
            "not a number of jobs to keep", field="jobs", found=count, expected=f"from 1 to {len(trace.jobs)}"
        )
    keys = _random(seed).random(len(trace.jobs))
    kept = np.sort(np.argsort(keys, kind="stable")[:count])
    return replace(trace, jobs=tuple(trace.jobs[place] for place in kept))


def _check_factor(factor: float) -> None:
    if not 0 < factor < math.inf:
        raise InputError("not a factor", field="factor", found=factor, expected="a number above 0")


def scale_arrivals(trace: Trace, factor: float, *, copies: bool = False, seed: int = 0) -> Trace:
    """The trace with `factor` times as many submissions in the same time.

    Args:
        trace: the jobs. factor: above 0; below 1 makes the trace sparser. copies: submit each job `factor`
            times (a fraction by chance) instead of dividing all submission times by `factor`. A copy is
            submitted together with its original and is called `<id>~2`, `<id>~3` and so on. seed: for the
            fraction of `copies`.

    Raises:
        InputError: the factor isn't a number above 0, no job is left, or a copy's name is taken.
    """
    _check_factor(factor)
    if not copies:
        return replace(trace, jobs=tuple(replace(job, submit_s=job.submit_s / factor) for job in trace.jobs))
    whole = math.floor(factor)
    chance = _random(seed).random(len(trace.jobs))
    jobs: list[TraceJob] = []
    for job, roll in zip(trace.jobs, chance.tolist(), strict=True):
        times = whole + (roll < factor - whole)
        jobs += [
            job if number == 1 else replace(job, job_id=f"{job.job_id}~{number}")
            for number in range(1, times + 1)
        ]
    if not jobs:
        raise InputError("no job is left", field="factor", found=factor, expected="a larger factor")
    counts = Counter(job.job_id for job in jobs)
    if len(counts) < len(jobs):
        twice = counts.most_common(1)[0][0]
        raise InputError(
            "the name of a copy is taken", field="job_id", found=twice, expected="ids without '~'"
        )
    return replace(trace, jobs=tuple(jobs))


def scale_durations(trace: Trace, factor: float) -> Trace:
    """The trace with all running times, and the estimates that it has, times `factor`.

    Raises:
        InputError: the factor isn't a number above 0.
    """
    _check_factor(factor)
    return replace(trace, jobs=tuple(_longer(job, factor) for job in trace.jobs))


def _longer(job: TraceJob, factor: float) -> TraceJob:
    estimate_s = None if job.estimate_s is None else job.estimate_s * factor
    return replace(job, duration_s=job.duration_s * factor, estimate_s=estimate_s)
