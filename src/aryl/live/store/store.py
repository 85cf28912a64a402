"""`Store`: all parts of the store behind one door."""

from __future__ import annotations

from sqlalchemy import select

from aryl.live.store.jobs import JobTable
from aryl.live.store.journal import JournalTable
from aryl.live.store.leader import LeaderTable
from aryl.live.store.opening import open_engine
from aryl.live.store.tables import GROUND
from aryl.live.store.tokens import TokenTable


class Store(LeaderTable, JournalTable, JobTable, TokenTable):
    """What the control plane keeps. May be used by many threads at once.

    Every method raises UnreachableError when the database doesn't answer.
    """

    @classmethod
    def open(cls, url: str) -> Store:
        """Open the store at `sqlite:///FILE`, which is made if it isn't there, or at `postgresql://...`, and
        bring its tables up to date.

        Raises InputError for a URL that is none or leads nowhere (a password is never shown), and for a store
        that a newer version has made.
        """
        return cls(*open_engine(url))

    def epoch_s(self) -> float:
        """The journal's zero in seconds since the Unix epoch: when the store was first opened."""
        with self.reading() as connection:
            epoch_s: float = connection.execute(select(GROUND.c.epoch_s)).scalar_one()
        return epoch_s
