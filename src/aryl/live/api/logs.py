"""`/v1/jobs/{id}/logs` and `/attempts`: what the workers printed, by attempt and rank.

Paths come from the control plane alone; a request only picks among them. A worker could have put something
else in its log's place, so links and anything but plain files are refused. A follower reads what is new until
the job is over; without a named attempt it goes on with the next one after a preemption.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, BinaryIO

import anyio
from anyio import to_thread
from fastapi import APIRouter, Query, Response

from aryl.core.model import FINAL_STATES
from aryl.errors import ArylError, NotFoundError
from aryl.live.api.bodies import JobId, StrictRoute, answer
from aryl.live.api.context import Context, Parts, Viewer
from aryl.live.api.documents import AttemptList, problems
from aryl.live.api.jobs import visible_job
from aryl.live.api.problems import NOT_FOUND, ProblemError
from aryl.live.api.streams import Stream
from aryl.live.control import LogFile
from aryl.wire.views import AttemptView

PIECE_BYTES = 64 * 1024
MOST_TAIL_LINES = 100_000
MOST_NUMBER = 2**31 - 1

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=StrictRoute)

Attempt = Annotated[int | None, Query(ge=0, le=MOST_NUMBER, description="Default: the last one.")]
Rank = Annotated[int, Query(ge=0, le=MOST_NUMBER)]
Tail = Annotated[int | None, Query(ge=0, le=MOST_TAIL_LINES, description="Only that many lines at the end.")]
Follow = Annotated[bool, Query(description="Go on until the job, or the named attempt, is over.")]


@router.get(
    "/{job_id}/attempts",
    response_model=AttemptList,
    summary="Which logs there are",
    responses=problems(401, 403, 404, 422, 503),
)
def attempts(job_id: JobId, principal: Viewer, parts: Parts) -> Response:
    """Every attempt and rank that has a log, in order."""
    visible_job(job_id, principal, parts)
    found = sorted((log.attempt, log.rank) for log in parts.control.log_files(job_id))
    return answer(AttemptList([AttemptView(attempt=attempt, rank=rank) for attempt, rank in found]))


@router.get(
    "/{job_id}/logs",
    response_class=Response,
    summary="What a worker printed",
    responses={
        **problems(401, 403, 404, 422, 503),
        200: {
            "description": "Standard output and errors of one worker in one attempt.",
            "content": {"text/plain; charset=utf-8": {"schema": {"type": "string"}}},
        },
    },
)
def logs(
    job_id: JobId,
    principal: Viewer,
    parts: Parts,
    attempt: Attempt = None,
    rank: Rank = 0,
    tail: Tail = None,
    follow: Follow = False,
) -> Response:
    """The log as it is now, or with `follow` as it grows."""
    visible_job(job_id, principal, parts)
    if follow and attempt is None:
        log = _pick(parts.control.log_files(job_id), None, rank)
    else:
        log = _pick_or_refuse(parts.control.log_files(job_id), attempt, rank, job_id)
    reader = None if log is None else _Reader.open(log, tail)
    if reader is None and log is not None:
        raise ProblemError(NOT_FOUND, f"the log of {job_id}, attempt {log.attempt}, rank {rank} isn't there")
    if follow:
        pieces = _Follower(parts, job_id, attempt, rank, reader).pieces()
    else:
        assert reader is not None
        pieces = _pieces(reader)
    try:
        return Stream(pieces, "text/plain; charset=utf-8", parts.streams)
    except ProblemError:
        if reader is not None:
            reader.close()
        raise


class _Reader:
    """Reads on in one log."""

    def __init__(self, file: BinaryIO, attempt: int) -> None:
        self._file, self.attempt = file, attempt

    @classmethod
    def open(cls, log: LogFile, tail: int | None) -> _Reader | None:
        """At the start of a log or of its last `tail` lines; None if it can't be read."""
        file = _open(log.path)
        if file is None:
            return None
        if tail is not None:
            file.seek(_start_of_tail(file, tail))
        return cls(file, log.attempt)

    def read(self, most: int = PIECE_BYTES) -> bytes:
        """What comes next; empty at the end so far."""
        return self._file.read(most)

    @property
    def left_bytes(self) -> int:
        """How much there is to read now."""
        return max(os.fstat(self._file.fileno()).st_size - self._file.tell(), 0)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


async def _pieces(reader: _Reader) -> AsyncGenerator[bytes]:
    """What is there now, even while a worker goes on writing."""
    try:
        left = reader.left_bytes
        while left > 0 and (piece := await to_thread.run_sync(reader.read, min(left, PIECE_BYTES))):
            left -= len(piece)
            yield piece
    finally:
        reader.close()


class _Follower:
    """Follows one rank of a job. `attempt` None: through all attempts to come."""

    def __init__(
        self, parts: Context, job_id: str, attempt: int | None, rank: int, reader: _Reader | None
    ) -> None:
        self._parts, self._job_id, self._attempt, self._rank = parts, job_id, attempt, rank
        self._reader = reader

    async def pieces(self) -> AsyncGenerator[bytes]:
        """What is there, what comes, and the end when nothing can come any more."""
        last_round = False
        try:
            while not self._parts.closing.is_set():
                piece = await to_thread.run_sync(self._reader.read) if self._reader else b""
                if piece:
                    yield piece
                elif last_round:
                    if not await to_thread.run_sync(self._go_on):
                        return
                    last_round = False
                elif not (last_round := await to_thread.run_sync(self._over)):
                    await anyio.sleep(self._parts.settings.poll_s)
        finally:
            if self._reader is not None:
                self._reader.close()

    def _over(self) -> bool:
        """Whether nothing more is written to the log at hand; all of it may not have been read yet."""
        try:
            if self._parts.control.job(self._job_id).state in FINAL_STATES:
                return True
            logs = self._parts.control.log_files(self._job_id)
        except NotFoundError:
            return True
        except ArylError:
            return False
        at = -1 if self._reader is None else self._reader.attempt
        return any(log.attempt > at for log in logs)

    def _go_on(self) -> bool:
        """Turn to the next attempt's log, if that is wanted and there is one."""
        if self._attempt is not None:
            return False
        at = -1 if self._reader is None else self._reader.attempt
        try:
            logs = self._parts.control.log_files(self._job_id)
        except ArylError:
            return False
        later = [log for log in logs if log.attempt > at]
        if not later:
            return False
        following = min(log.attempt for log in later)
        log = _pick(later, following, self._rank)
        reader = None if log is None else _Reader.open(log, None)
        if self._reader is not None:
            self._reader.close()
        self._reader = reader or _Reader(_nothing(), following)
        return True


def _pick(logs: list[LogFile], attempt: int | None, rank: int) -> LogFile | None:
    fitting = [log for log in logs if log.rank == rank and attempt in (None, log.attempt)]
    return max(fitting, key=lambda log: log.attempt, default=None)


def _pick_or_refuse(logs: list[LogFile], attempt: int | None, rank: int, job_id: str) -> LogFile:
    if attempt is None:
        attempt = max((log.attempt for log in logs), default=None)
    if attempt is None:
        raise ProblemError(NOT_FOUND, f"{job_id} has printed nothing yet")
    if (log := _pick(logs, attempt, rank)) is not None:
        return log
    ranks = sorted(log.rank for log in logs if log.attempt == attempt)
    if ranks:
        raise ProblemError(
            NOT_FOUND, f"attempt {attempt} of {job_id} has no rank {rank}; there are {_range(ranks)}"
        )
    there = _range(sorted({log.attempt for log in logs})) if logs else "none"
    raise ProblemError(NOT_FOUND, f"{job_id} has no attempt {attempt} with a log; there are {there}")


def _range(numbers: list[int]) -> str:
    whole = numbers == list(range(numbers[0], numbers[-1] + 1))
    if whole and len(numbers) > 2:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers[:20])) + (", ..." if len(numbers) > 20 else "")


def _open(path: Path) -> BinaryIO | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return None
    return os.fdopen(handle, "rb", buffering=0)


def _nothing() -> BinaryIO:
    return open(os.devnull, "rb", buffering=0)


def _start_of_tail(file: BinaryIO, lines: int) -> int:
    """Where the last `lines` lines begin; a line end at the very end begins no line."""
    end = position = file.seek(0, os.SEEK_END)
    if lines == 0:
        return end
    wanted = lines
    while position > 0:
        begin = max(position - PIECE_BYTES, 0)
        file.seek(begin)
        piece = file.read(position - begin)
        at = len(piece)
        if position == end and piece.endswith(b"\n"):
            at -= 1
        while (at := piece.rfind(b"\n", 0, at)) >= 0:
            wanted -= 1
            if wanted == 0:
                return begin + at + 1
        position = begin
    return 0
