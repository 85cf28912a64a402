"""From a validation error to the one line that the user sees: file, line, key, found, expected, nearest.

Pydantic reports where in the models an error is, with steps that stand for a branch of a union and not for a
key. The path is therefore walked through what the user wrote: steps that lead nowhere there are left out.
Where several things are wrong, the one that stands first in the file is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from aryl.errors import InputError
from aryl.files.fields import FAULT, Strict

KeyPath = tuple[str | int, ...]


class Place(NamedTuple):
    """Where a value was written: a file and line, or, in `file`, the flag that set it."""

    file: str | None = None
    line: int | None = None


def dotted(path: KeyPath) -> str | None:
    """`('jobs', 2, 'work')` as people write it: `jobs[2].work`. None for the empty path."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".") or None


def place_of(places: Mapping[KeyPath, Place], path: KeyPath) -> Place:
    """The place of `path`, or of what was set inside it, or of the nearest value around it.

    A section that only a flag made has no place of its own, and is that flag's to answer for.
    """
    if path not in places:
        inside = (place for inner, place in places.items() if path and inner[: len(path)] == path)
        if (place := next(inside, None)) is not None:
            return place
    return next((places[path[:end]] for end in range(len(path), -1, -1) if path[:end] in places), Place())


def input_error(
    error: ValidationError, data: Mapping[str, Any], places: Mapping[KeyPath, Place], model: type[Strict]
) -> InputError:
    """The first of the errors, in the order of the lines, as an `InputError`. `model` is the whole file's."""
    candidates = [_one(details, data, places, model) for details in error.errors(include_url=False)]
    return min(candidates, key=lambda candidate: candidate.line or 0)


def _one(
    details: ErrorDetails, data: Mapping[str, Any], places: Mapping[KeyPath, Place], model: type[Strict]
) -> InputError:
    context = details.get("ctx", {})
    steps: list[str | int] = [*details["loc"], *context.get("path", ())]
    missing = details["type"] == "missing"
    path = _walk(data, steps[:-1] if missing else steps)
    place = place_of(places, path)
    if missing:
        return InputError(f"'{steps[-1]}' is missing", file=place.file, line=place.line, field=dotted(path))
    found = _presentable(context.get("found", details["input"]))
    nearest = context.get("nearest")
    message, expected = details["msg"], context.get("expected")
    if details["type"] != FAULT:
        message, expected = "wrong value", _in_words(details)
    if message == "unknown key":
        found = None
        nearest = nearest if nearest and path[:-1] else _elsewhere(model, path[-1]) or nearest
        nearest = nearest or _elsewhere(model, path[-1])
    elif message != "wrong value":
        found = None if details["type"] == FAULT and "found" not in context else found
    return InputError(
        message,
        file=place.file,
        line=place.line,
        field=dotted(path),
        found=found,
        expected=expected,
        nearest=nearest,
    )


def _walk(data: Any, steps: list[str | int]) -> KeyPath:
    path: list[str | int] = []
    here = data
    for step in steps:
        if isinstance(here, dict):
            key = next((key for key in here if str(key) == str(step)), None)
            if key is not None:
                path.append(str(key))
                here = here[key]
        elif isinstance(here, list | tuple) and isinstance(step, int) and step < len(here):
            path.append(step)
            here = here[step]
    return tuple(path)


def _elsewhere(whole: type[Strict], key: str | int) -> str | None:
    """The full name of a key that exists, but in another section of the file."""
    for section, field in whole.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, Strict) and key in model.known_keys():
            return f"{section}.{key}"
    return None


def _in_words(details: ErrorDetails) -> str:
    kind = details["type"]
    if kind in {"model_type", "model_attributes_type", "dict_type"}:
        return "a mapping of keys to values"
    if kind == "list_type":
        return "a list"
    if kind.startswith("bool"):
        return "true or false"
    return details["msg"].rpartition("expected ")[2]


def _presentable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        text = str(list(value))
        return text if len(text) <= 60 else "a list"
    return "nothing" if value is None else value
