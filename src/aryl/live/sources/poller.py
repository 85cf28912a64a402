"""Asks a source again and again, in a thread of its own, and tells what is new.

What can't be read is asked for again at the usual time; it is logged when that begins and when it ends. What
is no newer than what was told before isn't told again: it only grows older, and whoever listens sees that by
its time.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace

from aryl.errors import ArylError
from aryl.live.sources.observation import Observation, Source

_log = logging.getLogger(__name__)

# Two clocks that are kept by NTP are never that far apart.
MOST_SKEW_S = 5.0
# A request that hangs is left behind: its thread ends with it and tells nothing any more.
CLOSE_WITHIN_S = 1.0


class Poller:
    """Tells each new observation to `told`, from its own thread, which must not close the poller there.

    Owns the source. `failures` counts polls that failed, `last_error` is why the last one did (empty: it
    didn't), `last_unix_s` the time of what was told last (None: nothing yet).
    """

    def __init__(
        self,
        source: Source,
        every_s: float,
        told: Callable[[Observation], None],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.failures = 0
        self.last_error = ""
        self.last_unix_s: float | None = None
        self._source, self._told, self._now = source, told, now
        self._every_s = min(every_s, threading.TIMEOUT_MAX)
        self._failed_in_a_row = 0
        self._ahead = False
        self._as_measured: float | None = None  # the time of what was told last, as the source gave it
        self._closing = threading.Event()
        self._telling = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="demand", daemon=True)

    def start(self) -> None:
        """Begin, with a first poll at once."""
        self._thread.start()

    def close(self) -> None:
        """End. Nothing is told once this has returned, even if a request is still under way."""
        with self._telling:
            self._closing.set()
        if self._thread.ident is None:
            self._source.close()
        else:
            self._thread.join(CLOSE_WITHIN_S)

    def poll(self) -> None:
        """Ask once, now. Raises nothing: a poll that fails is counted."""
        try:
            self._tell(self._source.read())
        except ArylError as error:
            self._fail(str(error))
        except Exception as error:
            # The thread has to live on, and the text of an unforeseen error may hold a secret.
            at = traceback.extract_tb(error.__traceback__)[-1]
            self._fail(f"an unforeseen {type(error).__name__} ({at.filename}, line {at.lineno})")
        else:
            self._succeed()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self.poll()
                self._closing.wait(self._every_s)
        finally:
            self._source.close()

    def _tell(self, seen: Observation) -> None:
        now_s = self._now()
        measured_s = min(seen.measured_unix_s, now_s)
        self._note_skew(seen.measured_unix_s - now_s)
        last_s = self.last_unix_s
        # A last word that is ahead of the clock, which was set back since, is no reason to hear nothing.
        if last_s is not None and (
            seen.measured_unix_s == self._as_measured or measured_s <= last_s <= now_s
        ):
            return
        with self._telling:
            if self._closing.is_set():
                return
            self._told(replace(seen, measured_unix_s=measured_s))
        self.last_unix_s, self._as_measured = measured_s, seen.measured_unix_s

    def _note_skew(self, ahead_s: float) -> None:
        if ahead_s > MOST_SKEW_S and not self._ahead:
            self._ahead = True
            _log.warning(
                "the clock of %s is %.0f s ahead of ours: what it says counts as measured when it is read",
                self._source.where,
                ahead_s,
            )

    def _fail(self, reason: str) -> None:
        self.failures += 1
        self._failed_in_a_row += 1
        self.last_error = reason
        if self._failed_in_a_row == 1 and not self._closing.is_set():
            _log.warning("the inference demand can't be read from %s: %s", self._source.where, reason)

    def _succeed(self) -> None:
        if self._failed_in_a_row:
            _log.warning(
                "the inference demand can be read from %s again, after %d failed polls",
                self._source.where,
                self._failed_in_a_row,
            )
        self._failed_in_a_row = 0
        self.last_error = ""
