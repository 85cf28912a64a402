"""What is said of the inference side, in an experiment as in the configuration of a live cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, model_validator

from aryl.errors import nearest_word
from aryl.files import units
from aryl.files.calendar_fields import CalendarSection
from aryl.files.fields import MOST_WHOLE, Count, Seconds, Section, Share, Strict, Text, fault

HEADROOM_FORMS = "a share such as 2%, a whole number of servers, {quantile: 99%} or {risk: 10%}"
# What brings no predictor along needs none of the extras; `oracle` exists in the simulator only.
PREDICTORS = ("last", "day", "week", "regression", "ets", "mstl", "lstm")
ORACLE = "oracle"


def _known_predictor(word: str) -> str:
    known = (*PREDICTORS, ORACLE)
    if word not in known:
        near = nearest_word(word[:200], known)
        raise fault("no such predictor", expected="one of " + ", ".join(known), nearest=near, found=word)
    return word


class Headroom(Strict):
    """Servers that are kept on top of the forecast.

    Exactly one of the first four is set: a whole number, a share of the pool, a quantile of the forecast's
    own errors, or the share that the shortfall may be of what a rule without any forecast would have.
    `at_least` counts for the latter two until a day's errors are known: a share of the pool.
    """

    servers: Count | None = None
    share: Share | None = None
    quantile: Share | None = None
    risk: Share | None = None
    at_least: Share = 0.02

    @model_validator(mode="before")
    @classmethod
    def _take_short_forms(cls, value: Any) -> Any:
        if isinstance(value, Mapping | Headroom):
            return value
        try:
            number = units.share(value)
        except units.UnitError:
            raise fault("wrong value", expected=HEADROOM_FORMS) from None
        if isinstance(value, str) and "%" in value:
            return {"share": value}
        # A bare number below one can only be a share, a whole one only a count.
        if 0 < number < 1:
            return {"share": number}
        if number == int(number):
            return {"servers": int(number)}
        raise fault("wrong value", expected=HEADROOM_FORMS)

    @model_validator(mode="after")
    def _one_of_them(self) -> Headroom:
        forms = (self.servers, self.share, self.quantile, self.risk)
        if sum(form is not None for form in forms) != 1:
            raise fault("give exactly one of servers, share, quantile and risk", expected=HEADROOM_FORMS)
        if self.quantile is not None and not 0.0 < self.quantile < 1.0:
            raise fault("wrong value", "quantile", expected="above 0 and below 100%", found=self.quantile)
        return self

    @property
    def is_fixed(self) -> bool:
        """Whether it is the same number of servers whatever happens."""
        return self.servers is not None or self.share is not None

    def in_servers(self, pool_servers: int) -> int:
        """The headroom in whole servers of a pool of `pool_servers`, rounded up; where errors say how much it
        is, the least.
        """
        if self.servers is not None:
            return self.servers
        share = self.at_least if self.share is None else self.share
        # 7 % of 100 is 7.000000000000001 in floating point, and still seven servers.
        return math.ceil(share * pool_servers - 1e-9)


class ForecastConfig(Section):
    """Who foresees the need. `model`: the file of a trained one; `refresh`: it goes on learning."""

    predictor: Annotated[Text, AfterValidator(_known_predictor)] = "regression"
    model: Text | None = None
    refresh: bool = True

    @model_validator(mode="before")
    @classmethod
    def _take_a_word(cls, value: Any) -> Any:
        return {"predictor": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _models_are_for_those_that_learn(self) -> ForecastConfig:
        if self.predictor == "lstm" and self.model is None:
            raise fault(
                "lstm needs a trained model",
                "model",
                expected="{predictor: lstm, model: FILE}, with a file of `aryl forecast train`",
            )
        if self.predictor != "lstm" and self.model is not None:
            raise fault(f"{self.predictor} has no model", "model")
        return self


class LendingFields(Section):
    """What may be lent: what is foreseen, what is kept on top, and limits. Times in seconds.

    `lead` None: the interval, and as long as giving back takes (`deadline`, vacating, `load`). `settle`: how
    long less has to have been enough before more is lent. `load`: how long a server that comes home loads
    its models before it serves. All limits hold: `min_servers` stay at home, at most `max_lent` are on loan,
    and at most what the calendar says.
    """

    forecast: ForecastConfig = ForecastConfig()
    headroom: Headroom = Headroom(risk=0.09)
    lead: Seconds | None = None
    deadline: Seconds = 0.0
    load: Seconds = 0.0
    settle: Seconds = 900.0
    min_servers: Count = 0
    max_lent: Count | None = None
    calendar: CalendarSection | None = None


def _points(value: object) -> list[tuple[float, float]]:
    if not isinstance(value, list | tuple) or not value:
        raise fault("wrong value", expected="a list of [time, servers], such as [[0, 4], [55m, 8]]")
    points: list[tuple[float, float]] = []
    for index, point in enumerate(value):
        if not isinstance(point, list | tuple) or len(point) != 2:
            raise fault("wrong value", index, expected="[time, servers]", found=point)
        try:
            time_s = units.seconds(point[0])
        except units.UnitError as error:
            raise fault("wrong value", index, 0, expected=error.expected, found=point[0]) from None
        need = point[1]
        if isinstance(need, bool) or not isinstance(need, int | float) or not 0 <= need <= MOST_WHOLE:
            raise fault("wrong value", index, 1, expected="a number of servers, at least 0", found=need)
        if points and time_s <= points[-1][0]:
            raise fault(
                "the times do not ascend", index, expected="each point later than the one before", found=point
            )
        points.append((time_s, float(need)))
    return points


Points = Annotated[list[tuple[float, float]], BeforeValidator(_points)]
