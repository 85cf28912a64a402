"""Answers that go on: events and logs. Both take up where they were after a broken connection.

Events carry their number in the journal, which is sent back as `Last-Event-ID`. A log only grows, so what has
been handed out already is skipped when it is read again. That takes reading it from its beginning: where the
server cuts its tail off has moved meanwhile.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
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
# Between the end of an answer and the next try, where the log isn't over.
PAUSE_S = 0.5


def lines_of(chunks: Iterable[bytes], *, last_part: bool = True) -> Iterator[bytes]:
    """The lines without their ends; only a line feed ends one. `last_part`: what follows the last, too."""
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
    """The events of a `text/event-stream`. What has no number or no JSON is no event of a journal."""
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


def follow_events(
    transport: Transport, after: int | None, patience: Patience
) -> Generator[ServerEvent, None, None]:
    """All events after number `after` (None: from now on), without an end. Raises UnreachableError."""
    parameters: Parameters = {"after": "now" if after is None else after}
    headers = {"Accept": "text/event-stream"}
    while True:
        try:
            with transport.stream(
                "/v1/events", silence_s=EVENTS_SILENCE_S, parameters=parameters, headers=headers
            ) as chunks:
                patience.answered()
                # An event that was cut off has no empty line at its end, and comes again.
                for event in parse_events(lines_of(chunks, last_part=False)):
                    headers["Last-Event-ID"] = str(event.sequence)
                    patience.answered()
                    yield event
            lost = UnreachableError(f"{transport.base_url} has closed the connection")
        except UnreachableError as error:
            lost = error
        patience.lost(lost)


@dataclass
class LogReader:
    """Reads the log of one worker. `handed_out` counts the bytes of the whole lines so far."""

    transport: Transport
    path: str
    parameters: Parameters
    patience: Patience
    handed_out: int = 0

    def lines(self, *, follow: bool) -> Iterator[str]:
        """The lines that come after those handed out, until the answer ends. Raises NotFoundError and
        UnreachableError.
        """
        parameters = {**self.parameters, "follow": "true" if follow else None}
        while True:
            try:
                with self.transport.stream(
                    self.path,
                    silence_s=LOG_SILENCE_S,
                    parameters=parameters,
                    headers={"Accept": "text/plain"},
                ) as chunks:
                    self.patience.answered()
                    rest = _without_first(chunks, self.handed_out)
                    for line in lines_of(rest, last_part=not follow):
                        yield line.decode("utf-8", "replace")
                        self.handed_out += len(line) + 1
                        self.patience.answered()
                return
            except UnreachableError as error:
                self.patience.lost(error)

    def skip_to_tail(self, count: int) -> list[str]:
        """Read what there is, and return the last `count` lines of it. A line that isn't finished stays for
        later.
        """
        last: deque[bytes] = deque(maxlen=count)
        while True:
            try:
                with self.transport.stream(
                    self.path, silence_s=LOG_SILENCE_S, parameters=self.parameters
                ) as chunks:
                    self.patience.answered()
                    for line in lines_of(_without_first(chunks, self.handed_out), last_part=False):
                        last.append(line)
                        self.handed_out += len(line) + 1
                return [line.decode("utf-8", "replace") for line in last]
            except UnreachableError as error:
                self.patience.lost(error)

    def follow(self, is_over: Callable[[], bool]) -> Iterator[str]:
        """The lines as they come, until the answer ends because there is nothing to come, and not because
        the server is restarted.
        """
        while True:
            yield from self.lines(follow=True)
            try:
                if is_over():
                    yield from self.lines(follow=False)
                    return
            except UnreachableError as error:
                self.patience.lost(error)
            else:
                time.sleep(PAUSE_S)


def _without_first(chunks: Iterable[bytes], count: int) -> Iterator[bytes]:
    for chunk in chunks:
        skipped = min(count, len(chunk))
        count -= skipped
        if skipped < len(chunk):
            yield chunk[skipped:]
