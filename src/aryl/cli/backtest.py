"""What `aryl forecast evaluate` runs: which rows, on which part of a curve, and what is printed of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aryl.cli.output import OutputFormat, console, plain_table, print_csv, print_json
from aryl.cli.parallel import Progress, Task
from aryl.errors import InputError, nearest_word

if TYPE_CHECKING:
    from aryl.files.faults import KeyPath
    from aryl.forecast.lstm import LstmFacts
    from aryl.report.forecast_page import BackTest
    from aryl.report.judged import Judged
    from aryl.traces.model import DemandCurve

DAY_S = 86_400.0
REACTIVE, PAPER, ORACLE = "reactive", "paper", "oracle"
PAPER_HEADROOM = "2%"
FRONTIER = ("1%", "2%", "5%", "10%", "20%", "50%")
# More servers and twice as many jobs take longer than anybody waits.
MOST_SERVERS = 10_000


@dataclass(frozen=True)
class Row(Task):
    """One back test. `accuracy`: ask for quantiles too."""

    accuracy: bool = True
    is_frontier: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for: texts as written on the command line; None: the default of the file format."""

    curve: DemandCurve
    source: str
    servers: int
    gpus_per_server: int
    from_s: float
    interval: str
    load: str
    vacate: str
    headroom: str | None = None
    settle: str | None = None
    model: Path | None = None
    refresh: bool = True


def rows_of(asked: Asked, predictors: Sequence[str], *, frontier: bool) -> list[Row]:
    """All rows: the predictors, what they are held against, and the headrooms of a frontier.

    Raises InputError for the first option that can't be used.
    """
    rows = [_row(asked, name, name) for name in predictors]
    rows.append(_row(asked, REACTIVE, "last", headroom="0", settle="0", accuracy=False))
    if asked.model is not None:
        rows.append(_row(asked, PAPER, "lstm", headroom=PAPER_HEADROOM, settle="0", accuracy=False))
    rows.append(_row(asked, ORACLE, ORACLE, headroom="0", settle="0", accuracy=False))
    if frontier:
        name = shown_of(predictors)
        rows += [
            _row(
                asked,
                f"{name}, risk {risk}",
                name,
                headroom=f"risk={risk}",
                accuracy=False,
                is_frontier=True,
            )
            for risk in FRONTIER
        ]
    return rows


def shown_of(predictors: Sequence[str]) -> str:
    """The predictor that is drawn over time: the default one, or the first."""
    from aryl.files.inference_fields import ForecastConfig

    default = ForecastConfig().predictor
    return default if default in predictors else predictors[0]


def _row(
    asked: Asked,
    label: str,
    predictor: str,
    *,
    headroom: str | None = None,
    settle: str | None = None,
    accuracy: bool = True,
    is_frontier: bool = False,
) -> Row:
    from aryl.files.faults import Place
    from aryl.sim.backtest import POLICY, busy_pools
    from aryl.sim.experiment_file import ExperimentSource

    data = busy_pools(asked.servers, asked.gpus_per_server, asked.curve.end_s - asked.from_s)
    data["simulation"] |= {"interval": asked.interval, "vacate_s": asked.vacate}
    data["inference"] = {"curve": asked.source, "from": asked.from_s, "load": asked.load}
    forecast: dict[str, Any] = {"predictor": predictor}
    if predictor == "lstm":
        forecast |= {"model": str(asked.model), "refresh": asked.refresh}
    data["inference"]["forecast"] = forecast
    headroom = asked.headroom if headroom is None else headroom
    settle = asked.settle if settle is None else settle
    if headroom is not None:
        data["inference"]["headroom"] = _headroom(headroom)
    if settle is not None:
        data["inference"]["settle"] = settle
    flags: dict[KeyPath, str] = {
        ("inference", "curve"): "--curve",
        ("inference", "headroom"): "--headroom",
        ("inference", "settle"): "--settle",
        ("inference", "load"): "--load",
        ("simulation", "interval"): "--interval",
        ("simulation", "vacate_s"): "--vacate",
        ("cluster",): "--servers",
    }
    places = {path: Place(flag) for path, flag in flags.items()}
    experiment = ExperimentSource(data, {(): Place("--curve"), **places}).build()
    return Row(label, experiment, POLICY, accuracy=accuracy, is_frontier=is_frontier)


def _headroom(text: str) -> Any:
    """`risk=9%` as a file says it; whether it is right is for the file format to say."""
    kind, equals, value = text.partition("=")
    return {kind.strip(): value.strip()} if equals else text


def judge_row(task: Task, report: Progress) -> Judged:
    """Run one row in this process."""
    from aryl.report.judged import Judged
    from aryl.sim.backtest import headroom_text, judge

    assert isinstance(task, Row)
    inference = task.experiment.inference
    trial = judge(task.experiment, accuracy=task.accuracy, on_progress=report)
    return Judged(
        task.label,
        inference.forecast.predictor,
        headroom_text(inference.headroom),
        inference.settle,
        trial.lending,
        trial.accuracy,
        trial.course,
        task.is_frontier,
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Libraries that are loaded within, in worker processes too, compute with one thread: several workers
    would get in each other's way, and sums come out the same whatever the number of CPUs.
    """
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def seconds_of(text: str, flag: str) -> float:
    """A time above 0 as a flag has it. Raises InputError."""
    from aryl.files.units import EXPECTED_TIME, UnitError, seconds

    try:
        value = seconds(text)
    except UnitError as error:
        raise InputError("wrong value", field=flag, found=text, expected=error.expected) from None
    if value <= 0.0:
        raise InputError("wrong value", field=flag, found=text, expected=f"{EXPECTED_TIME}, above 0")
    return value


def cut_of(text: str, flag: str, curve: DemandCurve, interval_s: float) -> float:
    """Where a curve is cut in two: a time of the curve, or a share of its length, down to whole intervals
    from its first row on.

    Raises InputError for anything else, or if one of the halves would be shorter than an interval.
    """
    from aryl.files.units import UnitError, seconds, share

    first_s, end_s = float(curve.time_s[0]), curve.end_s
    expected = "a share such as 66.7%, or a time of the curve such as 10d"
    if end_s == float("inf"):
        raise InputError("a single row is no curve to forecast", file=curve.source)
    try:
        if "%" in text:
            whole = share(text) * (end_s - first_s) / interval_s
            cut_s = first_s + int(whole + 1e-9) * interval_s
        else:
            cut_s = seconds(text)
    except UnitError:
        raise InputError("wrong value", field=flag, found=text, expected=expected) from None
    if not first_s <= cut_s <= end_s:
        raise InputError(
            "outside the curve",
            field=flag,
            found=text,
            expected=f"{expected}; {curve.source} is from {span_text(first_s, end_s)}",
        )
    return cut_s


def span_text(from_s: float, until_s: float) -> str:
    """A part of a curve for people."""
    return f"day {from_s / DAY_S:.4g} to day {until_s / DAY_S:.4g}"


def check_servers(servers: int, gpus_per_server: int) -> None:
    """Raise InputError for a pool that can't be."""
    for flag, value, most in (
        ("--servers", servers, MOST_SERVERS),
        ("--gpus-per-server", gpus_per_server, 64),
    ):
        if not 1 <= value <= most:
            raise InputError("wrong value", field=flag, found=value, expected=f"a number from 1 to {most:,}")


def chosen_predictors(texts: Sequence[str] | None, model: Path | None) -> list[str]:
    """The predictors to judge: those named, or all that are installed.

    Raises InputError for one that isn't known or installed, that is named twice or that lacks its model.
    """
    from aryl.forecast.catalogue import TABLE, require_engine

    known = [info.name for info in TABLE]
    if not texts:
        return [info.name for info in TABLE if info.name != "lstm" and info.installed] + (
            ["lstm"] if model is not None else []
        )
    chosen: list[str] = []
    for name in (part.strip() for text in texts for part in text.split(",")):
        if name not in known:
            expected = "one of " + ", ".join(known)
            near = nearest_word(name, known)
            raise InputError(
                "no such predictor", field="--predictor", found=name, expected=expected, nearest=near
            )
        if name in chosen:
            raise InputError("given twice", field="--predictor", found=name)
        if name != "lstm":  # with a model it may do without its engine
            require_engine(next(info for info in TABLE if info.name == name))
        elif model is None:
            raise InputError(
                "lstm needs a trained model",
                field="--predictor",
                expected="--model FILE, with a file of 'aryl forecast train'",
            )
        chosen.append(name)
    if model is not None and "lstm" not in chosen:
        raise InputError("a model is for lstm", field="--model", found=str(model), expected="lstm as well")
    return chosen


def check_model(facts: LstmFacts, model: Path, curve: DemandCurve, from_s: float, interval_s: float) -> None:
    """Raise InputError if a model was trained on what it is to be judged by, or on other intervals."""
    if facts.curve == curve.name and facts.until_s > from_s + 1e-6:
        raise InputError(
            f"trained on {span_text(facts.from_s, facts.until_s)} of {curve.name}, and is to be judged on "
            f"{span_text(from_s, curve.end_s)}",
            file=str(model),
            expected=f"--from {facts.until_s:.10g}s or later, or a model trained on less",
        )
    if abs(facts.step_s - interval_s) > 1e-9 * interval_s:
        raise InputError(
            "trained with another interval",
            file=str(model),
            found=f"{facts.step_s:.10g}s",
            expected=f"{interval_s:.10g}s, as --interval says",
        )


def processes_for(rows: int) -> int:
    """One process for each CPU, and none without work."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cpus, rows))


def test_of(asked: Asked, tasks: Sequence[Row], rows: Sequence[Judged], shown: str) -> BackTest:
    """The results of all rows together."""
    from aryl.report.forecast_page import BackTest

    first = tasks[0].experiment
    lead_s = first.simulation.interval + first.simulation.vacate_s + first.inference.load
    oracle = next(row.lending for row in rows if row.label == ORACLE)
    return BackTest(
        asked.curve.name,
        asked.servers,
        asked.from_s,
        asked.curve.end_s,
        first.simulation.interval,
        lead_s,
        tuple(rows),
        oracle,
        shown,
    )


def told_of(test: BackTest) -> str:
    """What the rows were judged by, for people."""
    idle_h = test.rows[0].lending.idle_server_s / 3600.0
    return (
        f"{test.curve}, {span_text(test.from_s, test.until_s)}: {test.servers:,} servers, of which "
        f"{idle_h:,.0f} server-hours are idle; forecasts look {test.lead_s / 60:.4g} min ahead"
    )


def print_test(test: BackTest, output: OutputFormat) -> None:
    """The rows on stdout."""
    from aryl.report.forecast_page import TITLES, cells

    rows = [row.as_dict(test.oracle) for row in test.rows]
    if output is OutputFormat.json:
        print_json({**head_of(test), "rows": rows})
    elif output is OutputFormat.csv:
        # Without figures there are no columns either; those of other rows stay empty.
        print_csv([{**row, "accuracy": row["accuracy"] or {}} for row in rows])
    else:
        texts = [[row.label, *cells(row, test.oracle)] for row in test.rows]
        judged = [row for row in texts if row[1] != "-"]
        # Two tables, because one would be too wide for a terminal.
        accuracy = TITLES.index("shortfall") + 1
        if judged:
            _print_numbers(["", *TITLES[: accuracy - 1]], [row[:accuracy] for row in judged])
        lending = ["", *TITLES[accuracy - 1 :]]
        _print_numbers(lending, [[row[0], *row[accuracy:]] for row in texts])


def _print_numbers(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = plain_table(titles, rows)
    for column in table.columns[1:]:
        column.justify = "right"
    console().print(table)


def head_of(test: BackTest) -> dict[str, Any]:
    """What all rows have in common."""
    return {
        "curve": test.curve,
        "servers": test.servers,
        "from_s": test.from_s,
        "until_s": test.until_s,
        "interval_s": test.interval_s,
        "lead_s": test.lead_s,
    }
