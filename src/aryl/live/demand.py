"""What the inference side needs: what it said last, or a curve that is replayed.

Both say when they want to be asked again, and then what has happened. A side that has said something and then
falls silent for `stale_after_s` is lost from sight, which is an event of its own; one that never said a word
lends nothing anyway.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from aryl.core.events import DemandReported, TelemetryLost
from aryl.traces.need import Need


class InferenceSource(Protocol):
    """How the inference side is heard."""

    def next_s(self) -> float:
        """When there will be something to hear, in cluster seconds; inf: never by itself."""

    def due(self, now_s: float) -> DemandReported | TelemetryLost | None:
        """What there is to hear now."""

    def heard(self, at_s: float) -> None:
        """The inference side has said something through the API."""


class PushedDemand:
    """The inference side reports by itself."""

    def __init__(self, stale_after_s: float) -> None:
        self._stale_after_s = stale_after_s
        self._stale_s = float("inf")

    def next_s(self) -> float:
        """When it will have been silent for too long."""
        return self._stale_s

    def due(self, now_s: float) -> DemandReported | TelemetryLost | None:
        """That it has fallen silent, once."""
        if now_s < self._stale_s:
            return None
        self._stale_s = float("inf")
        return TelemetryLost(now_s)

    def heard(self, at_s: float) -> None:
        """It has spoken."""
        self._stale_s = at_s + self._stale_after_s


class ReplayedDemand:
    """A curve, told every `interval_s`; the forecast is an oracle that looks `lead_s` ahead in it. What comes
    through the API counts until the curve speaks again.
    """

    def __init__(self, need: Need, *, interval_s: float, lead_s: float, from_s: float = 0.0) -> None:
        self._need, self._interval_s, self._lead_s = need, interval_s, lead_s
        self._next_s = from_s

    def next_s(self) -> float:
        """The next tick."""
        return self._next_s

    def due(self, now_s: float) -> DemandReported | TelemetryLost | None:
        """The need, once a tick."""
        if now_s < self._next_s:
            return None
        self._next_s = now_s + self._interval_s
        instant = np.array([now_s])
        need = float(self._need.at(instant)[0])
        return DemandReported(now_s, need, float(self._need.highest(instant, self._lead_s)[0]))

    def heard(self, at_s: float) -> None:
        """It changes nothing about when the curve speaks."""
