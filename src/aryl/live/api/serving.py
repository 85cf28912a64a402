"""Serves an app in a thread of its own, from `start` until `stop`."""

from __future__ import annotations

import logging
import socket
import threading

import uvicorn
from fastapi import FastAPI

from aryl.errors import ArylError
from aryl.live.api.app import close_streams

BACKLOG = 1024
GRACE_S = 5
KEEP_ALIVE_S = 75


class ApiServer:
    """A listening server. Port 0 picks a free one; see `port`.

    The address is taken at once when started, so whoever can't have it learns it there. Log settings are left
    alone: what there is to say goes to the loggers `aryl.api` and `uvicorn.error`.
    """

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        self._app, self._host, self._wanted_port = app, host, port
        # Its lines have queries, where a careless client may put its token; the gate writes its own.
        logging.getLogger("uvicorn.access").disabled = True
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="on",
                ws="none",
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )

    @property
    def port(self) -> int:
        """The port that it listens on. Raises ArylError before `start`."""
        if self._socket is None:
            raise ArylError("the API isn't listening yet")
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where to find it."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Listen; returns when requests are answered. Raises ArylError for an address that can't be had."""
        self._socket = _listen(self._host, self._wanted_port)
        self._thread = threading.Thread(target=self._run, name="aryl-api", daemon=True)
        self._thread.start()
        self._server.ready.wait()
        if not self._server.started:
            self.stop()
            raise ArylError(f"the API on {self._host}, port {self._wanted_port}, did not start; see the log")

    def stop(self) -> None:
        """End streams, answer what has been asked, and stop listening. Stopping twice does no harm."""
        close_streams(self._app)
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._socket is not None:
            self._socket.close()

    def _run(self) -> None:
        try:
            self._server.run([self._socket] if self._socket else None)
        finally:
            self._server.ready.set()


class _Server(uvicorn.Server):
    """Tells when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


def _listen(host: str, port: int) -> socket.socket:
    where = f"{host}, port {port}"
    if not 0 <= port <= 65_535:  # the resolver would take it modulo 65536
        raise ArylError(f"can't listen on {where}: a port is a number from 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ArylError(f"can't listen on {where}: {error}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ArylError(f"can't listen on {where}: {error}") from None
    listening.set_inheritable(False)
    return listening
