"""The journal: every event in order, one JSON object a line, and back again.

The state is a fold of the journal, so `replay` of what was written gives the state that was. Lines look like
`{"at": 12.0, "seq": 7, "type": "Launched", "job_id": "a", "attempt": 1}`; a plan has its steps inside. Which
keys there are follows from the dataclasses in `core/events.py` and `core/plan.py`; nothing is spelled out
twice.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TextIO

from aryl.core import events as ev
from aryl.core import plan as pl
from aryl.core import speedup as sp
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.errors import InputError, nearest_word

_EVENTS: dict[str, type] = {kind.__name__: kind for kind in typing.get_args(ev.Event)}
_STEPS: dict[str, type] = {kind.__name__: kind for kind in typing.get_args(pl.Step)}
_CURVES: dict[str, type] = {kind.__name__: kind for kind in typing.get_args(sp.Speedup)}
_TAGGED = {**_STEPS, **_CURVES}


class MemoryJournal:
    """Keeps the events."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []

    def append(self, event: ev.Event) -> None:
        """Keep one event behind the others."""
        self.events.append(event)

    def flush(self) -> None:
        """Nothing to do: memory doesn't outlive a crash."""


class FileJournal:
    """Writes the events to an open text file, as JSON lines."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._sequence = 0

    def append(self, event: ev.Event) -> None:
        """Write one event behind the others."""
        self._file.write(to_line(event, self._sequence))
        self._sequence += 1

    def flush(self) -> None:
        """Nothing to do: a simulation that broke off is run again."""


def to_line(event: ev.Event, sequence: int) -> str:
    """One event as a line of JSON, newline included."""
    body = {"at": event.at, "seq": sequence, "type": type(event).__name__}
    for field in fields(event):
        if field.name != "at":
            body[field.name] = _plain(getattr(event, field.name))
    return json.dumps(body, separators=(",", ":"), allow_nan=False) + "\n"


def from_lines(lines: Iterable[str], source: str) -> Iterator[ev.Event]:
    """The events of a journal. Raises InputError, naming `source` and line, for a line that isn't one or a
    gap.
    """
    for number, line in enumerate(lines, start=1):
        try:
            body = json.loads(line)
            kind = body.pop("type")
            sequence = body.pop("seq")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise InputError(
                "not a line of a journal", file=source, line=number, expected='{"at", "seq", "type", ...}'
            ) from None
        if kind not in _EVENTS:
            raise InputError(
                "unknown event",
                file=source,
                line=number,
                field="type",
                found=kind,
                nearest=nearest_word(kind, _EVENTS),
            )
        if sequence != number - 1:
            raise InputError(
                "the journal has a gap",
                file=source,
                line=number,
                field="seq",
                found=sequence,
                expected=str(number - 1),
            )
        try:
            event: ev.Event = _build(_EVENTS[kind], body)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a {kind} event: {error}", file=source, line=number) from None
        yield event


def replay(cluster: Cluster, events: Iterable[ev.Event]) -> Cluster:
    """Fold events into a new cluster, which must have been made with the policy's order; returns it."""
    for event in events:
        evolve(cluster, event)
    return cluster


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        body = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        name = type(value).__name__
        return {"type": name, **body} if name in _TAGGED else body
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return value


def _build(kind: type, body: dict[str, Any]) -> Any:
    # A key that is missing is one that came later than the journal: its default is what was meant.
    missing = {field.name for field in fields(kind) if field.name not in body and _has_default(field)}
    return kind(**{name: read(body[name]) for name, read in _readers(kind).items() if name not in missing})


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


@cache
def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    hints = typing.get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in fields(kind)}


def _reader(hint: Any) -> Callable[[Any], Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [arg for arg in args if arg is not type(None)]
        if all(is_dataclass(arg) for arg in kinds):
            return lambda value: None if value is None else _tagged(dict(value))
        inner = _reader(kinds[0])
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        if args[-1] is Ellipsis:
            item = _reader(args[0])
            return lambda value: tuple(item(part) for part in value)
        items = [_reader(arg) for arg in args]
        return lambda value: tuple(read(part) for read, part in zip(items, value, strict=True))
    if isinstance(hint, type):
        if issubclass(hint, Enum):
            return hint
        if is_dataclass(hint):
            return lambda value: _build(hint, {key: part for key, part in value.items() if key != "type"})
        if hasattr(hint, "_fields"):
            inner_hints = typing.get_type_hints(hint)
            items = [_reader(inner_hints[name]) for name in hint._fields]
            return lambda value: hint(*(read(part) for read, part in zip(items, value, strict=True)))
        if hint is float:
            return float
    return lambda value: value


def _tagged(body: dict[str, Any]) -> Any:
    return _build(_TAGGED[body.pop("type")], body)
