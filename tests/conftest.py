"""Invariants are checked after every event of every simulation that a test runs in its own process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _audit_every_event(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the test is marked as running real traces, which have too many events for that."""
    if "real_trace" not in request.keywords:
        monkeypatch.setattr("aryl.sim.run.EVENTS_PER_AUDIT", 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that send a signal to their own process come first, before the process is full of native
    libraries and their threads: two of them ended it late in a whole run.
    """
    items.sort(key=lambda item: item.path.name != "test_session.py")
