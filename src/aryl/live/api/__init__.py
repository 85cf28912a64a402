"""The REST API: puts requests to a `Control` and a store, and shows each principal what it may see."""

from __future__ import annotations

from aryl.live.api.app import make_app
from aryl.live.api.auth import check_listen
from aryl.live.api.serving import ApiServer
from aryl.live.api.settings import Settings

__all__ = ["ApiServer", "Settings", "check_listen", "make_app"]
