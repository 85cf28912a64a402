"""A process that is killed in the middle of its writes leaves a journal without a gap."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from tests.live.store.databases import journal_of, lead, ticks, write

from aryl.core.events import Tick
from aryl.live.store import Store

WRITER = """
import sys
from aryl.core.events import Tick
from aryl.live.store import Changes, HistoryRow, Store

store = Store.open(sys.argv[1])
token = store.take("writer", store.observe())
number = store.last_sequence() + 1
while True:
    some = range(number, number + 1 + number % 7)
    entries = tuple(HistoryRow("a-1", one, 0, 0.0, "launched", 1, "on T1") for one in some)
    store.append(token, number, [Tick(float(one)) for one in some], Changes(history=entries))
    number = some[-1] + 1
    print(number, flush=True)
"""


@pytest.mark.parametrize("batches", [1, 7, 40])
def test_a_killed_writer_leaves_whole_batches_and_no_gap(url: str, batches: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    told = [int(writer.stdout.readline()) for _ in range(batches)]
    writer.send_signal(signal.SIGKILL)
    rest, _ = writer.communicate()
    told += [int(line) for line in rest.splitlines()]
    store = Store.open(url)
    events = journal_of(store)
    # All that it was told is safe is there, and at most one batch that it wasn't told of.
    assert told[-1] <= len(events) <= told[-1] + 7
    assert events == ticks(len(events))
    assert [entry.sequence for entry in store.history("a-1")] == list(range(len(events)))
    write(store, lead(store), [Tick(float(len(events)))])
    assert store.last_sequence() == len(events)
    store.close()
