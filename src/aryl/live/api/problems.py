"""Every refusal as an RFC 9457 problem document, whoever refuses: the engine, the framework or the gate.

An error's status follows from its class alone. Nothing of what was sent is repeated besides names of fields
and what the error itself says, and an error that nobody expected shows nothing at all: it goes to the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from aryl.errors import (
    ArylError,
    ConflictError,
    FencedError,
    InputError,
    NotAllowedError,
    NotFoundError,
    UnreachableError,
    nearest_word,
)
from aryl.files.faults import input_errors
from aryl.files.fields import Strict
from aryl.live.store.rows import IdempotencyError
from aryl.wire.views import Fault, Problem

PROBLEM_TYPE = "application/problem+json"
RETRY_AFTER_S = 2
MOST_FAULTS = 20
MOST_FIELD_CHARS = 200
MOST_DETAIL_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem; `name` makes its `type`."""

    name: str
    status: int
    title: str


INVALID = Kind("invalid-input", 422, "The request is invalid")
NO_TOKEN = Kind("no-token", 401, "A valid bearer token is needed")
NOT_ALLOWED = Kind("not-allowed", 403, "Not allowed")
NOT_FOUND = Kind("not-found", 404, "Not found")
NO_METHOD = Kind("no-such-method", 405, "This can't be done here")
CONFLICT = Kind("conflict", 409, "In conflict with what is there")
TOO_LARGE = Kind("too-large", 413, "The body is too large")
NOT_JSON = Kind("not-json", 415, "The body has to be JSON")
KEY_REUSED = Kind("key-reused", 422, "This Idempotency-Key came with another request before")
INTERNAL = Kind("internal", 500, "An error of the server; its log says more")
UNAVAILABLE = Kind("unavailable", 503, "Not at the moment")

_BY_STATUS = {kind.status: kind for kind in (NOT_ALLOWED, NOT_FOUND, NO_METHOD, TOO_LARGE, NOT_JSON, INVALID)}
_HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    503: {"Retry-After": str(RETRY_AFTER_S)},
}


class ProblemError(HTTPException):
    """A refusal by the API itself."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(kind.status, detail, {**_HEADERS.get(kind.status, {}), **(headers or {})})
        self.kind, self.faults = kind, tuple(faults)


def no_such_job(job_id: str) -> ProblemError:
    """The same words for a job that doesn't exist and for one that isn't for these eyes."""
    return ProblemError(NOT_FOUND, f"there is no job {job_id}")


def respond(error: ProblemError, path: str) -> Response:
    """The answer to a request of `path`."""
    body = Problem(
        type=f"urn:aryl:problem:{error.kind.name}",
        title=error.kind.title,
        status=error.kind.status,
        detail=_clean(error.detail, MOST_DETAIL_CHARS),
        instance=quote(_clean(path, MOST_DETAIL_CHARS)),
        faults=list(error.faults),
    )
    return Response(
        body.model_dump_json(exclude_none=True),
        error.kind.status,
        {**(error.headers or {}), "Cache-Control": "no-store"},
        PROBLEM_TYPE,
    )


def from_aryl(error: ArylError) -> ProblemError | None:
    """An error of ours as a problem; None for one that is no answer to a request."""
    match error:
        case InputError():
            return ProblemError(INVALID, str(error), faults=(_of_input(error),))
        case IdempotencyError():
            return ProblemError(
                KEY_REUSED, str(error), faults=(Fault(field="Idempotency-Key", message=str(error)),)
            )
        case NotFoundError():
            return ProblemError(NOT_FOUND, str(error))
        case ConflictError():
            return ProblemError(CONFLICT, str(error))
        case NotAllowedError():
            return ProblemError(NOT_ALLOWED, str(error))
        case FencedError():
            return ProblemError(
                UNAVAILABLE, "this server doesn't lead the cluster; another one does, or will"
            )
        case UnreachableError():
            return ProblemError(UNAVAILABLE, str(error))
        case _:
            return None


def from_framework(error: HTTPException) -> ProblemError:
    """The framework's own refusals: no such path, no such method, a body that can't be read."""
    if isinstance(error, ProblemError):
        return error
    kind = _BY_STATUS.get(error.status_code, INVALID)
    return ProblemError(kind, str(error.detail), headers=error.headers)


def from_validation(error: RequestValidationError, body_model: type[BaseModel] | None) -> ProblemError:
    """What is wrong with a query, a header or a body, field by field."""
    found = error.errors()
    in_body = all(one["loc"][:1] == ("body",) for one in found)
    if in_body and body_model is not None and issubclass(body_model, Strict) and isinstance(error.body, dict):
        inside = [cast(ErrorDetails, {**one, "loc": one["loc"][1:]}) for one in found[:MOST_FAULTS]]
        faults = [_of_input(one) for one in input_errors(inside, error.body, {}, body_model)]
    else:
        faults = [_fault(one, body_model) for one in found[:MOST_FAULTS]]
    first = faults[0]
    detail = f"{first.field}: {first.message}" if first.field else first.message
    if first.expected:
        detail += f"; expected {first.expected}"
    if first.nearest:
        detail += f"; did you mean '{first.nearest}'?"
    if len(found) > 1:
        detail += f" (and {len(found) - 1} more)"
    return ProblemError(INVALID, detail, faults=faults)


def install(app: FastAPI) -> None:
    """Let every error that the app foresees become a problem document. Others reach the gate."""

    async def aryl_error(request: Request, error: Exception) -> Response:
        problem = from_aryl(error) if isinstance(error, ArylError) else None
        if problem is None:
            raise error
        return respond(problem, request.url.path)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return respond(from_framework(error), request.url.path)

    async def validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return respond(from_validation(error, body_model_of(request)), request.url.path)

    app.add_exception_handler(ArylError, aryl_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, validation_error)


def body_model_of(request: Request) -> type[BaseModel] | None:
    """The model of the body that the request's route takes."""
    field = getattr(request.scope.get("route"), "body_field", None)
    annotation = getattr(getattr(field, "field_info", None), "annotation", None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _of_input(error: InputError) -> Fault:
    found = "" if error.found is None else f" (found {error.found!r})"
    return Fault(
        field=_clean_or_none(error.field),
        line=error.line,
        message=_clean(error.message + found),
        expected=_clean_or_none(error.expected),
        nearest=_clean_or_none(error.nearest),
    )


def _fault(found: Mapping[str, Any], body_model: type[BaseModel] | None) -> Fault:
    place = [str(part) for part in found["loc"]]
    in_body = place[:1] == ["body"]
    nearest = None
    if found["type"] == "extra_forbidden" and in_body and len(place) == 2 and body_model is not None:
        known = [field.alias or name for name, field in body_model.model_fields.items()]
        nearest = nearest_word(place[1], known)
    message = "unknown field" if found["type"] == "extra_forbidden" else str(found["msg"])
    field = (
        ".".join(place[1:]) if in_body or place[:1] in (["query"], ["header"], ["path"]) else ".".join(place)
    )
    expected = found.get("ctx", {}).get("expected")
    return Fault(
        field=_clean(field, MOST_FIELD_CHARS) or None,
        message=_clean(message.removeprefix("Value error, ")),
        expected=_clean(expected) if isinstance(expected, str) else None,
        nearest=nearest,
    )


def _clean(text: str, most: int = MOST_DETAIL_CHARS) -> str:
    """Text that can be sent: no lone surrogates, not endless."""
    text = text if len(text) <= most else text[:most] + "…"
    return text.encode("utf-8", "replace").decode("utf-8")


def _clean_or_none(text: str | None) -> str | None:
    return None if text is None else _clean(text)
