"""One leads. Whoever has been replaced, however late it notices, changes nothing any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from tests.live.store.databases import Postgres, journal_of, lead, ticks, write

from aryl.errors import FencedError, UnreachableError
from aryl.live.store import LeaderRow, Leadership, Store, leader, opening

PATIENCE_S = 60.0


def wait_until(true: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@contextmanager
def candidate(store: Store, holder: str, lease_s: float) -> Iterator[Leadership]:
    leadership = Leadership(store, holder, lease_s)
    try:
        yield leadership
    finally:
        leadership.stop()


def test_nobody_leads_a_new_store(store: Store) -> None:
    assert store.observe() is None
    assert store.take("a", None) == 1
    assert store.observe() == LeaderRow("a", 1, 0)
    store.beat(1)
    assert store.observe() == LeaderRow("a", 1, 1)


def test_only_the_first_who_saw_the_same_row_gets_the_lead(store: Store) -> None:
    together = threading.Barrier(4)

    def take_first(number: int) -> int | None:
        together.wait()
        return store.take(f"c{number}", None)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(take_first, range(4)), key=str) == [1, None, None, None]
        seen = store.observe()

        def take_next(number: int) -> int | None:
            together.wait()
            return store.take(f"d{number}", seen)

        assert sorted(pool.map(take_next, range(4)), key=str) == [2, None, None, None]


def test_a_leader_that_has_beaten_since_keeps_the_lead(store: Store) -> None:
    token = lead(store)
    seen = store.observe()
    store.beat(token)
    assert store.take("b", seen) is None
    store.beat(token)


def test_a_deposed_leader_learns_it_from_its_next_beat(store: Store) -> None:
    old = lead(store, "old")
    new = lead(store, "new")
    assert new > old
    with pytest.raises(FencedError, match=f"leadership {old} is over"):
        store.beat(old)
    store.resign(old)
    store.beat(new)


def test_after_a_resignation_nothing_can_be_written_with_the_old_token(store: Store) -> None:
    token = lead(store)
    store.resign(token)
    row = store.observe()
    assert row is not None
    assert row.holder is None
    with pytest.raises(FencedError):
        write(store, token, ticks(1))
    with pytest.raises(FencedError):
        store.beat(token)
    assert journal_of(store) == []


def test_a_resigned_lead_is_taken_at_once(store: Store) -> None:
    with candidate(store, "a", 3600.0) as first, candidate(store, "b", 3600.0) as second:
        assert first.wait_until_leading(threading.Event()) == 1
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(second.wait_until_leading, threading.Event())
            first.stop()
            assert waiting.result(PATIENCE_S) == 2
        assert not first.lost.is_set()


def test_a_standby_leaves_a_leader_that_beats_alone_until_it_is_told_to_stop(store: Store) -> None:
    stop = threading.Event()
    with candidate(store, "a", 20.0) as first, candidate(store, "b", 20.0) as second:
        # Its beats come every hundredth of the standby's lease.
        first._lease_s = 0.8
        assert first.wait_until_leading(threading.Event()) == 1
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(second.wait_until_leading, stop)
            wait_until(lambda: (store.observe() or LeaderRow(None, 0, 0)).beat >= 5)
            assert not waiting.done()
            stop.set()
            assert waiting.result(PATIENCE_S) is None
        assert not first.lost.is_set()


def test_a_standby_takes_over_when_the_beat_stops_and_the_old_leader_notices(store: Store) -> None:
    # This one leads, and is dead.
    old = lead(store, "dead")
    with candidate(store, "b", 0.5) as second:
        assert second.wait_until_leading(threading.Event()) == old + 1
        # Whoever takes the lead from a living leader makes it notice.
        lead(store, "c")
        assert second.lost.wait(PATIENCE_S)


def test_a_leader_that_cannot_beat_counts_itself_as_deposed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with candidate(store, "a", 0.4) as leadership:
        assert leadership.wait_until_leading(threading.Event()) == 1

        def unreachable(token: int) -> None:
            raise UnreachableError(f"no way to say that {token} lives")

        monkeypatch.setattr(store, "beat", unreachable)
        assert leadership.lost.wait(PATIENCE_S)


def test_a_standby_that_cannot_hear_the_leader_does_not_take_it_for_dead(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead(store, "alive")
    observe, lease_s = store.observe, 0.4
    failed_at: list[float] = []
    heard: list[LeaderRow | None] = []

    def hard_of_hearing() -> LeaderRow | None:
        if heard and len(failed_at) < 6:
            failed_at.append(time.monotonic())
            raise UnreachableError("not now")
        heard.append(observe())
        return heard[-1]

    monkeypatch.setattr(store, "observe", hard_of_hearing)
    with candidate(store, "b", lease_s) as second:
        assert second.wait_until_leading(threading.Event()) == 2
        assert time.monotonic() - failed_at[-1] >= lease_s


FROZEN = """
import os, signal, sys, threading
from contextlib import nullcontext
from aryl.core.events import Tick
from aryl.errors import FencedError
from aryl.live.store import NO_CHANGES, Leadership, Store

store = Store.open(sys.argv[1])
leadership = Leadership(store, "frozen", 1.0)
token = leadership.wait_until_leading(threading.Event())
store.append(token, 0, [Tick(0.0)], NO_CHANGES)
# Not in the middle of a beat: a file can't be taken from a process that has locked it.
with store._one_writer:
    print("frozen", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    store.append(token, store.last_sequence() + 1, [Tick(9.0)], NO_CHANGES)
except FencedError:
    assert leadership.lost.wait(60)
    print("refused", flush=True)
"""


def test_a_leader_that_froze_is_refused_when_it_wakes(url: str) -> None:
    frozen = subprocess.Popen([sys.executable, "-c", FROZEN, url], stdout=subprocess.PIPE, text=True)
    store = None
    try:
        assert frozen.stdout is not None
        assert frozen.stdout.readline() == "frozen\n"
        store = Store.open(url)
        with candidate(store, "standby", 1.0) as standby:
            token = standby.wait_until_leading(threading.Event())
            assert token is not None
            assert token > 1
            write(store, token, ticks(2, first=1))
            os.kill(frozen.pid, signal.SIGCONT)
            assert frozen.stdout.readline() == "refused\n"
            assert frozen.wait(PATIENCE_S) == 0
            write(store, token, ticks(1, first=3))
            assert journal_of(store) == ticks(4)
            assert not standby.lost.is_set()
    finally:
        frozen.kill()
        frozen.communicate()
        if store is not None:
            store.close()


def test_a_transaction_that_froze_does_not_keep_the_lead(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(opening.POSTGRES_PATIENCE, "idle_in_transaction_session_timeout", "500ms")
    url = postgres.new_url()
    frozen, store = Store.open(url), Store.open(url)
    token = lead(frozen, "frozen")
    with pytest.raises(UnreachableError), frozen.writing() as connection:  # noqa: PT012
        leader.verify(connection, token)
        new = lead(store, "standby")  # waits for the lock
        leader.verify(connection, token)
    with pytest.raises(FencedError):
        write(frozen, token, ticks(1))
    write(store, new, ticks(1))
    frozen.close()
    store.close()
