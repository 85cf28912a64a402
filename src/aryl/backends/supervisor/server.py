"""The loop of the supervisor: connections, signals and reports in, answers and events out.

One thread. In each turn it takes what has come, does what is due, writes the records, and only then lets go
what it said in this turn, so that nobody ever hears of something that a crash could make undone. (On a full
disk it goes on without: no program is started then, but those that run are looked after.)
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from aryl.backends.supervisor import places
from aryl.backends.supervisor.connection import Connection
from aryl.backends.supervisor.leash import LOOK_EVERY_S, Leash
from aryl.backends.supervisor.limits import Limits
from aryl.backends.supervisor.protocol import (
    MAX_REPORT_BYTES,
    VERSION,
    Json,
    ProtocolError,
    Refusal,
    WorkerEvent,
    as_bool,
    as_int,
    as_list,
    as_text,
    decode_line,
    key_from_json,
    key_to_json,
    schedule_from_json,
    spec_from_json,
)
from aryl.backends.supervisor.records import Records
from aryl.backends.supervisor.saying import say, say_defect
from aryl.backends.supervisor.status import event_to_json, status_to_json
from aryl.backends.supervisor.workers import Workers

_REPORTS_A_TURN = 256
_RECORDS_AGAIN_S = 1.0
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Options:
    """`linger_s`: how long it stays when nobody needs it. `leftover_grace_s`: how long what a worker leaves
    behind has between SIGTERM and SIGKILL. `files`: the limit of open files that workers get. `leash`: what
    ends it, with all its workers.
    """

    linger_s: float
    leftover_grace_s: float
    files: tuple[int, int]
    leash: Leash | None = None


class _RefusedError(Exception):
    def __init__(self, why: Refusal, text: str) -> None:
        super().__init__(text)
        self.why = why


class Server:
    """The supervisor of one folder, whose lock the caller holds. Making it takes over what an earlier one
    left; after that it listens. Raises OSError or ValueError if the folder can't be used.
    """

    def __init__(self, directory: Path, pid: int, options: Options) -> None:
        self._directory, self._pid, self._options = directory, pid, options
        self._selector = selectors.DefaultSelector()
        self._connections: set[Connection] = set()
        self._fence = places.read_fence(directory)
        self._farewells: list[tuple[Connection, object]] = []
        self._ending = False  # no more starts; the end comes when nothing lives
        self._asked_to_end = False  # by a signal
        self._idle_since = time.monotonic()
        identity = places.identity(directory)
        self._listen_to_signals()
        self._records = Records(directory)
        self._limits = Limits.find(identity)
        self._workers = Workers(
            self._records,
            self._limits,
            identity,
            options.leftover_grace_s,
            options.files,
            emit=self._emit,
            watch=self._watch,
            unwatch=self._unwatch,
        )
        self._address = places.Address.choose(directory)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self._address.requests)
        self._listener.listen(64)
        self._reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reports.bind(self._address.reports)
        for sock, ready in ((self._listener, self._accept), (self._reports, self._take_reports)):
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, ready)
        if options.leash is not None:
            os.set_blocking(options.leash.descriptor, False)
            self._selector.register(options.leash.descriptor, selectors.EVENT_READ, self._pulled)
        self._address.write(directory)

    def run(self) -> None:
        """Serve until nobody needs it."""
        until = time.monotonic()
        while not self._finished():
            wait_s = max(0.0, min(until, self._linger_until()) - time.monotonic())
            for key, _ in self._selector.select(None if math.isinf(wait_s) else wait_s):
                self._guard(key.data)
            until = min(self._step(), self._look_at_leash())
            recorded = self._records.commit()
            if not recorded:
                until = min(until, time.monotonic() + _RECORDS_AGAIN_S)
            self._workers.release(recorded)
            self._send()
        self._close()

    def _step(self) -> float:
        try:
            return self._workers.step()
        except Exception:
            say_defect("a step failed")
            return time.monotonic() + 1.0

    @staticmethod
    def _guard(ready: Callable[[], None]) -> None:
        try:
            ready()
        except Exception:
            say_defect("what came in could not be handled")

    # The end.

    def _pulled(self) -> None:
        leash = self._options.leash
        if leash is not None:
            leash.pull()
            if leash.let_go:
                self._selector.unregister(leash.descriptor)

    def _look_at_leash(self) -> float:
        """End if it is over, and say when to look again, in seconds of `time.monotonic`."""
        leash = self._options.leash
        if leash is None or self._ending:
            return math.inf
        if why := leash.why_over():
            say(f"{why}: all workers end")
            self._ending = True
            self._workers.kill_all()
            return time.monotonic()
        return math.inf if leash.lease is None else time.monotonic() + LOOK_EVERY_S

    def _finished(self) -> bool:
        if self._asked_to_end:
            self._asked_to_end = False
            if self._workers.living:
                say(f"asked to end, but {self._workers.living} workers live")
            else:
                self._ending = True
        if self._workers.living:
            return False
        return self._ending or time.monotonic() >= self._linger_until()

    def _linger_until(self) -> float:
        if self._workers.living or any(each.fence == self._fence for each in self._connections):
            self._idle_since = time.monotonic()
            return math.inf
        return self._idle_since + self._options.linger_s

    def _close(self) -> None:
        self._records.commit()
        self._address.remove(self._directory)
        self._limits.remove()
        for connection, number in self._farewells:
            connection.put({"re": number, "ok": {}})
        for connection in self._connections:
            connection.socket.settimeout(1.0)  # the last words may take a moment
            connection.send()
            connection.socket.close()
        self._listener.close()
        self._reports.close()
        self._records.close()
        self._selector.close()

    # What comes in.

    def _listen_to_signals(self) -> None:
        # Handlers rather than SIG_IGN: what is ignored would stay ignored in the workers.
        self._wake, waker = socket.socketpair()
        self._waker = waker
        for sock in (self._wake, waker):
            sock.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_ENDING):
            signal.signal(number, _do_nothing)
        self._selector.register(self._wake, selectors.EVENT_READ, self._take_signals)

    def _take_signals(self) -> None:
        numbers = self._wake.recv(4096)
        if any(number in numbers for number in _ENDING):
            self._asked_to_end = True
        self._workers.reap()

    def _take_reports(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(_REPORTS_A_TURN):
                self._workers.report(self._reports.recv(MAX_REPORT_BYTES + 1))

    def _watch(self, handle: int, ready: Callable[[], None]) -> None:
        self._selector.register(handle, selectors.EVENT_READ, ready)

    def _unwatch(self, handle: int) -> None:
        self._selector.unregister(handle)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            say(f"a connection can't be accepted: {error}")
            time.sleep(0.05)  # it would be tried again at once otherwise
            return
        connection = Connection(sock)
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._receive(connection))

    def _receive(self, connection: Connection) -> None:
        try:
            for line in connection.receive():
                if connection.leaving or connection.dead:
                    return
                self._answer(connection, line)
        except ProtocolError as error:
            connection.refuse(None, Refusal.BAD, str(error))
            connection.leaving = True

    def _answer(self, connection: Connection, line: bytes) -> None:
        number: object = None
        try:
            request = decode_line(line)
            number = as_int(request.get("id"), "id")
            answer = self._do(connection, request, number)
            if answer is not None:
                connection.put({"re": number, "ok": answer})
        except ProtocolError as error:
            connection.refuse(number, Refusal.BAD, str(error))
        except _RefusedError as error:
            connection.refuse(number, error.why, str(error))
            connection.leaving = connection.leaving or error.why is Refusal.FENCED
        except Exception as error:
            say_defect("a request failed")
            connection.refuse(number, Refusal.BAD, f"the supervisor failed: {error}")

    def _do(self, connection: Connection, request: Json, number: int) -> Json | None:
        """Carry out a request. None if the answer comes later."""
        op = as_text(request.get("op"), "op")
        if op == "hello":
            return self._hello(connection, request)
        if connection.fence is None:
            raise ProtocolError("say hello first")
        if connection.fence < self._fence:
            raise _RefusedError(Refusal.FENCED, "another daemon has taken over")
        match op:
            case "start":
                specs = [spec_from_json(each) for each in as_list(request.get("specs"), "specs")]
                if self._ending:
                    raise _RefusedError(Refusal.BUSY, "the supervisor is about to end")
                self._workers.start(specs)
            case "stop":
                keys = [key_from_json(each) for each in as_list(request.get("keys"), "keys")]
                self._workers.stop(keys, schedule_from_json(request.get("schedule")))
            case "list":
                return {"workers": [status_to_json(each) for each in self._workers.statuses()]}
            case "forget":
                job_id = as_text(request.get("job"), "job")
                alive = self._workers.forget(job_id, as_int(request.get("attempt"), "attempt"))
                return {"alive": [key_to_json(key) for key in alive]}
            case "shutdown":
                return self._shutdown(connection, number, as_bool(request.get("force"), "force"))
            case _:
                raise ProtocolError(f"op: unknown: {op}")
        return {}

    def _hello(self, connection: Connection, request: Json) -> Json:
        fence = as_int(request.get("fence"), "fence")
        if request.get("version") != VERSION:
            raise ProtocolError(f"this supervisor speaks version {VERSION} of the protocol")
        if fence < self._fence:
            raise _RefusedError(
                Refusal.FENCED, f"a daemon with a higher token has taken over ({self._fence})"
            )
        if fence > self._fence:
            places.write_fence(self._directory, fence)
            self._fence = fence
            for other in self._connections:
                if other.fence is not None and other is not connection:
                    other.put({"event": Refusal.FENCED.value})
                    other.leaving = True
        connection.fence = fence
        return {
            "pid": self._pid,
            "limits": self._limits.kind,
            "report_socket": self._address.reports,
        }

    def _shutdown(self, connection: Connection, number: int, force: bool) -> Json | None:
        if self._workers.living and not force:
            raise _RefusedError(Refusal.BUSY, f"{self._workers.living} workers live")
        self._ending = True
        self._workers.kill_all()
        self._farewells.append((connection, number))
        return None

    # What goes out.

    def _emit(self, event: WorkerEvent) -> None:
        line = event_to_json(event)
        for connection in self._connections:
            if connection.fence == self._fence:
                connection.put(line)

    def _send(self) -> None:
        for connection in list(self._connections):
            if not connection.dead:
                connection.send()
            if connection.dead:
                self._connections.discard(connection)
                self._selector.unregister(connection.socket)
                connection.socket.close()
                continue
            wanted = selectors.EVENT_WRITE if connection.unsent else 0
            wanted |= 0 if connection.leaving else selectors.EVENT_READ
            key = self._selector.get_key(connection.socket)
            if key.events != wanted:
                self._selector.modify(connection.socket, wanted, key.data)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """The handler of signals that the loop hears of through its socket."""
