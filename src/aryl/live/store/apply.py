"""How the changes that a projection has collected get into the tables."""

from __future__ import annotations

import json
from typing import Any, assert_never

from sqlalchemy import ColumnElement, Connection, Update, and_, bindparam, insert, update

from aryl.live.store.rows import Changes, HistoryRow, JobChange, LoanChange, LoanMove
from aryl.live.store.tables import HISTORY, JOBS, LOANS


def apply(connection: Connection, changes: Changes) -> None:
    """Write changes, within the transaction of the events that they follow from."""
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[dict[str, object]]] = {}
    for job_id, change in changes.jobs.items():
        columns = tuple(change.values), tuple(change.rises)
        alike.setdefault(columns, []).append(_parameters(job_id, change))
    for (values, rises), rows in alike.items():
        connection.execute(_change_jobs(values, rises), rows)
    if changes.history:
        connection.execute(insert(HISTORY), [_history(row) for row in changes.history])
    for loan in changes.loans:
        _change_loan(connection, loan)


def _change_jobs(values: tuple[str, ...], rises: tuple[str, ...]) -> Update:
    """One statement for all jobs of which the same columns change."""
    given: dict[str, ColumnElement[Any]] = {name: bindparam(f"new_{name}") for name in values}
    risen = {name: JOBS.c[name] + bindparam(f"more_{name}") for name in rises}
    return update(JOBS).where(JOBS.c.job_id == bindparam("of_job")).values({**given, **risen})


def _parameters(job_id: str, change: JobChange) -> dict[str, object]:
    return {
        "of_job": job_id,
        **{f"new_{name}": value for name, value in change.values.items()},
        **{f"more_{name}": count for name, count in change.rises.items()},
    }


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
