"""The daemon's side of the supervisor: starts it if none runs, says hello, sends requests, hands on events.

Requests may come from any thread, also from within `on_event`: one thread reads the socket and another one
calls `on_event`, one event after the other. An answer can therefore be ahead of events that were sent before
it; statuses only ever move forward, so that it does no harm.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from aryl.backends.supervisor import starting
from aryl.backends.supervisor.protocol import (
    VERSION,
    Json,
    ProtocolError,
    Refusal,
    StartRefused,
    StopSchedule,
    SupervisorEvent,
    SupervisorGone,
    WorkerKey,
    WorkerSpec,
    WorkerStatus,
    as_int,
    as_list,
    as_object,
    as_text,
    decode_line,
    encode_line,
    key_from_json,
    key_to_json,
    schedule_to_json,
    spec_to_json,
)
from aryl.backends.supervisor.status import event_from_json, status_from_json
from aryl.errors import ArylError, ConflictError, FencedError

_log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 30.0
# Specs a request: a line stays well below the limit, whatever the environment.
_SPECS_PER_REQUEST = 25


class _Answer:
    """An answer that is waited for."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.value: Json | None = None


class SupervisorClient:
    """A connection to the supervisor of one folder. Make one with `connect`."""

    def __init__(self, directory: Path, connection: socket.socket, hello: Json, rest: bytes) -> None:
        self.directory = directory
        self.pid = as_int(hello.get("pid"), "pid")
        self.limits = as_text(hello.get("limits"), "limits")
        """How limits of memory and CPUs are kept: `cgroup-v2`, `cgroup-v1` or `none`."""
        self.report_socket = as_text(hello.get("report_socket"), "report_socket")
        """The path of the Unix datagram socket that workers report to."""
        self._connection = connection
        self._rest = rest
        self._lock = threading.Lock()  # guards what follows
        self._waiting: dict[int, _Answer] = {}
        self._unheard: dict[int, tuple[WorkerKey, ...]] = {}  # starts that nobody waits for
        self._gone = ""  # why the connection is lost
        self._fenced = False
        self._closing = False
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._events: queue.SimpleQueue[SupervisorEvent | None] = queue.SimpleQueue()
        self._threads: tuple[threading.Thread, ...] = ()

    @classmethod
    def connect(
        cls,
        directory: Path,
        fence: int,
        on_event: Callable[[SupervisorEvent], None],
        *,
        python: str = sys.executable,
        linger_s: float = 30.0,
        start_within_s: float = 30.0,
        start: bool = True,
    ) -> SupervisorClient:
        """Connect to the supervisor of `directory` and take over with `fence`. It is started if none runs,
        unless `start` is false: then somebody else does that.

        Everybody who said hello with a lower one is shut out. `linger_s` is how long a supervisor that is
        started now stays when nobody needs it.

        Raises:
            FencedError: somebody with a higher `fence` has taken over.
            ArylError: it can't be started, or doesn't answer.
        """
        directory = directory.absolute()
        deadline = time.monotonic() + start_within_s
        while True:
            connection = starting.reach(directory, python, linger_s, deadline, start=start)
            try:
                hello, rest = _say_hello(connection, fence, deadline)
            except ConnectionError:  # it was about to end; the next try starts another one
                connection.close()
                time.sleep(0.02)
                continue
            except BaseException:
                connection.close()
                raise
            client = cls(directory, connection, hello, rest)
            client._run(on_event)
            return client

    def start(self, specs: Sequence[WorkerSpec], *, wait: bool = True) -> None:
        """Start workers, all in one round trip. A key that is known already, also one that has ended, changes
        nothing. Returns when the supervisor has taken them on; how each fares comes as events. Without `wait`
        it returns when they are sent, so that many starts cost no more than one; later requests still come
        after it, and a refusal comes as the event StartRefused.

        Raises FencedError or ArylError, as all requests do when they are refused or the connection is lost.
        """
        parts = [specs[at : at + _SPECS_PER_REQUEST] for at in range(0, len(specs), _SPECS_PER_REQUEST)]
        requests: list[Json] = [
            {"op": "start", "specs": [spec_to_json(spec) for spec in part]} for part in parts
        ]
        if wait:
            self._ask_all(requests)
            return
        numbers = [next(self._numbers) for _ in parts]
        with self._lock:
            self._check_there()
            for number, part in zip(numbers, parts, strict=True):
                self._unheard[number] = tuple(spec.key for spec in part)
        self._send(zip(numbers, requests, strict=True))

    def stop(self, keys: Sequence[WorkerKey], schedule: StopSchedule) -> None:
        """Let workers leave by `schedule`, which is kept even if everybody but the supervisor dies. For one
        that is leaving already, times can only come earlier. Unknown and ended keys are passed over.
        """
        self._ask_all(
            [
                {
                    "op": "stop",
                    "keys": [key_to_json(key) for key in keys],
                    "schedule": schedule_to_json(schedule),
                }
            ]
        )

    def list(self) -> Sequence[WorkerStatus]:
        """All workers that live, and those that have ended and aren't forgotten, by key."""
        (answer,) = self._ask_all([{"op": "list"}])
        return [status_from_json(each) for each in as_list(answer.get("workers"), "workers")]

    def forget(self, job_id: str, attempt: int, *, wait: bool = True) -> tuple[WorkerKey, ...]:
        """Drop what has ended of an attempt. Returns the keys that were not dropped, because they live; none
        if it isn't to `wait` for the answer.
        """
        request: Json = {"op": "forget", "job": job_id, "attempt": attempt}
        if not wait:
            with self._lock:
                self._check_there()
            self._send([(next(self._numbers), request)])
            return ()
        (answer,) = self._ask_all([request])
        return tuple(key_from_json(each) for each in as_list(answer.get("alive"), "alive"))

    def shutdown(self, *, force: bool = False) -> None:
        """Let the supervisor end. With `force` it kills all workers first, and waits until they are gone.

        Raises ConflictError if workers live and `force` isn't set.
        """
        self._ask_all([{"op": "shutdown", "force": force}])

    @property
    def connected(self) -> bool:
        """Whether requests can still get through, as far as is known."""
        with self._lock:
            return not self._gone and not self._closing

    def close(self) -> None:
        """Let go. Nothing that runs is touched."""
        with self._lock:
            self._closing = True
        with contextlib.suppress(OSError):  # it is lost already
            self._connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._connection.close()

    # The inside.

    def _run(self, on_event: Callable[[SupervisorEvent], None]) -> None:
        self._threads = (
            threading.Thread(target=self._read, name="supervisor-reader", daemon=True),
            threading.Thread(target=self._dispatch, args=(on_event,), name="supervisor-events", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def _ask_all(self, requests: Sequence[Json]) -> Sequence[Json]:
        """Send all requests, then wait for all answers."""
        answers = {next(self._numbers): _Answer() for _ in requests}
        with self._lock:
            self._check_there()
            self._waiting.update(answers)
        self._send(zip(answers, requests, strict=True))
        deadline = time.monotonic() + ANSWER_WITHIN_S
        try:
            return [self._value(answer, deadline) for answer in answers.values()]
        finally:
            with self._lock:
                for number in answers:
                    self._waiting.pop(number, None)

    def _send(self, requests: Iterable[tuple[int, Json]]) -> None:
        data = b"".join(encode_line({"id": number, **request}) for number, request in requests)
        try:
            with self._sending:
                self._connection.sendall(data)
        except BlockingIOError:
            # Half a request may be sent: the connection is of no use any more.
            self._connection.shutdown(socket.SHUT_RDWR)
            raise ArylError(f"the supervisor in {self.directory} doesn't read its requests") from None
        except OSError:
            pass  # the reader finds out why, and says so to all who wait

    def _value(self, answer: _Answer, deadline: float) -> Json:
        if not answer.there.wait(max(0.0, deadline - time.monotonic())):
            raise ArylError(f"the supervisor in {self.directory} doesn't answer")
        if answer.value is None:
            with self._lock:
                self._check_there()
            raise ArylError("the connection to the supervisor is lost")
        return _result(answer.value)

    def _check_there(self) -> None:
        if self._fenced:
            raise FencedError("another daemon has taken over the supervisor")
        if self._gone:
            raise ArylError(self._gone)

    def _read(self) -> None:
        why = "the connection to the supervisor is lost"
        try:
            for line in _lines(self._connection, self._rest):
                self._take(decode_line(line))
        except (OSError, ProtocolError) as error:
            why = f"{why}: {error}"
        with self._lock:
            self._gone = "the connection to the supervisor is closed" if self._closing else why
            waiting, self._waiting = self._waiting, {}
            told = not self._closing
            gone = SupervisorGone(time.time(), self._fenced)
        for answer in waiting.values():
            answer.there.set()
        if told:
            self._events.put(gone)
        self._events.put(None)

    def _take(self, got: Json) -> None:
        if "re" in got:
            number = as_int(got["re"], "re")
            fenced = got.get("error") == Refusal.FENCED.value
            with self._lock:
                answer = self._waiting.pop(number, None)
                unheard = self._unheard.pop(number, ())
                self._fenced = self._fenced or fenced
            if unheard and "error" in got and not fenced:  # whoever is shut out hears so of the connection
                self._events.put(StartRefused(time.time(), unheard, as_text(got.get("text"), "text")))
            if answer is not None:
                answer.value = got
                answer.there.set()
        elif got.get("event") == Refusal.FENCED.value:
            with self._lock:
                self._fenced = True
        else:
            self._events.put(event_from_json(got))

    def _dispatch(self, on_event: Callable[[SupervisorEvent], None]) -> None:
        while (event := self._events.get()) is not None:
            try:
                on_event(event)
            except Exception:
                _log.exception("an event of the supervisor could not be handled")


def _say_hello(connection: socket.socket, fence: int, deadline: float) -> tuple[Json, bytes]:
    """The answer to hello, and what was received after it. Raises ConnectionError if the connection ends."""
    connection.settimeout(max(1.0, deadline - time.monotonic()))
    try:
        connection.sendall(encode_line({"id": 0, "op": "hello", "fence": fence, "version": VERSION}))
        data = b""
        while b"\n" not in data:
            part = connection.recv(65536)
            if not part:
                raise ConnectionError
            data += part
    except TimeoutError:
        raise ArylError("the supervisor doesn't answer") from None
    line, _, rest = data.partition(b"\n")
    connection.settimeout(None)
    # Only sending has a time limit from now on; reading waits for events.
    limit = struct.pack("@ll", int(ANSWER_WITHIN_S), 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    return _result(decode_line(line)), rest


def _lines(connection: socket.socket, rest: bytes) -> Iterator[bytes]:
    """Lines until the other side closes."""
    data = bytearray(rest)
    while True:
        *lines, last = bytes(data).split(b"\n")
        yield from lines
        data = bytearray(last)
        while b"\n" not in data:
            part = connection.recv(1 << 18)
            if not part:
                return
            data += part


def _result(answer: Json) -> Json:
    """What a positive answer holds. Raises what a negative one says."""
    if "ok" in answer:
        return as_object(answer["ok"], "ok")
    text = as_text(answer.get("text"), "text")
    match answer.get("error"):
        case Refusal.FENCED.value:
            raise FencedError(text)
        case Refusal.BUSY.value:
            raise ConflictError(text)
        case _:
            raise ArylError(f"the supervisor refused a request: {text}")
