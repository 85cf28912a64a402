"""The connection of this process to a Ray cluster: one a process, as Ray has it.

All that Ray does in a process is tamed here: it is initialised in a thread (in the first thread it would take
SIGTERM for itself), it prints nothing, and it doesn't end the process when the head is away.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from aryl.errors import InputError, UnreachableError

T = TypeVar("T")

AUTO = "auto"
CLIENT_SCHEME = "ray://"
CONNECT_WITHIN_S = 30.0
DISCONNECT_WITHIN_S = 10.0
# Ray ends a process whose head is away for longer. A head that restarts is no reason for that.
_PATIENCE_S = 30 * 86400

_log = logging.getLogger(__name__)
_guard = threading.Lock()
_tries: list[Future[None]] = []  # the last one


@dataclass(frozen=True, slots=True)
class RayAddress:
    """Where a cluster is: `auto`, HOST:PORT of its head, or ray://HOST:PORT of its client server."""

    address: str = AUTO
    namespace: str = "aryl"


def load_ray() -> Any:
    """The package. Raises InputError where it isn't installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(_PATIENCE_S))
    try:
        import ray
    except ImportError:
        raise InputError(
            "Ray isn't installed", field="backend", found="ray", expected="pip install 'aryl[ray]'"
        ) from None
    return ray


def in_thread(work: Callable[..., T], *args: Any) -> Future[T]:
    """Do something of Ray that may block for as long as the head is away, in a thread that keeps no process
    from ending.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # nobody can call it off any more

    def do() -> None:
        try:
            future.set_result(work(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=do, name="ray-call", daemon=True).start()
    return future


def connect(where: RayAddress, within_s: float = CONNECT_WITHIN_S) -> Any:
    """Connect this process, anew if it was connected. Returns the package. Raises UnreachableError."""
    ray = load_ray()
    with _guard:
        # Ray has no second try beside one that hasn't failed yet.
        if not _tries or _tries[-1].done():
            _tries[:] = [in_thread(_connect, ray, where)]
        try:
            _tries[-1].result(within_s)
        except TimeoutError:
            raise UnreachableError(
                f"the Ray cluster at {where.address} doesn't answer within {within_s:g} s"
            ) from None
        except Exception as error:
            reason = (str(error).strip().splitlines() or [repr(error)])[0]
            raise UnreachableError(f"no Ray cluster can be reached at {where.address}: {reason}") from None
        finally:
            _take_signals_back()
    return ray


def disconnect(within_s: float = DISCONNECT_WITHIN_S) -> None:
    """Let go of the cluster, or leave that to the end of the process if it takes too long. Detached actors
    stay.
    """
    ray = load_ray()
    with _guard:
        if ray.is_initialized():
            with contextlib.suppress(TimeoutError):
                in_thread(ray.shutdown).result(within_s)


def _take_signals_back() -> None:
    """Ray prints a trace of its own before it hands a signal on, as if something had gone wrong."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            if handler is not None:
                signal.signal(number, handler)


def _connect(ray: Any, where: RayAddress) -> None:
    if ray.is_initialized():
        ray.shutdown()
    ray.init(
        address=where.address,
        namespace=where.namespace,
        log_to_driver=False,
        logging_level=logging.ERROR,
        configure_logging=not where.address.startswith(CLIENT_SCHEME),
    )
