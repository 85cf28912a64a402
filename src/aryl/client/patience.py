"""How long a client waits, and how it bears a server that is away for a while.

A control plane is restarted without its jobs noticing, so those who watch it shouldn't either. But whoever
has mistyped an address wants to hear so at once: an outage is borne only after there was an answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from aryl.errors import ArylError, UnreachableError

DEFAULT_OUTAGE_S = 300.0


class WaitTimeoutError(ArylError):
    """What was waited for hasn't come in time; it may still come."""

    exit_code = 124


def delays(first_s: float, longest_s: float) -> Iterator[float]:
    """Endless delays in seconds, doubling up to `longest_s`; each is shortened at random by up to a third,
    so that many clients don't come back together.
    """
    delay_s = first_s
    while True:
        yield delay_s * random.uniform(2 / 3, 1)
        delay_s = min(delay_s * 2, longest_s)


class Patience:
    """Bears outages of up to `outage_s` seconds, counted from the last answer."""

    def __init__(self, outage_s: float = DEFAULT_OUTAGE_S, *, longest_delay_s: float = 5.0) -> None:
        self._outage_s, self._longest_delay_s = outage_s, longest_delay_s
        self._answered_s: float | None = None
        self._delays = delays(0.2, longest_delay_s)
        self.waiting = False

    def answered(self) -> None:
        """There was an answer."""
        self._answered_s = time.monotonic()
        if self.waiting:
            self._delays, self.waiting = delays(0.2, self._longest_delay_s), False

    def lost(self, error: UnreachableError, *, until_s: float | None = None) -> None:
        """Wait a moment before the next try, at most until the monotonic time `until_s`.

        Raises `error` if there never was an answer, or none for too long.
        """
        now = time.monotonic()
        if self._answered_s is None or now - self._answered_s > self._outage_s:
            raise error
        self.waiting = True
        delay_s = next(self._delays)
        time.sleep(delay_s if until_s is None else max(0.0, min(delay_s, until_s - now)))
