"""The process as the shell sees it: closed pipes, start-up, help and completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aryl.cli.main import run_command


def test_a_reader_that_has_seen_enough_is_not_an_accident() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", "from aryl.cli.main import main; main()", "--help"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_reader_that_leaves_after_the_results_is_not_an_accident_either(file: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", "from aryl.cli.main import main; main()", "simulate", str(file), "-o", "json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_help_and_completion_load_neither_numpy_nor_polars_nor_pydantic() -> None:
    code = "import sys, aryl.cli.main; print({'numpy', 'polars', 'pydantic', 'yaml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_exists_for_the_usual_shells(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from aryl.cli.main import main; main()", "--show-completion", shell],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert "_ARYL_COMPLETE" in done.stdout


def test_the_version_and_the_help_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out.startswith("aryl 0.")
    assert run_command(["simulate", "--help"]) == 0
    assert "--jobs-in-parallel" in capsys.readouterr().out
