"""Why a supervisor that was started for somebody has to end before its workers do.

One that serves a worker on another machine is held by two things. The *leash* is a pipe: when whoever
started it is gone, the pipe ends. The *lease* is a file that holds the moment, on the clock of this machine
since it was started, at which its server last asked the head for leave to go on and got it: when that is too
long ago the server may be cut off, others may already do its work, and nothing here may go on.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

# How often the lease is looked at. The head allows for a multiple of it before it gives a server's work away.
LOOK_EVERY_S = 0.2


def since_boot_s() -> float:
    """Seconds on a clock that also counts the time in which the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Lease:
    """The lease in `path`, which holds for `lasts_s` after what the file says. Until something can be read
    there it counts from when this object was made.
    """

    path: Path
    lasts_s: float
    _since_s: float = field(default_factory=since_boot_s)

    def write(self, asked_s: float) -> None:
        """Leave that was asked for at that moment was given. Raises OSError."""
        part = self.path.with_suffix(".part")
        part.write_text(repr(asked_s), encoding="ascii")
        os.replace(part, self.path)

    @property
    def over(self) -> bool:
        """Whether too much time has passed."""
        with contextlib.suppress(OSError, ValueError):
            # What is read is never older than what was read before, except by somebody's mischief.
            self._since_s = max(self._since_s, float(self.path.read_text(encoding="ascii")))
        return since_boot_s() - self._since_s > self.lasts_s


@dataclass(slots=True)
class Leash:
    """The descriptor that ends with whoever holds the other end, and perhaps a lease."""

    descriptor: int
    lease: Lease | None = None
    let_go: bool = False

    def pull(self) -> None:
        """The descriptor is readable, which it only is at its end."""
        with contextlib.suppress(BlockingIOError):
            self.let_go = self.let_go or not os.read(self.descriptor, 4096)

    def why_over(self) -> str:
        """Why it has to end, or empty."""
        if self.let_go:
            return "whoever started it is gone"
        return "its server was cut off" if self.lease is not None and self.lease.over else ""
