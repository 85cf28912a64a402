"""How the API is set up: who may come in, what it is called, and the bounds that keep one client from hurting
the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import aryl


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds, sizes in bytes.

    `open`: as long as there are no tokens, everyone is an admin; only for a loopback address (see
    `check_listen`). `host_names` are the names besides localhost by which browsers may call an open server.
    `metrics_open`: `/metrics` needs no token. `threads`: so many requests may wait for the control
    plane at once.
    """

    open: bool = False
    host_names: tuple[str, ...] = ()
    metrics_open: bool = False
    version: str = aryl.__version__
    most_body_bytes: int = 1 << 20
    threads: int = 100
    most_streams: int = 256
    most_whatifs: int = 2
    token_cache_s: float = 2.0
    poll_s: float = 0.25
    keep_alive_s: float = 15.0
