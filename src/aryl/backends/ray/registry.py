"""The actor on the head that knows who leads, and which servers have leave to go on.

A keeper asks for its server again and again; a server whose keeper hasn't asked for longer than a lease
lasts, and a while more, has ended all that ran on it, wherever it is. Two machines never hold one server's
lease at the same time. The registry keeps nothing on disk: after its own restart it has another `epoch`,
knows of no server, and says for how long it has been up, so that whoever asks can tell "gone" from "not heard
of yet".
"""

from __future__ import annotations

import secrets
import socket
import time
from dataclasses import dataclass
from typing import Any

from aryl.errors import ConflictError, FencedError


@dataclass(slots=True)
class _Held:
    node: str
    machine: str
    facts: dict[str, Any]
    asked_s: float  # monotonic


class Registry:
    """See the module. `gone_after_s` is how long after the last asking a server is certainly empty."""

    def __init__(self, gone_after_s: float) -> None:
        self._gone_after_s = gone_after_s
        self._fence = 0
        self._installation = ""
        self._epoch = secrets.token_hex(8)
        self._began_s = time.monotonic()
        self._held: dict[str, _Held] = {}

    def take_over(self, installation: str, fence: int) -> str:
        """A daemon of that installation leads from now on. Returns the epoch. Raises FencedError if another
        one came after it, ConflictError if the namespace is another installation's.
        """
        if self._installation not in ("", installation):
            raise ConflictError(
                "the namespace is that of another control plane, with another state folder; give this one "
                "another ray.namespace"
            )
        self._installation = installation
        if fence < self._fence:
            raise FencedError(f"a daemon with a higher token has taken over ({self._fence})")
        self._fence = fence
        return self._epoch

    def admit(self, fence: int) -> bool:
        """Whether this is the daemon that leads. Right after a restart nobody has said who leads."""
        return fence >= self._fence

    def renew(self, server_id: str, node: str, machine: str, facts: dict[str, Any]) -> bool:
        """Leave to go on, for an incarnation `node` of a server on a `machine`; false while another one may
        still have it. On the same machine the newer one has ended all that the older one left.
        """
        now_s = time.monotonic()
        held = self._held.get(server_id)
        if held is not None and held.node != node:
            over = now_s - held.asked_s > self._gone_after_s
            if not over and held.machine != machine:
                return False
        self._held[server_id] = _Held(node, machine, facts, now_s)
        return True

    def free_port(self) -> int:
        """A port that nobody listens on, on the head."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
            return port

    def look(self, fence: int) -> dict[str, Any]:
        """All that is known of servers. Raises FencedError."""
        if fence < self._fence:
            raise FencedError("another daemon has taken over")
        now_s = time.monotonic()
        return {
            "epoch": self._epoch,
            "up_s": now_s - self._began_s,
            "servers": {
                server_id: {"node": held.node, "age_s": now_s - held.asked_s, **held.facts}
                for server_id, held in self._held.items()
            },
        }
