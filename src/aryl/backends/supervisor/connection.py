"""One client of the supervisor: what it has sent, what it is to be sent, and how far it got in."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from aryl.backends.supervisor.protocol import MAX_LINE_BYTES, Json, ProtocolError, Refusal, encode_line

_MAX_UNREAD_BYTES = 64 << 20


class Connection:
    """Bytes in and lines out, and the other way round. Never blocks."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.fence: int | None = None  # None: hasn't said hello
        self.leaving = False  # it is closed as soon as it has read what it is to read
        self.dead = False
        self._in = bytearray()
        self._searched = 0
        self._out = bytearray()

    @property
    def unsent(self) -> bool:
        """Something is still to be sent."""
        return bool(self._out)

    def receive(self) -> Iterator[bytes]:
        """The lines that are complete now. Raises ProtocolError if one is too long."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.dead = True
            return
        self._in += data
        while (end := self._in.find(b"\n", self._searched)) >= 0:
            line = bytes(self._in[:end])
            del self._in[: end + 1]
            self._searched = 0
            yield line
        self._searched = len(self._in)
        if self._searched > MAX_LINE_BYTES:
            self._in.clear()
            self._searched = 0
            raise ProtocolError(f"a line has more than {MAX_LINE_BYTES} bytes")

    def put(self, value: Json) -> None:
        """Have a line sent with the next `send`. Whoever doesn't read for long is cut off: `list` tells it
        all.
        """
        self._out += encode_line(value)
        if len(self._out) > _MAX_UNREAD_BYTES:
            self.dead = True

    def refuse(self, number: object, why: Refusal, text: str) -> None:
        """Answer a request with no."""
        self.put({"re": number, "error": why.value, "text": text})

    def send(self) -> None:
        """Send what the other side takes."""
        try:
            while self._out:
                del self._out[: self.socket.send(self._out[: 1 << 18])]
        except BlockingIOError:
            return
        except OSError:
            self.dead = True
        if self.leaving:
            self.dead = True
