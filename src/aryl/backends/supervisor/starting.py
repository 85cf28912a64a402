"""Finding the supervisor of a folder, or starting one.

It is started in a session of its own and detaches itself, so that neither Ctrl-C nor the end of the daemon
touches it. Two who start one at the same time both end up with the one that got the lock.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import aryl
from aryl.backends.environment import INHERITED
from aryl.backends.supervisor.places import ANOTHER_RUNS, LOG, Address, make_private
from aryl.errors import ArylError


def reach(
    directory: Path, python: str, linger_s: float, deadline: float, *, start: bool = True
) -> socket.socket:
    """A connection to the supervisor of `directory`, which is started if none runs, unless `start` is false:
    then somebody else starts it. `deadline` is in seconds of `time.monotonic`.

    Raises ArylError if it can't be started or doesn't answer in time.
    """
    while True:
        connection = _try(directory)
        if connection is not None:
            return connection
        if time.monotonic() > deadline:
            raise ArylError(f"the supervisor in {directory} doesn't answer; see {directory / LOG}")
        if start:
            _start(directory, python, linger_s, deadline)
        time.sleep(0.01)


def _try(directory: Path) -> socket.socket | None:
    address = Address.read(directory)
    if address is None:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(5.0)
        connection.connect(address.requests)
    except OSError:
        connection.close()
        return None
    return connection


def _start(directory: Path, python: str, linger_s: float, deadline: float) -> None:
    """Returns when it listens, or when another one has the lock."""
    command = [python, "-P", "-m", "aryl.backends.supervisor"]
    command += ["--dir", str(directory), "--linger", repr(linger_s), "--detach"]
    # Workers can read their parent's environment, so it has no more of the daemon's than they have
    # themselves. It runs the same Aryl as this one, wherever that was imported from.
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environment["PYTHONPATH"] = str(Path(aryl.__file__).parent.parent)
    try:
        make_private(directory)
        log_path = directory / LOG
        with log_path.open("ab") as log:
            began = log.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
    except OSError as error:
        raise ArylError(f"the supervisor in {directory} can't be started: {error}") from None
    try:
        code = process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise ArylError(f"the supervisor in {directory} doesn't start; see {log_path}") from None
    if code not in (0, ANOTHER_RUNS):
        with log_path.open("rb") as log:
            log.seek(began)
            said = log.read(4000).decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ArylError(f"the supervisor in {directory} can't be started: {said or f'exit code {code}'}")
