"""Progress: how far each run is, told as it goes, and shown only where somebody is watching."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import ENTRY, LONG

from aryl.cli.parallel import Task, run_all
from aryl.sim.experiment_file import load_experiment


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "long.yaml"
    path.write_text(LONG.partition("sweep")[0], encoding="utf-8")
    return path


@pytest.mark.parametrize("processes", [1, 2])
def test_the_share_that_is_done_rises_to_one(file: Path, processes: int) -> None:
    experiment = load_experiment(file)
    reports: dict[int, list[float]] = {0: [], 1: []}
    texts: list[str] = []

    def report(index: int, share: float, text: str) -> None:
        reports[index].append(share)
        texts.append(text)

    run_all([Task(policy, experiment, policy) for policy in ("fifo", "fifo-skip")], processes, report)
    for shares in reports.values():
        assert shares == sorted(shares)
        assert shares
        assert 0.0 <= shares[0] < 1.0
        if processes == 1:
            assert shares[-1] == 1.0
    assert any(text.endswith("running") and "waiting" in text for text in texts)


def test_a_terminal_sees_bars_and_a_pipe_sees_none(file: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-c", ENTRY, "simulate", str(file), "--policy", "aryl", "-o", "csv"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        try:
            while part := os.read(ours, 4096):
                seen += part
        except OSError:  # how Linux says that nobody holds the other side any more
            pass
        os.close(ours)
        assert process.stdout is not None
        printed = process.stdout.read().decode()
    assert process.returncode == 0
    text = seen.decode()
    assert "aryl" in text
    assert "%" in text
    assert "running" in text
    assert [line.partition(",")[0] for line in printed.splitlines()] == ["policy", "aryl"]

    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
