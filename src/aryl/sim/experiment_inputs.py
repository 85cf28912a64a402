"""The small models around the inputs: how wrong the estimates are, and how often servers fail."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from aryl.files.fields import Nonnegative, PositiveSeconds, Share, Strict, fault

ERROR_FORMS = "a factor such as 10x or a share such as 50%"


class EstimateError(Strict):
    """A wrong estimate differs by up to `share` of the true time; `10x`, ten times the truth, is 9.0."""

    share: Nonnegative

    @model_validator(mode="before")
    @classmethod
    def _take_short_forms(cls, value: Any) -> Any:
        if isinstance(value, Mapping | EstimateError):
            return value
        if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+\.?\d*)\s*x\s*", value)):
            factor = float(match[1])
            if factor < 1:
                raise fault("wrong value", expected="a factor of at least 1, such as 10x")
            return {"share": factor - 1}
        if isinstance(value, str) and "%" in value:
            return {"share": value}
        raise fault("wrong value", expected=ERROR_FORMS)


class EstimatesConfig(Strict):
    """The shares of jobs with a `wrong` and with a `missing` estimate, and how wrong one may be (`error`)."""

    wrong: Share = 0.0
    error: EstimateError = EstimateError(share=0.5)
    missing: Share = 0.0

    @model_validator(mode="after")
    def _shares_add_up(self) -> EstimatesConfig:
        if self.wrong + self.missing > 1 + 1e-9:
            raise fault("wrong and missing add up to more than 100%", "missing", found=self.missing)
        return self


class FailuresConfig(Strict):
    """How often a server fails and how long it stays away, both on average (exponentially distributed)."""

    every: PositiveSeconds
    lasting: PositiveSeconds
