"""The plain predictors: the last value, and what was a day or a week ago."""

from __future__ import annotations

from dataclasses import dataclass

from aryl.forecast.history import History
from aryl.forecast.predictor import SEASONS_S, season_of


@dataclass(frozen=True, slots=True)
class Last:
    """It stays as it is: what a reactive rule believes."""

    def peak(self, history: History, steps: int) -> float:
        """The present need."""
        return float(history.values[-1])


@dataclass(frozen=True, slots=True)
class Seasonal:
    """It will go on as it went on a season ago (seasonal naive). Until a season is known: the last value."""

    season: str

    def peak(self, history: History, steps: int) -> float:
        """The highest of what was in these slots a season ago, and at least the present need. The present
        slot counts too: it may still rise.
        """
        values = history.values
        season = season_of(history, SEASONS_S[self.season], steps)
        if season == 0:
            return float(values[-1])
        first = len(values) - 1 - season
        return max(float(values[first : first + steps + 1].max()), float(values[-1]))
