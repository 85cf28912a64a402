"""Small answers that the API gives besides the views that it shares with the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aryl.wire.views import View


class WhoView(View):
    """Whom the server takes the client for. `project` None: all of them."""

    name: str
    role: str
    project: str | None = None


class LogPlace(View):
    """A worker that has left a log: `attempt` and `rank` count from 0, as in its environment."""

    attempt: int
    rank: int


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """Something that happened in the cluster. `sequence` is its number in the journal; `data` its JSON."""

    sequence: int
    kind: str
    data: Any
