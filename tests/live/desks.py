"""An inference side that only speaks when it is spoken for: what it says is told as it is."""

from __future__ import annotations

from aryl.forecast.control import FixedHeadroom, LoanControl, LoanRules
from aryl.forecast.lead import GiveBack
from aryl.forecast.limits import LimitClock
from aryl.forecast.plain import Last
from aryl.forecast.predictor import Spread
from aryl.live.demand import InferenceDesk

ENDLESS_S = float("inf")


def pushed_desk(
    stale_after_s: float = ENDLESS_S,
    interval_s: float = 300.0,
    *,
    give_back: GiveBack | None = None,
    limits: LimitClock | None = None,
) -> InferenceDesk:
    """Foresees that everything stays as it is; no headroom, no hysteresis."""
    give_back = give_back or GiveBack(0.0)
    rules = LoanRules(interval_s, give_back.longest_s, settle_s=0.0, headroom=FixedHeadroom(0.0))
    control = LoanControl(rules, Spread(Last()))
    return InferenceDesk(control, give_back, stale_after_s=stale_after_s, limits=limits)
