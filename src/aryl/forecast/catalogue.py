"""Every predictor by name, built as a file says."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aryl.errors import InputError, nearest_word
from aryl.files.inference_fields import ORACLE, ForecastConfig, Headroom
from aryl.forecast.control import (
    FixedHeadroom,
    HeadroomRule,
    QuantileHeadroom,
    RiskHeadroom,
)
from aryl.forecast.plain import Last, Seasonal
from aryl.forecast.predictor import Predictor, Spread
from aryl.forecast.regression import Regression

EXTRA = "forecast"


@dataclass(frozen=True, slots=True)
class PredictorInfo:
    """One predictor, for people. `needs`: the module that it can't do without; empty: none."""

    name: str
    summary: str
    source: str
    needs: str = ""

    @property
    def installed(self) -> bool:
        """Whether it can be used here."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None


TABLE = (
    PredictorInfo("last", "it stays as it is: what a reactive rule believes", "textbook"),
    PredictorInfo("day", "as it went on a day ago (seasonal naive)", "textbook"),
    PredictorInfo("week", "as it went on a week ago (seasonal naive)", "textbook"),
    PredictorInfo(
        "regression", "linear, on the last hours, on yesterday and on last week, refitted daily", "ours"
    ),
    PredictorInfo("ets", "exponential smoothing", "statsforecast", "statsforecast"),
    PredictorInfo("mstl", "decomposition into day, week and trend", "statsforecast", "statsforecast"),
    PredictorInfo(
        "lstm", "two layers over the last ten samples, trained beforehand", "the paper, rebuilt", "torch"
    ),
)


def build_predictor(config: ForecastConfig) -> Predictor:
    """The predictor of that name. Raises InputError for an oracle, or if an extra or the model is missing."""
    name = config.predictor
    builders: dict[str, Callable[[], Predictor]] = {
        "last": lambda: Spread(Last()),
        "day": lambda: Spread(Seasonal("day")),
        "week": lambda: Spread(Seasonal("week")),
        "regression": Regression,
        "ets": _ets,
        "mstl": _mstl,
        "lstm": lambda: _lstm(config),
    }
    if name == ORACLE:
        raise InputError(
            "an oracle knows a curve's future; nobody does here",
            field="inference.forecast",
            found=name,
            expected="one of " + ", ".join(builders),
        )
    if name not in builders:
        raise InputError(
            "no such predictor",
            field="inference.forecast",
            found=name,
            expected="one of " + ", ".join(builders),
            nearest=nearest_word(name, builders),
        )
    # A trained network that doesn't go on learning needs nothing but numpy.
    if name != "lstm" or config.refresh:
        require_engine(next(info for info in TABLE if info.name == name))
    return builders[name]()


def require_engine(info: PredictorInfo) -> None:
    """Raise InputError, naming the extra, if what a predictor needs isn't installed."""
    if not info.installed:
        plain = ", ".join(other.name for other in TABLE if not other.needs)
        raise InputError(
            f"the predictor '{info.name}' needs {info.needs}: pip install 'aryl[{EXTRA}]'",
            field="inference.forecast",
            found=info.name,
            expected=f"an installed predictor ({plain})",
        )


def headroom_rule(headroom: Headroom, pool_servers: int) -> HeadroomRule:
    """The headroom of a pool of that size."""
    servers = float(headroom.in_servers(pool_servers))
    if headroom.quantile is not None:
        return QuantileHeadroom(headroom.quantile, servers)
    if headroom.risk is not None:
        return RiskHeadroom(headroom.risk, servers)
    return FixedHeadroom(servers)


def _ets() -> Predictor:
    from aryl.forecast.statistical import Ets

    return Ets()


def _mstl() -> Predictor:
    from aryl.forecast.statistical import Mstl

    return Mstl()


def _lstm(config: ForecastConfig) -> Predictor:
    from aryl.forecast.lstm_predictor import LstmPredictor
    from aryl.forecast.lstm_store import load

    assert config.model is not None
    return LstmPredictor(load(Path(config.model)), refreshing=config.refresh)
