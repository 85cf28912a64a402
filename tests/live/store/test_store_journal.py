"""The journal in the database: all or nothing, without a gap, and back as it was."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, update
from tests.live.store.databases import journal_of, lead, new_job, ticks, write
from tests.scheduler.test_journal import EVENTS

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.model import JobSpec
from aryl.errors import FencedError, InputError, InvariantError, UnreachableError
from aryl.live.projection import Projection
from aryl.live.store import NO_CHANGES, Changes, HistoryRow, SqlJournal, Store, journal
from aryl.live.store.tables import JOURNAL
from aryl.policies.catalogue import parse_policy
from aryl.scheduler.journal import to_line

NOTED = Changes(history=(HistoryRow("a-1", 0, 0, 1.0, "launched", 1, "on T1"),))


def projection(store: Store) -> Projection:
    return Projection(store.epoch_s(), Cluster(parse_policy("fifo").order))


def test_every_kind_of_event_comes_back_as_it_was(store: Store) -> None:
    store.append(lead(store), 0, EVENTS, NO_CHANGES)
    assert tuple(store.events()) == EVENTS
    assert tuple(store.events(after=2)) == EVENTS[3:]
    assert store.last_sequence() == len(EVENTS) - 1


def test_a_long_journal_is_read_in_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LINES_AT_ONCE", 3)
    write(store, lead(store), ticks(10))
    assert journal_of(store) == ticks(10)
    assert list(store.events(after=3)) == ticks(6, first=4)


def test_an_empty_journal_has_no_last_event(store: Store) -> None:
    assert store.last_sequence() == -1
    assert journal_of(store) == []
    assert store.lines(-1, 10) == []


def test_lines_are_what_a_journal_file_would_have_and_name_the_job(store: Store) -> None:
    events: list[ev.Event] = [
        ev.Tick(0.0),
        ev.Launched(1.0, "a-1", 1),
        ev.Submitted(2.0, JobSpec("b-2", 2, 2.0, 1, 1)),
    ]
    write(store, lead(store), events)
    lines = store.lines(0, 1)
    assert [(line.sequence, line.job_id) for line in lines] == [(1, "a-1")]
    assert lines[0].body + "\n" == to_line(events[1], 1)
    assert [line.job_id for line in store.lines(-1, 10)] == [None, "a-1", "b-2"]


@pytest.mark.parametrize("first", [0, 2, 4])
def test_a_gap_or_an_overlap_is_refused_and_nothing_is_written(store: Store, first: int) -> None:
    token = lead(store)
    write(store, token, ticks(3))
    with pytest.raises(InvariantError, match=rf"goes on at 3, not at {first}"):
        store.append(token, first, ticks(2, first=3), NOTED)
    assert journal_of(store) == ticks(3)
    assert store.history("a-1") == []


def test_a_journal_with_a_hole_is_not_read(store: Store) -> None:
    write(store, lead(store), ticks(5))
    with store.writing() as connection:
        connection.execute(delete(JOURNAL).where(JOURNAL.c.sequence == 2))
    with pytest.raises(InputError, match=r"the journal has a gap \(found 3\); expected 2"):
        journal_of(store)


def test_a_line_that_is_no_event_is_not_read(store: Store) -> None:
    write(store, lead(store), ticks(2))
    with store.writing() as connection:
        connection.execute(update(JOURNAL).where(JOURNAL.c.sequence == 1).values(body="{}"))
    with pytest.raises(InputError, match=r"line 2: not a line of a journal"):
        journal_of(store)


def test_events_and_what_follows_from_them_are_written_together_or_not_at_all(store: Store) -> None:
    token = lead(store)
    broken = Changes(history=NOTED.history * 2)  # the same entry twice
    with pytest.raises(Exception, match=r"(?i)unique"):
        store.append(token, 0, ticks(2), broken)
    assert (store.last_sequence(), store.history("a-1")) == (-1, [])
    store.append(token, 0, ticks(2), NOTED)
    assert (store.last_sequence(), store.history("a-1")) == (1, list(NOTED.history))


def test_a_deposed_leader_writes_nothing_at_all(store: Store) -> None:
    old = lead(store, "old")
    write(store, old, ticks(2))
    new = lead(store, "new")
    with pytest.raises(FencedError):
        store.append(old, 2, ticks(2, first=2), NOTED)
    assert journal_of(store) == ticks(2)
    assert store.history("a-1") == []
    write(store, new, ticks(1, first=2))
    assert journal_of(store) == ticks(3)


def test_a_job_is_unjournaled_until_its_submission_or_refusal_is_in_the_journal(store: Store) -> None:
    token = lead(store)
    jobs = [store.accept(new_job(name), "ann", None, "", 5.0)[0] for name in "abc"]
    assert store.unjournaled() == jobs
    spec = JobSpec(jobs[1].job_id, jobs[1].sequence, 0.0, 2, 8)
    write(store, token, [ev.Tick(0.0), ev.Submitted(1.0, spec)])
    assert store.unjournaled() == [jobs[0], jobs[2]]
    write(store, token, [ev.Refused(1.0, jobs[0].job_id, "too large")])
    assert store.unjournaled() == [jobs[2]]
    journaled = store.job(jobs[1].job_id)
    assert journaled is not None
    assert journaled.journaled == 1


def test_the_loops_journal_writes_when_it_is_flushed(store: Store) -> None:
    written = SqlJournal(store, lead(store), projection(store))
    for event in ticks(3):
        written.append(event)
    assert store.last_sequence() == -1
    written.flush()
    written.flush()
    written.append(ev.Tick(3.0))
    written.flush()
    assert journal_of(store) == ticks(4)
    again = SqlJournal(store, lead(store), projection(store))
    again.append(ev.Tick(4.0))
    again.flush()
    assert journal_of(store) == ticks(5)


def test_the_loops_journal_takes_nothing_more_after_it_was_fenced_off(store: Store) -> None:
    written = SqlJournal(store, lead(store), projection(store))
    written.append(ev.Tick(0.0))
    lead(store, "other")
    with pytest.raises(FencedError):
        written.flush()
    written.append(ev.Tick(1.0))
    with pytest.raises(UnreachableError, match="an earlier write of the journal failed"):
        written.flush()
    assert journal_of(store) == []
