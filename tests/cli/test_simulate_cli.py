"""`aryl simulate` from outside: what is printed where, what is written when, and the exit codes."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from aryl.cli.main import run_command
from aryl.errors import DecisionError, InputError, nearest_word
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import load_experiment

POLICIES = ("fifo", "sjf", "aryl")


@dataclass(frozen=True)
class FakeResult:
    """What the command line uses of a result."""

    summary: dict[str, Any]
    outcome: str


@dataclass(frozen=True)
class FakeOption:
    name: str
    default: str
    meaning: str


@dataclass(frozen=True)
class FakePolicy:
    name: str
    summary: str
    source: str
    preempts: str
    options: tuple[FakeOption, ...] = ()


def summary_of(experiment: Experiment, policy: str) -> dict[str, Any]:
    speed = {"fifo": 1.0, "sjf": 2.0}.get(policy, 4.0)
    return {
        "policy": policy,
        "trace": experiment.name,
        "seed": experiment.simulation.seed,
        "jobs": 10,
        "finished": 9,
        "unfinished": 0,
        "queuing_s": {"mean": 400.0 / speed, "median": 10.0, "p95": 900.0, "p99": 1000.0},
        "jct_s": {"mean": 4000.0 / speed, "median": 3000.0, "p95": 9000.0, "p99": float("nan")},
        "usage": {"training": 0.5, "inference": 0.25, "overall": 0.375},
        "preemptions": 3,
        "loans": 2,
        "inference_shortfall_server_s": 0.0,
        "rejected": 1 if policy == "sjf" else 0,
        "notes": [],
    }


def fake_run(
    experiment: Experiment,
    policy: str,
    *,
    journal: Path | None = None,
    schedule: bool = False,
    on_progress: Callable[[float, str], None] | None = None,
) -> FakeResult:
    """Writes one line of journal, reports progress twice and ends."""
    if journal is not None:
        journal.write_text(f'{{"policy": "{policy}"}}\n', encoding="utf-8")
    if on_progress is not None:
        on_progress(0.5, "day 1")
        on_progress(1.0, "done")
    return FakeResult(summary_of(experiment, policy), f"outcome of {policy}")


def install(monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any] = fake_run) -> None:
    """Put the fake engine, catalogue and report where the command line imports the real ones from."""

    def parse_policy(spec: str) -> str:
        name = spec.partition(":")[0]
        if name not in POLICIES:
            raise InputError(
                "unknown policy", field="policy", found=spec, nearest=nearest_word(name, POLICIES)
            )
        return spec

    def policy_table() -> list[FakePolicy]:
        option = FakeOption("reclaim", "server-fraction", "which server to return first")
        return [
            FakePolicy("fifo", "first come, first served", "-", "never"),
            FakePolicy("sjf", "shortest first", "-", "never"),
            FakePolicy("aryl", "lends and resizes", "arXiv 2202.07896", "when servers go back", (option,)),
        ]

    def write_run(outcome: str, folder: Path) -> None:
        (folder / "jobs.csv").write_text(outcome, encoding="utf-8")

    def write_page(outcomes: list[str], path: Path) -> None:
        path.write_text("\n".join(outcomes), encoding="utf-8")

    for name, content in (
        ("aryl.sim.run", {"run": run}),
        ("aryl.policies.catalogue", {"parse_policy": parse_policy, "policy_table": policy_table}),
        ("aryl.report.files", {"write_run": write_run}),
        ("aryl.report.page", {"write_page": write_page}),
    ):
        module = ModuleType(name)
        for key, value in content.items():
            setattr(module, key, value)
        monkeypatch.setitem(sys.modules, name, module)


FILE = """\
cluster: {training: {servers: 2}}
jobs:
  - {id: A, workers: 4, duration: 10m}
policies: [fifo, sjf, aryl]
"""


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def left_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def simulated(*arguments: object) -> int:
    return run_command(["simulate", *map(str, arguments)])


def runs_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    printed: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["runs"]
    return printed


def test_json_is_one_object_with_the_runs_in_the_order_of_the_policies(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(file, "-o", "json") == 0
    runs = runs_of(capsys)
    assert [run["policy"] for run in runs] == ["fifo", "sjf", "aryl"]
    assert runs[0]["jct_s"] == {"mean": 4000.0, "median": 3000.0, "p95": 9000.0, "p99": None}
    assert "sweep" not in runs[0]


def test_csv_has_a_column_for_each_number(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(file, "-o", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["policy"], row["queuing_s.mean"], row["jct_s.p99"]) for row in rows] == [
        ("fifo", "400.0", ""),
        ("sjf", "200.0", ""),
        ("aryl", "100.0", ""),
    ]


def test_the_table_compares_each_policy_with_the_first(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(file) == 0
    lines = capsys.readouterr().out.splitlines()
    (aryl,) = [line for line in lines if line.strip().startswith("aryl")]
    cells = "aryl 9 0 | 100 s / 10 s / 15 min 0.25 | 16.7 min / 50 min / 2.5 h 0.25 | 37.5% 3 2 0"
    assert aryl.split() == cells.replace("|", "").split()


def test_refused_jobs_are_warned_about_on_stderr_only(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(file, "-o", "json") == 0
    printed = capsys.readouterr()
    assert printed.err == "warning: sjf: 1 jobs can never fit into the cluster and were refused\n"
    assert "warning" not in printed.out


def test_flags_lie_over_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(file, "--policy", "aryl", "--seed", 7, "--set", "name=other", "-o", "json") == 0
    ((run),) = runs_of(capsys)
    assert (run["policy"], run["seed"], run["trace"]) == ("aryl", 7, "other")


def test_policies_may_be_repeated_or_listed_with_their_options(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        simulated(file, "--policy", "fifo,aryl:loaning,reclaim=count", "--policy", "sjf", "-o", "json") == 0
    )
    assert [run["policy"] for run in runs_of(capsys)] == ["fifo", "aryl:loaning,reclaim=count", "sjf"]


def test_a_sweep_labels_its_runs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE + 'sweep: {"simulation.seed": [1, 2]}\n', encoding="utf-8")
    assert simulated(file, "--policy", "fifo", "-o", "json") == 0
    assert [(run["sweep"], run["seed"]) for run in runs_of(capsys)] == [
        ({"simulation.seed": 1}, 1),
        ({"simulation.seed": 2}, 2),
    ]


def test_without_a_file_the_flags_make_the_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s\na,0,8,3600\nb,1800,8,1800\n", encoding="utf-8")
    out = tmp_path / "out"
    arguments = ["--trace", trace, "--policy", "fifo", "--limit", 2, "--window", "0,1h", "--out", out]
    assert simulated(*arguments, "--training-servers", 3, "--gpus-per-server", 4, "-o", "json") == 0
    experiment = load_experiment(out / "experiment.yaml")
    assert (experiment.cluster.training.servers, experiment.cluster.training.gpus_per_server) == (3, 4)
    assert experiment.jobs.model_dump(exclude_none=True) == {  # type: ignore[union-attr]
        "trace": str(trace),
        "window": (0.0, 3600.0),
        "limit": 2,
        "seed": 1,
    }
    capsys.readouterr()
    # 16 GPUs of work a second of arrivals, at a load of 95 %: two servers of eight.
    assert (
        simulated("--trace", trace, "--policy", "fifo", "--out", tmp_path / "sized", "--jobs-in-parallel", 1)
        == 0
    )
    assert load_experiment(tmp_path / "sized" / "experiment.yaml").cluster.training.servers == 2
    assert "cluster: 2 training servers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: no jobs to simulate; expected an experiment file or --trace NAME"),
        (["none.yaml"], "error: none.yaml: no such file"),
        (["FILE", "--policy", "fifo,arryl"], "unknown policy (found 'arryl'); did you mean 'aryl'?"),
        (["FILE", "--set", "simulation.intervall=3"], "did you mean 'interval'?"),
        (
            ["FILE", "--training-servers", "-1"],
            "error: --training-servers, cluster.training.servers: wrong value",
        ),
        (["FILE", "--limit", "3"], "error: --limit: jobs is a list here"),
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


def test_an_inference_pool_without_demand_is_warned_about(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(file, "--inference-servers", 4, "--policy", "fifo") == 0
    assert "the inference pool counts as fully busy" in capsys.readouterr().err


def test_results_go_into_a_folder_for_each_policy(file: Path, tmp_path: Path) -> None:
    out, journal = tmp_path / "new" / "out", tmp_path / "journal.jsonl"
    assert simulated(file, "--out", out, "--journal", journal, "--report", out / "page.html") == 0
    folders = ["aryl", "fifo", "sjf"]
    assert left_in(out) == sorted(
        [f"{name}{inner}" for name in folders for inner in ("", "/jobs.csv", "/summary.json")]
        + ["experiment.yaml", "page.html", "summary.json"]
    )
    assert (out / "page.html").read_text() == "outcome of fifo\noutcome of sjf\noutcome of aryl"
    assert left_in(tmp_path) == sorted(
        ["small.yaml", "new", "new/out", *(f"new/out/{name}" for name in left_in(out))]
        + [f"journal.{policy}.jsonl" for policy in ("aryl", "fifo", "sjf")]
    )
    everything = json.loads((out / "summary.json").read_text())["runs"]
    assert [run["policy"] for run in everything] == ["fifo", "sjf", "aryl"]
    assert json.loads((out / "sjf" / "summary.json").read_text()) == {"runs": [everything[1]]}


def test_a_single_run_goes_straight_into_the_folder_and_the_journal(file: Path, tmp_path: Path) -> None:
    out, journal = tmp_path / "out", tmp_path / "journal.jsonl"
    assert simulated(file, "--policy", "sjf", "--out", out, "--journal", journal) == 0
    assert left_in(out) == ["experiment.yaml", "jobs.csv", "summary.json"]
    assert journal.read_text() == '{"policy": "sjf"}\n'


def test_the_written_experiment_gives_the_same_runs_again(file: Path, tmp_path: Path) -> None:
    assert simulated(file, "--seed", 5, "--policy", "sjf", "--out", tmp_path / "out") == 0
    again = load_experiment(tmp_path / "out" / "experiment.yaml")
    assert (again.policies, again.simulation.seed, again.name) == (["sjf"], 5, "small")
    assert yaml.safe_load((tmp_path / "out" / "experiment.yaml").read_text())["jobs"][0]["duration"] == 600.0


def test_a_folder_with_something_in_it_is_left_alone_unless_forced(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    (out / "jobs.csv").write_text("old")
    assert simulated(file, "--policy", "fifo", "--out", out) == 2
    assert "the folder is not empty" in capsys.readouterr().err
    assert left_in(out) == ["jobs.csv", "mine.txt"]
    assert simulated(file, "--policy", "fifo", "--out", out, "--force") == 0
    assert left_in(out) == ["experiment.yaml", "jobs.csv", "mine.txt", "summary.json"]
    assert ((out / "jobs.csv").read_text(), (out / "mine.txt").read_text()) == ("outcome of fifo", "mine")


@pytest.mark.parametrize("flag", ["--out", "--journal", "--report"])
@pytest.mark.parametrize("place", ["small.yaml/below/a/file", "/proc/aryl/x", "/dev/null"])
def test_a_place_that_cannot_be_written_is_found_before_anything_runs(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str, place: str
) -> None:
    ran: list[str] = []
    install(monkeypatch, lambda *_, **__: ran.append("ran"))
    monkeypatch.chdir(file.parent)
    assert simulated(file, flag, place) == 2
    assert capsys.readouterr().err.startswith(f"error: {flag}: ")
    assert ran == []
    assert left_in(file.parent) == ["small.yaml"]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (DecisionError("T1 is overbooked"), 1, "error: T1 is overbooked"),
        (OSError(28, "No space left on device"), 1, "error: No space left on device"),
        (SystemExit(143), 143, ""),
    ],
)
def test_a_run_that_ends_early_leaves_nothing_behind(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    error: BaseException,
    code: int,
    message: str,
) -> None:
    def second_fails(experiment: Any, policy: str, *, journal: Path, **_: Any) -> FakeResult:
        if policy == "sjf":
            raise error
        return fake_run(experiment, policy, journal=journal)

    install(monkeypatch, second_fails)
    folder = file.parent
    out, journal, report = folder / "new" / "out", folder / "j.jsonl", folder / "page.html"
    assert simulated(file, "--out", out, "--journal", journal, "--report", report) == code
    assert capsys.readouterr().err.strip() == message
    assert left_in(folder) == ["small.yaml"]


def test_the_policies_are_listed_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "list", "-o", "json"]) == 0
    aryl = json.loads(capsys.readouterr().out)["policies"][2]
    assert (aryl["name"], aryl["preempts"], aryl["options"][0]["name"]) == (
        "aryl",
        "when servers go back",
        "reclaim",
    )
    assert run_command(["policy", "list"]) == 0
    assert "reclaim (server-fraction)" in capsys.readouterr().out
    assert run_command(["policy", "list", "-o", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "name,summary,source,preempts,options"


def test_the_demo_says_in_a_sentence_what_each_half_gave(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("aryl.cli.simulate.default_processes", lambda *_: 1)
    assert run_command(["demo"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "The average job took 66.7 min under fifo, 16.7 min with lending idle inference servers (75% less), "
        "16.7 min with resizing elastic jobs (75% less), 16.7 min with both (75% less)."
    )


def test_the_version_and_the_help_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out.startswith("aryl 0.")
    assert run_command(["simulate", "--help"]) == 0
    assert "--jobs-in-parallel" in capsys.readouterr().out
