from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.train.gangs import wait_until

from aryl.train import Checkpoint, Checkpoints, Environment, Session


def test_the_latest_checkpoint_is_the_one_of_the_highest_step(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "deep" / "folder")
    assert checkpoints.latest() is None
    checkpoints.save(9, b"nine")
    checkpoints.save(10, b"ten")
    checkpoints.save(2, b"two")
    latest = checkpoints.latest()
    assert latest is not None
    assert (latest.step, latest.path.read_bytes()) == (10, b"ten")


def test_the_newest_few_are_kept_and_other_files_left_alone(tmp_path: Path) -> None:
    (tmp_path / "step-notes.txt").write_text("mine", encoding="utf-8")
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in range(1, 6):
        checkpoints.save(step, b"x")
    assert [checkpoint.step for checkpoint in checkpoints.all()] == [4, 5]
    assert sorted(os.listdir(tmp_path)) == ["step-0000000004", "step-0000000005", "step-notes.txt"]


def test_a_checkpoint_may_be_a_folder(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        (path / "shards").mkdir(parents=True)
        (path / "shards" / "0").write_bytes(b"zero")

    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, write)
    saved = checkpoints.save(2, write)
    assert (saved.path / "shards" / "0").read_bytes() == b"zero"
    assert checkpoints.all() == [saved]


def test_a_step_that_is_saved_already_is_left_as_it_is(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    first = checkpoints.save(7, b"first")
    assert checkpoints.save(7, b"second") == first
    assert first.path.read_bytes() == b"first"


def test_two_workers_that_save_the_same_folder_at_once_leave_one(tmp_path: Path) -> None:
    ours, theirs = Checkpoints(tmp_path), Checkpoints(tmp_path)

    def write(path: Path) -> None:
        path.mkdir()
        (path / "who").write_bytes(b"ours")
        theirs.save(3, _write_theirs)  # the other is faster

    def _write_theirs(path: Path) -> None:
        path.mkdir()
        (path / "who").write_bytes(b"theirs")

    saved = ours.save(3, write)
    assert (saved.path / "who").read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == [saved.path.name]


def test_a_save_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_bytes(b"half")
        raise ValueError("the disk is full")

    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(ValueError, match="the disk is full"):
        checkpoints.save(1, write)
    assert os.listdir(tmp_path) == []


WRITES_FOREVER = """
import sys, time
from pathlib import Path
from aryl.train import Checkpoints

def write(path):
    with path.open("wb") as file:
        while True:
            file.write(b"x" * 100_000)
            file.flush()
            time.sleep(0.001)

Checkpoints(Path(sys.argv[1])).save(5, write)
"""


def test_what_a_killed_worker_left_half_written_is_never_seen_and_removed_a_day_later(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(4, b"whole")
    worker = subprocess.Popen([sys.executable, "-c", WRITES_FOREVER, str(tmp_path)])
    try:
        wait_until(lambda: any(p.stat().st_size for p in tmp_path.glob("partial-*")), "a partial file")
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert checkpoints.latest() == Checkpoint(4, tmp_path / "step-0000000004")
    checkpoints.save(6, b"whole")
    [partial] = tmp_path.glob("partial-*")  # it might be another worker's that is still at it
    day_before_yesterday_s = time.time() - 2 * 86_400
    os.utime(partial, (day_before_yesterday_s, day_before_yesterday_s))
    checkpoints.save(7, b"whole")
    assert [checkpoint.step for checkpoint in checkpoints.all()] == [4, 6, 7]
    assert len(os.listdir(tmp_path)) == 3


def test_load_latest_gives_step_and_content(tmp_path: Path) -> None:
    session = Session(Environment(checkpoint_dir=tmp_path))
    assert session.load_latest(Path.read_bytes) is None
    session.save(12, b"twelve")
    assert session.load_latest(Path.read_bytes) == (12, b"twelve")
