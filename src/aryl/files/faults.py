"""From a validation error to the one line that the user sees: file, line, key, found, expected, nearest.

Pydantic reports where in the models an error is, with steps that stand for a branch of a union and not for a
key. The path is therefore walked through what the user wrote: steps that lead nowhere there are left out.
Where several things are wrong, the one that stands first in the file is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from aryl.errors import InputError
from aryl.files.fields import FAULT, MOST_NUMBER_AS_TEXT, Details, Strict, in_one_line

KeyPath = tuple[str | int, ...]

# How much of a wrong value an error shows.
MOST_SHOWN = 120


class Place(NamedTuple):
    """Where a value was written: a file and line, or, in `file`, the flag that set it."""

    file: str | None = None
    line: int | None = None


def dotted(path: KeyPath) -> str | None:
    """`('jobs', 2, 'work')` as people write it: `jobs[2].work`. None for the empty path."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{shortened(in_one_line(step))}"
    return text.removeprefix(".") or None


def shortened(text: str) -> str:
    """The beginning of a text that is too long for an error."""
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"


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
    every = input_errors(error.errors(include_url=False), data, places, model)
    return min(every, key=lambda candidate: candidate.line or 0)


def input_errors(
    errors: Iterable[ErrorDetails],
    data: Mapping[str, Any],
    places: Mapping[KeyPath, Place],
    model: type[Strict],
) -> list[InputError]:
    """All of the errors, for an answer with one entry a field."""
    return [_one(details, data, places, model) for details in errors]


def _one(
    details: ErrorDetails, data: Mapping[str, Any], places: Mapping[KeyPath, Place], model: type[Strict]
) -> InputError:
    context = details.get("ctx", {}).get("details")
    said = context if isinstance(context, Details) else Details((), None, None, details["input"])
    steps: list[str | int] = [*details["loc"], *said.path]
    missing = details["type"] == "missing"
    path = _walk(data, steps[:-1] if missing else steps)
    place = place_of(places, path)
    if missing:
        return InputError(f"'{steps[-1]}' is missing", file=place.file, line=place.line, field=dotted(path))
    found = _presentable(said.found_or(details["input"]))
    message, expected, nearest = details["msg"], said.expected, said.nearest
    if details["type"] != FAULT:
        message, expected = "wrong value", _in_words(details)
    if message == "unknown key":
        found = None
        nearest = nearest if nearest and path[:-1] else _elsewhere(model, path[-1]) or nearest
        nearest = nearest or _elsewhere(model, path[-1])
    elif message != "wrong value":
        found = found if said.says_what_was_found else None
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
            for key, value in here.items():
                if str(key) == str(step):
                    path.append(str(key))
                    here = value
                    break
        elif isinstance(here, list | tuple) and isinstance(step, int) and step < len(here):
            path.append(step)
            here = here[step]
    return tuple(path)


def _elsewhere(whole: type[Strict], key: str | int) -> str | None:
    """The full name of a key that exists, but in another section of the file."""
    for section, field in whole.model_fields.items():
        for model in (field.annotation, *get_args(field.annotation)):
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
    match value:
        case Mapping():
            return "a mapping"
        case list() | tuple():
            try:
                text = str(list(value))
            except (RecursionError, ValueError):  # nested beyond all reason, or a number of 5000 figures
                return "a list"
            return text if len(text) <= 60 else "a list"
        case int() if abs(value) > MOST_NUMBER_AS_TEXT:
            return "a huge number"
        case None:
            return "nothing"
        case bool() | int() | float():
            return value
        case bytes():
            return "binary data"
        case _:
            return shortened(str(value))
