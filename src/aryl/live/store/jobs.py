"""Jobs: how they are accepted, and what is known of them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, insert, select, update

from aryl.core.model import JobState
from aryl.core.plan import Weighed
from aryl.errors import InputError
from aryl.live.store import leader
from aryl.live.store.database import Database
from aryl.live.store.rows import HistoryRow, IdempotencyError, JobRow, LoanRow, NewJob
from aryl.live.store.tables import GROUND, HISTORY, IDEMPOTENCY, JOBS, LOANS
from aryl.live.store.together import Together
from aryl.wire.views import PlaceView

KEYS_KEPT_S = 48 * 3600.0
MOST_JOBS_A_PAGE = 1_000
_IDS_AT_ONCE = 500

# The body may be large; lists don't need it.
_SHOWN = [column for column in JOBS.c if column is not JOBS.c.body]


_Key = tuple[str, str]  # the principal, and what it sent


@dataclass(frozen=True, slots=True)
class _Submission:
    new: NewJob
    key: _Key | None
    body_hash: str
    now_unix_s: float
    token: int | None


class JobTable(Database):
    """The part of the store that knows jobs, what happened to them, and loans."""

    def __init__(self, engine: Engine, url_shown: str) -> None:
        super().__init__(engine, url_shown)
        self._accepting = Together(self._accept)

    def accept(
        self,
        new: NewJob,
        principal: str,
        idempotency_key: str | None,
        body_hash: str,
        now_unix_s: float,
        token: int | None = None,
    ) -> tuple[JobRow, bool]:
        """Accept a job, once: the same key of the same principal gives the same job, with the flag False.

        Jobs become visible in the order of their numbers; those that come at the same moment are one
        transaction. Raises IdempotencyError for a key that came with another `body_hash` before, and
        FencedError if `token` is given and doesn't lead any more: whoever leads instead has looked for jobs
        like this one already, and would not hear of it.
        """
        key = None if idempotency_key is None else (principal, idempotency_key)
        return self._accepting.do(_Submission(new, key, body_hash, now_unix_s, token))

    def _accept(self, some: Sequence[_Submission]) -> list[tuple[JobRow, bool] | Exception]:
        keys = [one.key for one in some if one.key is not None]
        with self.writing() as connection:
            for token in {one.token for one in some if one.token is not None}:
                leader.verify(connection, token)
            sequence: int = connection.execute(select(GROUND.c.last_job).with_for_update()).scalar_one()
            known = _known_keys(connection, keys) if keys else {}
            rows: dict[int, JobRow] = {}
            bodies, new_keys = [], []
            answers: list[tuple[int, bool] | Exception] = []
            for one in some:
                before = known.get(one.key) if one.key is not None else None
                if before is not None:
                    wrong = IdempotencyError("this Idempotency-Key came with another request before")
                    answers.append((before[0], False) if before[1] == one.body_hash else wrong)
                    continue
                sequence += 1
                answers.append((sequence, True))
                rows[sequence] = row = _first_row(one.new, sequence, one.now_unix_s)
                bodies.append({**_columns(row), "body": one.new.body})
                if one.key is not None:
                    known[one.key] = sequence, one.body_hash
                    new_keys.append(_key_columns(one.key, one.body_hash, sequence, one.now_unix_s))
            if bodies:
                connection.execute(update(GROUND).values(last_job=sequence))
                connection.execute(insert(JOBS), bodies)
            if new_keys:
                connection.execute(insert(IDEMPOTENCY), new_keys)
            earlier = [job for job, _ in known.values() if job not in rows]
            if earlier:
                found = connection.execute(select(*_SHOWN).where(JOBS.c.sequence.in_(earlier)))
                rows.update((row.sequence, _job(row)) for row in found)
        return [
            answer if isinstance(answer, Exception) else (rows[answer[0]], answer[1]) for answer in answers
        ]

    def prune_keys(self, now_unix_s: float) -> int:
        """Forget idempotency keys that are older than two days; returns how many."""
        with self.writing() as connection:
            gone = connection.execute(delete(IDEMPOTENCY).where(IDEMPOTENCY.c.at < now_unix_s - KEYS_KEPT_S))
            return gone.rowcount

    def unjournaled(self) -> list[JobRow]:
        """Jobs that were accepted and that the journal doesn't know yet, in the order of acceptance."""
        with self.reading() as connection:
            found = connection.execute(
                select(*_SHOWN).where(JOBS.c.journaled.is_(None)).order_by(JOBS.c.sequence)
            )
            return [_job(row) for row in found]

    def job(self, job_id: str) -> JobRow | None:
        """One job, or None."""
        with self.reading() as connection:
            row = connection.execute(select(*_SHOWN).where(JOBS.c.job_id == job_id)).first()
        return None if row is None else _job(row)

    def jobs(
        self,
        *,
        state: JobState | None = None,
        project: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> tuple[list[JobRow], str | None]:
        """A page of jobs, newest first, and the cursor of the next page, None on the last one.

        A job that comes meanwhile is on no later page. Raises InputError for a cursor that isn't one and for
        a limit outside 1..1000.
        """
        if not 1 <= limit <= MOST_JOBS_A_PAGE:
            raise InputError(
                "not a size of a page", field="limit", found=limit, expected=f"1 to {MOST_JOBS_A_PAGE}"
            )
        query = select(*_SHOWN).order_by(JOBS.c.sequence.desc()).limit(limit + 1)
        if state is not None:
            query = query.where(JOBS.c.state == state.value)
        if project is not None:
            query = query.where(JOBS.c.project == project)
        if user is not None:
            query = query.where(JOBS.c.user_name == user)
        if cursor is not None:
            query = query.where(JOBS.c.sequence < _from_cursor(cursor))
        with self.reading() as connection:
            rows = [_job(row) for row in connection.execute(query)]
        if len(rows) <= limit:
            return rows, None
        return rows[:limit], _to_cursor(rows[limit - 1].sequence)

    def bodies(self, job_ids: Iterable[str]) -> dict[str, str]:
        """The job files, as JSON, of those of these jobs that there are."""
        return self._by_job(job_ids, JOBS.c.body)

    def projects_of(self, job_ids: Iterable[str]) -> dict[str, str]:
        """The projects of those of these jobs that there are."""
        return self._by_job(job_ids, JOBS.c.project)

    def history(self, job_id: str) -> list[HistoryRow]:
        """All that happened to a job, oldest first."""
        with self.reading() as connection:
            found = connection.execute(
                select(HISTORY).where(HISTORY.c.job_id == job_id).order_by(HISTORY.c.sequence, HISTORY.c.part)
            )
            return [_history(row) for row in found]

    def loans(self, limit: int) -> list[LoanRow]:
        """The last `limit` loans, newest first."""
        with self.reading() as connection:
            found = connection.execute(
                select(LOANS).order_by(LOANS.c.sequence.desc(), LOANS.c.server).limit(limit)
            )
            return [
                LoanRow(row.server, row.lent, row.reclaim_asked, row.deadline, row.returned) for row in found
            ]

    def _by_job(self, job_ids: Iterable[str], column: Any) -> dict[str, str]:
        ids = iter(job_ids)
        found: dict[str, str] = {}
        with self.reading() as connection:
            while some := list(islice(ids, _IDS_AT_ONCE)):
                query = select(JOBS.c.job_id, column).where(JOBS.c.job_id.in_(some))
                found.update((row[0], row[1]) for row in connection.execute(query))
        return found


def _known_keys(connection: Connection, keys: Sequence[_Key]) -> dict[_Key, tuple[int, str]]:
    """The jobs that these keys have made, and the hashes of what they came with."""
    found = connection.execute(
        select(IDEMPOTENCY).where(
            IDEMPOTENCY.c.principal.in_({principal for principal, _ in keys}),
            IDEMPOTENCY.c.idempotency_key.in_({key for _, key in keys}),
        )
    )
    wanted = set(keys)
    known = {(row.principal, row.idempotency_key): (row.job, row.body_hash) for row in found}
    return {key: job for key, job in known.items() if key in wanted}


def _key_columns(key: _Key, body_hash: str, sequence: int, now_unix_s: float) -> dict[str, object]:
    principal, idempotency_key = key
    return {
        "principal": principal,
        "idempotency_key": idempotency_key,
        "body_hash": body_hash,
        "job": sequence,
        "at": now_unix_s,
    }


def _first_row(new: NewJob, sequence: int, now_unix_s: float) -> JobRow:
    return JobRow(
        job_id=f"{new.name}-{sequence}",
        sequence=sequence,
        name=new.name,
        project=new.project,
        user=new.user,
        min_workers=new.min_workers,
        max_workers=new.max_workers,
        gpus_per_worker=new.gpus_per_worker,
        priority=new.priority,
        estimate_s=new.estimate_s,
        state=JobState.PENDING,
        attempt=0,
        workers=0,
        gpus=0,
        placement=(),
        preemptions=0,
        failures=0,
        resizes=0,
        submitted=now_unix_s,
        started=None,
        finished=None,
        message="",
        journaled=None,
    )


def _columns(row: JobRow) -> dict[str, object]:
    """The columns of a job that has no place yet."""
    values: dict[str, object] = {field.name: getattr(row, field.name) for field in fields(row)}
    values["user_name"] = values.pop("user")
    return {**values, "state": row.state.value, "placement": "[]"}


def _job(row: Row[Any]) -> JobRow:
    return JobRow(
        job_id=row.job_id,
        sequence=row.sequence,
        name=row.name,
        project=row.project,
        user=row.user_name,
        min_workers=row.min_workers,
        max_workers=row.max_workers,
        gpus_per_worker=row.gpus_per_worker,
        priority=row.priority,
        estimate_s=row.estimate_s,
        state=JobState(row.state),
        attempt=row.attempt,
        workers=row.workers,
        gpus=row.gpus,
        placement=tuple(PlaceView(**place) for place in json.loads(row.placement)),
        preemptions=row.preemptions,
        failures=row.failures,
        resizes=row.resizes,
        submitted=row.submitted,
        started=row.started,
        finished=row.finished,
        message=row.message,
        journaled=row.journaled,
    )


def _history(row: Row[Any]) -> HistoryRow:
    return HistoryRow(
        job_id=row.job_id,
        sequence=row.sequence,
        part=row.part,
        at=row.at,
        kind=row.kind,
        attempt=row.attempt,
        text=row.text,
        cause=row.cause,
        beneficiary=row.beneficiary,
        alternatives=tuple(Weighed(*one) for one in json.loads(row.alternatives)),
    )


def _to_cursor(sequence: int) -> str:
    return base64.urlsafe_b64encode(f"job:{sequence}".encode()).decode().rstrip("=")


def _from_cursor(cursor: str) -> int:
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        kind, _, number = base64.b64decode(padded, altchars=b"-_", validate=True).decode().partition(":")
        sequence = int(number)
    except (binascii.Error, ValueError):
        kind, sequence = "", 0
    if kind != "job" or _to_cursor(sequence) != cursor or sequence >= 2**63:
        raise InputError(
            "not a cursor", field="cursor", found=cursor, expected="the `next` of the page before"
        )
    return sequence
