"""Hand a server over to training, and back, beside the loop: by commands of the inference side, or by
something here that knows how (a *transfer*).

`release` has to stop routing to the server, wait until its streams have ended, and return. If it takes longer
than the drain limit it is killed or called off, and then the loan is called off and the server restored, or
it is handed over all the same, as configured; never silently. Both hooks of one server never run at once, and
the last word counts: a server that is wanted back while it is still being released is restored without
waiting for that.

`restore` has to put the server back into service, and to return once it serves; or somebody else says when
it does, as configured. One that fails is tried again for as long as the server is missing.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from aryl.core.cluster import Cluster

_log = logging.getLogger(__name__)

MOST_AT_ONCE = 16
RESTORE_WITHIN_S = 3600.0
# Real seconds until a restore that failed is tried again: once, and then each time.
RETRY_AFTER_S = 30.0
RETRY_EVERY_S = 300.0


class OnLimit(Enum):
    """What happens to a loan whose server isn't drained in time."""

    CALL_OFF = "call-off"
    FORCE = "force"


class Handover(Enum):
    """How a release went."""

    DONE = "done"
    FORCED = "forced"
    CALLED_OFF = "called-off"


class Ready(Enum):
    """Who says that a server which came home serves again."""

    HOOK = "hook"  # the restore hook, by ending well; where there is none, it serves at once
    REPORT = "report"  # the inference side, with a word of its own


class Transfer(Protocol):
    """Hands servers over in this process. Both may be begun again for a server, and then have to do no harm.

    They return "" if all went well, else what went wrong, as the end of a sentence. Once `cancelled` is set
    they return soon, and leave the rest to whatever is begun next. They may be called from several threads,
    but not for one server at once.
    """

    def release(self, server_id: str, cancelled: threading.Event) -> str:
        """Take a server out of service, until nothing of the inference side is on it and nothing can come."""

    def restore(self, server_id: str, cancelled: threading.Event) -> str:
        """Put it back, until it serves."""

    def take_over(self, lent: Collection[str]) -> None:
        """A daemon begins: these servers are lent, all others are inference's. Raises ArylError."""


@dataclass(frozen=True, slots=True)
class LoanHooks:
    """The commands; empty: nothing has to be done. A `transfer` stands for both of them."""

    release: Sequence[str] = ()
    restore: Sequence[str] = ()
    drain_limit_s: float = 30.0
    on_limit: OnLimit = OnLimit.CALL_OFF
    ready: Ready = Ready.HOOK
    transfer: Transfer | None = None

    def to_release(self, server_id: str) -> Errand | None:
        """What hands a server over; None: nothing has to be done."""
        if self.transfer is not None:
            return _Call(self.transfer.release, server_id)
        return _Command(self.release, server_id) if self.release else None

    def to_restore(self, server_id: str) -> Errand | None:
        """What takes it back into service; None: nothing has to be done."""
        if self.transfer is not None:
            return _Call(self.transfer.restore, server_id)
        return _Command(self.restore, server_id) if self.restore else None


class Errand(Protocol):
    """A hook that is run once, for one server."""

    def begin(self) -> str:
        """Returns "" once it runs, or why it can't, as the end of a sentence."""

    def end(self, within_s: float) -> str:
        """Wait for it, and end it if it takes longer. Returns "", or what went wrong."""

    def cancel(self) -> None:
        """End it now. It may have ended."""


class _Command:
    def __init__(self, command: Sequence[str], server_id: str) -> None:
        self._command, self._server_id = list(command), server_id
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> str:
        env = dict(os.environ) | {"ARYL_SERVER_ID": self._server_id}
        try:
            self._process = subprocess.Popen(
                self._command, env=env, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            return f"can't be started: {error.strerror}"
        return ""

    def end(self, within_s: float) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.cancel()
            return f"took longer than {within_s:g} s"
        return "" if code == 0 else f"exited with {code}"

    def cancel(self) -> None:
        if self._process is not None:
            _kill(self._process)


class _Call:
    def __init__(self, function: Callable[[str, threading.Event], str], server_id: str) -> None:
        self._function, self._server_id = function, server_id
        self._cancelled = threading.Event()
        self._late = False

    def begin(self) -> str:
        return ""

    def end(self, within_s: float) -> str:
        timer = threading.Timer(min(within_s, threading.TIMEOUT_MAX), self._be_late)
        timer.daemon = True
        timer.start()
        try:
            wrong = self._function(self._server_id, self._cancelled)
        except Exception as error:
            _log.exception("the hand-over of %s has a defect", self._server_id)
            return f"failed with an unforeseen {type(error).__name__}"
        finally:
            timer.cancel()
        if wrong and self._late:
            return f"took longer than {within_s:g} s, and {wrong}"
        return wrong

    def cancel(self) -> None:
        self._cancelled.set()

    def _be_late(self) -> None:
        self._late = True
        self._cancelled.set()


class HookRunner:
    """Runs hooks. `released` gets each release's outcome and `restored` what went wrong with each restore
    (empty: nothing), from a thread of the runner.
    """

    def __init__(
        self,
        hooks: LoanHooks,
        released: Callable[[str, int, Handover, str], None],
        restored: Callable[[str, int, str], None],
    ) -> None:
        self._hooks, self._released, self._restored = hooks, released, restored
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="hook")
        self._locks: dict[str, threading.Lock] = {}
        self._words: dict[str, int] = {}  # how often something was wanted of each server
        self._releasing: dict[str, Errand] = {}
        self._restoring: dict[str, Errand] = {}
        self._closing = False
        self._guard = threading.Lock()
        self.failures = 0

    def release(self, server_id: str, loan: int) -> None:
        """Have a server handed over to training; `loan` tells its loans apart when the outcome is told."""
        word, errand = self._word(server_id), self._hooks.to_release(server_id)
        if errand is not None:
            self._pool.submit(self._release, server_id, word, loan, errand)
        else:
            self._released(server_id, loan, Handover.DONE, "")

    def restore(self, server_id: str, homecoming: int) -> None:
        """Have a server taken back into service; `homecoming` tells its returns apart when the end is
        told.
        """
        word, errand = self._word(server_id), self._hooks.to_restore(server_id)
        if errand is not None:
            self._pool.submit(self._restore, server_id, word, homecoming, errand)
        else:
            self._restored(server_id, homecoming, "")

    def take_over(self, lent: Collection[str]) -> None:
        """A daemon begins: these servers are lent, all others are inference's. Raises ArylError."""
        if self._hooks.transfer is not None:
            self._hooks.transfer.take_over(lent)

    def close(self) -> None:
        """End what runs. Whoever comes next has to begin it again."""
        with self._guard:
            self._closing = True
            running = (*self._releasing.values(), *self._restoring.values())
        for errand in running:
            errand.cancel()
        self._pool.shutdown(cancel_futures=True)

    def _word(self, server_id: str) -> int:
        """Something is wanted of a server: what was wanted before is void, and a release that runs ends."""
        with self._guard:
            self._words[server_id] = word = self._words.get(server_id, 0) + 1
            void = self._releasing.get(server_id)
        if void is not None:
            void.cancel()
        return word

    def _is_void(self, server_id: str, word: int) -> bool:
        return self._closing or self._words[server_id] != word

    def _release(self, server_id: str, word: int, loan: int, errand: Errand) -> None:
        within_s = self._hooks.drain_limit_s
        with self._lock_of(server_id):
            wrong = self._run(errand, server_id, word, within_s, self._releasing)
        if self._is_void(server_id, word):
            _log.info("the release of %s isn't wanted any more", server_id)
        elif not wrong:
            self._released(server_id, loan, Handover.DONE, "")
        elif self._hooks.on_limit is OnLimit.FORCE:
            _log.warning("the loan of %s is forced: its release %s", server_id, wrong)
            self._released(server_id, loan, Handover.FORCED, wrong)
        else:
            _log.warning("the loan of %s is called off: its release %s", server_id, wrong)
            self._released(server_id, loan, Handover.CALLED_OFF, f"its release {wrong}")

    def _restore(self, server_id: str, word: int, homecoming: int, errand: Errand) -> None:
        with self._lock_of(server_id):
            wrong = self._run(errand, server_id, word, RESTORE_WITHIN_S, self._restoring)
        if self._closing:
            return
        if wrong:
            with self._guard:
                self.failures += 1
            _log.error("server %s may not be back in service: its restore %s", server_id, wrong)
        if not self._is_void(server_id, word):
            self._restored(server_id, homecoming, wrong)

    def _run(
        self, errand: Errand, server_id: str, word: int, within_s: float, running: dict[str, Errand]
    ) -> str:
        """Empty if all went well or nothing was wanted any more, else what went wrong, as the end of a
        sentence.
        """
        with self._guard:  # so that whoever makes it void finds either no errand or this one
            if self._is_void(server_id, word):
                return ""
            wrong = errand.begin()
            if wrong:
                return wrong
            running[server_id] = errand
        try:
            return errand.end(within_s)
        finally:
            with self._guard:
                del running[server_id]

    def _lock_of(self, server_id: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(server_id, threading.Lock())


@dataclass(slots=True)
class _Return:
    number: int = 0
    failures: int = 0
    retry_s: float = float("inf")


class Homecomings:
    """The last return of each server: its restore, and the next one if that fails. `restore` begins one of a
    server, for the return of that number. Used by one thread. Times in cluster seconds, of which `speed`
    pass in a real one.
    """

    def __init__(self, restore: Callable[[str, int], None], speed: float) -> None:
        self._restore, self._speed = restore, speed
        self._last: dict[str, _Return] = {}

    def begin(self, server_id: str) -> None:
        """A server has come home: have it restored, and let go of what was tried after an earlier return."""
        known = self._last.get(server_id)
        now = self._last[server_id] = _Return(1 if known is None else known.number + 1)
        self._restore(server_id, now.number)

    def ended(self, cluster: Cluster, now_s: float, server_id: str, number: int, wrong: str) -> bool:
        """A restore has ended: whether the server that it was meant for is restored by it. Word of an
        earlier return, or of a server that serves already, changes nothing.
        """
        last = self._last[server_id]
        if number != last.number or not cluster.server_by_id[server_id].restoring:
            return False
        if wrong:
            wait_s = RETRY_EVERY_S if last.failures else RETRY_AFTER_S
            last.failures += 1
            last.retry_s = now_s + wait_s * self._speed
            _log.info("the restore of %s is tried again in %g s", server_id, wait_s)
        return not wrong

    def next_s(self) -> float:
        """When the next restore is tried again; inf: none is."""
        return min((last.retry_s for last in self._last.values()), default=float("inf"))

    def try_again(self, cluster: Cluster, now_s: float) -> None:
        """Begin the restores that are due, of servers that still don't serve."""
        for server_id, last in self._last.items():
            if last.retry_s <= now_s:
                last.retry_s = float("inf")
                if cluster.server_by_id[server_id].restoring:
                    self._restore(server_id, last.number)


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
