"""`aryl forecast`: what is listed, trained, judged and refused."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from aryl.cli.backtest import FRONTIER, cut_of, one_thread, span_text
from aryl.cli.forecast import forecast_app
from aryl.errors import ArylError, InputError
from aryl.forecast import lstm_training
from aryl.forecast.catalogue import TABLE
from aryl.forecast.lstm import Loss
from aryl.forecast.lstm_store import load, save
from aryl.traces.curves import load_curve

CURVE = "demand"
LENDING = [
    "shortfall_server_min",
    "idle_server_h",
    "lent_server_h",
    "lent_share_of_idle",
    "loans_per_day",
    "reclaims_per_day",
    "lent_share_of_oracle",
]


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(forecast_app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, ArylError | SystemExit):
        raise result.exception
    return result


def refused(*arguments: str | Path) -> InputError:
    result = run(*arguments)
    assert isinstance(result.exception, InputError)
    assert (result.exception.exit_code, result.stdout) == (2, "")
    return result.exception


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three days of a curve, a row every 10 minutes, and the present one."""
    steps = range(3 * 144)
    needs = [0.5 + 0.4 * math.sin(step / 144 * 2 * math.pi) + step % 7 / 100 for step in steps]
    rows = [f"{step * 600},{need:.4f}" for step, need in zip(steps, needs, strict=True)]
    (tmp_path / f"{CURVE}.csv").write_text("\n".join(["time_s,share", *rows]) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluated(*arguments: str, servers: int = 8) -> dict[str, Any]:
    result = run(
        *("evaluate", "--curve", f"{CURVE}.csv", "--servers", str(servers), "--interval", "10m"),
        *("--jobs-in-parallel", "1", *arguments),
    )
    assert result.exit_code == 0
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def trained(path: Path, *, curve: str = CURVE, until: int = 2 * 144, step_s: float = 600.0) -> Path:
    """A model of two days, trained as little as possible."""
    loaded = load_curve(f"{CURVE}.csv")
    facts = lstm_training.train(
        8.0 * loaded.busy[:until], step_s, loss=Loss.SQUARED, horizons=2, hidden=2, epochs=1, curve=curve
    )
    save(facts, path)
    return path


@pytest.mark.parametrize("command", ["list", "train", "evaluate"])
def test_every_forecast_command_has_help_with_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert f"aryl forecast {command}" in result.stdout


def test_list_says_what_is_installed_and_which_extra_brings_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else name)
    rows = json.loads(run("list", "-o", "json").stdout)["predictors"]
    assert [row["name"] for row in rows] == [info.name for info in TABLE]
    by_name = {row["name"]: (row["installed"], row["extra"]) for row in rows}
    assert (by_name["last"], by_name["lstm"]) == ((True, None), (False, "forecast"))
    written = list(csv.DictReader(io.StringIO(run("list", "-o", "csv").stdout)))
    assert [row["summary"] for row in written] == [row["summary"] for row in rows]
    table = run("list").stdout
    assert table.count("pip install 'aryl[forecast]'") == 1


def test_rows_are_the_predictors_and_what_they_are_held_against(folder: Path) -> None:
    answer = evaluated("--predictor", "last,day", "-o", "json")
    assert {key: answer[key] for key in answer if key != "rows"} == {
        "curve": CURVE,
        "servers": 8,
        "from_s": 600.0 * math.floor(0.667 * 3 * 144),
        "until_s": 3 * 86_400.0,
        "interval_s": 600.0,
        "lead_s": 600.0 + 60.0 + 360.0,
    }
    rows = answer["rows"]
    assert [(row["label"], row["predictor"], row["headroom"], row["settle_s"]) for row in rows] == [
        ("last", "last", "risk=9%", 900.0),
        ("day", "day", "risk=9%", 900.0),
        ("reactive", "last", "0", 0.0),
        ("oracle", "oracle", "0", 0.0),
    ]
    assert [row["accuracy"] is None for row in rows] == [False, False, True, True]
    assert rows[3]["lent_share_of_oracle"] == 1.0
    assert rows[3]["shortfall_server_min"] == 0.0 < rows[2]["shortfall_server_min"]
    assert len({row["idle_server_h"] for row in rows}) == 1


def test_options_reach_the_engine(folder: Path) -> None:
    answer = evaluated(
        *("--predictor", "last", "--from", "1d12h", "--headroom", "3", "--settle", "0"),
        *("--load", "0", "--vacate", "0", "-o", "json"),
    )
    assert (answer["from_s"], answer["lead_s"]) == (1.5 * 86_400.0, 600.0)
    row, reactive, _ = answer["rows"]
    assert (row["headroom"], row["settle_s"]) == ("3", 0.0)
    # Nothing takes any time, so at every tick what isn't needed now is lent.
    assert reactive["shortfall_server_min"] == 0.0
    assert row["lent_server_h"] < reactive["lent_server_h"]
    quantile = evaluated("--predictor", "last", "--headroom", "quantile=99%", "-o", "json")["rows"][0]
    assert quantile["headroom"] == "quantile=99%"


def test_a_frontier_adds_rows_from_little_to_much_risk(folder: Path) -> None:
    rows = evaluated("--predictor", "last,regression", "--frontier", "-o", "json")["rows"]
    frontier = rows[4:]
    assert [row["label"] for row in frontier] == [f"regression, risk {risk}" for risk in FRONTIER]
    assert [row["headroom"] for row in frontier] == [f"risk={risk}" for risk in FRONTIER]
    lent = [row["lent_server_h"] for row in frontier]
    assert lent == sorted(lent)
    assert lent[0] < lent[-1]
    first = evaluated("--predictor", "last", "--frontier", "-o", "json")["rows"][3]
    assert (first["label"], first["predictor"]) == ("last, risk 1%", "last")


def test_the_formats_have_the_same_figures_and_every_run_the_same_bytes(folder: Path) -> None:
    base = [
        "evaluate",
        "--curve",
        f"{CURVE}.csv",
        "--servers",
        "8",
        "--interval",
        "10m",
        "--predictor",
        "last",
    ]
    rows = json.loads(run(*base, "-o", "json", "--jobs-in-parallel", "1").stdout)["rows"]
    alone = run(*base, "-o", "csv", "--jobs-in-parallel", "1", "--report", "one.html").stdout
    assert alone == run(*base, "-o", "csv", "--jobs-in-parallel", "2", "--report", "two.html").stdout
    assert Path("one.html").read_bytes() == Path("two.html").read_bytes()
    written = list(csv.DictReader(io.StringIO(alone)))
    assert [row["label"] for row in written] == ["last", "reactive", "oracle"]
    assert [[float(row[name]) for name in LENDING] for row in written] == [
        [row[name] for name in LENDING] for row in rows
    ]
    assert float(written[0]["accuracy.mae_servers"]) == rows[0]["accuracy"]["mae_servers"]
    assert written[1]["accuracy.mae_servers"] == ""
    result = run(*base, "--jobs-in-parallel", "1")
    accuracy, lending = (
        [line.split() for line in table.splitlines() if "─" not in line]
        for table in result.stdout.split("shortfall")
    )
    assert [line[0] for line in accuracy if line] == ["error", "last"]
    assert [line[0] for line in lending if line] == ["lent", "last", "reactive", "oracle"]
    assert f"{CURVE}, day 2 to day 3: 8 servers" in result.stderr


def test_without_names_every_installed_predictor_is_judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What needs an extra is judged elsewhere; here it would take long.
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    rows = evaluated("-o", "json")["rows"]
    assert [row["label"] for row in rows] == ["last", "day", "week", "regression", "reactive", "oracle"]


def test_a_model_is_trained_kept_and_judged_beside_the_paper(folder: Path) -> None:
    result = run(
        *("train", "--curve", f"{CURVE}.csv", "--interval", "10m", "--servers", "8", "--epochs", "1"),
        *("--loss", "squared", "--until", "75%", "--seed", "3"),
    )
    assert result.exit_code == 0
    assert "trained on day 0 to day 2.25 of demand: 1 passes in" in result.stderr
    facts = load(Path(f"{CURVE}.lstm")).facts
    assert (facts.curve, facts.from_s, facts.until_s, facts.step_s) == (CURVE, 0.0, 2.25 * 86_400.0, 600.0)
    assert (facts.loss, facts.seed, facts.epochs) == (Loss.SQUARED, 3, 1)
    assert f"{facts.tail_error_servers:.3f} servers" in result.stdout
    assert f"{facts.last_error_servers:.3f} servers" in result.stdout
    rows = evaluated(
        *("--predictor", "lstm", "--model", f"{CURVE}.lstm", "--from", "75%", "--no-refresh", "-o", "json")
    )["rows"]
    assert [(row["label"], row["predictor"], row["headroom"], row["settle_s"]) for row in rows] == [
        ("lstm", "lstm", "risk=9%", 900.0),
        ("reactive", "last", "0", 0.0),
        ("paper", "lstm", "2%", 0.0),
        ("oracle", "oracle", "0", 0.0),
    ]


def test_a_kept_model_is_not_overwritten_unasked(folder: Path) -> None:
    (folder / f"{CURVE}.lstm").write_text("mine")
    base = ("train", "--curve", f"{CURVE}.csv", "--interval", "10m", "--servers", "8", "--epochs", "1")
    assert "already exists" in str(refused(*base))
    assert (folder / f"{CURVE}.lstm").read_text() == "mine"
    assert run(*base, "--force").exit_code == 0
    assert load(Path(f"{CURVE}.lstm")).facts.epochs == 1
    assert sorted(path.name for path in folder.iterdir()) == [f"{CURVE}.csv", f"{CURVE}.lstm"]


def test_a_model_is_not_judged_by_what_it_was_trained_on(folder: Path) -> None:
    model = trained(folder / "two-days.lstm")
    base = ("evaluate", "--curve", f"{CURVE}.csv", "--interval", "10m", "--model", model)
    said = refused(*base, "--from", "1d")
    assert said.message == "trained on day 0 to day 2 of demand, and is to be judged on day 1 to day 3"
    assert said.expected == "--from 172800s or later, or a model trained on less"
    other = trained(folder / "other.lstm", curve="another")
    rows = evaluated("--model", str(other), "--predictor", "lstm", "--from", "60%", "-o", "json")["rows"]
    assert rows[0]["label"] == "lstm"
    slow = refused(*base, "--interval", "30m")
    assert (slow.message, slow.found, slow.expected) == (
        "trained with another interval",
        "600s",
        "1800s, as --interval says",
    )


def test_without_torch_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained(folder / "two-days.lstm")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "aryl[forecast]" in str(refused("train", "--curve", f"{CURVE}.csv"))
    base = ["--model", str(model), "--predictor", "lstm", "--from", "70%", "-o", "json"]
    said = refused("evaluate", "--curve", f"{CURVE}.csv", "--interval", "10m", *base)
    assert "aryl[forecast]" in str(said)
    assert len(evaluated(*base, "--no-refresh")["rows"]) == 4


def test_without_plotly_a_report_is_refused_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aryl.cli.forecast.find_spec", lambda name: None)
    said = refused("evaluate", "--curve", f"{CURVE}.csv", "--report", "page.html")
    assert (said.file, said.expected) == ("--report", "pip install 'aryl[report]' first")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--predictor", "weak"], ["--predictor", "'weak'", "did you mean 'week'?"]),
        (["--predictor", "last,last"], ["--predictor", "given twice", "'last'"]),
        (["--predictor", "lstm"], ["--predictor", "needs a trained model", "--model FILE"]),
        (["--predictor", "last", "--model", "any.lstm"], ["--model", "'any.lstm'", "lstm as well"]),
        (["--model", "none.lstm"], ["none.lstm", "no such file"]),
        (["--headroom", "much"], ["--headroom", "'much'", "a share such as 2%"]),
        (["--headroom", "risc=9%"], ["--headroom", "risc", "did you mean 'risk'?"]),
        (["--headroom", "risk=900%"], ["--headroom", "'900%'"]),
        (["--settle", "soon"], ["--settle", "'soon'", "a time such as"]),
        (["--load", "soon"], ["--load", "'soon'", "a time such as"]),
        (["--vacate", "soon"], ["--vacate", "'soon'", "a time such as"]),
        (["--interval", "0"], ["--interval", "'0'", "above 0"]),
        (["--interval", "soon"], ["--interval", "'soon'", "a time such as"]),
        (["--from", "half"], ["--from", "'half'", "a share such as 66.7%"]),
        (["--from", "101%"], ["--from", "outside the curve", "day 0 to day 3"]),
        (["--from", "100%"], ["--from", "nothing is left to judge by"]),
        (["--servers", "0"], ["--servers", "found 0", "from 1 to 10,000"]),
        (["--gpus-per-server", "65"], ["--gpus-per-server", "found 65", "from 1 to 64"]),
        (["--report", "."], ["--report", "not a file"]),
        (["--curve", "nothing"], ["nothing"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_what_is_wrong_is_named(folder: Path, options: list[str], words: list[str]) -> None:
    said = str(refused("evaluate", "--curve", f"{CURVE}.csv", *options))
    assert [word for word in words if word not in said] == []


def test_a_predictor_that_is_not_installed_names_its_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "aryl[forecast]" in str(refused("evaluate", "--curve", f"{CURVE}.csv", "--predictor", "mstl"))


def test_training_refuses_what_is_too_short(folder: Path) -> None:
    assert "too short" in str(refused("train", "--curve", f"{CURVE}.csv", "--until", "1%"))
    assert "--until" in str(refused("train", "--curve", f"{CURVE}.csv", "--until", "4d"))
    assert "--interval" in str(refused("train", "--curve", f"{CURVE}.csv", "--interval", "0"))
    assert "--servers" in str(refused("train", "--curve", f"{CURVE}.csv", "--servers", "0"))
    assert [path.name for path in folder.iterdir()] == [f"{CURVE}.csv"]


def test_a_share_of_a_curve_is_cut_at_a_whole_interval_from_its_first_row(folder: Path) -> None:
    Path("late.csv").write_text("time_s,share\n100,0.1\n1100,0.2\n2100,0.3\n")
    late = load_curve("late.csv")
    assert cut_of("50%", "--from", late, 400.0) == 100.0 + 3 * 400.0
    assert cut_of("0%", "--from", late, 400.0) == 100.0
    assert cut_of("100%", "--from", late, 1000.0) == 3100.0
    assert cut_of("1234", "--from", late, 400.0) == 1234.0
    for outside in ("99", "3101"):
        with pytest.raises(InputError, match="outside the curve"):
            cut_of(outside, "--from", late, 400.0)
    Path("one.csv").write_text("time_s,share\n0,0.1\n")
    with pytest.raises(InputError, match="a single row"):
        cut_of("50%", "--from", load_curve("one.csv"), 400.0)
    assert span_text(0.0, 1.5 * 86_400.0) == "day 0 to day 1.5"


def test_libraries_compute_with_one_thread_and_the_environment_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with one_thread():
        assert (os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"]) == ("1", "1")
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OPENBLAS_NUM_THREADS" not in os.environ
