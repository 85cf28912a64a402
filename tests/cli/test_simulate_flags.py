"""The flags of `aryl simulate`: they lie over the file or replace it, and what is wrong in them is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import left_in, runs_of, simulated

from aryl.sim.experiment_file import load_experiment


def test_flags_lie_over_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(file, "--policy", "aryl", "--seed", 7, "--set", "name=other", "-o", "json") == 0
    ((run),) = runs_of(capsys)
    assert (run["policy"], run["seed"], run["trace"]) == ("aryl", 7, "other")


def test_a_flag_changes_what_is_simulated(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(file, "--policy", "fifo", "--training-servers", 2, "-o", "json") == 0
    # B finds the second server at once, and C the first one at 10 min.
    assert runs_of(capsys)[0]["queuing_s"]["mean"] == 480.0 / 3
    assert simulated(file, "--policy", "fifo", "--set", "jobs.1.submit=3m", "-o", "json") == 0
    # B is the last one now: A until 10 min, C until 15 min.
    assert runs_of(capsys)[0]["queuing_s"]["mean"] == (480.0 + 720.0) / 3


def test_policies_may_be_repeated_or_listed_with_their_options(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        simulated(file, "--policy", "fifo,aryl:loaning,reclaim=count", "--policy", "sjf", "-o", "json") == 0
    )
    assert [run["policy"] for run in runs_of(capsys)] == ["fifo", "aryl:loaning,reclaim=count", "sjf"]


def test_an_option_of_a_policy_changes_its_decisions(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(file, "--policy", "aryl:order=fifo,aryl", "-o", "json") == 0
    assert [run["queuing_s"]["mean"] for run in runs_of(capsys)] == [940.0, 440.0]


def test_without_a_file_the_flags_make_the_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s\na,0,8,3600\nb,1800,8,1800\n", encoding="utf-8")
    out = tmp_path / "out"
    arguments = ["--trace", trace, "--policy", "fifo", "--limit", 2, "--window", "0,1h", "--out", out]
    assert simulated(*arguments, "--training-servers", 1, "--gpus-per-server", 8, "-o", "json") == 0
    (run,) = runs_of(capsys)
    assert (run["jobs"], run["queuing_s"]["mean"], run["jct_s"]["mean"]) == (2, 900.0, 3600.0)
    experiment = load_experiment(out / "experiment.yaml")
    assert (experiment.cluster.training.servers, experiment.cluster.training.gpus_per_server) == (1, 8)
    assert experiment.jobs.model_dump(exclude_none=True) == {  # type: ignore[union-attr]
        "trace": str(trace),
        "window": (0.0, 3600.0),
        "limit": 2,
        "seed": 1,
    }


def test_a_cluster_that_nobody_sizes_is_sized_by_the_load_of_the_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s\na,0,8,3600\nb,1800,8,1800\n", encoding="utf-8")
    # 12 GPU-hours in one hour, at a load of 95 %: 12.6 GPUs, in servers of eight.
    assert simulated("--trace", trace, "--policy", "fifo", "-o", "json", "--jobs-in-parallel", 1) == 0
    printed = capsys.readouterr()
    assert "cluster: 2 training servers" in printed.err
    assert '"mean": 0.0' in printed.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: no jobs to simulate; expected an experiment file or --trace NAME"),
        (["none.yaml"], "error: none.yaml: no such file"),
        (["FILE", "--policy", "fifo,arryl"], "no such policy (found 'arryl')"),
        (["FILE", "--policy", "aryl:reclaim=cuont"], "did you mean 'count'?"),
        (["FILE", "--policy", "fifo:reclaim=count"], "the policy has no such option (found 'reclaim')"),
        (["--trace", "syntetic-small"], "did you mean 'synthetic-small'?"),
        (["FILE", "--set", "simulation.intervall=3"], "did you mean 'interval'?"),
        (["FILE", "--set", "simulaton.seed=3"], "error: --set simulaton.seed=3, simulaton: unknown key;"),
        (["FILE", "--set", "simulation.seed.x=3"], "error: --set simulation.seed.x=3, simulation.seed: "),
        (["FILE", "--set", "simulation.seed"], "error: --set simulation.seed: not a setting"),
        (
            ["FILE", "--training-servers", "-1"],
            "error: --training-servers, cluster.training.servers: wrong value",
        ),
        (["FILE", "--limit", "3"], "error: --limit: jobs is a list here"),
        (["FILE", "--curve", "nyc_taksi", "--inference-servers", "2"], "did you mean 'nyc_taxi'?"),
        (["--trace", "synthetic-small", "--window", "1d"], "error: --window, jobs.window: wrong value"),
        (["--trace", "synthetic-small", "--limit", "0"], "error: --limit, jobs.limit: wrong value (found 0)"),
        (
            ["--trace", "synthetic-small", "--gpus-per-server", "0"],
            "error: --gpus-per-server, cluster.training.gpus_per_server: wrong value",
        ),
        (["FILE", "--scenario", "base"], "Invalid value for"),
        (["FILE", "--jobs-in-parallel", "0"], "Invalid value for"),
        (["FILE", "--colour"], "No such option"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_line_on_stderr(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert simulated(*(str(file) if argument == "FILE" else argument for argument in arguments)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    if printed.err.startswith("error:"):
        assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("workers: 8, duration: 30m", "workers: 8, durration: 30m", "line 4, jobs[1].durration: unknown key"),
        ("workers: 8, duration: 30m", "workers: 8, duration: -30m", "line 4, jobs[1].duration: wrong value"),
        ("servers: 1", "servers: 1, servers: 2", "line 1, cluster.training.servers: the key is given twice"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_with_its_line(
    file: Path, capsys: pytest.CaptureFixture[str], *, old: str, new: str, message: str
) -> None:
    file.write_text(file.read_text().replace(old, new), encoding="utf-8")
    assert simulated(file, "--out", file.parent / "out") == 2
    assert f"error: {file}, {message}" in capsys.readouterr().err
    assert left_in(file.parent) == ["small.yaml"]


def test_a_bad_row_of_a_trace_is_named_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s\na,0,8,3600\nb,1800,8,-3\n", encoding="utf-8")
    arguments = ["--trace", trace, "--training-servers", 1, "--policy", "fifo", "--out", tmp_path / "out"]
    assert simulated(*arguments) == 2
    assert f"error: {trace}, line 3, duration_s: " in capsys.readouterr().err
    assert left_in(tmp_path) == ["jobs.csv"]
