"""What the endpoints share, and how each learns who is asking.

The gate has already decided whose request it is; an endpoint only names the role that it takes. The
functions are coroutines because the framework would run anything else in a thread.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from aryl.live.api.auth import Doorman, need
from aryl.live.api.feed import Feed
from aryl.live.api.metrics import Metrics
from aryl.live.api.ports import Records
from aryl.live.api.problems import UNAVAILABLE, ProblemError
from aryl.live.api.settings import Settings
from aryl.live.control import Control, Principal, Role

PRINCIPAL_KEY = "aryl.principal"


class Places:
    """A bounded number of places for something that lasts. Any thread."""

    def __init__(self, most: int, what: str) -> None:
        self._free = threading.BoundedSemaphore(most)
        self._what = what

    def take(self) -> None:
        """Take one, or raise a 503 problem."""
        if not self._free.acquire(blocking=False):
            raise ProblemError(UNAVAILABLE, f"too many {self._what} at once; please try again later")

    def leave(self) -> None:
        """Give it back."""
        self._free.release()


@dataclass(frozen=True, slots=True)
class Context:
    """One API's parts. `closing` is set when it shuts down: streams end then."""

    control: Control
    records: Records
    settings: Settings
    doorman: Doorman
    metrics: Metrics
    feed: Feed
    streams: Places
    whatifs: Places
    closing: threading.Event = field(default_factory=threading.Event)


async def context_of(request: Request) -> Context:
    """The parts of the app that serves this request."""
    context = request.app.state.aryl
    assert isinstance(context, Context)
    return context


def principal_of(request: Request) -> Principal | None:
    """Whose request the gate says it is."""
    principal = request.scope.get(PRINCIPAL_KEY)
    return principal if isinstance(principal, Principal) else None


async def _viewer(request: Request) -> Principal:
    return need(principal_of(request), Role.VIEWER)


async def _user(request: Request) -> Principal:
    return need(principal_of(request), Role.USER)


async def _operator(request: Request) -> Principal:
    return need(principal_of(request), Role.OPERATOR)


Parts = Annotated[Context, Depends(context_of)]
Viewer = Annotated[Principal, Depends(_viewer)]
User = Annotated[Principal, Depends(_user)]
Operator = Annotated[Principal, Depends(_operator)]
