"""An API with a real store and some tokens, in this process or over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.api.asking import PEOPLE, QUICK, Api
from tests.live.api.plain_control import PlainControl

from aryl.live.api import ApiServer, make_app
from aryl.live.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path / 'aryl.db'}")
    yield store
    store.close()


@pytest.fixture
def control(store: Store, tmp_path: Path) -> PlainControl:
    return PlainControl(store, tmp_path / "jobs")


@pytest.fixture
def tokens(store: Store) -> dict[str, str]:
    return {name: store.add_token(name, role, project) for name, (role, project) in PEOPLE.items()}


@pytest.fixture
def api(control: PlainControl, store: Store, tokens: dict[str, str]) -> Api:
    return Api(make_app(control, store, QUICK), tokens)


@pytest.fixture
def served(control: PlainControl, store: Store, tokens: dict[str, str]) -> Iterator[ApiServer]:
    server = ApiServer(make_app(control, store, QUICK), "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()
