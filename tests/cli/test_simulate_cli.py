"""`aryl simulate` from outside: figures that can be checked by hand, and in which form they are printed."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import (
    LONG,
    RUN_FILES,
    THREE_GANGS,
    left_in,
    rows_of,
    runs_of,
    simulated,
    without_wall_times,
)

# Waits of 0, 9 and 38 min in order of submission; of 0, 14 and 8 min with the shortest first.
FIFO = {"queuing": (940.0, 540.0), "jct": (1840.0, 2340.0)}
SJF = {"queuing": (440.0, 480.0), "jct": (1340.0, 780.0)}

# At half the speed B's gang of 4 takes all 8 GPUs of the one server that inference can spare.
LENDING = """\
cluster: {training: {servers: 1}, inference: {servers: 2, speed: 0.5}}
inference: {points: [[0, 1]], headroom: 0}
jobs:
  - {id: A, workers: 8, duration: 10m}
  - {id: B, submit: 1m, workers: 4, duration: 30m, fungible: true}
policies: [fifo, aryl]
"""


def figures(run: dict[str, Any]) -> dict[str, tuple[float, float]]:
    return {
        "queuing": (run["queuing_s"]["mean"], run["queuing_s"]["median"]),
        "jct": (run["jct_s"]["mean"], run["jct_s"]["median"]),
    }


def test_json_is_one_object_with_the_runs_in_the_order_of_the_policies(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(file, "-o", "json") == 0
    runs = runs_of(capsys)
    assert [(run["policy"], figures(run)) for run in runs] == [("fifo", FIFO), ("sjf", SJF), ("aryl", SJF)]
    for run in runs:
        assert (run["trace"], run["jobs"], run["finished"], run["unfinished"]) == ("small", 3, 3, 0)
        # One server, never idle between the first submission and the last end.
        assert (run["makespan_s"], run["usage"]["training"]) == (2700.0, 1.0)
    assert "sweep" not in runs[0]


def test_of_two_gangs_for_one_server_the_second_waits_until_the_first_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = tmp_path / "two.yaml"
    two.write_text(
        "cluster: {training: {servers: 1, gpus_per_server: 4}}\n"
        "jobs:\n"
        "  - {id: A, workers: 3, duration: 10m}\n"
        "  - {id: B, submit: 5m, workers: 2, work: 4 gpu-min}\n",
        encoding="utf-8",
    )
    assert simulated(two, "--policy", "fifo", "-o", "json", "--out", tmp_path / "out") == 0
    (run,) = runs_of(capsys)
    # B waits from 5 to 10 min and runs for 2. Usage ends with the last submission: A alone, on 3 of 4 GPUs.
    assert figures(run) == {"queuing": (150.0, 150.0), "jct": (510.0, 510.0)}
    assert (run["usage"]["training"], run["makespan_s"]) == (0.75, 720.0)
    assert [
        (row["job_id"], row["server"], row["gpus"], row["start_s"], row["end_s"])
        for row in rows_of(tmp_path / "out" / "schedule.csv")
    ] == [("A", "T1", "3", "0", "600"), ("B", "T1", "2", "600", "720")]


def test_a_lent_inference_server_saves_a_fungible_job_its_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lending = tmp_path / "lending.yaml"
    lending.write_text(LENDING, encoding="utf-8")
    assert simulated(lending, "-o", "json", "--out", tmp_path / "out") == 0
    fifo, aryl = runs_of(capsys)
    assert figures(fifo) == {"queuing": (270.0, 270.0), "jct": (1470.0, 1470.0)}
    assert figures(aryl) == {"queuing": (0.0, 0.0), "jct": (1200.0, 1200.0)}
    assert (fifo["loans"], aryl["loans"], aryl["inference_shortfall_server_s"]) == (0, 1, 0.0)
    assert rows_of(tmp_path / "out" / "fifo" / "loans.csv") == []
    (loan,) = rows_of(tmp_path / "out" / "aryl" / "loans.csv")
    _, held = rows_of(tmp_path / "out" / "aryl" / "schedule.csv")
    assert held["server"] == loan["server"]
    assert (held["pool"], held["workers"], held["gpus"]) == ("inference", "4", "8")
    assert (held["start_s"], held["end_s"]) == ("60", "1860")


def test_csv_has_a_column_for_each_number(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(file, "-o", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["policy"], row["queuing_s.mean"], row["jct_s.median"]) for row in rows] == [
        ("fifo", "940.0", "2340.0"),
        ("sjf", "440.0", "780.0"),
        ("aryl", "440.0", "780.0"),
    ]


def test_a_mean_of_nothing_is_null_in_json_and_empty_in_csv(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    early = [file, "--policy", "fifo", "--set", "simulation.until=5m"]
    assert simulated(*early, "-o", "json") == 0
    (run,) = runs_of(capsys)
    assert (run["finished"], run["unfinished"], run["jct_s"]["mean"]) == (0, 3, None)
    assert simulated(*early, "-o", "csv") == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["jct_s.mean"] == ""


def test_the_table_compares_each_policy_with_the_first(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(file, "-o", "json") == 0
    bound_s = runs_of(capsys)[0]["jct_bound_s"]
    # At best A is stopped for C, which comes to a mean of 1,280 s.
    assert 0.95 * 1280.0 < bound_s <= 1280.0
    assert simulated(file) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {cells[0]: cells for line in lines if (cells := line.split()) and cells[0] in {"fifo", "aryl"}}
    # p95 lies a tenth of the way back from the longest of three to the one before it.
    fifo = "fifo 3 0 | 15.7 min / 9 min / 35.1 min 1.00 | 30.7 min / 39 min / 42.6 min 1.00"
    aryl = "aryl 3 0 | 7.3 min / 8 min / 13.4 min 0.47 | 22.3 min / 13 min / 40.9 min 0.73"
    fifo, aryl = f"{fifo} {1840 / bound_s:.3f} 100.0% 0 0 0", f"{aryl} {1340 / bound_s:.3f} 100.0% 0 0 0"
    assert rows == {"fifo": fifo.replace("|", "").split(), "aryl": aryl.replace("|", "").split()}


def test_refused_jobs_are_warned_about_on_stderr_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "large.yaml"
    # Twelve GPUs are there only where a server may be borrowed, sixty-four nowhere.
    large = LENDING.replace("workers: 4", "workers: 12").replace("speed: 0.5", "speed: 1")
    file.write_text(large, encoding="utf-8")
    assert simulated(file, "-o", "json") == 0
    printed = capsys.readouterr()
    assert [line for line in printed.err.splitlines() if line.startswith("warning")] == [
        "warning: fifo: 1 job can never fit into the cluster and was refused"
    ]
    assert "warning" not in printed.out
    file.write_text(LENDING.replace("workers: 4", "workers: 64").replace("workers: 8", "workers: 64"))
    assert simulated(file, "--policy", "aryl", "-o", "json") == 0
    assert "warning: aryl: 2 jobs can never fit into the cluster and were refused" in capsys.readouterr().err


def test_an_inference_pool_without_demand_is_warned_about(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(file, "--inference-servers", 4, "--policy", "aryl", "-o", "json") == 0
    printed = capsys.readouterr()
    assert "the inference pool counts as fully busy, nothing is lent" in printed.err
    assert '"loans": 0,' in printed.out


def test_demand_without_an_inference_pool_is_warned_about(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(file, "--curve", "synthetic-day", "--policy", "fifo", "-o", "json") == 0
    assert capsys.readouterr().err == (
        "warning: no inference servers: the inference demand has no effect; --inference-servers sets them\n"
    )
    assert simulated(file, "--policy", "fifo", "-o", "json") == 0
    assert capsys.readouterr().err == ""


def test_a_sweep_labels_its_runs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(THREE_GANGS + 'sweep: {"cluster.training.servers": [1, 3]}\n', encoding="utf-8")
    out = file.parent / "out"
    assert simulated(file, "--policy", "fifo", "-o", "json", "--out", out) == 0
    assert [(run["sweep"], run["queuing_s"]["mean"]) for run in runs_of(capsys)] == [
        ({"cluster.training.servers": 1}, 940.0),
        ({"cluster.training.servers": 3}, 0.0),
    ]
    folders = [f"cluster.training.servers={servers}" for servers in (1, 3)]
    assert left_in(out) == sorted(
        ["experiment.yaml", "summary.json", *folders]
        + [f"{folder}/{name}" for folder in folders for name in RUN_FILES]
    )


def test_runs_in_parallel_give_what_they_give_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "seeds.yaml"
    file.write_text(LONG, encoding="utf-8")
    printed, journals = [], []
    for processes in (1, 2):
        folder = tmp_path / f"in-{processes}"
        folder.mkdir()
        arguments = ["--limit", 150, "--set", "sweep={'jobs.seed': [1, 2]}", "--policy", "aryl,sjf"]
        journal = folder / "journal.jsonl"
        arguments += ["--scenario", "basic", "--jobs-in-parallel", processes, "--journal", journal]
        assert simulated(file, *arguments, "-o", "json") == 0
        printed.append(without_wall_times(runs_of(capsys)))
        journals.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert [(run["policy"], run["sweep"]["jobs.seed"]) for run in printed[0]] == [
        ("aryl", 1),
        ("sjf", 1),
        ("aryl", 2),
        ("sjf", 2),
    ]
    assert printed[0] == printed[1]
    assert printed[0][0]["jct_s"] != printed[0][2]["jct_s"]
    assert len(journals[0]) == 4
    assert journals[0] == journals[1]
