"""Jobs written out in an experiment file.

An inline job says its size either as `work` (GPU-seconds at linear speed on the reference GPU type) or as
`duration` (at base demand on that type); each follows from the other, so giving both is an error, not a
contradiction to resolve.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from aryl.files.fields import (
    Checkpoint,
    Integer,
    PositiveCount,
    PositiveSeconds,
    PositiveWork,
    Seconds,
    Strict,
    Text,
    fault,
)
from aryl.files.job_fields import TypeSpeeds, WorkersConfig
from aryl.wire.speedup import SpeedupConfig, without_linear


class InlineJob(Strict):
    """One job of an experiment file. Times in seconds from the start, `work` in GPU-seconds."""

    id: Text
    submit: Seconds = 0.0
    workers: WorkersConfig
    gpus_per_worker: PositiveCount = 1
    work: PositiveWork | None = None
    duration: PositiveSeconds | None = None
    priority: Integer = 0
    checkpoint: Checkpoint = None
    user: Text | None = None
    project: Text | None = None
    gpu_types: TypeSpeeds | None = None
    fungible: bool = False
    heterogeneous: bool = False
    estimate: PositiveSeconds | None = None
    speedup: SpeedupConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _take_short_forms(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: without_linear(item) if key == "speedup" else item for key, item in value.items()}
        return value

    @model_validator(mode="after")
    def _size_is_given_once(self) -> InlineJob:
        if (self.work is None) == (self.duration is None):
            key = () if self.work is None else ("duration",)
            raise fault(f"job {self.id} needs exactly one of work and duration", *key)
        return self

    @property
    def min_workers(self) -> int:
        """Workers at base demand: the gang."""
        return self.workers.min

    @property
    def max_workers(self) -> int:
        """The most workers that the job can use."""
        return self.workers.max

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The allowed worker counts, ascending, where not every count from min to max is allowed."""
        return self.workers.sizes

    @property
    def base_gpus(self) -> int:
        """GPUs at base demand."""
        return self.workers.min * self.gpus_per_worker

    @property
    def duration_s(self) -> float:
        """True running time at base demand on the reference GPU type."""
        if self.duration is not None:
            return self.duration
        assert self.work is not None  # the validator saw to it
        return self.work / self.base_gpus

    @property
    def work_gpu_s(self) -> float:
        """Work in GPU-seconds on the reference GPU type, at the speed of the base demand."""
        return self.duration_s * self.base_gpus
