"""How hard to look: `HYPOTHESIS_PROFILE=thorough` for a long search; else a short one, always the same."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
settings.register_profile(
    "quick", max_examples=40, deadline=None, derandomize=True, suppress_health_check=_SLOW
)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
