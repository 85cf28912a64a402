"""The OpenAPI document: what the framework finds out by itself, and what it doesn't.

It knows the models; it doesn't know problem documents, tokens or good examples. One document serves people,
generated clients and the tests that hold the API to it.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import RootModel

from aryl.live.api.examples import EXAMPLES
from aryl.live.api.problems import PROBLEM_TYPE, RETRY_AFTER_S
from aryl.wire.views import AttemptView, Problem

DESCRIPTION = """Jobs on two pools of GPU servers, the loans between them, and why things are as they are.

Times are seconds since the Unix epoch, durations seconds. Errors are problem documents (RFC 9457). Every
request under `/v1` carries a bearer token, unless the server has none and listens on this machine only.
"""
PROBLEM_REF = {"$ref": "#/components/schemas/Problem"}
_MEANINGS = {
    401: ("No token, or one that isn't valid.", "no-token", "A valid bearer token is needed"),
    403: ("The token's role or project doesn't allow it.", "not-allowed", "Not allowed"),
    404: ("It isn't there, or it belongs to another project.", "not-found", "Not found"),
    409: ("It contradicts what is there.", "conflict", "In conflict with what is there"),
    413: ("The body is larger than 1 MiB.", "too-large", "The body is too large"),
    415: ("The body isn't sent as JSON.", "not-json", "The body has to be JSON"),
    422: ("A field is wrong; `faults` says which.", "invalid-input", "The request is invalid"),
    503: ("This server doesn't lead, or has too much to do.", "unavailable", "Not at the moment"),
}
_HEADERS = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "`Bearer`."}},
    503: {"Retry-After": {"schema": {"type": "string"}, "description": f"Seconds, such as {RETRY_AFTER_S}."}},
}


class AttemptList(RootModel[list[AttemptView]]):
    """Every attempt and rank that has a log."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The descriptions of an endpoint's refusals."""
    return {status: _problem(status) for status in statuses}


class DocumentedApp(FastAPI):
    """An app with the whole document, made when it is first asked for."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self.openapi_schema is None:
            found = get_openapi(
                title=self.title, version=self.version, description=self.description, routes=self.routes
            )
            self.openapi_schema = _complete(found)
        return self.openapi_schema


def _problem(status: int) -> dict[str, Any]:
    description, name, title = _MEANINGS[status]
    example = {"type": f"urn:aryl:problem:{name}", "title": title, "status": status, "detail": "..."}
    found: dict[str, Any] = {
        "description": description,
        "content": {PROBLEM_TYPE: {"schema": PROBLEM_REF, "example": example}},
    }
    if status in _HEADERS:
        found["headers"] = _HEADERS[status]
    return found


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    parts = document.setdefault("components", {})
    schemas: dict[str, Any] = parts.setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(problem.pop("$defs"))
    schemas["Problem"] = problem
    for unused in ("HTTPValidationError", "ValidationError", "Wait"):  # `WhyView` lists the names itself
        schemas.pop(unused, None)
    for name, example in EXAMPLES.items():
        if name in schemas:
            schemas[name]["examples"] = [example]
    parts["securitySchemes"] = {
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "Roles: viewer, user, operator, admin; each may do what those before it may. A "
            "token may be for one project.",
        }
    }
    for path, operations in document["paths"].items():
        if path.startswith("/v1/") or path == "/metrics":
            for operation in operations.values():
                operation["security"] = [{"bearer": []}]
    return document
