"""The one layer around the routes, in plain ASGI: who is it, how large is it, how long did it take.

In this order: the host and the origin are checked, the principal is found, the body is read up to its bound,
the route answers, and whatever nobody caught becomes a 500 without a word about its inside. Then the request
is counted and logged: by method, path and status, without its query and its headers, where secrets might be.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aryl.errors import ArylError
from aryl.live.api.auth import READS
from aryl.live.api.context import PRINCIPAL_KEY, Context
from aryl.live.api.problems import INTERNAL, NO_TOKEN, TOO_LARGE, ProblemError, from_aryl, respond

LOG = logging.getLogger("aryl.api")
ACCESS_LOG = logging.getLogger("aryl.api.access")
ALIVE_PATH = "/healthz"
UNMATCHED = "unmatched"


class Gate:
    """Wraps the app. Everything under `/v1` needs a principal; routes elsewhere decide for themselves."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app, self._context = app, context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            try:
                await self._enter(scope)
                inner = await self._with_body(scope, receive)
                if inner is None:
                    return
                await self._app(scope, inner, answer)
            except ProblemError as problem:
                await respond(problem, scope["path"])(scope, receive, answer)
            except Exception as error:
                known = from_aryl(error) if isinstance(error, ArylError) else None
                if known is not None and answer.status is None:
                    await respond(known, scope["path"])(scope, receive, answer)
                    return
                LOG.exception("%s %s failed", scope["method"], _path(scope))
                if answer.status is not None:
                    raise
                unknown = ProblemError(INTERNAL, "the server's log has the details")
                await respond(unknown, scope["path"])(scope, receive, answer)
        finally:
            self._record(scope, answer)

    async def _enter(self, scope: Scope) -> None:
        if scope["path"] == ALIVE_PATH:  # says nothing, and mustn't depend on the store
            return
        doorman, headers = self._context.doorman, scope["headers"]
        if await doorman.is_open():
            doorman.check_host(headers)
        doorman.check_origin(scope["method"], headers)
        principal = await doorman.principal(headers)
        path = scope["path"]
        if principal is None and (path == "/v1" or path.startswith("/v1/")):
            raise ProblemError(NO_TOKEN, "send a valid token as `Authorization: Bearer <token>`")
        scope[PRINCIPAL_KEY] = principal

    async def _with_body(self, scope: Scope, receive: Receive) -> Receive | None:
        """A way to receive the request whose body is known to be small; None if the client went away."""
        if scope["method"] in READS:
            return receive
        most = self._context.settings.most_body_bytes
        too_large = ProblemError(
            TOO_LARGE, f"a body may have at most {most} bytes", headers={"Connection": "close"}
        )
        if _announced(scope["headers"]) > most:
            raise too_large
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > most:
                raise too_large
            more = message.get("more_body", False)
        whole: Message | None = {"type": "http.request", "body": bytes(body), "more_body": False}

        async def replay() -> Message:
            nonlocal whole
            if whole is None:
                return await receive()
            message, whole = whole, None
            return message

        return replay

    def _record(self, scope: Scope, answer: _Answer) -> None:
        if answer.status is None:
            return
        route = getattr(scope.get("route"), "path", UNMATCHED)
        method = scope["method"]
        self._context.metrics.observe(method, route, answer.status, answer.began_s - answer.arrived_s)
        if ACCESS_LOG.isEnabledFor(logging.INFO):
            principal = scope.get(PRINCIPAL_KEY)
            ACCESS_LOG.info(
                "%s %s %d %.1f ms %s",
                method,
                _path(scope),
                answer.status,
                (answer.began_s - answer.arrived_s) * 1000,
                principal.name if principal else "-",
            )


class _Answer:
    """Sends on, and remembers the status and when it was sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.arrived_s = self.began_s = perf_counter()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.began_s = perf_counter()
        await self._send(message)


def _announced(headers: Iterable[tuple[bytes, bytes]]) -> int:
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


def _path(scope: Scope) -> str:
    """The path as it came, percent-encoded: a line break in it can't forge a line of the log."""
    raw = scope.get("raw_path") or scope["path"].encode("ascii", "backslashreplace")
    return ascii(raw.partition(b"?")[0].decode("latin-1"))[1:-1]
