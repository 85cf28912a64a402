"""The kinds of values that files are made of, and the base of their models.

Pydantic's own messages talk about Python types; people who write a file think in times, shares and names. So
each kind of value is parsed here by a function that says what it expected in those words. `fault` carries the
key that is to blame, the expectation and the nearest right word out of pydantic, and `faults` turns
them into an `InputError` with file and line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from aryl.errors import nearest_word
from aryl.files import units

FAULT = "aryl_fault"
EXPECTED_INSTANT = "an instant with its offset, such as 2026-03-28T12:00+01:00"
MOST_WHOLE = 2**53
MOST_FIGURES = 20
MOST_SPEED = 1e12
MOST_NUMBER_AS_TEXT = 10**100
# Control characters, half surrogates, and those that break lines or turn the direction of writing.
UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NOTHING: Any = object()


class Details:
    """What a fault says besides its message.

    An object of its own, because pydantic turns all that it finds in an error's context into text, and not
    everything that people write can be.
    """

    __slots__ = ("expected", "found", "nearest", "path")

    def __init__(
        self, path: tuple[str | int, ...], expected: str | None, nearest: str | None, found: Any
    ) -> None:
        self.path, self.expected, self.nearest, self.found = path, expected, nearest, found

    def found_or(self, value: Any) -> Any:
        """What was found, or `value` if the fault doesn't say."""
        return value if self.found is _NOTHING else self.found

    @property
    def says_what_was_found(self) -> bool:
        """Whether it names the wrong value itself."""
        return self.found is not _NOTHING


def fault(
    message: str,
    *path: str | int,
    expected: str | None = None,
    nearest: str | None = None,
    found: Any = _NOTHING,
) -> PydanticCustomError:
    """An error to raise inside a validator; `path` leads from the validated value to the key to blame."""
    context: dict[str, Any] = {
        "message": in_one_line(message),
        "details": Details(path, expected, nearest, found),
    }
    return PydanticCustomError(FAULT, "{message}", context)


def in_one_line(text: str) -> str:
    """`text` with line breaks, control characters and half surrogates escaped, for one line of a terminal."""
    return UNFIT.sub(lambda match: ascii(match[0])[1:-1], text)


class Strict(BaseModel):
    """A frozen model that refuses keys it doesn't know and names the nearest one that it does."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, coerce_numbers_to_str=True)

    @classmethod
    def known_keys(cls) -> list[str]:
        """The keys that a file may use here, in the order of their definition."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            known = cls.known_keys()
            for key in value:
                if key not in known and key not in cls.model_fields:
                    raise fault(
                        "unknown key",
                        str(key),
                        expected="one of " + ", ".join(known),
                        nearest=nearest_word(str(key)[:200], known),
                        found=str(key),
                    )
        return value


class Section(Strict):
    """A strict model in which a key without a value is a key left out."""

    @model_validator(mode="before")
    @classmethod
    def _empty_is_left_out(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: setting for key, setting in value.items() if setting is not None}
        return value


def _from_unit(parse: Callable[[object], float]) -> Callable[[object], float]:
    def validate(value: object) -> float:
        try:
            return parse(value)
        except units.UnitError as error:
            raise fault("wrong value", expected=error.expected) from None

    return validate


def _positive(parse: Callable[[object], float]) -> Callable[[object], float]:
    def validate(value: object) -> float:
        number = _from_unit(parse)(value)
        if number <= 0:
            raise fault("wrong value", expected="more than 0")
        return number

    return validate


def _share_up_to_one(value: object) -> float:
    number = _from_unit(units.share)(value)
    if number > 1:
        raise fault("wrong value", expected=units.EXPECTED_SHARE + ", at most 100%")
    return number


def whole_number(value: object, least: int | None = None, most: int = MOST_WHOLE) -> int:
    """`value` as an int of at least `least`; text that spells one is taken, truth values are not.

    By default numbers beyond 2**53 are refused: past it, JSON and floating point lose the last figures.
    """
    number: int | None = None
    if isinstance(value, str):
        text = value.strip()
        number = int(text) if text.removeprefix("-").isdecimal() and len(text) <= MOST_FIGURES else None
    elif isinstance(value, int | float) and not isinstance(value, bool) and value == int_or_none(value):
        number = int(value)
    if number is None or not (-MOST_WHOLE if least is None else least) <= number <= most:
        limits = "" if least is None else f", at least {least}"
        if number is not None and number > most:
            limits = f", at most {most}" if least is None else f" from {least} to {most}"
        raise fault("wrong value", expected="a whole number" + limits, found=value)
    return number


def speed(value: object, key: object) -> float:
    """A speed above 0, which stands at `key`; raises a fault at that key."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MOST_SPEED:
        return float(value)
    raise fault("wrong value", str(key), expected="a speed above 0", found=value)


def int_or_none(value: float) -> int | None:
    """`value` cut to an int, or None where it is infinite or not a number."""
    try:
        return int(value)
    except (OverflowError, ValueError):
        return None


def _number(value: object) -> float:
    try:
        return units.share(value)
    except units.UnitError:
        raise fault("wrong value", expected="a number, at least 0") from None


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        if UNFIT.search(value):
            raise fault("wrong value", expected="a text without control characters")
        return value
    if (number := number_as_text(value)) is not None:
        return number
    hint = ", in quotes" if isinstance(value, bool) or value is None else ""
    raise fault("wrong value", expected="a text" + hint)


def number_as_text(value: object) -> str | None:
    """A number as people wrote it, more or less; None for anything else, and for numbers beyond all use."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) > MOST_NUMBER_AS_TEXT:
        return None
    return str(value)


def _checkpoint(value: object) -> float | Literal["continuous", "none"] | None:
    if value is None:
        return None
    if value == "none":
        return "none"  # a job that says `none` never saves; one that says nothing follows the default
    if value == "continuous":
        return "continuous"
    try:
        every_s = units.seconds(value)
    except units.UnitError:
        every_s = 0.0
    if every_s <= 0:
        raise fault(
            "wrong value", expected="'continuous', 'none' or the time between two checkpoints, such as 15m"
        )
    return every_s


def _window(value: object) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise fault("wrong value", expected="[start, end], such as [14d, 29d]")
    times: list[float] = []
    for index, time in enumerate(value):
        try:
            times.append(units.seconds(time))
        except units.UnitError as error:
            raise fault("wrong value", index, expected=error.expected, found=time) from None
    if times[1] <= times[0]:
        raise fault("the window ends before it starts", expected="[start, end] with start before end")
    return times[0], times[1]


def _instant(value: object) -> float:
    """Unix time of an instant written with its offset."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value.strip())
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.timestamp()
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise fault("wrong value", expected=EXPECTED_INSTANT)


def choice(*words: str) -> PlainValidator:
    """Accept exactly `words`."""

    def validate(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        near = nearest_word(value[:200], words) if isinstance(value, str) else None
        raise fault("wrong value", expected="one of " + ", ".join(words), nearest=near)

    return PlainValidator(validate)


def _schema(*forms: dict[str, Any]) -> WithJsonSchema:
    """How a kind of value looks in JSON, for the descriptions of APIs."""
    return WithJsonSchema({"anyOf": list(forms)} if len(forms) > 1 else forms[0])


_TIME = {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|sec|m|min|h|d|w))+$"}
_PERCENT = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?%$"}
_NOT_NEGATIVE = {"type": "number", "minimum": 0}
_ABOVE_ZERO = {"type": "number", "exclusiveMinimum": 0}

Seconds = Annotated[float, PlainValidator(_from_unit(units.seconds)), _schema(_NOT_NEGATIVE, _TIME)]
PositiveSeconds = Annotated[float, PlainValidator(_positive(units.seconds)), _schema(_ABOVE_ZERO, _TIME)]
PositiveWork = Annotated[float, PlainValidator(_positive(units.gpu_seconds))]
Share = Annotated[float, PlainValidator(_share_up_to_one), _schema({**_NOT_NEGATIVE, "maximum": 1}, _PERCENT)]
Nonnegative = Annotated[float, PlainValidator(_number), _schema(_NOT_NEGATIVE, _PERCENT)]
PositiveNumber = Annotated[float, PlainValidator(_positive(_number)), _schema(_ABOVE_ZERO, _PERCENT)]
Integer = Annotated[int, PlainValidator(whole_number), _schema({"type": "integer"})]
Count = Annotated[
    int, PlainValidator(lambda value: whole_number(value, 0)), _schema({"type": "integer", "minimum": 0})
]
PositiveCount = Annotated[
    int, PlainValidator(lambda value: whole_number(value, 1)), _schema({"type": "integer", "minimum": 1})
]
Text = Annotated[str, PlainValidator(_text), _schema({"type": "string", "minLength": 1})]
Checkpoint = Annotated[float | Literal["continuous", "none"] | None, PlainValidator(_checkpoint)]
Instant = Annotated[float, PlainValidator(_instant)]
Window = Annotated[tuple[float, float], PlainValidator(_window)]
