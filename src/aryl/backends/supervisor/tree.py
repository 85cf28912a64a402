"""Processes as /proc shows them, and signals that can't hit the wrong one.

A process is its number and the moment it started: numbers are used again. A signal is sent through a
descriptor of the process that was checked against that moment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from aryl.backends.supervisor.protocol import MARKER

_MARKER_BYTES = MARKER.encode("ascii") + b"="
_MAX_ENVIRON_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `start_ticks` counts from boot. `gone`: it has ended, and only its parent doesn't know."""

    pid: int
    parent: int
    group: int
    session: int
    start_ticks: int
    gone: bool


def boot_id() -> str:
    """Names this boot of the machine: start times of another one mean nothing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def read(pid: int) -> Process | None:
    """The process with this number, or None."""
    try:
        handle = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            data = os.read(handle, 4096)
        finally:
            os.close(handle)
    except OSError:
        return None
    # The name of the program stands in parentheses and may hold anything, also parentheses.
    fields = data[data.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    # A first thread that has ended while others go on looks like a zombie, but is none.
    gone = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), gone)


def snapshot() -> dict[int, Process]:
    """All processes that haven't ended."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read(int(name))
            if process is not None and not process.gone:
                found[process.pid] = process
    return found


def deliver(process: Process, number: int) -> bool:
    """Send a signal to that very process. False if it couldn't be: it is gone, or isn't ours."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:  # an old kernel, or no descriptor left
        handle = -1
    try:
        again = read(process.pid)
        if again is None or again.start_ticks != process.start_ticks:
            return False
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(process.pid, number)
        return True
    except OSError:
        return False
    finally:
        if handle >= 0:
            os.close(handle)


# The number of the system call behind `sigwait`, on x86-64 and on arm64.
_SIGTIMEDWAIT = (b"128", b"137")


class Ear(Enum):
    """What a process would do with a signal that is sent to it to tell it something."""

    OPEN = "open"  # it has a handler
    BLOCKED = "blocked"  # it waits for the signal, or blocks all for the moment in which it starts another
    DEAF = "deaf"  # it ignores the signal; a thread that waits for it in `sigwait` gets it all the same
    NONE = "none"  # it made no arrangement, and would end of it


def ear(process: Process, number: int) -> Ear:
    """What the process would do with the signal now."""
    bit = 1 << (number - 1)
    has = set()
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{process.pid}/status", "rb") as file:
        for line in file:
            if line.startswith((b"SigBlk:", b"SigIgn:", b"SigCgt:")) and int(line.split()[1], 16) & bit:
                has.add(line[3:6])
    if b"Cgt" in has:
        return Ear.OPEN
    if b"Blk" in has:
        return Ear.BLOCKED
    if b"Ign" in has:
        return Ear.DEAF
    return Ear.OPEN if _waits_for(process.pid, bit) else Ear.NONE


def _waits_for(pid: int, bit: int) -> bool:
    """Whether a thread sits in `sigwait` for the signal. The kernel unblocks it for so long, and nothing in
    the status tells; the system call under way does, and the set that it was given.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/syscall", "rb") as file:
                call = file.read().split()
            if call[:1] and call[0] in _SIGTIMEDWAIT:
                with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                    memory.seek(int(call[1], 16))
                    if int.from_bytes(memory.read(8), "little") & bit:
                        return True
    return False


def ticks_now() -> int:
    """This moment as `Process.start_ticks` counts."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def marker(pid: int) -> str:
    """The supervisor's mark in the environment that the process was started with, or an empty text."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = b"\0" + file.read(_MAX_ENVIRON_BYTES)
    except OSError:
        return ""
    _, found, rest = data.partition(b"\0" + _MARKER_BYTES)
    return rest.partition(b"\0")[0].decode("utf-8", "replace") if found else ""


def outputs(pid: int) -> Iterator[str]:
    """The files that standard output and errors of the process go to."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/{pid}/fd/{number}")
