"""Reads the journal for all event streams together.

Clients that are at the same point share what was read, so that a hundred of them at the journal's end ask the
database as often as one. Lines never change, so what was read is good for as long as it is kept; only
"nothing yet" grows stale.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

import anyio
from anyio import to_thread

from aryl.live.api.ports import Line, Records

BATCH = 256
MOST_SHARED = 64


@dataclass(slots=True)
class Feed:
    """Lives on the event loop; asks the database in a thread."""

    records: Records
    poll_s: float
    clock: Callable[[], float] = monotonic
    _reads: OrderedDict[int, _Read] = field(default_factory=OrderedDict)

    async def read(self, after: int) -> Sequence[Line]:
        """The next lines behind number `after`, as they were at most `poll_s` seconds ago."""
        read = self._reads.get(after)
        if read is None or (not read.running and not read.lines and self.clock() >= read.stale_s):
            read = self._reads[after] = _Read()
            self._reads.move_to_end(after)
            while len(self._reads) > MOST_SHARED:
                self._reads.popitem(last=False)
            try:
                read.lines = await to_thread.run_sync(self.records.lines, after, BATCH)
            except BaseException:
                self._reads.pop(after, None)
                raise
            finally:
                read.running = False
                read.stale_s = self.clock() + self.poll_s
                read.done.set()
        else:
            await read.done.wait()
        return read.lines


@dataclass(slots=True)
class _Read:
    lines: Sequence[Line] = ()
    running: bool = True
    stale_s: float = 0.0
    done: anyio.Event = field(default_factory=anyio.Event)
