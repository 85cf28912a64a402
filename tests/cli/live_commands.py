"""How the tests of the commands for a live cluster run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aryl.cli.main import run_command

JOB = """\
name: resnet
run: python train.py
workers: 2
project: vision
"""

ENTRY = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from aryl.cli.main import main
main()
"""


class Commands:
    """Runs `aryl` in this process, or in one of its own, with a server in its environment."""

    def __init__(self, url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._url, self._capsys = url, capsys
        self.file = folder / "job.yaml"
        self.file.write_text(JOB, encoding="utf-8")
        self.out = self.err = ""

    def __call__(self, *arguments: object) -> int:
        """The exit code; what was printed is in `out` and `err`."""
        code = run_command([str(argument) for argument in arguments])
        self.out, self.err = self._capsys.readouterr()
        return code

    def json(self, *arguments: object) -> Any:
        """What is printed as JSON by a command that succeeds."""
        assert self(*arguments, "-o", "json") == 0, self.err
        return json.loads(self.out)

    def start(self, *arguments: str, **other: Any) -> subprocess.Popen[str]:
        """`aryl` in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", ENTRY, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ARYL_SERVER": self._url, **other},
        )
