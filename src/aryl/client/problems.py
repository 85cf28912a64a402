"""Turns what the server says is wrong into the error that the same mistake would be on this side.

The server sends RFC 9457 problem documents. A proxy in between doesn't, so the status alone has to do where
there is none. The kind of error decides the exit code of a command, so it depends on the status only, and the
words come from the document.
"""

from __future__ import annotations

from http import HTTPStatus

from pydantic import ValidationError

from aryl.errors import ArylError, ConflictError, InputError, NotAllowedError, NotFoundError, UnreachableError
from aryl.wire.views import Fault, Problem

# Nobody behind the proxy, too busy, or too slow: the same request may well succeed later.
UNAVAILABLE = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)


def error_of(status: int, body: bytes, url: str) -> ArylError:
    """The error that an answer with this status (300 or more) stands for."""
    problem = _problem(body)
    faults = problem.faults if problem else []
    text = _text(status, problem, url)
    if status in UNAVAILABLE:
        return UnreachableError(text)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return NotAllowedError(text)
    if status == HTTPStatus.NOT_FOUND:
        return NotFoundError(_with_nearest(text, faults))
    if status in (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED):
        return ConflictError(text)
    if 400 <= status < 500:
        return _input_error(text, faults)
    if status < 400:
        return ArylError(f"{url} answers with a redirection ({status}); give the address that it leads to")
    return ArylError(text)


def _problem(body: bytes) -> Problem | None:
    try:
        return Problem.model_validate_json(body)
    except ValidationError:
        return None


def _text(status: int, problem: Problem | None, url: str) -> str:
    if problem is not None:
        return problem.detail or problem.title
    names = {known.value: known.phrase for known in HTTPStatus}
    return f"{url} answers {status} {names.get(status, '')}".rstrip()


def _with_nearest(text: str, faults: list[Fault]) -> str:
    nearest = next((fault.nearest for fault in faults if fault.nearest), None)
    return f"{text}; did you mean '{nearest}'?" if nearest and nearest not in text else text


def _input_error(text: str, faults: list[Fault]) -> InputError:
    # The document's own words say where and what already, so they are not put together again from the parts.
    error = InputError(text)
    if faults:
        first = faults[0]
        error.field, error.line = first.field, first.line
        error.expected, error.nearest = first.expected, first.nearest
    return error
