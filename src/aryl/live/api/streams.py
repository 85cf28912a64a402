"""Answers that go on: the log of a running job, the events as they come.

A stream holds one of a bounded number of places while it lasts and nothing else: no thread, and no
connection to the database, waits for a slow reader. What it reads it reads in bounded pieces, in a thread.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from aryl.live.api.context import Places

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}


class Stream(StreamingResponse):
    """Sends pieces until there are no more or the reader goes away; then closes their source for certain."""

    def __init__(self, pieces: AsyncGenerator[bytes], media_type: str, places: Places) -> None:
        places.take()
        super().__init__(pieces, 200, HEADERS, media_type)
        self._pieces, self._places = pieces, places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all of it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._places.leave()
            await self._pieces.aclose()
