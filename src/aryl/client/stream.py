"""Answers that go on: events and logs. Both take up where they were after a broken connection.

Events carry their number in the journal, which is sent back as `Last-Event-ID`. A log only grows, so what has
been handed out already is skipped when it is read again; this works for a log read from its beginning, and
not for its tail, whose beginning has moved meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aryl.client.answers import ServerEvent
from aryl.client.patience import Patience
from aryl.client.transport import Parameters, Transport
from aryl.errors import UnreachableError

# A server says something every 15 seconds, if only that it is there.
EVENTS_SILENCE_S = 60.0
# A job may print nothing for long; the price of a wrong guess is to read its log once more.
LOG_SILENCE_S = 600.0


def lines_of(chunks: Iterable[bytes], *, last_part: bool = True) -> Iterator[bytes]:
    """The lines without their ends; nothing but a line feed ends one. `last_part`: also what follows the last."""
    parts: list[bytes] = []
    for chunk in chunks:
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            yield b"".join([*parts, line])
            parts.clear()
        if rest:
            parts.append(rest)
    if parts and last_part:
        yield b"".join(parts)


@dataclass
class _Block:
    """The fields of one event so far."""

    number: str = ""
    kind: str = ""
    data: list[str] = field(default_factory=list)


def parse_events(lines: Iterable[bytes]) -> Iterator[ServerEvent]:
    """The events of a `text/event-stream`. Those without a number or without JSON are no events of a journal."""
    block = _Block()
    for raw in lines:
        line = raw.decode("utf-8", "replace").removesuffix("\r")
        if not line:
            event = _event(block)
            block = _Block()
            if event is not None:
                yield event
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            block.number = value
        elif name == "event":
            block.kind = value
        elif name == "data":
            block.data.append(value)


def _event(block: _Block) -> ServerEvent | None:
    if not block.number.isdecimal():
        return None
    try:
        data: Any = json.loads("\n".join(block.data))
    except ValueError:
        return None
    return ServerEvent(int(block.number), block.kind or "message", data)


def follow_events(transport: Transport, after: int | None, patience: Patience) -> Iterator[ServerEvent]:
    """All events after number `after` (None: from now on), without an end. Raises UnreachableError."""
    last = after
    while True:
        headers = {"Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        try:
            with transport.stream("/v1/events", silence_s=EVENTS_SILENCE_S, headers=headers) as chunks:
                patience.answered()
                # An event that was cut off has no empty line at its end, and comes again.
                for event in parse_events(lines_of(chunks, last_part=False)):
                    last = event.sequence
                    patience.answered()
                    yield event
            lost = UnreachableError(f"{transport.base_url} has closed the connection")
        except UnreachableError as error:
            lost = error
        patience.lost(lost)


def read_log(
    transport: Transport, path: str, parameters: Parameters, *, resumable: bool, patience: Patience
) -> Iterator[str]:
    """The lines of a log until it ends. Raises NotFoundError and UnreachableError."""
    handed_out = 0
    while True:
        try:
            with transport.stream(
                path, silence_s=LOG_SILENCE_S, parameters=parameters, headers={"Accept": "text/plain"}
            ) as chunks:
                patience.answered()
                whole = lines_of(_without_first(chunks, handed_out))
                for line in whole:
                    yield line.decode("utf-8", "replace")
                    handed_out += len(line) + 1
                    patience.answered()
            return
        except UnreachableError as error:
            if not resumable:
                raise
            patience.lost(error)


def _without_first(chunks: Iterable[bytes], count: int) -> Iterator[bytes]:
    for chunk in chunks:
        skipped = min(count, len(chunk))
        count -= skipped
        if skipped < len(chunk):
            yield chunk[skipped:]
