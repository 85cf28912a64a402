"""The process that hands calls to a Ray cluster and their results to the process that wants them.

A call is a task of Ray's with one CPU. What runs there is sent by value, so that a server without Aryl, or
with another version of it, can still say so. A call whose server was lost is made once more; one that ends
its own process isn't, since it would do so again. Progress comes by way of a desk, an actor on the head: it
is the one thing that all addresses of a cluster allow, and by its silence a lost cluster is found out.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from aryl.backends.ray.sweep import LOCAL, Orders
from aryl.errors import ArylError, UnreachableError

NAMESPACE = "aryl"
_SECONDS_BETWEEN_LOOKS = 0.25
# After that long without an answer the cluster counts as lost.
_SILENCE_S = 60.0
# Ray notices within half a minute that a server is gone, and until then may send a call there again.
_NOTICED_WITHIN_S = 60.0
_TELL_AFTER_S = 20.0


class _UnwantedError(Exception):
    """Whoever wanted the results is gone."""


def drive(connection: Connection, orders: Orders) -> None:
    """What the process runs: answers with ("progress", ...) and ("done", ...), then ("end",) or ("failed",
    error).
    """
    _be_quiet()
    try:
        driver = _Driver(connection, orders)
        try:
            driver.run()
        finally:
            driver.leave()
        answer: tuple[Any, ...] = ("end",)
    except _UnwantedError:
        return
    except Exception as error:
        answer = ("failed", error)
    with suppress(OSError):
        connection.send(answer)


def _be_quiet() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, _asked_to_end)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def _asked_to_end(_signal: int, _frame: object) -> NoReturn:
    # A second one must not disturb the end that the first one began.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


class _Driver:
    """The calls of one sweep, and where each of them is."""

    def __init__(self, connection: Connection, orders: Orders) -> None:
        import ray

        self._ray: Any = ray
        self._connection, self._orders = connection, orders
        self._waiting = deque(range(len(orders.parcels)))
        self._running: dict[Any, int] = {}
        self._places: dict[int, str] = {}
        self._lost: dict[int, float] = {}
        self._held: set[int] = set()

    def run(self) -> None:
        """Make the calls and pass on what comes of them. Raises what one of them raises."""
        self._connect()
        signal.signal(signal.SIGTERM, _asked_to_end)  # Ray has taken it
        self._say(("connected",))
        ray, orders = self._ray, self._orders
        desk, errand = _desk_class(ray).remote(), _errand(ray)
        look, tell_s = desk.take.remote(), time.monotonic() + _TELL_AFTER_S
        while self._waiting or self._running or self._held:
            with self._or_lost():
                while self._waiting and len(self._running) < (orders.at_once or len(orders.parcels)):
                    index = self._waiting.popleft()
                    reference = errand.remote(orders.parcels[index], orders.version, desk, index)
                    self._running[reference] = index
                ready: list[Any] = []
                if self._running:
                    ready, _ = ray.wait(list(self._running), timeout=_SECONDS_BETWEEN_LOOKS)
                else:
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
                news, look = ray.get(look, timeout=_SILENCE_S), desk.take.remote()
            self._pass_on(news)
            for reference in ready:
                index = self._running.pop(reference)
                answer = self._answer(reference, index)
                if answer is not None:
                    self._say(("done", index, answer))
            self._let_go()
            if not self._running or any(index in self._places for index in self._running.values()):
                tell_s = time.monotonic() + _TELL_AFTER_S
            elif time.monotonic() > tell_s:
                self._say(("note", f"the Ray cluster at {orders.address} has no free CPU at present"))
                tell_s = float("inf")

    def leave(self) -> None:
        """End what still runs, and a Ray of our own."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not self._ray.is_initialized():
            return
        for reference in self._running:
            with suppress(Exception):
                self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def _connect(self) -> None:
        orders = self._orders
        options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False}
        options |= {"logging_level": logging.ERROR}
        if orders.address == LOCAL:
            cpus = orders.at_once or _cpus()
            options |= {"num_cpus": cpus, "num_gpus": 0, "include_dashboard": False}
            options |= {"_temp_dir": str(orders.folder)}
        if orders.luggage is not None:
            options["runtime_env"] = {
                "working_dir": str(orders.luggage),
                "env_vars": orders.environment,
            }
        try:
            self._ray.init(address=orders.address, **options)
        except Exception as error:
            reason = " ".join(str(error).split()) or repr(error)
            if orders.address == LOCAL:
                raise ArylError(f"Ray can't be started on this machine: {reason}") from None
            kind = ArylError if "ersion mismatch" in reason else UnreachableError
            raise kind(f"the Ray cluster at {orders.address} can't be used: {reason}") from None

    def _say(self, message: tuple[Any, ...]) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise _UnwantedError from None

    @contextmanager
    def _or_lost(self) -> Iterator[None]:
        """What Ray itself can't do inside is an ArylError."""
        try:
            yield
        except self._ray.exceptions.RuntimeEnvSetupError as error:
            raise ArylError(f"the input can't be sent to the servers: {_in_a_line(error)}") from None
        except Exception as error:
            raise UnreachableError(
                f"the Ray cluster at {self._orders.address} is lost: {_in_a_line(error)}"
            ) from None

    def _pass_on(self, news: Sequence[tuple[int, float, str, str]]) -> None:
        """Tell what has come to the desk."""
        if self._connection.poll():  # nothing is ever sent from there, so it is closed
            raise _UnwantedError
        for index, share, text, place in news:
            if place:
                self._places[index] = place
            elif index in self._running.values():
                self._say(("progress", index, share, text))

    def _answer(self, reference: Any, index: int) -> bytes | None:
        """The pickled result of a call, or None if it has to be made again. Raises what it raised."""
        label, failures = self._orders.labels[index], self._ray.exceptions
        hint = "memory ran out, try fewer --jobs-in-parallel"
        try:
            kind, value = self._ray.get(reference, timeout=_SILENCE_S)
        except failures.OutOfMemoryError:
            raise ArylError(f"the process of {label} was ended by Ray: {hint}") from None
        except failures.WorkerCrashedError:
            raise ArylError(f"the process of {label} ended before its run did; perhaps {hint}") from None
        except (failures.NodeDiedError, failures.ObjectLostError):
            if index in self._lost:
                raise ArylError(f"the Ray server of {label} was lost before its run ended, twice") from None
            self._lost[index] = time.monotonic()
            self._held.add(index)
            return None
        except failures.RayError as error:
            raise ArylError(f"{label} can't be run on the Ray cluster: {_in_a_line(error)}") from None
        if kind == "failed":
            raise pickle.loads(value)
        if kind == "refused":
            raise ArylError(value)
        assert isinstance(value, bytes)
        return value

    def _let_go(self) -> None:
        """Queue a call again whose server was lost, once Ray knows that it is."""
        if not self._held:
            return
        with self._or_lost():
            alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        for index in sorted(self._held):
            overdue = time.monotonic() - self._lost[index] > _NOTICED_WITHIN_S
            if overdue or self._places.get(index) not in alive:
                self._held.discard(index)
                self._places.pop(index, None)
                self._waiting.append(index)


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _desk_class(ray: Any) -> Any:
    """What has happened and wasn't taken yet."""

    # On the head, because without that one all is lost anyway.
    @ray.remote(num_cpus=0, resources={"node:__internal_head__": 0.001})
    class Desk:
        def __init__(self) -> None:
            self._news: dict[tuple[int, bool], tuple[int, float, str, str]] = {}

        def put(self, index: int, share: float, text: str, place: str = "") -> None:
            self._news[index, bool(place)] = (index, share, text, place)

        def take(self) -> list[tuple[int, float, str, str]]:
            news, self._news = list(self._news.values()), {}
            return news

    return Desk


def _errand(ray: Any) -> Any:
    """What runs on a server: nothing of it may need Aryl before it has looked which one is there."""

    def aryl_run(parcel: bytes, version: str, desk: Any, index: int) -> tuple[str, Any]:
        import pickle
        import signal
        import time
        import traceback

        import ray

        context = ray.get_runtime_context()
        desk.put.remote(index, 0.0, "", context.get_node_id())
        server = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        remedy = f"every server needs aryl {version}, which is installed here"
        try:
            import aryl
            from aryl.errors import ArylError
        except ImportError as error:
            return "refused", f"aryl can't be loaded on the Ray server {server} ({error}); {remedy}"
        if aryl.__version__ != version:
            return "refused", f"the Ray server {server} has aryl {aryl.__version__}; {remedy}"
        last_s = 0.0

        def report(share: float, text: str) -> None:
            nonlocal last_s
            now_s = time.monotonic()
            if now_s - last_s >= 0.25:
                last_s = now_s
                desk.put.remote(index, share, text)

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            function, argument = pickle.loads(parcel)
            return "done", pickle.dumps(function(argument, report))
        except ArylError as error:
            return "failed", pickle.dumps(error)
        except Exception as error:
            error.add_note(f"on the Ray server {server}:\n{traceback.format_exc()}")
            return "failed", pickle.dumps(error)

    return ray.remote(num_cpus=1, max_retries=0)(aryl_run)
