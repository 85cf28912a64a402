"""`aryl compare`: the same jobs under several policies, in tables and as data."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from aryl.cli.main import run_command

SMALL = ("--trace", "synthetic-small", "--limit", "60", "--training-servers", "6")
LENT = (*SMALL, "--curve", "synthetic-day", "--inference-servers", "6", "--scenario", "basic")


class Said(NamedTuple):
    stdout: str
    stderr: str


Run = Callable[..., Said]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_it(*words: str, code: int = 0) -> Said:
        assert run_command([*words, "--jobs-in-parallel", "1"]) == code
        return Said(*capsys.readouterr())

    return run_it


def test_the_first_policy_is_what_the_others_are_compared_with(run: Run) -> None:
    data = json.loads(run("compare", "fifo", "sjf", "aryl", *LENT, "-o", "json").stdout)
    assert [one["policy"] for one in data["runs"]] == ["fifo", "sjf", "aryl"]
    assert {(row["first"], row["second"]) for row in data["pairs"]} == {("fifo", "sjf"), ("fifo", "aryl")}
    mean_s = {one["policy"]: one["jct_s"]["mean"] for one in data["runs"]}
    for row in data["pairs"]:
        if row["by"] == "all":
            assert row["jobs"] == 60
            assert row["difference_s"] == pytest.approx(mean_s[row["second"]] - mean_s["fifo"])
            assert row["low_s"] <= row["difference_s"] <= row["high_s"]


def test_sizes_add_up_to_all(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("compare", "fifo", "sjf", *SMALL, "-o", "csv").stdout)))
    sizes = [row for row in rows if row["by"] == "size"]
    assert sum(int(row["jobs"]) for row in sizes) == 60
    whole = sum(int(row["jobs"]) * float(row["difference_s"]) for row in sizes)
    assert whole / 60 == pytest.approx(float(rows[0]["difference_s"]))


def test_people_see_what_is_possible_and_who_pays(run: Run) -> None:
    ran = run("compare", "fifo", "sjf", *SMALL)
    assert "over bound" in ran.stdout
    assert "longest wait" in ran.stdout
    assert "sjf against fifo" in ran.stdout
    assert "no scheduler's mean JCT is less than that of fifo by a factor above" in ran.stderr


def test_each_seed_is_a_run_of_its_own(run: Run) -> None:
    data = json.loads(run("compare", "fifo", "aryl", *LENT, "--seeds", "1,2", "-o", "json").stdout)
    assert [(one["policy"], one["seed"]) for one in data["runs"]] == [
        ("fifo", 1),
        ("fifo", 2),
        ("aryl", 1),
        ("aryl", 2),
    ]
    assert next(row["jobs"] for row in data["pairs"] if row["by"] == "all") == 120


def test_a_file_says_everything_but_the_policies(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(
        "cluster: {training: {servers: 1}}\npolicies: [srtf]\n"
        "jobs:\n- {id: A, workers: 8, duration: 10m}\n- {id: B, submit: 1, workers: 8, duration: 1m}\n"
    )
    data = json.loads(run("compare", "fifo", "sjf", "--file", str(path), "-o", "json").stdout)
    assert [one["policy"] for one in data["runs"]] == ["fifo", "sjf"]
    assert all(row["difference_s"] == 0.0 for row in data["pairs"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("fifo",), "needs two policies or more"),
        (("fifo", "arly"), "did you mean 'aryl'"),
        (("fifo", "fifo"), "given twice"),
        (("fifo", "aryl", "--seeds", "1,x"), "--seeds"),
        (("fifo", "aryl", "--seeds", "1,1"), "--seeds"),
    ],
)
def test_what_cant_be_compared_is_refused(run: Run, words: tuple[str, ...], complaint: str) -> None:
    refused = run("compare", *words, *SMALL, code=2)
    assert complaint in refused.stderr
    assert refused.stdout == ""


def test_jobs_that_never_finish_leave_dashes_and_no_nonsense(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("cluster: {training: {servers: 1}}\njobs:\n- {id: A, workers: 16, duration: 10m}\n")
    said = run("compare", "fifo", "sjf", "--file", str(path))
    assert "nan" not in said.stdout + said.stderr
    assert "by a factor" not in said.stderr
