"""Fixtures of a stand-in for the control plane, for several folders of tests.

Putting an API together takes a while, so the tests of a module share one; what is behind it is new for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.stand_in import StandIn, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StandIn, str]]:
    room = StandIn(tmp_path_factory.mktemp("state"))
    with serving(room) as url:
        yield room, url


@pytest.fixture
def room(served: tuple[StandIn, str], tmp_path: Path) -> StandIn:
    served[0].reset(tmp_path / "state")
    return served[0]


@pytest.fixture
def url(served: tuple[StandIn, str], room: StandIn, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ARYL_SERVER", served[1])
    monkeypatch.delenv("ARYL_TOKEN", raising=False)
    return served[1]
