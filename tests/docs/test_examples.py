"""Every file in examples/ runs and shows what its opening comment says."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

from aryl.cli.main import run_command
from aryl.wire.job_file import load_job_file

EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = os.environ.get("ARYL_DATA", "")
Runs = list[dict[str, Any]]


def simulate(capsys: pytest.CaptureFixture[str], name: str, *flags: str) -> Runs:
    """Run an example and return the summaries of its runs."""
    assert (
        run_command(["simulate", str(EXAMPLES / name), "-o", "json", "--jobs-in-parallel", "1", *flags]) == 0
    )
    runs: Runs = json.loads(capsys.readouterr().out)["runs"]
    return runs


def starts(folder: Path) -> dict[str, float]:
    """When each job first held GPUs."""
    with (folder / "jobs.csv").open(encoding="utf-8") as file:
        return {row["job_id"]: float(row["first_start_s"]) for row in csv.DictReader(file)}


# In folders of their own, and run by tests of their own: tests/train, tests/ray/test_serve_load.py and
# tests/ray/test_story.py, tests/live/test_testbed.py.
ELSEWHERE = ("train", "ray", "testbed")


def test_every_example_is_tested() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.iterdir() if f'"{path.name}"' not in source] == []


@pytest.mark.parametrize("file", sorted((EXAMPLES / "train").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_job_files_are_valid_and_run_a_script_that_is_there(file: Path) -> None:
    job = load_job_file(file)
    assert job.elastic
    assert (EXAMPLES / "train" / job.command[-1].split()[-1]).is_file()


def test_more_headroom_ends_the_shortfall_and_lends_less(capsys: pytest.CaptureFixture[str]) -> None:
    runs = simulate(capsys, "headroom-sweep.yaml")
    shortfalls = [run["inference_shortfall_server_s"] for run in runs]
    lent = [run["loaned_server_s"] / run["end_s"] for run in runs]
    assert shortfalls[0] > 0 == shortfalls[-1]
    assert lent == sorted(lent, reverse=True)


def test_a_server_failure_costs_the_elastic_job_no_attempt(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (run,) = simulate(capsys, "server-failure.yaml", "--out", str(tmp_path / "out"))
    with (tmp_path / "out" / "jobs.csv").open(encoding="utf-8") as file:
        elastic, inelastic = csv.DictReader(file)
    assert (run["finished"], run["preemptions"]) == (2, 0)
    assert (elastic["attempts"], elastic["lost_gpu_s"]) == ("1", "0")
    # Running since 60 s and saving every 300 s, it had last saved 240 s before 1500 s.
    assert (inelastic["attempts"], inelastic["lost_gpu_s"]) == ("2", str(240 * 8))


def test_a_long_job_waits_for_fast_gpus_and_a_short_one_does_not(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fifo, aryl = simulate(capsys, "mixed-gpus.yaml", "--out", str(tmp_path / "out"))
    under_aryl = starts(tmp_path / "out" / "aryl")
    assert under_aryl["short"] == 60
    assert under_aryl["long"] == 1800
    assert starts(tmp_path / "out" / "fifo")["long"] == 120
    assert aryl["jct_s"]["mean"] < fifo["jct_s"]["mean"]


@pytest.mark.real_trace
@pytest.mark.skipif(not DATA, reason="ARYL_DATA does not name a folder with the public traces")
def test_the_paper_setting_favours_lending_and_resizing_together(capsys: pytest.CaptureFixture[str]) -> None:
    fifo, *others = simulate(
        capsys, "paper-setting-itp.yaml", "--limit", "4000", "--policy", "fifo,aryl:loaning,aryl:scaling,aryl"
    )
    assert all(run["finished"] == run["jobs"] == 4000 for run in (fifo, *others))
    assert all(run["queuing_s"]["mean"] < fifo["queuing_s"]["mean"] for run in others)
    assert min(others, key=lambda run: run["jct_s"]["mean"])["policy"] == "aryl"
