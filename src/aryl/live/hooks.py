"""Hand a server over to training, and back: commands of the inference side, run beside the loop.

`release` has to stop routing to the server, wait until its streams have ended, and return. If it takes longer
than the drain limit it is killed, and then the loan is called off and the server restored, or it is handed
over all the same, as configured; never silently. Both hooks of one server never run at once, and the last
word counts: a server that is wanted back while it is still being released is restored without waiting for
that.

`restore` has to put the server back into service, and to return once it serves; or somebody else says when
it does, as configured. One that fails is tried again for as long as the server is missing.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum

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


@dataclass(frozen=True, slots=True)
class LoanHooks:
    """The commands; empty: nothing has to be done."""

    release: Sequence[str] = ()
    restore: Sequence[str] = ()
    drain_limit_s: float = 30.0
    on_limit: OnLimit = OnLimit.CALL_OFF
    ready: Ready = Ready.HOOK


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
        self._releasing: dict[str, subprocess.Popen[bytes]] = {}
        self._restoring: dict[str, subprocess.Popen[bytes]] = {}
        self._closing = False
        self._guard = threading.Lock()
        self.failures = 0

    def release(self, server_id: str, loan: int) -> None:
        """Have a server handed over to training; `loan` tells its loans apart when the outcome is told."""
        word = self._word(server_id)
        if self._hooks.release:
            self._pool.submit(self._release, server_id, word, loan)
        else:
            self._released(server_id, loan, Handover.DONE, "")

    def restore(self, server_id: str, homecoming: int) -> None:
        """Have a server taken back into service; `homecoming` tells its returns apart when the end is
        told.
        """
        word = self._word(server_id)
        if self._hooks.restore:
            self._pool.submit(self._restore, server_id, word, homecoming)
        else:
            self._restored(server_id, homecoming, "")

    def close(self) -> None:
        """End what runs. Whoever comes next has to begin it again."""
        with self._guard:
            self._closing = True
            running = (*self._releasing.values(), *self._restoring.values())
        for process in running:
            _kill(process)
        self._pool.shutdown(cancel_futures=True)

    def _word(self, server_id: str) -> int:
        """Something is wanted of a server: what was wanted before is void, and a release that runs ends."""
        with self._guard:
            self._words[server_id] = word = self._words.get(server_id, 0) + 1
            void = self._releasing.get(server_id)
        if void is not None:
            _kill(void)
        return word

    def _is_void(self, server_id: str, word: int) -> bool:
        return self._closing or self._words[server_id] != word

    def _release(self, server_id: str, word: int, loan: int) -> None:
        within_s = self._hooks.drain_limit_s
        with self._lock_of(server_id):
            wrong = self._run(self._hooks.release, server_id, word, within_s, self._releasing)
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

    def _restore(self, server_id: str, word: int, homecoming: int) -> None:
        with self._lock_of(server_id):
            wrong = self._run(self._hooks.restore, server_id, word, RESTORE_WITHIN_S, self._restoring)
        if self._closing:
            return
        if wrong:
            with self._guard:
                self.failures += 1
            _log.error("server %s may not be back in service: its restore %s", server_id, wrong)
        if not self._is_void(server_id, word):
            self._restored(server_id, homecoming, wrong)

    def _run(
        self,
        command: Sequence[str],
        server_id: str,
        word: int,
        within_s: float,
        running: dict[str, subprocess.Popen[bytes]],
    ) -> str:
        """Empty if all went well or nothing was wanted any more, else what went wrong, as the end of a
        sentence.
        """
        env = dict(os.environ) | {"ARYL_SERVER_ID": server_id}
        with self._guard:  # so that whoever makes it void finds either no process or this one
            if self._is_void(server_id, word):
                return ""
            try:
                process = subprocess.Popen(
                    list(command), env=env, stdin=subprocess.DEVNULL, start_new_session=True
                )
            except OSError as error:
                return f"can't be started: {error.strerror}"
            running[server_id] = process
        try:
            code = process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            return f"took longer than {within_s:g} s"
        finally:
            with self._guard:
                del running[server_id]
        return "" if code == 0 else f"exited with {code}"

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
