"""From a job file to what is scheduled and what is run, and where a job may work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.wire.job_files import FULL, good_jobs

from aryl.backends.port import Launcher, Program
from aryl.core.model import JobSpec
from aryl.core.speedup import Amdahl
from aryl.errors import InputError
from aryl.live.submission import confined, confined_workdir, to_program, to_spec
from aryl.wire.job_file import JobFile, job_file_from_mapping, load_job_file

STATE = Path("/var/aryl")
BOTH = {"V100": 1.0, "T4": 0.33}


def job(**changes: Any) -> JobFile:
    return job_file_from_mapping({"name": "a", "run": "true", "workdir": "/srv", **changes})


def spec(written: JobFile, *inference_types: str) -> JobSpec:
    return to_spec(written, "a-7", 7, 12.5, frozenset(inference_types))


def program(written: JobFile, kill_wait_s: float = 10.0) -> Program:
    return to_program(written, "a-7", STATE, kill_wait_s)


def test_the_file_of_the_reference_becomes_a_job_and_a_program(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(FULL, encoding="utf-8")
    written = load_job_file(file)
    assert to_spec(written, "resnet-7", 7, 12.5, frozenset({"T4"})) == JobSpec(
        job_id="resnet-7",
        sequence=7,
        submit_s=12.5,
        min_workers=2,
        max_workers=8,
        gpus_per_worker=1,
        estimate_s=7200.0,
        project="vision",
        gpu_types=(("V100", 1.0), ("T4", 0.33)),
        fungible=True,
        mixed_efficiency=0.7,
        checkpoint_s=600.0,
        max_failures=3,
    )
    assert to_program(written, "resnet-7", STATE, 10.0) == Program(
        command=("/bin/sh", "-c", "python train.py --data /data"),
        workdir=str(tmp_path),
        env=(("EPOCHS", "3"), ("LR", "0.1")),
        launcher=Launcher.PROCESS,
        checkpoint_dir=str(tmp_path / "ckpt"),
        notice_signal="USR1",
        grace_s=90.0,
        term_s=30.0,
        memory_bytes=4 * 2**30,
        cpus=2.0,
    )


def test_a_job_of_few_words_has_no_limits_and_never_saves() -> None:
    assert spec(job()) == JobSpec("a-7", 7, 12.5, 1, 1, mixed_efficiency=0.7, max_failures=3)
    assert program(job()) == Program(
        ("/bin/sh", "-c", "true"), "/srv", checkpoint_dir="/var/aryl/jobs/a-7/checkpoint"
    )


@pytest.mark.parametrize(
    ("gpu_types", "inference_types", "fungible"),
    [
        (None, ("T4",), False),
        ({"T4": 1.0}, ("T4",), False),
        (BOTH, ("T4",), True),
        (BOTH, ("T4", "L4"), True),
        (BOTH, ("L4",), False),
        (BOTH, (), False),
    ],
)
def test_two_types_with_one_of_inference_make_a_job_fungible(
    gpu_types: dict[str, float] | None, inference_types: tuple[str, ...], fungible: bool
) -> None:
    assert spec(job(gpu_types=gpu_types), *inference_types).fungible is fungible


def test_all_that_a_file_may_say_arrives() -> None:
    written = job(
        workers={"sizes": [2, 4]},
        checkpoint={"every": "5m"},
        gpus_per_worker=3,
        heterogeneous=True,
        mixed_efficiency="90%",
        speedup={"amdahl": 0.25},
        priority=-4,
        user="ada",
        max_failures=9,
    )
    arrived = spec(written)
    assert (arrived.min_workers, arrived.max_workers, arrived.sizes) == (2, 4, (2, 4))
    assert (arrived.gpus_per_worker, arrived.heterogeneous, arrived.mixed_efficiency) == (3, True, 0.9)
    assert (arrived.speedup, arrived.priority, arrived.user) == (Amdahl(0.25), -4, "ada")
    assert (arrived.checkpoint_s, arrived.max_failures, arrived.estimate_s) == (300.0, 9, None)


@pytest.mark.parametrize(
    ("checkpoint", "patience"),
    [
        (None, ("", 20.0, 20.0)),
        ({"every": "5m"}, ("", 20.0, 20.0)),
        ({"term": 40}, ("", 40.0, 40.0)),
        ({"signal": "USR2"}, ("USR2", 90.0, 30.0)),
        ({"signal": "SIGHUP", "grace": 60, "term": 5}, ("HUP", 60.0, 5.0)),
    ],
)
def test_only_a_program_that_saves_on_notice_gets_more_time(
    checkpoint: object, patience: tuple[str, float, float]
) -> None:
    made = program(job(checkpoint=checkpoint), kill_wait_s=20.0)
    assert (made.notice_signal, made.grace_s, made.term_s) == patience


@pytest.mark.parametrize("launcher", list(Launcher))
def test_every_launcher_can_be_asked_for(launcher: Launcher) -> None:
    assert program(job(launcher=launcher.value)).launcher is launcher


@given(good_jobs())
@settings(deadline=None, max_examples=100)
def test_every_good_job_can_be_scheduled_and_run(written: dict[str, Any]) -> None:
    read = job_file_from_mapping(written)
    made, known = program(read), spec(read, "T4")
    assert hash(made) == hash(program(read))
    assert hash(known) == hash(spec(read, "T4"))
    assert 0.0 <= made.term_s <= made.grace_s
    assert all(isinstance(argument, str) for argument in made.command)
    assert os.path.isabs(made.workdir)
    assert os.path.isabs(made.checkpoint_dir)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder where jobs may work, with a neighbour where they may not."""
    for folder in ("jobs/mine/deep", "jobs-not", "other/secret"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "jobs" / "file").touch()
    return tmp_path / "jobs"


def refusal(workdir: str, roots: list[Path]) -> str:
    with pytest.raises(InputError) as caught:
        confined_workdir(workdir, roots)
    return str(caught.value)


def test_a_folder_inside_is_found_as_it_really_is(root: Path) -> None:
    (root / "link").symlink_to(root / "mine")
    (root.parent / "way-in").symlink_to(root)
    for path in (
        root / "mine",
        root / "link",
        root / "mine" / ".." / "mine",
        root.parent / "way-in" / "mine",
    ):
        assert confined_workdir(str(path), [root]) == root / "mine"
    assert confined_workdir(str(root), [root]) == root
    assert confined_workdir(str(root / "mine"), [root.parent / "way-in"]) == root / "mine"
    assert confined_workdir(str(root / "mine"), [root.parent / "other", root]) == root / "mine"
    assert confined_workdir(str(root), [Path("/")]) == root


@pytest.mark.parametrize(
    "inside",
    ["../other", "../jobs-not", "out", "deep-out", "mine/../../other", "out/none", "../none", "/etc"],
)
def test_no_way_leads_outside(root: Path, inside: str) -> None:
    (root / "out").symlink_to(root.parent / "other")
    (root / "deep-out").symlink_to("mine/../../other/secret")
    path = os.path.join(root, inside)
    assert refusal(path, [root]) == (
        f"workdir: not in a folder where jobs may work (found '{path}'); "
        f"expected an absolute path inside {root}"
    )


def test_what_is_no_folder_is_refused(root: Path) -> None:
    (root / "loop").symlink_to(root / "loop")
    (root / "dangling").symlink_to(root / "nothing")
    none, file, loop, dangling = (str(root / name) for name in ("none", "file", "loop", "dangling"))
    assert refusal(none, [root]) == f"workdir: no such folder (found '{none}')"
    assert refusal(dangling, [root]) == f"workdir: no such folder (found '{dangling}')"
    assert refusal(file, [root]) == f"workdir: not a folder (found '{file}')"
    assert refusal(file + "/x", [root]) == f"workdir: can't be used: Not a directory (found '{file}/x')"
    assert refusal(loop, [root]).startswith("workdir: can't be used: Too many levels of symbolic links")
    long = str(root / ("a" * 300))
    assert refusal(long, [root]) == f"workdir: can't be used: File name too long (found '{long}')"


@pytest.mark.parametrize("path", ["a\0b", "/\ud800", "", "relative"])
def test_what_can_be_no_path_is_refused(root: Path, path: str) -> None:
    assert refusal(path, [root]).startswith("workdir: not ")


def test_a_relative_path_is_not_taken_from_where_the_server_runs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    assert "not in a folder where jobs may work" in refusal("mine", [root])


def test_without_a_folder_to_work_in_nothing_is_allowed(root: Path) -> None:
    assert refusal(str(root), []) == (
        f"workdir: not in a folder where jobs may work (found '{root}'); "
        "expected an absolute path inside no folder"
    )


def test_a_confined_job_has_its_real_paths(root: Path) -> None:
    (root / "link").symlink_to(root / "mine")
    relative = confined(job(workdir=f"{root}/link", checkpoint={"dir": "ckpt", "signal": "USR1"}), [root])
    assert (relative.workdir, relative.checkpoint_dir) == (f"{root}/mine", f"{root}/mine/ckpt")
    absolute = confined(job(workdir=f"{root}/link", checkpoint={"dir": f"{root}/link/ckpt"}), [root])
    assert (absolute.workdir, absolute.checkpoint_dir) == (f"{root}/mine", f"{root}/mine/ckpt")
    assert confined(absolute, [root]) == absolute
    plain = confined(job(workdir=f"{root}/link", run=["a", "b"], env={"A": 1}), [root])
    assert plain == job(workdir=f"{root}/mine", run=["a", "b"], env={"A": 1})


def test_checkpoints_may_not_lead_outside_either(root: Path) -> None:
    (root / "mine" / "out").symlink_to(root.parent / "other")
    (root / "mine" / "store").symlink_to(root)
    (root / "mine" / "taken").touch()
    inside = confined(job(workdir=f"{root}/mine", checkpoint={"dir": "store"}), [root])
    assert inside.checkpoint_dir == f"{root}/mine/store"
    for folder in ("out", "out/new", "store/../../other"):
        with pytest.raises(InputError) as caught:
            confined(job(workdir=f"{root}/mine", checkpoint={"dir": folder}), [root])
        assert caught.value.field == "checkpoint.dir"
    with pytest.raises(InputError) as caught:
        confined(job(workdir=f"{root}/mine", checkpoint={"dir": "taken"}), [root])
    assert str(caught.value) == "checkpoint.dir: not a folder (found 'taken')"


def test_a_folder_whose_real_name_no_file_could_say_is_refused(root: Path) -> None:
    strange = os.fsencode(root) + b"/\xff"
    os.mkdir(strange)
    (root / "link").symlink_to(os.fsdecode(strange))
    with pytest.raises(InputError) as caught:
        confined(job(workdir=f"{root}/link"), [root])
    assert str(caught.value) == (
        f"workdir: wrong value (found '{root}/\\udcff'); expected a path without control characters"
    )
