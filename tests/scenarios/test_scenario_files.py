"""Every scenario file of this folder can be run by a user as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aryl.cli.main import app
from aryl.sim.experiment_file import load_experiment

FILES = sorted(Path(__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_command_line_runs_the_file_with_its_policies(file: Path) -> None:
    result = CliRunner().invoke(app, ["simulate", str(file), "-o", "json"])
    assert result.exit_code == 0, result.output
    runs = json.loads(result.stdout)["runs"]
    assert [run["policy"] for run in runs] == load_experiment(file).policies


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_file_says_what_must_happen_and_checks_every_event(file: Path) -> None:
    line, *_ = file.read_text(encoding="utf-8").splitlines()
    name = file.stem.partition("-")[0]
    assert re.match(rf"# {name}[.,] \w", line), line
    assert load_experiment(file).simulation.check
