"""Gives the scheduler wrong running times, or none, for a share of the jobs: how a policy bears that is a
question of the paper's sensitivity study.

Who gets what is drawn without replacement: first the jobs whose estimate is wrong, then, from the others,
those that have none. An estimate is the true running time times 1 + u, u uniform in -error..+error, and
never less than a hundredth of the truth. What was in the trace before is replaced for the jobs drawn and
kept for all others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aryl.errors import InputError
from aryl.traces.model import Trace, TraceJob

_SMALLEST_FACTOR = 0.01


def perturb_estimates(trace: Trace, *, share: float, error: float, missing: float, seed: int) -> Trace:
    """The trace with other estimates; the true running times stay.

    Args:
        trace: the jobs. share: share of the jobs (0 to 1) whose estimate becomes wrong. error: by how much
            at most, relative to the true running time (0.6 = up to 60 % too long or too short). missing:
            share of the jobs whose running time the scheduler isn't told; `estimate_known` becomes False.
            seed: whole number >= 0.

    Raises:
        InputError: a share is not in 0..1, the two together exceed 1, the error or the seed is negative.
    """
    for name, value in (("share", share), ("missing", missing)):
        if not 0 <= value <= 1:
            raise InputError(
                "not a share of the jobs", field=name, found=value, expected="a number from 0 to 1"
            )
    if share + missing > 1:
        raise InputError(
            "more than all jobs", field="share + missing", found=share + missing, expected="at most 1"
        )
    if not 0 <= error < float("inf"):
        raise InputError("not a relative error", field="error", found=error, expected="a number >= 0")
    if seed < 0:
        raise InputError("not a seed", field="seed", found=seed, expected="a whole number >= 0")
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 3])))
    order = np.argsort(random.random(len(trace.jobs)), kind="stable")
    factor = np.maximum(1 + error * (2 * random.random(len(trace.jobs)) - 1), _SMALLEST_FACTOR)
    wrong = round(share * len(trace.jobs))
    untold = min(round(missing * len(trace.jobs)), len(trace.jobs) - wrong)
    jobs: list[TraceJob] = list(trace.jobs)
    for place in order[:wrong].tolist():
        job = jobs[place]
        if job.duration_s > 0:
            estimate_s = job.duration_s * float(factor[place])
            jobs[place] = replace(job, estimate_s=estimate_s, estimate_known=True)
    for place in order[wrong : wrong + untold].tolist():
        jobs[place] = replace(jobs[place], estimate_s=None, estimate_known=False)
    return replace(trace, jobs=tuple(jobs))
