"""The store: what the control plane must not forget, in SQLite or PostgreSQL.

`Store` is the door. The journal is the truth; the tables of jobs, of their history and of loans are a
projection of it, written in the same transaction. Every write of the journal carries the token of whoever
leads, so a leader that has been replaced without noticing can write nothing.
"""

from __future__ import annotations

from aryl.live.store.journal import SqlJournal
from aryl.live.store.leadership import Leadership
from aryl.live.store.rows import (
    NO_CHANGES,
    Changes,
    HistoryRow,
    IdempotencyError,
    JobChange,
    JobRow,
    JournalLine,
    LeaderRow,
    LoanChange,
    LoanMove,
    LoanRow,
    NewJob,
    TokenRow,
)
from aryl.live.store.store import Store

__all__ = [
    "NO_CHANGES",
    "Changes",
    "HistoryRow",
    "IdempotencyError",
    "JobChange",
    "JobRow",
    "JournalLine",
    "LeaderRow",
    "Leadership",
    "LoanChange",
    "LoanMove",
    "LoanRow",
    "NewJob",
    "SqlJournal",
    "Store",
    "TokenRow",
]
