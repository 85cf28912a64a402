"""What is said of the inference side, in an experiment as in the configuration of a live cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from aryl.files import units
from aryl.files.fields import MOST_WHOLE, Count, Share, Strict, fault

HEADROOM_FORMS = "a share such as 2% or a whole number of servers"


class Headroom(Strict):
    """Servers that are never lent: a whole number of them or a share of the pool.

    Exactly one of both is set.
    """

    servers: Count | None = None
    share: Share | None = None

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
    def _one_of_both(self) -> Headroom:
        if (self.servers is None) == (self.share is None):
            raise fault("give exactly one of servers and share", expected=HEADROOM_FORMS)
        return self

    def in_servers(self, pool_servers: int) -> int:
        """The headroom in whole servers of a pool of `pool_servers`, rounded up."""
        if self.servers is not None:
            return self.servers
        # 7 % of 100 is 7.000000000000001 in floating point, and still seven servers.
        return math.ceil((self.share or 0.0) * pool_servers - 1e-9)


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
