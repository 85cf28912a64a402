"""`aryl trace`: data on stdout, messages on stderr, files that are whole or not there."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aryl.cli.trace import trace_app
from aryl.errors import ArylError, InputError
from aryl.traces.catalogue import bundled_path
from aryl.traces.load import load_trace

HEADER = "job_id,submit_s,gpus,duration_s"


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(trace_app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, ArylError | SystemExit):
        raise result.exception
    return result


def refused(*arguments: str | Path) -> InputError:
    result = run(*arguments)
    assert isinstance(result.exception, InputError)
    assert result.stdout == ""
    return result.exception


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(f"{HEADER}\na,0,1,60\nb,10,8,600\nc,86400,2,30\n")
    return path


@pytest.mark.parametrize(
    "command",
    ["list", "fetch", "describe", "validate", "convert", "sample", "scale", "fit", "synth", "synth-curve"],
)
def test_every_command_has_help_with_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert f"aryl trace {command}" in result.stdout


def test_list_shows_names_and_whether_they_are_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARYL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    entries = {entry["name"]: entry for entry in json.loads(run("list", "-o", "json").stdout)["entries"]}
    assert (entries["itp"]["present"], entries["synthetic-small"]["present"]) == (False, True)
    assert entries["philly"]["licence"] == "CC BY 4.0"
    assert [row["name"] for row in csv.DictReader(io.StringIO(run("list", "-o", "csv").stdout))] == list(
        entries
    )
    assert "nyc_taxi" in run("list").stdout


def test_describe_gives_the_same_numbers_in_every_format(jobs: Path) -> None:
    described = json.loads(run("describe", jobs, "-o", "json").stdout)
    assert (described["jobs"], described["days"]) == (3, 1.0)
    assert described["gpu_hours"] == pytest.approx((60 + 4800 + 60) / 3600)
    (row,) = csv.DictReader(io.StringIO(run("describe", jobs, "-o", "csv").stdout))
    assert (row["jobs"], float(row["duration_s.max"])) == ("3", 600.0)
    assert "GPU-hours" in run("describe", jobs).stdout


def test_describe_takes_a_window_and_a_curve(jobs: Path) -> None:
    assert json.loads(run("describe", jobs, "--window", "5s,1d", "-o", "json").stdout)["jobs"] == 1
    assert json.loads(run("describe", "synthetic-day", "-o", "json").stdout)["unit"] == "share"
    assert "synthetic-day" in run("describe", "synthetic-day").stdout
    assert "are for traces" in str(refused("describe", "synthetic-day", "--limit", "3"))


@pytest.mark.parametrize("window", ["5", "1d,2d,3d", "soon,later", "2d,1d"])
def test_a_bad_window_is_refused(jobs: Path, window: str) -> None:
    assert "window" in str(refused("describe", jobs, "--window", window))


def test_validate_says_what_is_valid_and_raises_what_is_not(jobs: Path) -> None:
    assert run("validate", jobs).stdout == f"{jobs}: a valid trace of 3 jobs\n"
    assert json.loads(run("validate", "synthetic-day", "-o", "json").stdout)["kind"] == "curve"
    assert "rows" in run("validate", jobs, "-o", "csv").stdout
    jobs.write_text(f"{HEADER}\na,0,1,-60\n")
    error = refused("validate", jobs)
    assert (error.line, error.field, error.exit_code) == (2, "duration_s", 2)


def test_convert_sorts_and_writes_the_format_of_the_name(tmp_path: Path) -> None:
    (tmp_path / "mixed.csv").write_text(f"{HEADER}\na,9,1,60\nb,1,8,600\n")
    result = run("convert", tmp_path / "mixed.csv", tmp_path / "sorted.parquet")
    assert result.stdout == ""
    assert "wrote 2 jobs" in result.stderr
    assert [job.job_id for job in load_trace(str(tmp_path / "sorted.parquet")).jobs] == ["b", "a"]


def test_convert_without_a_file_writes_csv_to_stdout(jobs: Path) -> None:
    assert run("convert", jobs, "--limit", "1").stdout == f"{HEADER}\na,0,1,60\n"
    assert run("convert", "synthetic-day").stdout == bundled_path("synthetic-day.csv").read_text()


def test_convert_fills_in_a_scenario(jobs: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run("convert", jobs, "--scenario", "ideal").stdout)))
    assert [row["max_workers"] for row in rows] == ["2", "16", "4"]
    assert refused("convert", jobs, "--scenario", "ideel").nearest == "ideal"
    assert "are for traces" in str(refused("convert", "synthetic-day", "--scenario", "ideal"))


def test_an_existing_file_is_kept_unless_forced(jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    assert "--force" in str(refused("convert", jobs, out))
    assert out.read_text() == "mine"
    run("convert", jobs, out, "--force")
    assert out.read_text().startswith(HEADER)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.csv", "out.csv"]


def test_an_output_with_an_unknown_ending_or_folder_is_refused(jobs: Path, tmp_path: Path) -> None:
    assert "can't tell the format" in str(refused("convert", jobs, tmp_path / "out.xls"))
    assert "folder does not exist" in str(refused("convert", jobs, tmp_path / "none" / "out.csv"))


def test_sample_takes_a_share_or_a_number() -> None:
    assert run("sample", "synthetic-small", "--share", "10%").stdout.count("\n") == 151
    assert run("sample", "synthetic-small", "--jobs", "7", "--seed", "3").stdout.count("\n") == 8
    assert "share or a number" in str(refused("sample", "synthetic-small"))
    assert refused("sample", "synthetic-small", "--share", "half").field == "--share"


def test_scale_changes_arrivals_and_running_times(jobs: Path) -> None:
    scaled = run("scale", jobs, "--arrivals", "2", "--durations", "3").stdout
    assert scaled == f"{HEADER}\na,0,1,180\nb,5,8,1800\nc,43200,2,90\n"
    assert run("scale", jobs, "--arrivals", "2", "--copies").stdout.count("\n") == 7
    assert "say what to scale" in str(refused("scale", jobs))


def test_fit_and_synth_work_together(tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    run("fit", "synthetic-small", model)
    assert run("fit", "synthetic-small").stdout == model.read_text()
    drawn = run("synth", "--model", model, "--jobs", "20", "--days", "1", "--seed", "5")
    assert drawn.stdout.count("\n") == 21
    assert drawn.stdout == run("synth", "--model", model, "--jobs", "20", "--days", "1", "--seed", "5").stdout


def test_the_bundled_samples_are_what_the_documented_commands_draw() -> None:
    limits = ("--max-gpus", "32", "--max-duration", "1d", "--busy-gpus", "158")
    drawn = run("synth", "--jobs", "1500", "--days", "3", "--seed", "1", *limits)
    assert drawn.stdout == bundled_path("synthetic-small.csv").read_text()
    assert (
        run("synth-curve", "--days", "5", "--seed", "1").stdout
        == bundled_path("synthetic-day.csv").read_text()
    )


def test_fetch_needs_nothing_for_what_comes_with_the_package() -> None:
    result = run("fetch", "synthetic-small")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "comes with Aryl" in result.stderr
    assert refused("fetch", "filly").nearest == "philly"


def test_fetch_that_reaches_nobody_fails_with_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # A proxy that nobody listens at: the public address is never asked.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    result = run("fetch", "nyc_taxi")
    assert isinstance(result.exception, ArylError)
    assert result.exception.exit_code == 1
    assert "nyc_taxi.csv: can't be fetched" in str(result.exception)
    assert list(tmp_path.rglob("*.csv")) == []
