"""What a job file means, and that nothing of it is lost on the way to the server and back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given, settings
from tests.wire.job_files import FULL, good_jobs

from aryl.core.speedup import Amdahl
from aryl.wire.job_file import JobFile, job_file_from_mapping, load_job_file, to_mapping

SMALL: dict[str, Any] = {"name": "a", "run": "true", "workdir": "/srv"}
SCHEMA = jsonschema_rs.validator_for(JobFile.model_json_schema())


def job(**changes: Any) -> JobFile:
    return job_file_from_mapping({**SMALL, **changes})


def test_the_file_of_the_reference_is_read_in_seconds_bytes_and_absolute_paths(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(FULL, encoding="utf-8")
    read = load_job_file(file)
    assert read.name == "resnet"
    assert read.command == ("/bin/sh", "-c", "python train.py --data /data")
    assert read.workdir == str(tmp_path)
    assert read.env == {"EPOCHS": "3", "LR": "0.1"}
    assert (read.workers.min, read.workers.max, read.workers.sizes, read.elastic) == (2, 8, None, True)
    assert read.gpu_types == {"V100": 1.0, "T4": 0.33}
    assert (read.estimate, read.priority, read.project, read.user) == (7200.0, 0, "vision", None)
    assert read.checkpoint is not None
    assert read.checkpoint_dir == str(tmp_path / "ckpt")
    assert (read.checkpoint.signal, read.checkpoint.grace_s, read.checkpoint.every) == ("USR1", 90.0, 600.0)
    assert (read.resources.memory, read.resources.cpus) == (4 * 2**30, 2.0)
    assert read.max_failures == 3


def test_what_is_left_out_has_the_documented_default(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("run: [python, train.py, 3]\n", encoding="utf-8")
    read = load_job_file(file)
    assert (read.name, read.workdir, read.command) == ("train", str(tmp_path), ("python", "train.py", "3"))
    assert (read.workers.min, read.workers.max, read.elastic) == (1, 1, False)
    assert (read.gpus_per_worker, read.gpu_types, read.launcher) == (1, None, "process")
    assert (read.checkpoint, read.checkpoint_dir, read.max_failures) == (None, None, 3)
    assert (read.resources.memory, read.resources.cpus) == (None, None)


def test_a_key_without_a_value_is_a_key_left_out() -> None:
    empty = {key: None for key in JobFile.known_keys() if key not in SMALL}
    assert job(**empty) == job()
    assert job(checkpoint={"dir": None, "grace": None}, resources={"memory": None}) == job(checkpoint={})


@pytest.mark.parametrize(
    ("written", "workers"),
    [
        (4, (4, 4, None)),
        ([2, 8], (2, 8, None)),
        ({"min": 2, "max": 8, "sizes": [2, 4, 8]}, (2, 8, (2, 4, 8))),
        ({"sizes": [2, 4]}, (2, 4, (2, 4))),
    ],
)
def test_workers_are_read_in_every_form(written: object, workers: tuple[object, ...]) -> None:
    read = job(workers=written, checkpoint={}).workers
    assert (read.min, read.max, read.sizes) == workers


@pytest.mark.parametrize(
    ("written", "grace_s", "term_s"),
    [
        ({"signal": "USR1"}, 90.0, 30.0),
        ({"signal": "SIGTERM", "grace": "30s"}, 30.0, 10.0),
        ({"signal": "HUP", "grace": "10m"}, 600.0, 30.0),
        ({"signal": "INT", "grace": 60, "term": 0}, 60.0, 0.0),
    ],
)
def test_a_signal_comes_long_enough_before_the_end(
    written: dict[str, object], grace_s: float, term_s: float
) -> None:
    checkpoint = job(checkpoint=written).checkpoint
    assert checkpoint is not None
    assert (checkpoint.grace_s, checkpoint.term_s) == (grace_s, term_s)
    assert checkpoint.signal == str(written["signal"]).removeprefix("SIG")


def test_workers_may_join_a_torchft_job_without_checkpoints() -> None:
    assert job(workers=[1, 4], launcher="torchft").checkpoint is None


def test_a_speedup_is_written_as_in_experiments() -> None:
    speedup = job(speedup={"amdahl": "5%"}).speedup
    assert speedup is not None
    assert speedup.curve() == Amdahl(0.05)
    assert job(speedup="linear").speedup is None


@pytest.mark.parametrize(
    ("workdir", "folder", "expected"),
    [
        ("/srv/a/../b//c/.", "x", ("/srv/b/c", "/srv/b/c/x")),
        ("//srv", "./a/../b", ("/srv", "/srv/b")),
        ("/srv", "/srv/deep/er", ("/srv", "/srv/deep/er")),
        ("/srv", ".", ("/srv", "/srv")),
        ("/", "ckpt", ("/", "/ckpt")),
    ],
)
def test_paths_are_cleaned(workdir: str, folder: str, expected: tuple[str, str]) -> None:
    read = job(workdir=workdir, checkpoint={"dir": folder})
    assert (read.workdir, read.checkpoint_dir) == expected


def test_a_relative_workdir_is_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner" / "job.yaml"
    file.write_text("run: 'true'\nworkdir: ../data\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_job_file(file).workdir == str(tmp_path / "data")
    assert load_job_file("inner/job.yaml").workdir == str(tmp_path / "data")
    assert load_job_file(file, ["workdir=/else"]).workdir == "/else"


def test_settings_lie_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(FULL, encoding="utf-8")
    settings = ["workers=4", "env.EPOCHS='9'", "checkpoint.grace=1m", "resources.memory=1GiB", "name=b"]
    read = load_job_file(file, settings)
    assert (read.name, read.workers.max, read.env["EPOCHS"], read.env["LR"]) == ("b", 4, "9", "0.1")
    assert read.checkpoint is not None
    assert (read.checkpoint.grace_s, read.checkpoint.signal) == (60.0, "USR1")
    assert read.resources.memory == 2**30


def test_a_command_may_hold_what_a_shell_would_read() -> None:
    text = "echo \"$HOME\" 'a b' | tee x; exit $?\nwait `true` && { :; }\n"
    assert job(run=text).command == ("/bin/sh", "-c", text)
    vector = ["echo", "$HOME; rm -rf *", "", "a\nb", "`id`"]
    assert job(run=vector).command == tuple(vector)
    assert job(env={"A": "$(id)\n;", "LD_PRELOAD": "x.so"}).env == {"A": "$(id)\n;", "LD_PRELOAD": "x.so"}


@given(good_jobs())
@settings(deadline=None, max_examples=100)
def test_a_job_survives_every_way_of_sending_it(written: dict[str, Any]) -> None:
    read = job_file_from_mapping(written)
    assert job_file_from_mapping(to_mapping(read)) == read
    assert job_file_from_mapping(json.loads(json.dumps(to_mapping(read)))) == read
    assert job_file_from_mapping(json.loads(read.model_dump_json())) == read
    assert (
        job_file_from_mapping(yaml.safe_load(yaml.safe_dump(to_mapping(read), allow_unicode=False))) == read
    )


@given(good_jobs())
@settings(deadline=None, max_examples=100)
def test_the_description_for_apis_fits_what_is_taken(written: dict[str, Any]) -> None:
    # Only the long form of a speed-up is described; `linear` is what a job has anyway.
    described = {key: value for key, value in written.items() if value != "linear"}
    described.pop("env", None)  # JSON has no infinity
    SCHEMA.validate(described)
    SCHEMA.validate(json.loads(job_file_from_mapping(written).model_dump_json()))


def test_a_file_may_lie_in_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a b$(id);'\""
    folder.mkdir()
    (folder / "my job.yaml").write_text("name: a\nrun: 'true'\n", encoding="utf-8")
    assert load_job_file(folder / "my job.yaml").workdir == os.fspath(folder)
