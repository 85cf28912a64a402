"""The experiment file that most tests of the command line run, and a live cluster for the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import THREE_GANGS
from tests.cli.live_commands import Commands
from tests.client.stand_in_fixtures import room, served, url

__all__ = ["aryl", "file", "room", "served", "url"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(THREE_GANGS, encoding="utf-8")
    return path


@pytest.fixture
def aryl(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(url, tmp_path, capsys)
