"""The journal in the database, and the journal that the loop writes to.

A batch of events, and what they change in the other tables, is one transaction under the leader's token. The
numbers go on without a gap; both a gap and an overlap are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from sqlalchemy import bindparam, func, insert, select, update

from aryl.core import events as ev
from aryl.errors import InputError, InvariantError, UnreachableError
from aryl.live.store import leader
from aryl.live.store.apply import apply
from aryl.live.store.database import Database
from aryl.live.store.rows import Changes, JournalLine
from aryl.live.store.tables import JOBS, JOURNAL
from aryl.scheduler.journal import from_lines, to_line

LINES_AT_ONCE = 2_000

_NOTE_NUMBER = update(JOBS).where(JOBS.c.job_id == bindparam("of_job")).values(journaled=bindparam("number"))


class JournalTable(Database):
    """The part of the store that keeps the events."""

    def append(self, token: int, first_sequence: int, events: Sequence[ev.Event], changes: Changes) -> None:
        """Write events, numbered from `first_sequence`, and what follows from them; all or nothing.

        Raises FencedError if `token` doesn't lead any more, InvariantError if the journal doesn't end right
        before `first_sequence`.
        """
        rows = [
            {
                "sequence": number,
                "at": event.at,
                "type": type(event).__name__,
                "job_id": _job_of(event),
                "body": to_line(event, number).rstrip("\n"),
            }
            for number, event in enumerate(events, start=first_sequence)
        ]
        heard = [
            {"of_job": _job_of(event), "number": number}
            for number, event in enumerate(events, start=first_sequence)
            if isinstance(event, ev.Submitted | ev.Refused)
        ]
        with self.writing() as connection:
            leader.verify(connection, token)
            last = connection.scalar(select(func.max(JOURNAL.c.sequence)))
            expected = 0 if last is None else last + 1
            if first_sequence != expected:
                raise InvariantError(f"the journal goes on at {expected}, not at {first_sequence}")
            if rows:
                connection.execute(insert(JOURNAL), rows)
            if heard:
                connection.execute(_NOTE_NUMBER, heard)
            apply(connection, changes)

    def events(self, after: int = -1) -> Iterator[ev.Event]:
        """The events behind number `after`, in order; read in pieces, so that no transaction stays open.
        Raises InputError for a gap or a line that isn't an event.
        """
        return from_lines(self._bodies(after), f"the journal in {self.url_shown}")

    def lines(self, after: int, limit: int) -> list[JournalLine]:
        """At most `limit` events behind number `after`, as they are written."""
        with self.reading() as connection:
            found = connection.execute(
                select(JOURNAL.c.sequence, JOURNAL.c.body, JOURNAL.c.job_id)
                .where(JOURNAL.c.sequence > after)
                .order_by(JOURNAL.c.sequence)
                .limit(limit)
            )
            return [JournalLine(row.sequence, row.body, row.job_id) for row in found]

    def last_sequence(self) -> int:
        """The number of the last event; -1 if there is none."""
        with self.reading() as connection:
            last: int | None = connection.scalar(select(func.max(JOURNAL.c.sequence)))
        return -1 if last is None else last

    def _bodies(self, after: int) -> Iterator[str]:
        first = expected = after + 1
        while lines := self.lines(expected - 1, LINES_AT_ONCE):
            for number, body, _ in lines:
                if number != expected:
                    raise InputError(
                        "the journal has a gap",
                        file=f"the journal in {self.url_shown}",
                        found=number,
                        expected=str(expected),
                    )
                expected += 1
                # `from_lines` counts from 0; the first "seq" in a body is the event's own.
                yield body.replace(f'"seq":{number},', f'"seq":{number - first},', 1) if first else body


class Projecting(Protocol):
    """What collects the changes that events make in the other tables."""

    def journaled(self, sequence: int) -> None:
        """The event that comes next has this number."""

    def take(self) -> Changes:
        """The changes since the last time."""


class SqlJournal:
    """The loop's journal: keeps events until `flush`, and then writes them all at once.

    After a flush that failed it takes nothing more: whether the database has the events is unknown then, and
    only a replay can tell.
    """

    def __init__(self, store: JournalTable, token: int, projection: Projecting) -> None:
        self._store, self._token, self._projection = store, token, projection
        self._first = store.last_sequence() + 1
        self._events: list[ev.Event] = []
        self._broken: Exception | None = None

    def append(self, event: ev.Event) -> None:
        """Put one event behind the others. It isn't safe before `flush`."""
        self._projection.journaled(self._first + len(self._events))
        self._events.append(event)

    def flush(self) -> None:
        """Write everything. Raises FencedError and UnreachableError; see `JournalTable.append`."""
        if self._broken is not None:
            raise UnreachableError("an earlier write of the journal failed") from self._broken
        if not self._events:
            return
        try:
            self._store.append(self._token, self._first, self._events, self._projection.take())
        except Exception as error:
            self._broken = error
            raise
        self._first += len(self._events)
        self._events = []


def _job_of(event: ev.Event) -> str | None:
    if isinstance(event, ev.Submitted):
        return event.job.job_id
    job_id: str | None = getattr(event, "job_id", None)
    return job_id
