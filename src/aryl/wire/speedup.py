"""The ways to say how a job speeds up with its workers, in a job file as in an experiment.

They stand here and not beside the other kinds of values because the curve itself is the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from aryl.core import speedup
from aryl.files.fields import Share, Strict, fault, speed, whole_number

_POINTS = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"pattern": "^[1-9][0-9]*$"},
    "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
}

SPEEDUP_FORMS = 'linear, {amdahl: 0.05} or {points: {"4": 1.0, "8": 1.8}}'


def _speedup_points(value: object) -> dict[int, float]:
    if not isinstance(value, Mapping) or not value:
        raise fault("wrong value", expected='speeds by worker count, such as {"4": 1.0, "8": 1.8}')
    points: dict[int, float] = {}
    for workers, at in value.items():
        points[whole_number(workers, 1)] = speed(at, workers)
    ordered = tuple(sorted(points.items()))
    try:
        speedup.Points(ordered)
    except ValueError as error:
        raise fault(str(error)) from None
    return dict(ordered)


SpeedupPoints = Annotated[dict[int, float], BeforeValidator(_speedup_points), WithJsonSchema(_POINTS)]


class SpeedupConfig(Strict):
    """Speed by number of workers: Amdahl's law with a serial share, or measured points.

    None stands for linear.
    """

    amdahl: Share | None = None
    points: SpeedupPoints | None = None

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
