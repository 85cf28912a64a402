"""Requests over HTTP: the address, the token, retries, and what an answer that isn't one means.

Retries: a request that never left is always sent again. One that may have arrived is sent again only if doing
it twice is doing it once. A request that timed out isn't, since the next one would take as long.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from aryl import __version__
from aryl.client.patience import delays
from aryl.client.problems import UNAVAILABLE, error_of
from aryl.errors import ArylError, InputError, UnreachableError

DEFAULT_SERVER = "http://127.0.0.1:8642"
EXPECTED_SERVER = f"an address such as {DEFAULT_SERVER}"
# The longest that a server's wish (Retry-After) makes a request wait.
LONGEST_WISH_S = 5.0
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class LostAnswerError(UnreachableError):
    """The request may have arrived and may have been carried out; there was no answer to it."""


Answer = TypeVar("Answer")
Parameters = Mapping[str, str | int | list[str] | None]


class Transport:
    """A connection to one server. Usable from several threads; close it in the end."""

    def __init__(self, base_url: str, token: str | None, *, timeout_s: float, retries: int) -> None:
        self.base_url, self._retries = checked_url(base_url), retries
        headers = {"User-Agent": f"aryl/{__version__}", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {checked_token(token)}"
        url = httpx.URL(self.base_url)
        local = url.host in ("127.0.0.1", "::1", "localhost")
        plain = local and url.scheme == "http"
        self._client = httpx.Client(
            base_url=self.base_url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0)),
            # A proxy for the outside world is no way to this machine.
            trust_env=not local,
            # To load all the world's certificates takes longer than a request; an empty list trusts nobody.
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True,
        )

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def ask(
        self,
        kind: TypeAdapter[Answer],
        method: str,
        path: str,
        *,
        repeatable: bool = True,
        parameters: Parameters | None = None,
        content: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send a request and read the answer. Raises what `error_of` makes of a problem, UnreachableError,
        and ArylError for an answer that can't be read.
        """
        request = self._request(method, path, parameters, content, headers)
        if timeout_s is not None:
            request.extensions["timeout"] = {**request.extensions["timeout"], "read": timeout_s}
        response = self._send(request, repeatable=repeatable, stream=False)
        return self.read(kind, response)

    def ask_once(self, method: str, path: str) -> httpx.Response:
        """Send a request without retries and return the answer, whatever its status. Raises
        UnreachableError.
        """
        request = self._request(method, path, None, None, None)
        try:
            return self._client.send(request)
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        silence_s: float,
        parameters: Parameters | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[Iterator[bytes]]:
        """The answer as it comes. Raises UnreachableError when it breaks off, or if nothing comes for
        `silence_s` seconds.
        """
        plain = {"Accept-Encoding": "identity", **(headers or {})}
        request = self._request("GET", path, parameters, None, plain)
        request.extensions["timeout"] = {**request.extensions["timeout"], "read": silence_s}
        response = self._send(request, repeatable=True, stream=True)
        try:
            yield response.iter_bytes()
        except httpx.TransportError as error:
            raise self._unreachable(error) from None
        finally:
            response.close()

    def read(self, kind: TypeAdapter[Answer], response: httpx.Response) -> Answer:
        """The body of an answer. Raises ArylError if it is something else."""
        try:
            return kind.validate_json(response.content)
        except ValidationError:
            url = response.request.url
            raise ArylError(f"{url} answers, but not as an Aryl server does; is it one?") from None

    def _request(
        self,
        method: str,
        path: str,
        parameters: Parameters | None,
        content: str | None,
        headers: Mapping[str, str] | None,
    ) -> httpx.Request:
        given: dict[str, Any] = {key: value for key, value in (parameters or {}).items() if value is not None}
        sent = dict(headers or {})
        if content is not None:
            sent["Content-Type"] = "application/json"
        return self._client.build_request(method, path, params=given or None, content=content, headers=sent)

    def _send(self, request: httpx.Request, *, repeatable: bool, stream: bool) -> httpx.Response:
        for delay_s in islice(delays(0.1, 2.0), self._retries):
            wish_s = 0.0
            try:
                response = self._client.send(request, stream=stream)
            except httpx.TransportError as error:
                again = isinstance(error, _NEVER_SENT) or (
                    repeatable and not isinstance(error, httpx.TimeoutException)
                )
                if not again:
                    raise self._unreachable(error) from None
            else:
                if not (repeatable and response.status_code in UNAVAILABLE):
                    return self._good(response)
                wish_s = _wish_s(response)
                response.close()
            time.sleep(max(delay_s, wish_s))
        try:
            return self._good(self._client.send(request, stream=stream))
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    def _good(self, response: httpx.Response) -> httpx.Response:
        if response.is_success:
            return response
        try:
            body = response.read()
        except httpx.TransportError:
            body = b""
        finally:
            response.close()
        raise error_of(response.status_code, body, str(response.request.url))

    def _unreachable(self, error: httpx.TransportError) -> UnreachableError:
        match error:
            case httpx.ConnectTimeout() | httpx.PoolTimeout():
                text = "no connection in time"
            case httpx.TimeoutException():
                text = "no answer in time"
            case httpx.ConnectError():
                text = str(error)
            case _:
                text = f"the connection broke off: {error}" if str(error) else "the connection broke off"
        kind = UnreachableError if isinstance(error, _NEVER_SENT) else LostAnswerError
        return kind(f"{self.base_url} can't be reached: {text}")


def checked_url(text: str) -> str:
    """The address of a server without a slash at its end. Raises InputError."""
    try:
        url = httpx.URL(text.strip())
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise InputError("not the address of a server", found=text, expected=EXPECTED_SERVER)
    return str(url).rstrip("/")


def checked_token(text: str) -> str:
    """A token without blanks around it. Raises InputError, which doesn't show it."""
    token = text.strip()
    if not token or not all("!" <= char <= "~" for char in token):
        raise InputError("not a token", expected="one line of letters, digits and signs")
    return token


def _wish_s(response: httpx.Response) -> float:
    """For how long the server asks to be left alone, in seconds."""
    try:
        wish_s = float(response.headers.get("Retry-After", "0"))
    except ValueError:
        return 0.0
    return min(max(wish_s, 0.0), LONGEST_WISH_S)
