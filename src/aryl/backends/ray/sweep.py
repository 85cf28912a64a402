"""Calls that are made on the CPUs of a Ray cluster, seen from the process that wants their results.

Ray lives in a process of its own (`sweep_driver`), for four reasons: it prints messages of its own on stdout,
it takes signals for itself, it may wait for an address without end, and it ends a process that has lost its
head. From here it is a process that sends progress and results through a pipe; ending it ends everything that
it has started, on this machine and elsewhere. Results are passed on as soon as they are there, in any order.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import aryl
from aryl.errors import ArylError, InputError, UnreachableError

LOCAL = "local"
AUTO = "auto"
CLIENT_SCHEME = "ray://"
CONNECT_WITHIN_S = 60.0
# A Ray of our own takes 3 s to start, on a busy machine a multiple of that.
START_WITHIN_S = 180.0
_ANSWER_WITHIN_S = 10.0
_LEAVE_WITHIN_S = 15.0
# Ray's sockets lie in its temporary folder, and a path of one has 107 characters at most.
_LONGEST_FOLDER = 32

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a module and what it is called with; it also gets a `Progress`. `label` is for errors."""

    label: str
    function: Callable[[Any, Progress], Any]
    argument: Any


@dataclass(frozen=True, slots=True)
class Orders:
    """What the process that talks to Ray has to do. A parcel is a pickled function with its argument.

    `address` is `local` for a Ray of our own in `folder`, with `at_once` CPUs. `version`: of Aryl, wanted on
    each server. `luggage`: the folder whose files the calls find in their working directory, with
    `environment` set there.
    """

    address: str
    version: str
    labels: tuple[str, ...]
    parcels: tuple[bytes, ...]
    at_once: int | None
    folder: Path
    luggage: Path | None
    environment: dict[str, str]


def check_address(address: str, flag: str) -> None:
    """Raise InputError, which names `flag`, unless it is one that Ray might be at."""
    if address not in (LOCAL, AUTO) and _host_and_port(address) is None:
        raise InputError(
            "not the address of a Ray cluster",
            file=flag,
            found=address,
            expected="HOST:PORT of its head, ray://HOST:PORT, auto, or local",
        )


def run_on_ray(
    calls: Sequence[Call],
    address: str,
    *,
    at_once: int | None = None,
    luggage: Path | None = None,
    environment: dict[str, str] | None = None,
    report: Callable[[int, float, str], None],
    receive: Callable[[int, Any], None],
    tell: Callable[[str], None],
) -> None:
    """Make the calls, `at_once` at the same time (None: as many as the cluster has CPUs).

    `report(index, share, text)`, `receive(index, result)` and `tell(note)` are called in this process.
    `luggage` and `environment` are sent along, see `Orders`.

    Raises the ArylError of a call as it was, UnreachableError if there is no cluster or it is lost, and
    ArylError for a call whose process has died. The other calls are then ended.
    """
    if address not in (LOCAL, AUTO):
        _knock(address)
    folder = Path(tempfile.mkdtemp(prefix="aryl-ray-", dir=_short_folder()))
    orders = Orders(
        address,
        aryl.__version__,
        tuple(call.label for call in calls),
        tuple(pickle.dumps((call.function, call.argument)) for call in calls),
        at_once,
        folder,
        luggage,
        environment or {},
    )
    connection, driver = _start(orders)
    try:
        _await(connection, driver, orders.address)
        _follow(connection, driver, orders, report, receive, tell)
    finally:
        _end(connection, driver)
        shutil.rmtree(folder, ignore_errors=True)


def _host_and_port(address: str) -> tuple[str, int] | None:
    match = re.fullmatch(r"(?:ray://)?(?:\[([0-9a-fA-F:.]+)\]|([^\s:/\[\]]+)):(\d{1,5})", address)
    if match is None or not 0 < int(match[3]) < 65536:
        return None
    return match[1] or match[2], int(match[3])


def _knock(address: str) -> None:
    """Ray itself takes a minute to say that nobody is there."""
    place = _host_and_port(address)
    assert place is not None, address
    try:
        socket.create_connection(place, _ANSWER_WITHIN_S).close()
    except OSError as error:
        raise UnreachableError(f"no Ray cluster can be reached at {address}: {error}") from None


def _short_folder() -> str | None:
    folder = tempfile.gettempdir()
    return "/tmp" if len(folder) > _LONGEST_FOLDER and os.path.isdir("/tmp") else folder


def _start(orders: Orders) -> tuple[Connection, BaseProcess]:
    from aryl.backends.ray.sweep_driver import drive

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    driver = context.Process(target=drive, args=(theirs, orders), name="aryl-ray")
    # A terminal sends Ctrl-C to it as well, and it is ours to act on that; until it says so itself, too.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        driver.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return ours, driver


def _await(connection: Connection, driver: BaseProcess, address: str) -> None:
    patience_s = START_WITHIN_S if address == LOCAL else CONNECT_WITHIN_S
    if connection.poll(patience_s):
        return
    driver.kill()  # who waits inside Ray hears nothing else
    if address == LOCAL:
        raise ArylError(f"Ray doesn't start on this machine within {patience_s:g} s")
    raise UnreachableError(f"the Ray cluster at {address} doesn't answer within {patience_s:g} s")


def _follow(
    connection: Connection,
    driver: BaseProcess,
    orders: Orders,
    report: Callable[[int, float, str], None],
    receive: Callable[[int, Any], None],
    tell: Callable[[str], None],
) -> None:
    while True:
        try:
            message = connection.recv()
        except EOFError:
            driver.join(_LEAVE_WITHIN_S)
            raise UnreachableError(
                f"the connection to the Ray cluster at {orders.address} is lost "
                f"(its process ended with exit code {driver.exitcode})"
            ) from None
        match message:
            case "progress", index, share, text:
                report(index, share, text)
            case "done", index, result:
                receive(index, pickle.loads(result))
            case "note", text:
                tell(text)
            case "failed", error:
                raise error
            case ("end",):
                return


def _end(connection: Connection, driver: BaseProcess) -> None:
    connection.close()
    with suppress(ProcessLookupError):
        driver.terminate()
    driver.join(_LEAVE_WITHIN_S)
    if driver.is_alive():
        driver.kill()
        driver.join()
