"""The experiment file that most tests of the command line run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import THREE_GANGS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(THREE_GANGS, encoding="utf-8")
    return path
