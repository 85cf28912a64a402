"""The process as the shell sees it: signals, closed pipes, start-up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# An engine that says that it runs and then never ends, in place of the real one. Tests that run in the
# background have Ctrl-C switched off, and children inherit that.
ENDLESS = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from types import ModuleType
for name, content in {
    "aryl.sim.run": {"run": lambda *a, **k: (print("running", flush=True), time.sleep(60))},
    "aryl.policies.catalogue": {"parse_policy": str},
    "aryl.report.page": {"write_page": None},
}.items():
    sys.modules[name] = ModuleType(name)
    vars(sys.modules[name]).update(content)
from aryl.cli.main import main
sys.argv = ["aryl", "simulate", "small.yaml", "--out", "new/out", "--journal", "journal.jsonl"]
main()
"""
FILE = "cluster: {training: {servers: 2}}\njobs: [{id: A, workers: 4, duration: 10m}]\npolicies: [fifo]\n"


@pytest.mark.parametrize(
    ("number", "code", "message"), [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "")]
)
def test_a_signal_ends_a_simulation_without_traces(
    tmp_path: Path, number: signal.Signals, code: int, message: str
) -> None:
    (tmp_path / "small.yaml").write_text(FILE, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        assert (tmp_path / "new").exists()
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, message)
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


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
