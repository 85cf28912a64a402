"""A stand-in for the control plane, its address, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.stand_in_fixtures import room, served, url

from aryl.client import ArylClient

__all__ = ["client", "room", "served", "url"]


@pytest.fixture
def client(url: str) -> Iterator[ArylClient]:
    with ArylClient(url) as client:
        yield client
