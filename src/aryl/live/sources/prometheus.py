"""The inference demand as Prometheus knows it: an instant query over its HTTP API.

Source: the HTTP API of Prometheus, `GET /api/v1/query`, which Thanos, Mimir and VictoriaMetrics speak too.

The time in an answer is when the query was evaluated, even if the sample behind it is minutes old: up to the
server's lookback (5 min by default), a series that nobody writes any more is answered as if it were new. Only
a second query, such as `min(timestamp(busy_servers))`, tells how old a need really is. It is asked first, so
that the need is at least as new as it is said to be.
"""

from __future__ import annotations

import json
import math
import ssl
import time
from typing import TYPE_CHECKING, Any

from aryl.errors import ArylError, InputError, UnreachableError
from aryl.files.faults import shortened
from aryl.files.fields import MOST_WHOLE, in_one_line
from aryl.live.sources.observation import Observation, Unit

if TYPE_CHECKING:
    import httpx

MOST_BYTES = 2**20
MOST_TOKEN_BYTES = 64 * 2**10

_LOCAL = ("127.0.0.1", "::1", "localhost")


class PrometheusSource:
    """Asks the server at `url` (http or https, perhaps with a user and password, and a path before `/api`).

    The query gives a scalar or exactly one series. Each wait for the server is at most `timeout_s`. The file
    with a bearer token is read anew each time, since tokens are exchanged while we run.

    Raises InputError without httpx, for a URL that can't be used and for certificates that can't be read.
    """

    def __init__(
        self,
        url: str,
        query: str,
        unit: Unit = Unit.SERVERS,
        *,
        timeout_s: float = 10.0,
        time_query: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
    ) -> None:
        library = require_httpx()
        try:
            address: httpx.URL = library.URL(url)
        except library.InvalidURL:
            raise InputError("not the address of a Prometheus server", field="url") from None
        user, password = address.username, address.password
        self._password, self._token = password, ""
        self._address = address.copy_with(
            username=None, password=None, path=address.path.rstrip("/") + "/api/v1/query"
        )
        self._where = _bare(address).rstrip("/")
        self._query, self._time_query, self._unit = query, time_query, unit
        self._timeout_s, self._token_file = timeout_s, token_file
        local = address.host in _LOCAL
        self._client = library.Client(
            auth=(user, password) if user or password else None,
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            timeout=timeout_s,
            # A proxy for the outside world is no way to this machine.
            trust_env=not local,
            verify=_trusted(address.scheme == "http", ca_file),
        )

    @property
    def where(self) -> str:
        """The address, without user and password."""
        return self._where

    def read(self) -> Observation:
        """What the query gives now. Raises ArylError, UnreachableError and, for the token's file,
        InputError.
        """
        measured_s = None if self._time_query is None else self._instant(self._time_query)
        evaluated_s, need = self._sample(self._query)
        if not 0 <= need <= MOST_WHOLE:  # NaN isn't
            raise self._error(f"the query gives {need:g}; expected a number, at least 0")
        return Observation(evaluated_s if measured_s is None else measured_s, need, self._unit)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _instant(self, query: str) -> float:
        _, instant_s = self._sample(query)
        if not 0 < instant_s < math.inf:
            raise self._error(f"the query for the time gives {instant_s:g}; expected seconds since 1970")
        return instant_s

    def _sample(self, query: str) -> tuple[float, float]:
        """The time and the value of the one sample that a query gives."""
        match self._data(query):
            case {"resultType": "vector", "result": []}:
                raise self._error(f"nothing is found for {_shown(query)}; expected exactly one series")
            case {"resultType": "vector", "result": [_, _, *rest]}:
                raise self._error(
                    f"{2 + len(rest)} series are found for {_shown(query)}; expected exactly one,"
                    " such as that of sum(...)"
                )
            case {"resultType": "vector", "result": [{"value": [time_s, value]}]}:
                return self._numbers(time_s, value)
            case {"resultType": "scalar", "result": [time_s, value]}:
                return self._numbers(time_s, value)
            case {"resultType": "matrix" | "string" as kind}:
                raise self._error(f"{_shown(query)} gives a {kind}; expected a number or one series")
        raise self._no_prometheus()

    def _numbers(self, time_s: object, value: object) -> tuple[float, float]:
        try:
            if isinstance(value, str):
                at_s, number = float(time_s), float(value)  # type: ignore[arg-type]
                if 0 < at_s < math.inf:
                    return at_s, number
        except (TypeError, ValueError, OverflowError):
            pass
        raise self._no_prometheus()

    def _data(self, query: str) -> object:
        status, reason, body = self._answer(query)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        match answer:
            case {"status": "error", "error": str(text)}:
                raise self._error(f"{_shown(query)} is refused: {self._said(text)} (HTTP {status})")
            case _ if not 200 <= status < 300:
                hint = "; is it the right token or password?" if status in (401, 403) else ""
                raise self._error(f"the answer is HTTP {status} {self._said(reason)}{hint}")
            case {"status": "success", "warnings": [str(text), *_]}:
                # Thanos says so where a part of the data can't be reached; a sum over the rest is too low.
                raise self._error(f"the answer comes with a warning: {self._said(text)}")
            case {"status": "success", "data": data}:
                return data
        raise self._no_prometheus()

    def _answer(self, query: str) -> tuple[int, str, bytes]:
        """Status, its name and body."""
        import httpx

        end_s = time.monotonic() + self._timeout_s
        parameters = {"query": query, "timeout": f"{max(round(self._timeout_s * 1000), 1)}ms"}
        try:
            with self._client.stream(
                "GET", self._address, params=parameters, headers=self._authorization()
            ) as response:
                if response.next_request is not None:
                    raise self._error(
                        f"it sends us elsewhere, to {self._said(_bare(response.next_request.url))}"
                    )
                body = b""
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > MOST_BYTES:
                        raise self._error(f"the answer is longer than {MOST_BYTES} bytes")
                    if time.monotonic() > end_s:
                        raise httpx.ReadTimeout("")
                return response.status_code, response.reason_phrase, body
        except httpx.RequestError as error:
            raise self._unreachable(error) from None

    def _authorization(self) -> dict[str, str]:
        path = self._token_file
        if path is None:
            return {}
        try:
            with open(path, "rb") as file:
                token = file.read(MOST_TOKEN_BYTES).decode("ascii").strip()
        except UnicodeDecodeError:
            token = ""
        except OSError as error:
            raise InputError(f"the token can't be read: {error.strerror}", file=path) from None
        if not token or not all("!" <= char <= "~" for char in token):
            raise InputError("not a token", file=path, expected="one line of letters, digits and signs")
        self._token = token
        return {"Authorization": f"Bearer {token}"}

    def _unreachable(self, error: httpx.RequestError) -> UnreachableError:
        import httpx

        match error:
            case httpx.ConnectTimeout() | httpx.PoolTimeout():
                text = f"no connection within {self._timeout_s:g} s"
            case httpx.TimeoutException():
                text = f"no whole answer within {self._timeout_s:g} s"
            case _:
                text = self._said(str(error)) or "the connection broke off"
        return UnreachableError(f"{self._where}: {text}")

    def _said(self, text: str) -> str:
        """What others said, fit for one line of a log, and without what we told them in confidence."""
        for secret in filter(None, (self._password, self._token)):
            text = text.replace(secret, "***")
        return shortened(in_one_line(text))

    def _no_prometheus(self) -> ArylError:
        return self._error("it answers, but not as Prometheus does; is it one?")

    def _error(self, text: str) -> ArylError:
        return ArylError(f"{self._where}: {text}")


def require_httpx() -> Any:
    """httpx, imported where it is used, since it is an optional library. Raises InputError without it."""
    try:
        import httpx
    except ImportError:
        raise InputError(
            "to ask Prometheus needs httpx",
            field="prometheus",
            expected="an installation with the extra: pip install 'aryl[serve]'",
        ) from None
    return httpx


def _trusted(plain: bool, ca_file: str | None) -> ssl.SSLContext | bool:
    """Whose certificates are good."""
    if ca_file is None:
        # To load all the world's certificates takes longer than a request; an empty list trusts nobody.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise InputError("not a file of certificates", file=ca_file, expected="certificates in PEM") from None
    except OSError as error:
        raise InputError(f"the certificates can't be read: {error.strerror}", file=ca_file) from None


def _bare(url: httpx.URL) -> str:
    """The address without what may be secret in it."""
    return str(url.copy_with(username=None, password=None, query=None, fragment=None))


def _shown(query: str) -> str:
    return repr(shortened(" ".join(query.split())))
