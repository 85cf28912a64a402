"""`/v1/servers`: what there is and who uses it; drain a server and let it work again."""

from __future__ import annotations

from fastapi import APIRouter, Response

from aryl.live.api.bodies import ServerId, StrictRoute, answer, check_id
from aryl.live.api.context import Operator, Parts, Viewer
from aryl.live.api.documents import problems
from aryl.live.api.jobs import eyes_of
from aryl.wire.views import DrainRequest, ServerList, ServerView

router = APIRouter(prefix="/v1/servers", tags=["servers"], route_class=StrictRoute)


@router.get("", response_model=ServerList, summary="All servers", responses=problems(401, 403, 422, 503))
def list_servers(principal: Viewer, parts: Parts) -> Response:
    """All servers, training first. Jobs of other projects are null."""
    return answer(ServerList(servers=eyes_of(parts, principal).servers(parts.control.servers())))


@router.post(
    "/{server_id}/drain",
    response_model=ServerView,
    summary="Drain a server",
    responses=problems(401, 403, 404, 409, 413, 415, 422, 503),
)
def drain(server_id: ServerId, request: DrainRequest, principal: Operator, parts: Parts) -> Response:
    """Let a server take nothing new and, with a deadline, be empty by then."""
    check_id(server_id, "server")
    view = parts.control.drain(server_id, request.deadline_s)
    return answer(eyes_of(parts, principal).servers([view])[0])


@router.post(
    "/{server_id}/undrain",
    response_model=ServerView,
    summary="Let a server take work again",
    responses=problems(401, 403, 404, 409, 413, 422, 503),
)
def undrain(server_id: ServerId, principal: Operator, parts: Parts) -> Response:
    """Let a drained, quarantined or suspect server take work again."""
    check_id(server_id, "server")
    return answer(eyes_of(parts, principal).servers([parts.control.undrain(server_id)])[0])
