"""What people write for times, shares and work, turned into seconds, fractions and GPU-seconds.

Files, flags and tables all read quantities here, so that `2h` means the same everywhere. A bare
number is always in the base unit (seconds, a fraction, GPU-seconds): there is no guessing by size.
"""

from __future__ import annotations

import math
import re

EXPECTED_TIME = "a time such as 90, 90s, 10m, 2h, 1h30m or 15d"
EXPECTED_SHARE = "a share such as 95% or 0.95"
EXPECTED_SIZE = "a size such as 4GiB, 512MiB or a number of bytes"
EXPECTED_WORK = "work such as '120 gpu-min', '2 gpu-h' or a number of GPU-seconds"

_SECONDS = {
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_GPU_SECONDS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TIME_PART = re.compile(rf"\s*({_NUMBER})\s*(ms|sec|min|s|m|h|d|w)\s*")
_WORK = re.compile(rf"\s*({_NUMBER})\s*gpu-([a-z]+)\s*", re.IGNORECASE)
_SIZE = re.compile(rf"\s*({_NUMBER})\s*([a-z]+)\s*", re.IGNORECASE)
_PERCENT = re.compile(rf"\s*({_NUMBER})\s*%\s*")


class UnitError(ValueError):
    """The text is not a quantity of the wanted kind. `expected` says in words what would be."""

    def __init__(self, found: object, expected: str) -> None:
        self.found, self.expected = found, expected
        super().__init__(f"found {found!r}; expected {expected}")


def seconds(value: object) -> float:
    """A time in seconds, >= 0, from a number or from text such as `90`, `90s`, `10m`, `2h`, `1h30m`, `15d`.

    Raises `UnitError` for anything else, negative and infinite times among them.
    """
    plain = _plain_number(value)
    if plain is None and isinstance(value, str) and value.strip():
        plain, at = 0.0, 0
        while at < len(value):
            part = _TIME_PART.match(value, at)
            if part is None:
                raise UnitError(value, EXPECTED_TIME)
            plain += float(part[1]) * _SECONDS[part[2]]
            at = part.end()
    return _at_least_zero(plain, value, EXPECTED_TIME)


def share(value: object) -> float:
    """A fraction >= 0 from `95%` or `0.95`. A bare number is a fraction, never a percentage.

    Raises `UnitError`. Whether more than 1 makes sense is the caller's to say.
    """
    plain = _plain_number(value)
    if plain is None and isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
        plain = float(match[1]) / 100
    return _at_least_zero(plain, value, EXPECTED_SHARE)


def gpu_seconds(value: object) -> float:
    """Work in GPU-seconds from `120 gpu-min`, `2 gpu-h`, `90 gpu-s` or a number. Raises `UnitError`."""
    plain = _plain_number(value)
    if plain is None and isinstance(value, str) and (match := _WORK.fullmatch(value)):
        unit = _GPU_SECONDS.get(match[2].lower())
        plain = None if unit is None else float(match[1]) * unit
    return _at_least_zero(plain, value, EXPECTED_WORK)


def size_bytes(value: object) -> int:
    """A size in bytes from `4GiB`, `4Gi`, `500MB` or a number of bytes. Raises `UnitError`."""
    plain = _plain_number(value)
    if plain is None and isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        unit = match[2].lower()
        size = _BYTES.get(unit.removesuffix("b") if unit[1:] == "ib" else unit)
        plain = None if size is None else float(match[1]) * size
    return int(_at_least_zero(plain, value, EXPECTED_SIZE))


def human_seconds(value: float) -> str:
    """A time for people: `45 s`, `12 min`, `3.4 h`, `2.1 d`. Three figures at most, so columns line up."""
    if not math.isfinite(value):
        return "-"
    for limit, size, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h")):
        if abs(value) < limit:
            return f"{_three_figures(value / size)} {unit}"
    return f"{_three_figures(value / 86400.0)} d"


def _three_figures(value: float) -> str:
    text = f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"
    return text.removesuffix(".0")


def _plain_number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if isinstance(value, str):
        match = re.fullmatch(rf"\s*({_NUMBER})\s*", value)
        return float(match[1]) if match else None
    return None


def _at_least_zero(number: float | None, found: object, expected: str) -> float:
    if number is None or not math.isfinite(number) or number < 0:
        raise UnitError(found, expected)
    return number
