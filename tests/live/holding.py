"""Processes that SIGKILL doesn't end, for as long as a test wants: stopped by a tracer in the moment before
their end. What it is in life is a process that waits for a disk or a driver for ever.
"""

from __future__ import annotations

import ctypes
import os
import signal
from types import TracebackType
from typing import Self

_SEIZE, _DETACH, _TRACE_EXIT, _WALL = 0x4206, 17, 0x40, 0x40000000

# Ignores what it can. Anybody may trace it, also where the system lets only parents do that.
STUBBORN = """
import ctypes, signal, time
ctypes.CDLL(None).prctl(0x59616d61, -1, 0, 0, 0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(1000)
"""


class Held:
    """Holds one process back from its end until it is let go, by the thread that made this."""

    def __init__(self, pid: int) -> None:
        self._pid, self._held = pid, True
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
        self._call(_SEIZE, _TRACE_EXIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()

    def let_go(self) -> None:
        """Let it end, and see to it that it does."""
        if self._held:
            self._held = False
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, _WALL)
            self._call(_DETACH, 0)

    def _call(self, request: int, options: int) -> None:
        assert self._libc.ptrace(request, self._pid, 0, options) == 0, os.strerror(ctypes.get_errno())
