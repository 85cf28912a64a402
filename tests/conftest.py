"""Invariants are checked after every event of every simulation that a test runs in its own process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _audit_every_event(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the test is marked as running real traces, which have too many events for that."""
    if "real_trace" not in request.keywords:
        monkeypatch.setattr("aryl.sim.run.EVENTS_PER_AUDIT", 1)
