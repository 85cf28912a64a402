"""Starts the process of a worker.

The new process waits at a gate until the supervisor has written down who it is. If the supervisor dies before
that, the process ends without having run anything, so that no program ever runs that nobody knows of. All
that can block or fail (the folder on a dead file server, the missing program) happens in the new process: it
says through a pipe what went wrong, and the pipe closes by itself when the program runs.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from aryl.backends.supervisor import tree
from aryl.backends.supervisor.protocol import (
    ProtocolError,
    WorkerSpec,
    as_int,
    as_text,
    decode_line,
    encode_line,
)

NOT_FOUND, NOT_STARTED = 127, 126
_MAX_TEXT = 1000


@dataclass(frozen=True, slots=True)
class Child:
    """A process that waits at its gate. A byte into `gate` lets it go on; closing it without one ends it.
    `failure` is to be read until its end: nothing means that the program runs.
    """

    pid: int
    start_ticks: int
    gate: int
    failure: int


def spawn(spec: WorkerSpec, environment: Mapping[str, str], files: tuple[int, int]) -> Child:
    """Start a process. `files` is the limit of open files that it gets. Raises OSError."""
    gate_out, gate_in = os.pipe()
    try:
        failure_out, failure_in = os.pipe()
    except OSError:
        os.close(gate_out)
        os.close(gate_in)
        raise
    # No signal may reach the supervisor's handlers in the new process, which shares its wake-up socket.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _become(spec, environment, files, gate_out, failure_in)
    except OSError:
        os.close(gate_in)
        os.close(failure_out)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(gate_out)
        os.close(failure_in)
    os.set_blocking(failure_out, False)
    found = tree.read(pid)
    return Child(pid, found.start_ticks if found else 0, gate_in, failure_out)


def read_failure(data: bytes) -> tuple[int, str]:
    """The exit code and the reason of a start that failed."""
    try:
        got = decode_line(data)
        return as_int(got.get("code"), "code"), as_text(got.get("text"), "text")
    except ProtocolError:
        return NOT_STARTED, "it could not be started"


def _become(
    spec: WorkerSpec, environment: Mapping[str, str], files: tuple[int, int], gate: int, failure: int
) -> NoReturn:
    """In the new process: turn into the program, or end."""
    try:
        log = -1
        try:
            _clear(files, gate, failure)
            if not os.read(gate, 1):
                os._exit(NOT_STARTED)
            os.close(gate)
            log = _open_log(spec)
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(spec.cwd)
            os.execvpe(spec.argv[0], spec.argv, environment)
        except Exception as error:
            code, text = _explain(spec, error, log < 0)
            os.write(failure, encode_line({"code": code, "text": text[:_MAX_TEXT]}))
            if log >= 0:
                os.write(log, f"aryl: {text}\n".encode("utf-8", "replace"))
            os._exit(code)
    finally:
        os._exit(NOT_STARTED)


def _clear(files: tuple[int, int], gate: int, failure: int) -> None:
    """Inherit nothing of the supervisor: no descriptors, no handlers, no session, no limits."""
    low, high = sorted((gate, failure))
    os.closerange(3, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, os.sysconf("SC_OPEN_MAX"))
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        with contextlib.suppress(OSError):  # KILL and STOP
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    os.umask(0o022)


def _open_log(spec: WorkerSpec) -> int:
    path = Path(spec.log_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    if os.fstat(log).st_size:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        os.write(log, f"--- generation {spec.key.generation}, started {when} ---\n".encode())
    return log


def _explain(spec: WorkerSpec, error: Exception, at_log: bool) -> tuple[int, str]:
    what = (error.strerror or str(error)) if isinstance(error, OSError) else repr(error)
    if at_log:
        return NOT_STARTED, f"the log {spec.log_path} can't be opened: {what}"
    if isinstance(error, OSError) and error.filename == spec.cwd:
        return NOT_STARTED, f"the working folder {spec.cwd} can't be entered: {what}"
    code = NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_STARTED
    return code, f"the program {spec.argv[0]} can't be started: {what}"
