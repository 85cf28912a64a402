"""What `aryl simulate` writes: where it goes, what is refused, and that nothing half-done is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.commands import RUN_FILES, left_in, rows_of, runs_of, simulated, without_wall_times

from aryl.core.cluster import Cluster
from aryl.core.decision import Decision
from aryl.errors import DecisionError
from aryl.policies.queueing import Queueing
from aryl.sim.experiment_file import load_experiment


def events_in(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]


def test_results_go_into_a_folder_for_each_policy(file: Path, tmp_path: Path) -> None:
    out, journal = tmp_path / "new" / "out", tmp_path / "journal.jsonl"
    assert simulated(file, "--out", out, "--journal", journal, "--report", out / "page.html") == 0
    policies = ["aryl", "fifo", "sjf"]
    assert left_in(out) == sorted(
        ["experiment.yaml", "page.html", "summary.json", *policies]
        + [f"{policy}/{name}" for policy in policies for name in RUN_FILES]
    )
    assert left_in(tmp_path) == sorted(
        ["small.yaml", "new", "new/out", *(f"new/out/{name}" for name in left_in(out))]
        + [f"journal.{policy}.jsonl" for policy in policies]
    )
    everything = json.loads((out / "summary.json").read_text())["runs"]
    assert [run["policy"] for run in everything] == ["fifo", "sjf", "aryl"]
    assert json.loads((out / "sjf" / "summary.json").read_text()) == {"runs": [everything[1]]}
    ends = {
        policy: [row["finish_s"] for row in rows_of(out / policy / "jobs.csv")] for policy in ("fifo", "sjf")
    }
    assert ends == {"fifo": ["600", "2400", "2700"], "sjf": ["600", "2700", "900"]}
    page = (out / "page.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert all(policy in page for policy in policies)


def test_a_single_run_goes_straight_into_the_folder_and_the_journal(file: Path, tmp_path: Path) -> None:
    out, journal = tmp_path / "out", tmp_path / "journal.jsonl"
    assert simulated(file, "--policy", "sjf", "--out", out, "--journal", journal) == 0
    assert left_in(out) == sorted([*RUN_FILES, "experiment.yaml"])
    events = events_in(journal)
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert [(event["at"], event["job_id"]) for event in events if event["type"] == "Launched"] == [
        (0.0, "A"),
        (600.0, "C"),
        (900.0, "B"),
    ]


def test_an_old_journal_and_an_old_page_are_replaced(file: Path, tmp_path: Path) -> None:
    journal, page = tmp_path / "journal.jsonl", tmp_path / "page.html"
    journal.write_text("old")
    page.write_text("old")
    assert simulated(file, "--policy", "fifo", "--journal", journal, "--report", page) == 0
    assert events_in(journal)[-1]["type"] == "Finished"
    assert page.read_text(encoding="utf-8") != "old"
    assert left_in(tmp_path) == ["journal.jsonl", "page.html", "small.yaml"]


def test_the_written_experiment_gives_the_same_runs_again(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert simulated(file, "--seed", 5, "--policy", "sjf", "--out", first, "-o", "json") == 0
    runs = without_wall_times(runs_of(capsys))
    again = load_experiment(first / "experiment.yaml")
    assert (again.policies, again.simulation.seed, again.name) == (["sjf"], 5, "small")
    assert yaml.safe_load((first / "experiment.yaml").read_text())["jobs"][0]["duration"] == 600.0
    assert simulated(first / "experiment.yaml", "--out", second, "-o", "json") == 0
    assert without_wall_times(runs_of(capsys)) == runs
    for name in ("experiment.yaml", "jobs.csv", "schedule.csv", "loans.csv", "demand.csv", "trace.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_a_folder_with_something_in_it_is_left_alone_unless_forced(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    (out / "jobs.csv").write_text("old")
    assert simulated(file, "--policy", "fifo", "--out", out) == 2
    assert "the folder is not empty" in capsys.readouterr().err
    assert (left_in(out), (out / "jobs.csv").read_text()) == (["jobs.csv", "mine.txt"], "old")
    assert simulated(file, "--policy", "fifo", "--out", out, "--force") == 0
    assert left_in(out) == sorted([*RUN_FILES, "experiment.yaml", "mine.txt"])
    assert [row["job_id"] for row in rows_of(out / "jobs.csv")] == ["A", "B", "C"]
    assert (out / "mine.txt").read_text() == "mine"


def test_an_empty_folder_needs_no_force(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert simulated(file, "--policy", "fifo", "--out", out) == 0
    assert left_in(out) == sorted([*RUN_FILES, "experiment.yaml"])


@pytest.mark.parametrize("flag", ["--out", "--journal", "--report"])
@pytest.mark.parametrize("place", ["small.yaml/below/a/file", "/proc/aryl/x", "/dev/null"])
def test_a_place_that_cannot_be_written_is_found_before_anything_runs(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str, place: str
) -> None:
    # A run would begin with the trace, and fail there.
    file.write_text("cluster: {training: {servers: 1}}\njobs: {trace: none.csv}\n", encoding="utf-8")
    monkeypatch.chdir(file.parent)
    assert simulated(file, flag, place) == 2
    assert capsys.readouterr().err.startswith(f"error: {flag}: ")
    assert left_in(file.parent) == ["small.yaml"]
    assert simulated(file, "--policy", "fifo") == 2
    assert "none.csv" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--out", "--report"])
def test_pages_without_plotly_are_refused_with_the_way_to_get_it(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    monkeypatch.setattr("aryl.cli.simulate.find_spec", lambda _: None)
    assert simulated(file, flag, file.parent / "page") == 2
    assert "pip install 'aryl[report]'" in capsys.readouterr().err
    assert left_in(file.parent) == ["small.yaml"]
    assert simulated(file, "--journal", file.parent / "j.jsonl") == 0


def test_a_defect_in_the_second_of_three_runs_is_exit_code_1_and_leaves_nothing_behind(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decide = Queueing.decide

    def overbook(policy: Queueing, cluster: Cluster) -> Decision:
        if policy.name == "sjf" and cluster.ended:
            raise DecisionError("T1 is overbooked")
        return decide(policy, cluster)

    monkeypatch.setattr(Queueing, "decide", overbook)
    folder = file.parent
    out, journal, report = folder / "new" / "out", folder / "j.jsonl", folder / "page.html"
    assert simulated(file, "--out", out, "--journal", journal, "--report", report) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "error: T1 is overbooked\n")
    assert left_in(folder) == ["small.yaml"]
