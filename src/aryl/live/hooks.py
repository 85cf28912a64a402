"""Hand a server over to training, and back: commands of the inference side, run beside the loop.

`release` has to stop routing to the server, wait until its streams have ended, and return. If it takes longer
than the drain limit it is killed, and then the loan is called off and the server restored, or it is handed
over all the same, as configured; never silently. Both hooks of one server never run at once, and the last
word counts: a server that is wanted back while it is still being released is restored without waiting for
that.
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

_log = logging.getLogger(__name__)

MOST_AT_ONCE = 16
RESTORE_WITHIN_S = 3600.0


class OnLimit(Enum):
    """What happens to a loan whose server isn't drained in time."""

    CALL_OFF = "call-off"
    FORCE = "force"


class Handover(Enum):
    """How a release went."""

    DONE = "done"
    FORCED = "forced"
    CALLED_OFF = "called-off"


@dataclass(frozen=True, slots=True)
class LoanHooks:
    """The commands; empty: nothing has to be done."""

    release: Sequence[str] = ()
    restore: Sequence[str] = ()
    drain_limit_s: float = 30.0
    on_limit: OnLimit = OnLimit.CALL_OFF


class HookRunner:
    """Runs hooks. `told` gets each release's outcome, from a thread of the runner."""

    def __init__(self, hooks: LoanHooks, told: Callable[[str, int, Handover, str], None]) -> None:
        self._hooks, self._told = hooks, told
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
            self._told(server_id, loan, Handover.DONE, "")

    def restore(self, server_id: str) -> None:
        """Have a server taken back into service."""
        word = self._word(server_id)
        if self._hooks.restore:
            self._pool.submit(self._restore, server_id, word)

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
            self._told(server_id, loan, Handover.DONE, "")
        elif self._hooks.on_limit is OnLimit.FORCE:
            _log.warning("the loan of %s is forced: its release %s", server_id, wrong)
            self._told(server_id, loan, Handover.FORCED, wrong)
        else:
            _log.warning("the loan of %s is called off: its release %s", server_id, wrong)
            self.restore(server_id)
            self._told(server_id, loan, Handover.CALLED_OFF, f"its release {wrong}")

    def _restore(self, server_id: str, word: int) -> None:
        with self._lock_of(server_id):
            wrong = self._run(self._hooks.restore, server_id, word, RESTORE_WITHIN_S, self._restoring)
        if wrong and not self._closing:
            self.failures += 1
            _log.error("server %s may not be back in service: its restore %s", server_id, wrong)

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


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
