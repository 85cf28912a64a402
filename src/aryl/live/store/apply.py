"""How the changes that a projection has collected get into the tables."""

from __future__ import annotations

import json
from typing import assert_never

from sqlalchemy import Connection, and_, insert, update

from aryl.live.store.rows import Changes, HistoryRow, JobChange, LoanChange, LoanMove
from aryl.live.store.tables import HISTORY, JOBS, LOANS


def apply(connection: Connection, changes: Changes) -> None:
    """Write changes, within the transaction of the events that they follow from."""
    for job_id, change in changes.jobs.items():
        _change_job(connection, job_id, change)
    if changes.history:
        connection.execute(insert(HISTORY), [_history(row) for row in changes.history])
    for loan in changes.loans:
        _change_loan(connection, loan)


def _change_job(connection: Connection, job_id: str, change: JobChange) -> None:
    risen = {name: JOBS.c[name] + count for name, count in change.rises.items()}
    connection.execute(update(JOBS).where(JOBS.c.job_id == job_id).values({**change.values, **risen}))


def _history(row: HistoryRow) -> dict[str, object]:
    return {
        "job_id": row.job_id,
        "sequence": row.sequence,
        "part": row.part,
        "at": row.at,
        "kind": row.kind,
        "attempt": row.attempt,
        "text": row.text,
        "cause": row.cause,
        "beneficiary": row.beneficiary,
        "alternatives": json.dumps([list(one) for one in row.alternatives], separators=(",", ":")),
    }


def _change_loan(connection: Connection, loan: LoanChange) -> None:
    present = and_(LOANS.c.server == loan.server, LOANS.c.returned.is_(None))
    match loan.move:
        case LoanMove.LENT:
            goes_on = connection.execute(
                update(LOANS).where(present).values(reclaim_asked=None, deadline=None)
            )
            if goes_on.rowcount == 0:
                connection.execute(
                    insert(LOANS).values(sequence=loan.sequence, server=loan.server, lent=loan.at)
                )
        case LoanMove.RECLAIMED:
            connection.execute(
                update(LOANS).where(present).values(reclaim_asked=loan.at, deadline=loan.deadline)
            )
        case LoanMove.RETURNED:
            connection.execute(update(LOANS).where(present).values(returned=loan.at))
        case _:
            assert_never(loan.move)
