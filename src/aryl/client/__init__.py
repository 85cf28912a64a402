"""The typed client of the API, which the command line uses too: `with ArylClient() as client: ...`.

It needs httpx (`pip install 'aryl[client]'`).
"""

from __future__ import annotations

from aryl.client.answers import ServerEvent
from aryl.client.client import ArylClient
from aryl.client.patience import WaitTimeoutError
from aryl.wire.views import AttemptView, WhoAmI

__all__ = ["ArylClient", "AttemptView", "ServerEvent", "WaitTimeoutError", "WhoAmI"]
