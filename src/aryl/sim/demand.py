"""What the inference side reports at each tick of the orchestrator: its need now, and a forecast.

Two forecasts: `oracle` looks up the highest need from now until `lead_s` later in the curve itself, which no
real forecast can (results made with it say so); `last` takes the present need for the future one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aryl.core.events import DemandReported
from aryl.traces.need import Need


def reports(
    need: Need, *, interval_s: float, lead_s: float, oracle: bool, end_s: float
) -> Iterator[DemandReported]:
    """A report at 0 and every `interval_s` until `end_s`, and none afterwards."""
    block = 4096
    for first in range(0, int(end_s // interval_s) + 1, block):
        last = min(first + block, int(end_s // interval_s) + 1)
        ticks = np.arange(first, last, dtype=np.float64) * interval_s
        now = need.at(ticks)
        forecast = need.highest(ticks, lead_s) if oracle else now
        for at_s, servers, foreseen in zip(ticks.tolist(), now.tolist(), forecast.tolist(), strict=True):
            yield DemandReported(at_s, servers, foreseen)
