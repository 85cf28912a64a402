"""A small inference side for tests: servers that stream tokens, and a router in front of them that Aryl's
hooks tell when a server is lent and when it is back.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

# What hooks run: tells the router, and ends well if that answers well. Can be held up by a file.
HOOK = """
import os, sys, time, urllib.request
url, what = sys.argv[1:]
while os.path.exists(f"{__file__}.hold-{what}"):
    time.sleep(0.05)
urllib.request.urlopen(f"{url}/{what}?server={os.environ['ARYL_SERVER_ID']}", data=b"", timeout=60)
"""
TOKEN = b"token\n"


class Client(threading.Thread):
    """One request. `began` is set with its first token; `server` says who answers it."""

    def __init__(self, address: tuple[str, int], session: str, tokens: int) -> None:
        super().__init__(daemon=True)
        self.began = threading.Event()
        self.server = ""
        self.body = b""
        self.ended_unix_s = 0.0
        self._address, self._path = address, f"/stream?session={session}&tokens={tokens}"

    def run(self) -> None:
        """Ask, and read to the end."""
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        try:
            connection.request("GET", self._path)
            answer = connection.getresponse()
            self.server = answer.headers.get("X-Server", "")
            while piece := answer.read1():
                self.body += piece
                self.began.set()
            self.ended_unix_s = time.time()
        finally:
            connection.close()


class Serving:
    """Servers and their router, in one process. Requests of a session go to the server of its name while
    that is in rotation, and to the first one that is otherwise.
    """

    def __init__(self, servers: list[str], token_s: float = 0.1) -> None:
        self.log: list[tuple[str, str, float]] = []  # what the hooks said, of whom, and when it was done
        self._all, self._active = servers, set(servers)
        self._token_s = token_s
        self._streams = dict.fromkeys(servers, 0)
        self._hung_up = False
        self._change = threading.Condition()
        handler = type("Handler", (_Handler,), {"serving": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where the router listens."""
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def active(self) -> set[str]:
        """Who gets requests."""
        with self._change:
            return set(self._active)

    def ask(self, session: str, tokens: int = 1) -> Client:
        """Start a request, and wait for its first token."""
        client = Client(("127.0.0.1", self._http.server_port), session, tokens)
        client.start()
        assert client.began.wait(60)
        return client

    def enter(self, session: str) -> str:
        """A request comes: who answers it?"""
        with self._change:
            server = session if session in self._active else min(self._active)
            self._streams[server] += 1
            return server

    def leave(self, server: str) -> None:
        """A request is over."""
        with self._change:
            self._streams[server] -= 1
            self._change.notify_all()

    def release(self, server: str) -> None:
        """Nothing new for a server; returns when its streams are over."""
        with self._change:
            self._active.discard(server)
            self._change.wait_for(lambda: self._streams[server] == 0)
        self.log.append(("released", server, time.time()))

    def restore(self, server: str) -> None:
        """A server is back."""
        with self._change:
            self._active.add(server)
        self.log.append(("restored", server, time.time()))

    def hang_up(self) -> None:
        """End all streams."""
        self._hung_up = True

    def tokens(self, count: int) -> Iterator[bytes]:
        """The tokens of a stream, each when it is ready."""
        for _ in range(count):
            time.sleep(self._token_s)
            if self._hung_up:
                return
            yield TOKEN


class _Handler(BaseHTTPRequestHandler):
    serving: Serving

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        server = self.serving.enter(asked["session"][0])
        try:
            self.send_response(200)
            self.send_header("X-Server", server)
            self.end_headers()
            for token in self.serving.tokens(int(asked["tokens"][0])):
                self.wfile.write(token)
        finally:
            self.serving.leave(server)

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        (server,) = parse_qs(url.query)["server"]
        if url.path == "/release":
            self.serving.release(server)
        else:
            self.serving.restore(server)
        try:
            self.send_response(204)
            self.end_headers()
        except BrokenPipeError:
            return  # the hook was ended meanwhile

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to read it."""
