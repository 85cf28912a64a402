"""Waiting for the lead, keeping it, and noticing that it is lost.

A standby watches the leader's beat with its own clock: if it hasn't moved for `lease_s`, the leader is taken
for dead. The leader beats four times as often. One that can't beat for `lease_s` counts itself as deposed,
and it does so before any standby can: that one began to count later. If clocks or pauses prove all of this
wrong, the token still keeps the old leader from writing.
"""

from __future__ import annotations

import threading
import time

from aryl.errors import FencedError, UnreachableError
from aryl.live.store.leader import LeaderTable
from aryl.live.store.rows import LeaderRow

BEATS_PER_LEASE = 4
LONGEST_LOOK_S = 1.0


class Leadership:
    """One candidate. `lost` is set when it leads no longer although nobody stopped it."""

    def __init__(self, store: LeaderTable, holder: str, lease_s: float) -> None:
        self.lost = threading.Event()
        self.token: int | None = None
        self._store, self._holder, self._lease_s = store, holder, lease_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def wait_until_leading(self, stop: threading.Event) -> int | None:
        """Stand by until this candidate leads, and beat from then on. Returns its token, or None once `stop`
        is set. May be called once.
        """
        seen: LeaderRow | None = None
        since_s = time.monotonic()
        while not stop.is_set():
            token = None
            try:
                row = self._store.observe()
                if row != seen:
                    seen, since_s = row, time.monotonic()
                if row is None or row.holder is None or time.monotonic() - since_s >= self._lease_s:
                    token = self._store.take(self._holder, row)
            except UnreachableError:
                # The leader can't be heard now, which doesn't mean that it is silent.
                since_s = time.monotonic()
            if token is not None:
                self.token = token
                self._thread = threading.Thread(target=self._keep, args=(token,), name="lead", daemon=True)
                self._thread.start()
                return token
            stop.wait(min(self._lease_s / BEATS_PER_LEASE, LONGEST_LOOK_S))
        return None

    def stop(self) -> None:
        """Resign, if this candidate leads."""
        self._stop.set()
        if self._thread is None or self.token is None:
            return
        self._thread.join()
        try:
            self._store.resign(self.token)
        except UnreachableError:
            return  # the lease runs out by itself

    def _keep(self, token: int) -> None:
        alive_s = time.monotonic()
        while not self._stop.wait(self._lease_s / BEATS_PER_LEASE):
            began_s = time.monotonic()
            try:
                self._store.beat(token)
                alive_s = began_s
            except FencedError:
                self.lost.set()
                return
            except UnreachableError:
                if time.monotonic() - alive_s >= self._lease_s:
                    self.lost.set()
                    return
