"""What a back test of a predictor came to: numbers, names and arrays, which can be pickled and drawn.

Nothing here knows how it was measured; that is `sim/backtest.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aryl.report.outcome import Floats

HOURS = 24
# The percentiles of `Accuracy.by_hour_servers`.
PERCENTILES = (5, 25, 50, 75, 95)
# The scalars of `Accuracy`.
ACCURACY = ("mae_servers", "bias_servers", "pinball_servers", "within_50", "within_90")


@dataclass(frozen=True, slots=True, eq=False)
class Accuracy:
    """How near a predictor came to the highest need until the lead was over, in servers; NaN if it was never
    asked early enough to know.

    `bias_servers`: the mean of forecast minus need, above 0: too many. `pinball_servers`: the mean pinball
    loss over `sim.backtest.LEVELS`. `within_50`, `within_90`: the share of needs between the quantiles of 25
    and 75 %, and of 5 and 95 %, give or take a twentieth of the interval. `by_hour_servers`: `PERCENTILES` of
    need minus forecast by hour of the curve's day, shape (HOURS, len(PERCENTILES)).
    """

    mae_servers: float
    bias_servers: float
    pinball_servers: float
    within_50: float
    within_90: float
    by_hour_servers: Floats

    def as_dict(self) -> dict[str, float]:
        """The scalars, to six digits: further ones depend on how many threads the library of algebra has."""
        return {name: float(f"{getattr(self, name):.6g}") for name in ACCURACY}


@dataclass(frozen=True, slots=True)
class Lending:
    """What was lent in `span_s` seconds, and what inference went short of.

    `idle_server_s`: what inference didn't need, whether it was lent or not.
    """

    span_s: float
    shortfall_server_s: float
    idle_server_s: float
    lent_server_s: float
    loans: int
    reclaims: int

    @property
    def lent_share(self) -> float:
        """Server time lent as a share of the idle one; 0 if nothing was idle."""
        return self.lent_server_s / self.idle_server_s if self.idle_server_s > 0.0 else 0.0

    def share_of(self, other: Lending) -> float | None:
        """Server time lent as a share of what another lent; None if that is nothing."""
        return self.lent_server_s / other.lent_server_s if other.lent_server_s > 0.0 else None

    def as_dict(self) -> dict[str, float]:
        """The figures as people want them: server-minutes, server-hours, shares and numbers a day."""
        days = self.span_s / 86_400.0
        return {
            "shortfall_server_min": self.shortfall_server_s / 60.0,
            "idle_server_h": self.idle_server_s / 3600.0,
            "lent_server_h": self.lent_server_s / 3600.0,
            "lent_share_of_idle": self.lent_share,
            "loans_per_day": self.loans / days,
            "reclaims_per_day": self.reclaims / days,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """How it went over time, in servers: entry i is the mean over some reports from `time_s[i]` on.

    Times are those of the curve. `kept_servers`: forecast and headroom; `home_servers`: not on loan.
    """

    time_s: Floats
    need_servers: Floats
    forecast_servers: Floats
    kept_servers: Floats
    home_servers: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """One row of a back test. `accuracy` and `course` are None where nothing was forecast, or nobody asked
    for them. `is_frontier`: it is one point of a curve of headrooms.
    """

    label: str
    predictor: str
    headroom: str
    settle_s: float
    lending: Lending
    accuracy: Accuracy | None = None
    course: Course | None = None
    is_frontier: bool = False

    def as_dict(self, oracle: Lending | None) -> dict[str, Any]:
        """The row as one JSON object; `lent_share_of_oracle` is None without an oracle."""
        return {
            "label": self.label,
            "predictor": self.predictor,
            "headroom": self.headroom,
            "settle_s": self.settle_s,
            "accuracy": None if self.accuracy is None else self.accuracy.as_dict(),
            **self.lending.as_dict(),
            "lent_share_of_oracle": None if oracle is None else self.lending.share_of(oracle),
        }
