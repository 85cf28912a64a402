"""What the client gives besides the views that it shares with the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """Something that happened in the cluster. `sequence` is its number in the journal; `data` its JSON."""

    sequence: int
    kind: str
    data: Any
