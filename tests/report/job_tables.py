"""Tables of jobs, and outcomes around them, that tests write down in a line a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from aryl.report.outcome import SUCCEEDED, JobTable, Outcome


class Row(NamedTuple):
    """One job: everything in seconds and GPUs."""

    submit_s: float
    jct_s: float
    duration_s: float = 100.0
    gpus: int = 1
    user: str = ""
    queuing_s: float = 0.0
    state: str = SUCCEEDED


def job_table(rows: Sequence[Row]) -> JobTable:
    """The jobs as a table; ids by their place."""

    def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([getattr(row, name) for row in rows], dtype=np.float64)

    nothing, submit_s = np.zeros(len(rows)), column("submit_s")
    counts = nothing.astype(np.int64)
    return JobTable(
        job_id=tuple(f"j{place}" for place in range(len(rows))),
        state=tuple(row.state for row in rows),
        submit_s=submit_s,
        first_start_s=submit_s,
        finish_s=submit_s + column("jct_s"),
        attempts=counts,
        preemptions=counts,
        resizes=counts,
        queuing_s=column("queuing_s"),
        gpu_s=nothing,
        lost_gpu_s=nothing,
        min_workers=column("gpus"),
        max_workers=column("gpus"),
        gpus_per_worker=np.ones(len(rows)),
        duration_s=column("duration_s"),
        fungible=nothing,
        heterogeneous=nothing,
        user=tuple(row.user for row in rows),
    )


def with_jobs(outcome: Outcome, rows: Sequence[Row]) -> Outcome:
    """The outcome as if these had been its jobs."""
    return replace(outcome, jobs=job_table(rows))
