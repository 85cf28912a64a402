"""Jobs written out in an experiment file, and the ways to say how a job speeds up with its workers.

An inline job says its size either as `work` (GPU-seconds at linear speed on the reference GPU type) or as
`duration` (at base demand on that type); each follows from the other, so giving both is an error, not a
contradiction to resolve.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any

from pydantic import PlainValidator, model_validator

from aryl.core import speedup
from aryl.sim.experiment_fields import (
    Checkpoint,
    Count,
    Integer,
    PositiveCount,
    PositiveSeconds,
    PositiveWork,
    Seconds,
    Share,
    Strict,
    Text,
    fault,
    whole_number,
)

WORKERS_FORMS = "a number, [min, max] or {min: 2, max: 8, sizes: [2, 4, 8]}"
SPEEDUP_FORMS = 'linear, {amdahl: 0.05} or {points: {"4": 1.0, "8": 1.8}}'


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise fault("wrong value", expected="a list of worker counts, such as [2, 4, 8]")
    sizes = [whole_number(size, 1) for size in value]
    if any(after <= before for before, after in pairwise(sizes)):
        raise fault("sizes do not ascend", expected="each allowed worker count once, the smallest first")
    return tuple(sizes)


class WorkersConfig(Strict):
    """How many workers a job may have: `min`..`max`, or only the counts in `sizes`, both ends among them."""

    min: PositiveCount
    max: PositiveCount
    sizes: Annotated[tuple[int, ...], PlainValidator(_sizes)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _take_short_forms(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            full = dict(value)
            sizes = full.get("sizes")
            if isinstance(sizes, list | tuple) and sizes:
                full.setdefault("min", sizes[0])
                full.setdefault("max", sizes[-1])
            return full
        if isinstance(value, list | tuple):
            if len(value) != 2:
                raise fault(
                    "wrong value", expected="[min, max]; allowed counts are written {sizes: [8, 16, 32]}"
                )
            return {"min": value[0], "max": value[1]}
        if isinstance(value, int | str) and not isinstance(value, bool):
            return {"min": value, "max": value}
        raise fault("wrong value", expected=WORKERS_FORMS)

    @model_validator(mode="after")
    def _ends_agree(self) -> WorkersConfig:
        if self.min > self.max:
            raise fault(f"the least number of workers, {self.min}, exceeds the greatest, {self.max}")
        if self.sizes and (self.sizes[0], self.sizes[-1]) != (self.min, self.max):
            raise fault(
                "sizes do not run from min to max",
                expected=f"sizes from {self.min} to {self.max}",
                found=self.sizes,
            )
        return self


def _speedup_points(value: object) -> dict[int, float]:
    if not isinstance(value, Mapping) or not value:
        raise fault("wrong value", expected='speeds by worker count, such as {"4": 1.0, "8": 1.8}')
    points: dict[int, float] = {}
    for workers, speed in value.items():
        if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 < speed < float("inf"):
            raise fault("wrong value", str(workers), expected="a speed above 0", found=speed)
        points[whole_number(workers, 1)] = float(speed)
    ordered = tuple(sorted(points.items()))
    try:
        speedup.Points(ordered)
    except ValueError as error:
        raise fault(str(error)) from None
    return dict(ordered)


class SpeedupConfig(Strict):
    """Speed by number of workers: Amdahl's law with a serial share, or measured points.

    None stands for linear.
    """

    amdahl: Share | None = None
    points: Annotated[dict[int, float], PlainValidator(_speedup_points)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_a_mapping(cls, value: Any) -> Any:
        if isinstance(value, Mapping | SpeedupConfig):
            return value
        raise fault("wrong value", expected=SPEEDUP_FORMS)

    @model_validator(mode="after")
    def _one_of_both(self) -> SpeedupConfig:
        if (self.amdahl is None) == (self.points is None):
            raise fault("give exactly one of amdahl and points", expected=SPEEDUP_FORMS)
        return self

    def curve(self) -> speedup.Speedup:
        """The curve that the engine uses."""
        if self.points is not None:
            return speedup.Points(tuple(self.points.items()))
        return speedup.Amdahl(self.amdahl or 0.0)


def without_linear(value: object) -> object:
    """`linear` is the default; a file may still say it."""
    return None if value == "linear" else value


def _type_speeds(value: object) -> dict[str, float]:
    if not isinstance(value, Mapping) or not value:
        raise fault("wrong value", expected="speeds by GPU type, such as {V100: 1.0, T4: 0.33}")
    speeds: dict[str, float] = {}
    for gpu_type, speed in value.items():
        if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 < speed < float("inf"):
            raise fault("wrong value", str(gpu_type), expected="a speed above 0", found=speed)
        speeds[str(gpu_type)] = float(speed)
    return speeds


TypeSpeeds = Annotated[dict[str, float], PlainValidator(_type_speeds)]


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


class ProjectConfig(Strict):
    """What a project is promised."""

    guaranteed: Count = 0
