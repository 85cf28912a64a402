"""An HTTP server for tests that answers in the format of Prometheus, well or badly."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

LONG_S = 60.0
DRIPS = 250
AT_S = 1700000000.123


def success(kind: str, result: Any, **more: Any) -> str:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more})


def series(value: object, at_s: object = AT_S, name: str = "a") -> dict[str, Any]:
    return {"metric": {"host": name}, "value": [at_s, value]}


class Server:
    """A Prometheus that answers what it is told to, query by query or always."""

    def __init__(self) -> None:
        self.status, self.body = 200, success("vector", [series("5.5")])
        self.by_query: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, list[str]], str | None]] = []
        self.drips, self.holds_s = False, LONG_S
        self.let_go = threading.Event()
        self.let_go.set()
        self.hung, self.held = threading.Event(), threading.Event()
        self._http = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"server_side": self})
        )
        self._http.daemon_threads = False  # so that the end waits for them
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self.let_go.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_side: Server

    def do_GET(self) -> None:
        side = self.server_side
        parts = urlsplit(self.path)
        asked = parse_qs(parts.query)
        side.asked.append((parts.path, asked, self.headers.get("Authorization")))
        try:
            if not side.let_go.is_set() and not side.drips:
                side.hung.set()
                side.let_go.wait(side.holds_s)
                side.held.set()
            self.send_response(side.status)
            for key, value in side.headers.items():
                self.send_header(key, value)
            self.end_headers()
            for _ in range(DRIPS if side.drips else 0):
                if side.let_go.wait(0.02):
                    break
                self.wfile.write(b" ")
            self.wfile.write(side.by_query.get(asked["query"][0], side.body).encode())
        except OSError:
            pass  # nobody waits for it any more

    def log_message(self, *_: object) -> None:
        """Say nothing."""
