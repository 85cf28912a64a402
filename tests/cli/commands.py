"""What the tests of `aryl simulate` share: experiments that can be checked by hand, and how to run commands.

Three gangs that each need the one server. A (10 min) comes at 0, B (30 min) at 1 min, C (5 min) at 2 min.
In order of submission, B starts at 10 min and C at 40; with the shortest first, C at 10 min and B at 15.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aryl.cli.main import run_command

THREE_GANGS = """\
cluster: {training: {servers: 1}}
jobs:
  - {id: A, workers: 8, duration: 10m}
  - {id: B, submit: 1m, workers: 8, duration: 30m}
  - {id: C, submit: 2m, workers: 8, duration: 5m}
policies: [fifo, sjf, aryl]
"""

# Everything in an output folder of one run.
RUN_FILES = [
    "demand.csv",
    "jobs.csv",
    "loans.csv",
    "report.html",
    "schedule.csv",
    "summary.json",
    "trace.json",
]

# Long enough to be interrupted: a run takes about a second.
LONG = """\
cluster: {training: {servers: 22}}
jobs: {trace: synthetic-small, scenario: ideal}
policies: [aryl]
sweep: {"jobs.seed": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}
"""

# Tests that run in the background have Ctrl-C switched off, and children inherit that.
ENTRY = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from aryl.cli.main import main
main()
"""


def simulated(*arguments: object) -> int:
    """The exit code of `aryl simulate` with these arguments, run in this process."""
    return run_command(["simulate", *map(str, arguments)])


def started(folder: Path, *arguments: str, entry: str = ENTRY) -> subprocess.Popen[str]:
    """`aryl simulate` with these arguments, running in `folder` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", entry, "simulate", *arguments],
        cwd=folder,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def runs_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The runs that were printed as JSON."""
    printed: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["runs"]
    return printed


def without_wall_times(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs without what differs from one time to the next: how long they took."""
    return [{key: value for key, value in run.items() if not key.endswith("wall_s")} for run in runs]


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def left_in(folder: Path) -> list[str]:
    """Every file and folder below `folder`."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
