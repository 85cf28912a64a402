"""Invariants are checked after every event of every simulation that a test runs in its own process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.ray.raylets import RayServer, RayServers


@pytest.fixture(autouse=True)
def _audit_every_event(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the test is marked as running real traces, which have too many events for that."""
    if "real_trace" not in request.keywords:
        monkeypatch.setattr("aryl.sim.run.EVENTS_PER_AUDIT", 1)


@pytest.fixture(scope="session")
def six_servers() -> Iterator[RayServers]:
    """A Ray cluster of 4 training and 2 inference servers with 8 declared GPUs each, which nobody hurts."""
    training = [RayServer(f"T{number}") for number in range(1, 5)]
    inference = [RayServer(f"I{number}", "inference", "T4") for number in range(1, 3)]
    with RayServers([*training, *inference], client=True) as cluster:
        yield cluster
