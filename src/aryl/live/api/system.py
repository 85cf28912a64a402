"""What machines ask: is it alive, is it ready, how is it doing; and what people ask first: who am I."""

from __future__ import annotations

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request, Response

from aryl.live.api.auth import need
from aryl.live.api.bodies import StrictRoute, answer
from aryl.live.api.context import Parts, Viewer, principal_of
from aryl.live.api.documents import PROBLEM_REF, problems
from aryl.live.api.metrics import CONTENT_TYPE
from aryl.live.api.problems import NOT_ALLOWED, PROBLEM_TYPE, ProblemError
from aryl.live.control import Role
from aryl.wire.views import HealthView, RoleName, WhoAmI

router = APIRouter(tags=["system"])
mine = APIRouter(tags=["system"], route_class=StrictRoute)


@mine.get(
    "/v1/whoami", response_model=WhoAmI, summary="Whose token is this?", responses=problems(401, 422, 503)
)
async def whoami(principal: Viewer) -> Response:
    """Your name, your role and your project; null: all projects."""
    return answer(WhoAmI(name=principal.name, role=RoleName[principal.role.name], project=principal.project))


@router.get("/healthz", response_model=HealthView, summary="Does the process live?")
async def healthz() -> Response:
    """Always 200 while the process answers, whatever it is doing. No token needed."""
    return answer(HealthView(status="ok"))


@router.get(
    "/readyz",
    response_model=HealthView,
    summary="Is it leading, and does its loop turn?",
    responses={
        **problems(403),
        503: {
            "model": HealthView,
            "description": "It isn't; `status` says what is wrong. A problem: the store doesn't answer.",
            "content": {PROBLEM_TYPE: {"schema": PROBLEM_REF}},
        },
    },
)
async def readyz(request: Request, parts: Parts) -> Response:
    """200 only while this server leads and its loop turns. No token needed; the detail is for principals
    of all projects.
    """
    # In a thread outside the pool, whose threads may all be waiting for a loop that stands still.
    view = await to_thread.run_sync(parts.control.health, limiter=CapacityLimiter(1))
    principal = principal_of(request)
    if principal is None or principal.project is not None:
        view = HealthView(status=view.status)
    return answer(view, 200 if view.status == "ok" else 503)


@router.get(
    "/metrics",
    response_class=Response,
    summary="Metrics for Prometheus",
    responses={
        **problems(401, 403, 503),
        200: {
            "description": "Prometheus text format; all names start with `aryl_`.",
            "content": {CONTENT_TYPE: {"schema": {"type": "string"}}},
        },
    },
)
def metrics(request: Request, parts: Parts) -> Response:
    """Gauges and counters. Takes a token of all projects, unless the server was told otherwise."""
    if not parts.settings.metrics_open:
        principal = need(principal_of(request), Role.VIEWER)
        if principal.project is not None:
            raise ProblemError(NOT_ALLOWED, "metrics are about all projects; your token is for one")
    return Response(parts.metrics.text(), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})
