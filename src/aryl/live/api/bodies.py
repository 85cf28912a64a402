"""How queries and JSON get in: strictly.

A key that a query shouldn't have is an error, since `?dryrun=true` would otherwise submit a job. Python's
reader takes more than JSON has and more than anybody downstream can hold: NaN and Infinity, numbers
without bounds, halves of surrogate pairs, NULs. All are refused here, before a model sees them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Header, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from aryl.errors import nearest_word
from aryl.files.fields import in_one_line
from aryl.live.api.problems import INVALID, NOT_FOUND, NOT_JSON, ProblemError
from aryl.wire.views import Fault

MOST_INTEGER = 2**53
MOST_ID_CHARS = 300
MOST_DIGITS = 25
MOST_KEY_CHARS = 100
_SUSPICIOUS = re.compile(rb"\\u(?:0000|d[89a-f])|\x00", re.IGNORECASE)
_ID = re.compile(rf"[^\x00-\x20\x7f/]{{1,{MOST_ID_CHARS}}}")
_NO_CONTROLS = r"^[^\x00-\x1f\x7f]*$"

JobId = Annotated[str, Path(description="As `POST /v1/jobs` gave it.", examples=["resnet-17"])]
ServerId = Annotated[str, Path(description="As `GET /v1/servers` names it.", examples=["I3"])]
Filter = Annotated[str | None, Query(max_length=200, pattern=_NO_CONTROLS)]
Cursor = Annotated[
    str | None,
    Query(description="`next` of the page before.", max_length=500, pattern=r"^[!-~]*$"),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        description="A repeated request with the same key and body changes nothing and gets the same job. "
        "Printable ASCII.",
        max_length=255,
        pattern=r"^[!-~]([ -~]*[!-~])?$",
        examples=["0b2f6a3e-7f0c-4d0e-9f38-1f0f4a3c9a11"],
    ),
]


class StrictRoute(APIRoute):
    """A route that takes no unknown query, and no body but well-behaved JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's handler, behind a request that reads JSON our way."""
        handle = super().get_route_handler()
        takes_body = self.body_field is not None
        known = [field.alias for field in self.dependant.query_params]

        async def strict(request: Request) -> Response:
            for key in request.query_params:
                if key not in known:
                    raise _unknown_query(key, known)
            if takes_body and not _is_json(request.headers.get("content-type", "")) and await request.body():
                raise ProblemError(NOT_JSON, "send the body with `Content-Type: application/json`")
            return await handle(_StrictRequest(request.scope, request.receive) if takes_body else request)

        return strict


class _StrictRequest(Request):
    async def json(self) -> Any:
        return read_json(await self.body())


def read_json(body: bytes) -> Any:
    """The value of a JSON text in UTF-8. Raises a 422 problem for what isn't JSON or can't be kept."""
    try:
        value = json.loads(
            body.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except UnicodeDecodeError:
        raise _refuse("the body isn't UTF-8") from None
    except json.JSONDecodeError as error:
        raise _refuse(f"the body isn't JSON: {error.msg}", line=error.lineno) from None
    except RecursionError:
        raise _refuse("the body is nested too deeply") from None
    except ValueError as error:
        raise _refuse(str(error)) from None
    if _SUSPICIOUS.search(body):
        _check_texts(value, "")
    return value


def check_id(text: str, what: str) -> str:
    """An identifier from a path. Raises a 404 problem for one that can't be one."""
    if _ID.fullmatch(text) is None:
        raise ProblemError(NOT_FOUND, f"there is no such {what}")
    return text


def answer(view: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A view as JSON, serialised once."""
    return Response(
        view.model_dump_json(), status, {"Cache-Control": "no-store", **(headers or {})}, "application/json"
    )


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _refuse(message: str, *, field: str | None = None, line: int | None = None) -> ProblemError:
    where = f"{field}: " if field else ""
    return ProblemError(INVALID, where + message, faults=(Fault(field=field, line=line, message=message),))


def _unknown_query(key: str, known: list[str]) -> ProblemError:
    key, nearest = in_one_line(key[:MOST_KEY_CHARS]), nearest_word(key[:MOST_KEY_CHARS], known)
    hint = f"; did you mean '{nearest}'?" if nearest else ""
    expected = "one of " + ", ".join(known) if known else "no query"
    fault = Fault(field=key or None, message="unknown query", expected=expected, nearest=nearest)
    return ProblemError(INVALID, f"unknown query '{key}'; expected {expected}{hint}", faults=(fault,))


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} isn't a number that JSON has")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _bounded(text: str) -> int:
    if len(text) > MOST_DIGITS or abs(int(text)) > MOST_INTEGER:
        raise ValueError(f"a whole number is outside ±{MOST_INTEGER}")
    return int(text)


def _check_texts(value: Any, place: str) -> None:
    match value:
        case str():
            if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
                raise _refuse("a text has a NUL or half a surrogate pair in it", field=place or None)
        case dict():
            for key, part in value.items():
                _check_texts(key, place)
                _check_texts(part, f"{place}.{key}" if place else key)
        case list():
            for number, part in enumerate(value):
                _check_texts(part, f"{place}.{number}" if place else str(number))
        case _:
            pass
