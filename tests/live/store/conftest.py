"""Every test of the store runs on both databases. One PostgreSQL server serves the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.store.databases import KINDS, Postgres, postgres_server

from aryl.live.store import Store


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that is still empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/aryl.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_url()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store.open(url)
    yield opened
    opened.close()
