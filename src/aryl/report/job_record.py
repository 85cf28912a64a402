"""What is kept of each job while a run is being recorded, and the table that it becomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import numpy as np

from aryl.core.model import JobSpec, JobState
from aryl.report.outcome import REJECTED, Floats, Ints, JobTable

_NEVER = float("nan")


class JobRecord:
    """Running sums of one job. Written by the recorder only. `spec` is None for a job that was refused."""

    __slots__ = (
        "attempts",
        "done_s",
        "end_s",
        "first_start_s",
        "gpu_s",
        "held_since_s",
        "job_id",
        "loaned_gpus",
        "lost_gpu_s",
        "number",
        "pending_since_s",
        "preemptions",
        "queuing_s",
        "resizes",
        "spec",
        "stopping_attempt",
        "submit_s",
        "training_gpus",
        "waiting",
    )

    def __init__(self, job_id: str, number: int, submit_s: float, spec: JobSpec | None) -> None:
        self.job_id = job_id
        self.number = number
        self.spec = spec
        self.submit_s = submit_s
        self.first_start_s = _NEVER
        self.end_s = _NEVER
        self.attempts = 0
        self.preemptions = 0
        self.resizes = 0
        self.waiting = spec is not None
        self.pending_since_s = submit_s
        self.queuing_s = 0.0
        self.training_gpus = 0  # held on servers that the training pool owns, leaving ones included
        self.loaned_gpus = 0
        self.held_since_s = submit_s
        self.gpu_s = 0.0
        self.stopping_attempt = 0  # the attempt that was told to stop and hasn't stopped yet; 0: none
        self.done_s = 0.0  # base seconds done when it was told to stop
        self.lost_gpu_s = 0.0

    @property
    def over(self) -> bool:
        """Has ended, well or badly."""
        return not math.isnan(self.end_s)

    def gpu_s_at(self, end_s: float) -> float:
        """GPU-seconds held until `end_s`."""
        return self.gpu_s + (self.training_gpus + self.loaned_gpus) * (end_s - self.held_since_s)

    def queuing_s_at(self, end_s: float) -> float:
        """Seconds spent waiting until `end_s`."""
        return self.queuing_s + (end_s - self.pending_since_s if self.waiting else 0.0)


def job_table(
    records: Collection[JobRecord],
    states: Mapping[str, JobState],
    durations_s: Mapping[str, float],
    refused: Mapping[str, JobSpec],
    end_s: float,
) -> JobTable:
    """All jobs as columns; jobs that are still waiting or running count up to `end_s`."""
    specs = [record.spec or refused.get(record.job_id) for record in records]

    def floats(read: Callable[[JobRecord], float]) -> Floats:
        return np.fromiter(map(read, records), np.float64, len(records))

    def ints(read: Callable[[JobRecord], int]) -> Ints:
        return np.fromiter(map(read, records), np.int64, len(records))

    def wanted(read: Callable[[JobSpec], float]) -> Floats:
        return np.fromiter((_NEVER if spec is None else read(spec) for spec in specs), np.float64, len(specs))

    return JobTable(
        job_id=tuple(record.job_id for record in records),
        state=tuple(REJECTED if record.spec is None else states[record.job_id].value for record in records),
        submit_s=floats(lambda record: record.submit_s),
        first_start_s=floats(lambda record: record.first_start_s),
        finish_s=floats(lambda record: record.end_s),
        attempts=ints(lambda record: record.attempts),
        preemptions=ints(lambda record: record.preemptions),
        resizes=ints(lambda record: record.resizes),
        queuing_s=floats(lambda record: record.queuing_s_at(end_s)),
        gpu_s=floats(lambda record: record.gpu_s_at(end_s)),
        lost_gpu_s=floats(lambda record: record.lost_gpu_s),
        min_workers=wanted(lambda spec: spec.min_workers),
        max_workers=wanted(lambda spec: spec.max_workers),
        gpus_per_worker=wanted(lambda spec: spec.gpus_per_worker),
        duration_s=floats(lambda record: durations_s.get(record.job_id, _NEVER)),
        fungible=wanted(lambda spec: spec.fungible),
        heterogeneous=wanted(lambda spec: spec.heterogeneous),
        user=tuple("" if spec is None else spec.user for spec in specs),
    )
