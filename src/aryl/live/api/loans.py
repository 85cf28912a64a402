"""Loans between the pools, what the inference side needs, and what other policies would do."""

from __future__ import annotations

from fastapi import APIRouter, Response

from aryl.live.api.bodies import StrictRoute, answer
from aryl.live.api.context import Operator, Parts, User, Viewer
from aryl.live.api.documents import problems
from aryl.wire.views import (
    DemandRequest,
    GiveRequest,
    LoanList,
    ReadyRequest,
    ReclaimRequest,
    WhatIfRequest,
    WhatIfView,
)

router = APIRouter(prefix="/v1", tags=["loans"], route_class=StrictRoute)


@router.get("/loans", response_model=LoanList, summary="Loans", responses=problems(401, 403, 422, 503))
def list_loans(principal: Viewer, parts: Parts) -> Response:
    """Loans, newest first, and the inference side's account."""
    return answer(parts.control.loans())


@router.post(
    "/loans",
    response_model=LoanList,
    summary="Lend a server",
    responses=problems(401, 403, 404, 409, 413, 415, 422, 503),
)
def give(request: GiveRequest, principal: Operator, parts: Parts) -> Response:
    """Lend an inference server to training, unless the inference side would fall short or a limit is in the
    way.
    """
    return answer(parts.control.give(request.server))


@router.post(
    "/loans/reclaim",
    response_model=LoanList,
    summary="Take a server back",
    responses=problems(401, 403, 404, 409, 413, 415, 422, 503),
)
def reclaim(request: ReclaimRequest, principal: Operator, parts: Parts) -> Response:
    """Take back a server that is on loan."""
    return answer(parts.control.reclaim(request))


@router.put(
    "/inference/demand",
    response_model=LoanList,
    summary="Report what the inference side needs",
    responses=problems(401, 403, 413, 415, 422, 503),
)
def report_demand(request: DemandRequest, principal: Operator, parts: Parts) -> Response:
    """The inference side's word; it counts until the next one."""
    return answer(parts.control.report_demand(request))


@router.post(
    "/inference/ready",
    response_model=LoanList,
    summary="Report that a server serves again",
    responses=problems(401, 403, 404, 409, 413, 415, 422, 503),
)
def report_ready(request: ReadyRequest, principal: Operator, parts: Parts) -> Response:
    """The inference side's word that a server which came home has loaded what it serves."""
    return answer(parts.control.report_ready(request.server))


@router.post(
    "/whatif",
    response_model=WhatIfView,
    summary="What would other policies do?",
    tags=["what-if"],
    responses=problems(401, 403, 413, 415, 422, 503),
)
def whatif(request: WhatIfRequest, principal: User, parts: Parts) -> Response:
    """Let other policies go on from here in a simulation, by the jobs' estimates. Nothing changes. This
    takes a while, so only a few may ask at once.
    """
    parts.whatifs.take()
    try:
        return answer(parts.control.whatif(request))
    finally:
        parts.whatifs.leave()
