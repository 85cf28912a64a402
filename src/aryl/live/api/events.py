"""`/v1/events`: the journal as server-sent events, from any point on, as it grows.

Each client reads on from where it is, in bounded batches; see `feed.py`. A principal of one
project sees the events of that project's jobs, and of a plan only the steps about them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from time import monotonic
from typing import Annotated, Any, Literal

import anyio
from anyio import to_thread
from fastapi import APIRouter, Header, Query, Response

from aryl.errors import UnreachableError
from aryl.live.api.bodies import StrictRoute
from aryl.live.api.context import Context, Parts, Viewer
from aryl.live.api.documents import problems
from aryl.live.api.jobs import eyes_of
from aryl.live.api.ports import Line
from aryl.live.api.problems import INVALID, ProblemError
from aryl.live.api.redact import Eyes, jobs_of_plan, plan_for
from aryl.live.api.streams import Stream
from aryl.live.control import Principal, Role
from aryl.wire.views import Fault

LAST_NUMBER = 2**63 - 1
KEEP_ALIVE = b": still here\n\n"

router = APIRouter(prefix="/v1/events", tags=["events"], route_class=StrictRoute)


@router.get(
    "",
    response_class=Response,
    summary="Events as they happen",
    responses={
        **problems(401, 403, 422, 503),
        200: {
            "description": "Server-sent events: `id` is the event's number in the journal, `event` its type, "
            "`data` the event as JSON. Comments keep the connection alive.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
)
async def events(
    principal: Viewer,
    parts: Parts,
    after: Annotated[
        Annotated[int, Query(ge=-1, le=LAST_NUMBER)] | Literal["now"],
        Query(description="Only events behind this number; `now`: only those to come. Default: all."),
    ] = -1,
    last_event_id: Annotated[
        str | None, Header(description="Goes before `after`.", max_length=19, pattern=r"^\d+$")
    ] = None,
) -> Response:
    """The journal, as a stream that goes on until the client leaves."""
    if last_event_id is not None:
        start = int(last_event_id)
        if start > LAST_NUMBER:
            message = "not the number of an event"
            raise ProblemError(INVALID, message, faults=(Fault(field="last-event-id", message=message),))
    elif after == "now":
        start = await to_thread.run_sync(parts.records.last_sequence)
    else:
        start = after
    return Stream(_pieces(parts, principal, start), "text/event-stream", parts.streams)


async def _pieces(parts: Context, principal: Principal, start: int) -> AsyncGenerator[bytes]:
    sent_s = monotonic()
    position = start
    yield b"retry: 1000\n\n"
    while not parts.closing.is_set():
        try:
            lines = await parts.feed.read(position)
            piece = await to_thread.run_sync(_shown, lines, principal, parts) if lines else b""
        except UnreachableError:  # the database will be back; the client need not know
            lines, piece = (), b""
        if lines:
            position = lines[-1].sequence
        if piece:
            sent_s = monotonic()
            yield piece
            continue
        if monotonic() - sent_s >= parts.settings.keep_alive_s:
            sent_s = monotonic()
            yield KEEP_ALIVE
        if not lines:
            await anyio.sleep(parts.settings.poll_s)


def _shown(lines: Sequence[Line], principal: Principal, parts: Context) -> bytes:
    """A batch as one piece of the stream, without what isn't for these eyes."""
    eyes = eyes_of(parts, principal)
    read: list[tuple[Line, dict[str, Any]]] = [(line, json.loads(line.body)) for line in lines]
    eyes.learn(
        job_id
        for line, body in read
        for job_id in ((line.job_id,) if line.job_id is not None else jobs_of_plan(body))
    )
    shown = ((line, body, _text(line, body, eyes, principal)) for line, body in read)
    return b"".join(
        f"id: {line.sequence}\nevent: {body['type']}\ndata: {text}\n\n".encode()
        for line, body, text in shown
        if text is not None
    )


def _text(line: Line, body: dict[str, Any], eyes: Eyes, principal: Principal) -> str | None:
    if eyes.sees_all:
        return line.body
    if line.job_id is not None:
        return line.body if eyes.owns(line.job_id) else None
    with_servers = principal.role >= Role.OPERATOR
    if "plan" in body:
        plan = plan_for(body, eyes, with_servers)
        return None if plan is None else json.dumps(plan, separators=(",", ":"))
    return line.body if with_servers else None
