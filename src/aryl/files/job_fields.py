"""What every job says, in an experiment as in a job file: its workers, and the speeds of GPU types."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, PlainValidator, WithJsonSchema, model_validator

from aryl.files.fields import MOST_SPEED, PositiveCount, Strict, fault, speed, whole_number

_SIZES = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1}}
_SPEEDS = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SPEED},
}

WORKERS_FORMS = "a number, [min, max] or {min: 2, max: 8, sizes: [2, 4, 8]}"


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise fault("wrong value", expected="a list of worker counts, such as [2, 4, 8]")
    sizes = [whole_number(size, 1) for size in value]
    if any(after <= before for before, after in pairwise(sizes)):
        raise fault("sizes do not ascend", expected="each allowed worker count once, the smallest first")
    return tuple(sizes)


def _with_short_forms(schema: dict[str, Any]) -> None:
    count = {"type": "integer", "minimum": 1}
    pair = {"type": "array", "items": count, "minItems": 2, "maxItems": 2}
    full = {key: schema.pop(key) for key in ("type", "properties", "additionalProperties")}
    full["anyOf"] = [{"required": schema.pop("required")}, {"required": ["sizes"]}]
    schema["anyOf"] = [count, pair, full]


class WorkersConfig(Strict):
    """How many workers a job may have: `min`..`max`, or only the counts in `sizes`, both ends among them."""

    model_config = ConfigDict(json_schema_extra=_with_short_forms)

    min: PositiveCount
    max: PositiveCount
    sizes: Annotated[tuple[int, ...], BeforeValidator(_sizes), WithJsonSchema(_SIZES)] | None = None

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


def _type_speeds(value: object) -> dict[str, float]:
    if not isinstance(value, Mapping) or not value:
        raise fault("wrong value", expected="speeds by GPU type, such as {V100: 1.0, T4: 0.33}")
    speeds: dict[str, float] = {}
    for gpu_type, relative in value.items():
        speeds[str(gpu_type)] = speed(relative, gpu_type)
    return speeds


TypeSpeeds = Annotated[dict[str, float], PlainValidator(_type_speeds), WithJsonSchema(_SPEEDS)]
