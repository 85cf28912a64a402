"""Who is asking, and may they come in at all?

With tokens, `Authorization: Bearer <token>` names a principal; what was looked up is remembered for two
seconds at most, so that a revoked token dies soon and a busy client costs the store nothing. Without tokens
the server is open, and the dangers are other: a page in the user's browser that posts here (refused by its
`Origin`), or one whose name was made to point here (refused by the `Host` that the browser still sends).
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import sha256
from urllib.parse import urlsplit

from anyio import to_thread

from aryl.errors import InputError
from aryl.live.api.ports import Records
from aryl.live.api.problems import NO_TOKEN, NOT_ALLOWED, ProblemError
from aryl.live.api.settings import Settings
from aryl.live.control import Principal, Role

LOCAL = Principal("local", Role.ADMIN, None)
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
READS = ("GET", "HEAD", "OPTIONS", "TRACE")
MOST_REMEMBERED = 1024
_CREDENTIALS = re.compile(r"bearer +([A-Za-z0-9._~+/-]{1,512}=*)", re.IGNORECASE)
_PORT = re.compile(r":\d*$")


def check_listen(host: str, has_tokens: bool) -> None:
    """Raise InputError for an address that others can reach while there is no token to tell them apart."""
    if not has_tokens and not is_loopback(host):
        raise InputError(
            "without tokens everybody who can connect would be an admin",
            field="listen",
            found=host,
            expected="127.0.0.1, ::1 or localhost, or at least one token",
        )


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only. A name other than localhost is not trusted to
    be.
    """
    bare = host.strip().removeprefix("[").removesuffix("]").lower()
    if bare == "localhost":
        return True
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


class Doorman:
    """Decides for each request who it is from. Lives on the event loop; the store is asked in a thread."""

    def __init__(
        self, records: Records, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._records, self._settings, self._clock = records, settings, clock
        self._remembered: OrderedDict[bytes, tuple[float, Principal | None]] = OrderedDict()
        self._closed = not settings.open
        self._open_until = float("-inf")
        self._names = {name.lower() for name in (*LOOPBACK_NAMES, *settings.host_names)}

    async def is_open(self) -> bool:
        """Whether everyone is let in. The first token closes the door for good."""
        if self._closed:
            return False
        if self._clock() >= self._open_until:
            if await to_thread.run_sync(self._records.has_tokens):
                self._closed = True
                return False
            self._open_until = self._clock() + self._settings.token_cache_s
        return True

    async def principal(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal | None:
        """Whose request this is; None without credentials or with wrong ones."""
        if await self.is_open():
            return LOCAL
        given = _values(headers, b"authorization")
        match = _CREDENTIALS.fullmatch(given[0].strip()) if len(given) == 1 else None
        return None if match is None else await self._find(match[1])

    def check_host(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise a 403 problem for a request to an open server under a name that isn't its own."""
        given = _values(headers, b"host")
        name = _PORT.sub("", given[0].strip().lower()) if len(given) == 1 else ""
        if name not in self._names:
            raise ProblemError(NOT_ALLOWED, "this server doesn't answer to that name in the Host header")

    def check_origin(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise a 403 problem for a write that a page from elsewhere made a browser send."""
        headers = list(headers)
        origins = _values(headers, b"origin")
        if method in READS or not origins:
            return
        hosts = _values(headers, b"host")
        try:
            same = len(origins) == len(hosts) == 1 and urlsplit(origins[0]).netloc.lower() == hosts[0].lower()
        except ValueError:
            same = False
        if not same:
            raise ProblemError(NOT_ALLOWED, "pages from other origins may not change anything here")

    async def _find(self, secret: str) -> Principal | None:
        key = sha256(secret.encode()).digest()
        until, principal = self._remembered.get(key, (float("-inf"), None))
        if self._clock() < until:
            return principal
        principal = await to_thread.run_sync(self._records.find_token, secret)
        self._remembered[key] = (self._clock() + self._settings.token_cache_s, principal)
        self._remembered.move_to_end(key)
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        return principal


def need(principal: Principal | None, role: Role) -> Principal:
    """The principal, if it may act as `role`. Raises a 401 or 403 problem."""
    if principal is None:
        raise ProblemError(NO_TOKEN, "send a valid token as `Authorization: Bearer <token>`")
    if principal.role < role:
        raise ProblemError(
            NOT_ALLOWED, f"this takes the role {role.name.lower()}; yours is {principal.role.name.lower()}"
        )
    return principal


def _values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]
