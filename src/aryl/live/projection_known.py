"""How a job stood when the projection last looked at it, and the row that this makes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from aryl.core import events as ev
from aryl.core.cluster import Job
from aryl.core.model import JobState
from aryl.core.plan import Cause

OfOneJob = (
    ev.Launched
    | ev.Resized
    | ev.Vacated
    | ev.Stopped
    | ev.Finished
    | ev.Failed
    | ev.Crashed
    | ev.WorkersDone
    | ev.WorkerReplaced
    | ev.Stalled
    | ev.Learned
    | ev.CancelRequested
    | ev.LimitsChanged
)


@dataclass(slots=True)
class Known:
    """A job, and how it stood when it was last looked at. The job outlives its place in the cluster."""

    job: Job
    state: JobState
    attempt: int
    failures: int
    preemptions: int
    workers: int
    limits: tuple[int, int]
    stalled: bool
    estimate_s: float | None  # as last told in the history


def look(job: Job) -> Known:
    """How a job stands now."""
    return Known(
        job,
        job.state,
        job.attempt,
        job.failures,
        job.preemptions,
        job.workers,
        job.limits,
        job.trouble is Cause.STALLED,
        job.spec.estimate_s,
    )


def row(job: Job) -> dict[str, object]:
    """The columns of a job's row that can be read off the job."""
    placement = [
        {"server": slot.server_id, "base": slot.base, "flexible": slot.flexible, "gpus": slot.gpus}
        for slot in job.slots.values()
    ]
    return {
        "state": job.state.value,
        "attempt": job.attempt,
        "workers": job.workers,
        "gpus": job.gpus,
        "placement": json.dumps(placement, separators=(",", ":")),
        "min_workers": job.limits[0],
        "max_workers": job.limits[1],
        "estimate_s": job.spec.estimate_s,
        "preemptions": job.preemptions,
        "failures": job.failures,
    }
