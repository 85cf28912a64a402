"""A simulation that is stopped from outside: by a signal, a full disk or the death of one of its processes.

Whatever ends it, nothing half-written stays, and no process stays either.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.commands import ENTRY, LONG, left_in, started

PLACES = ["--out", "new/out", "--journal", "journal.jsonl", "--report", "page.html"]
PATIENCE_S = 60.0


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that the command has started for its runs."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "long.yaml").write_text(LONG, encoding="utf-8")
    return tmp_path


def under_way(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A long simulation of which at least one run has decided something already."""
    process = started(folder, "long.yaml", *PLACES, *arguments)

    def has_begun() -> bool:
        return any(path.stat().st_size > 0 for path in folder.glob(".journal.*.part-*"))

    wait_for(has_begun, process)
    assert (folder / "new").is_dir()
    return process


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize(
    ("number", "code", "message"), [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "")]
)
def test_a_signal_ends_a_simulation_without_traces(
    folder: Path, processes: str, number: signal.Signals, code: int, message: str
) -> None:
    with under_way(folder, "--jobs-in-parallel", processes) as process:
        workers = workers_of(process)
        assert len(workers) == (0 if processes == "1" else 2)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # a terminal sends Ctrl-C to the workers as well
        else:
            process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (code, "", message)
    assert left_in(folder) == ["long.yaml"]
    assert not any(map(is_alive, workers))


def test_a_process_that_is_killed_is_an_error_with_a_name_and_leaves_nothing_behind(folder: Path) -> None:
    with under_way(folder, "--jobs-in-parallel", "2") as process:
        workers = workers_of(process)
        os.kill(workers[1], signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("error: the process of aryl jobs.seed=")
    assert "ended before its run did (SIGKILL); perhaps memory ran out" in err
    assert err.count("\n") == 1
    assert left_in(folder) == ["long.yaml"]
    assert not any(map(is_alive, workers))


def test_a_disk_that_takes_no_more_is_exit_code_1_and_leaves_nothing_behind(folder: Path) -> None:
    # A limit on the size of files stands for a disk that fills up while the journal grows.
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n" + ENTRY
    with started(folder, "long.yaml", *PLACES, "--jobs-in-parallel", "1", entry=limited) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (1, "", "error: File too large\n")
    assert left_in(folder) == ["long.yaml"]


def test_the_processes_of_the_runs_leave_ctrl_c_to_the_command(folder: Path) -> None:
    with under_way(folder, "--jobs-in-parallel", "2") as process:
        workers = workers_of(process)
        for worker in workers:
            os.kill(worker, signal.SIGINT)
        time.sleep(0.3)
        assert workers_of(process) == workers
        assert process.poll() is None
        process.terminate()
        assert process.communicate(timeout=PATIENCE_S) == ("", "")
    assert left_in(folder) == ["long.yaml"]
