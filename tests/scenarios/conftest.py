"""Runs the scenario files of this folder through the engine, each once a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from aryl.testing import Record, run_scenario

FOLDER = Path(__file__).parent

Play = Callable[..., Record]


@cache
def _play(name: str, policy: str | None, overrides: tuple[str, ...]) -> Record:
    return run_scenario(FOLDER / f"{name}.yaml", policy, overrides=overrides)


@pytest.fixture
def play() -> Play:
    """`play(name, policy=None, *overrides)`: the record of a scenario file, every check on."""

    def run(name: str, policy: str | None = None, *overrides: str) -> Record:
        return _play(name, policy, overrides)

    return run
