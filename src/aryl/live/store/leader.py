"""The one row that says who leads. No clocks are compared: a token that only rises fences off every earlier
leader, and a counter shows that the present one is alive.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from aryl.errors import FencedError
from aryl.live.store.database import Database
from aryl.live.store.rows import LeaderRow
from aryl.live.store.tables import LEADER


class LeaderTable(Database):
    """The part of the store that knows who leads."""

    def observe(self) -> LeaderRow | None:
        """Who leads, or led last; None if nobody ever did."""
        with self.reading() as connection:
            row = connection.execute(select(LEADER.c.holder, LEADER.c.token, LEADER.c.beat)).first()
        return None if row is None else LeaderRow(row.holder, row.token, row.beat)

    def take(self, holder: str, seen: LeaderRow | None) -> int | None:
        """Lead, unless the leader has moved since it was `seen`. Returns the new token, higher than all
        before, or None.
        """
        if seen is None:
            try:
                with self.writing() as connection:
                    connection.execute(insert(LEADER).values(id=1, holder=holder, token=1, beat=0))
            except IntegrityError:
                return None
            return 1
        token = seen.token + 1
        with self.writing() as connection:
            changed = connection.execute(
                update(LEADER)
                .where(LEADER.c.token == seen.token, LEADER.c.beat == seen.beat)
                .values(holder=holder, token=token, beat=seen.beat + 1)
            )
            return token if changed.rowcount == 1 else None

    def beat(self, token: int) -> None:
        """Show a sign of life. Raises FencedError if somebody else leads by now."""
        with self.writing() as connection:
            changed = connection.execute(
                update(LEADER)
                .where(LEADER.c.token == token, LEADER.c.holder.is_not(None))
                .values(beat=LEADER.c.beat + 1)
            )
            if changed.rowcount != 1:
                raise fenced(token)

    def resign(self, token: int) -> None:
        """Lead no longer, so that somebody else can at once. Changes nothing if somebody else does."""
        with self.writing() as connection:
            connection.execute(
                update(LEADER).where(LEADER.c.token == token).values(holder=None, beat=LEADER.c.beat + 1)
            )


def verify(connection: Connection, token: int) -> None:
    """Hold the lead until the transaction is over. Raises FencedError."""
    leads = connection.execute(
        select(LEADER.c.id).where(LEADER.c.token == token, LEADER.c.holder.is_not(None)).with_for_update()
    ).first()
    if leads is None:
        raise fenced(token)


def fenced(token: int) -> FencedError:
    """The error of somebody who leads no longer."""
    return FencedError(f"leadership {token} is over: somebody else leads this cluster")
