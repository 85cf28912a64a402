"""`aryl forecast`: predictors of inference demand: list them, train one, judge them on a curve."""

from __future__ import annotations

import time
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aryl.cli.output import OutputFormat, console, examples, note, plain_table, print_csv, print_json
from aryl.errors import InputError

if TYPE_CHECKING:
    from aryl.cli.backtest import Asked

forecast_app = typer.Typer(no_args_is_help=True, help="Predictors of inference demand.")

Curve = Annotated[
    str, typer.Option(metavar="NAME|PATH", help="A curve of 'aryl trace list', or a file with one.")
]
Interval = Annotated[str, typer.Option(metavar="TIME", help="Time between two forecasts.")]
Servers = Annotated[int, typer.Option(help="Servers of the inference pool.")]
Gpus = Annotated[int, typer.Option(help="GPUs of a server, for a curve in GPUs.")]


class Loss(str, Enum):  # noqa: UP042 - Typer shows the plain words of a str enum
    """What training makes small."""

    quantile = "quantile"
    squared = "squared"


@forecast_app.callback()
def _forecast() -> None:
    """Predictors of inference demand: list them, train one, judge them on a curve."""


@forecast_app.command("list", epilog=examples("aryl forecast list", "aryl forecast list -o json"))
def list_predictors(
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="Format.")] = OutputFormat.table,
) -> None:
    """List the predictors, and whether what they need is installed."""
    from aryl.forecast.catalogue import EXTRA, TABLE

    rows: list[dict[str, Any]] = [
        {
            "name": info.name,
            "summary": info.summary,
            "source": info.source,
            "installed": info.installed,
            "extra": EXTRA if info.needs else None,
        }
        for info in TABLE
    ]
    if output is OutputFormat.json:
        print_json({"predictors": rows})
    elif output is OutputFormat.csv:
        print_csv([{**row, "extra": row["extra"] or ""} for row in rows])
    else:
        here = ["yes" if row["installed"] else f"pip install 'aryl[{row['extra']}]'" for row in rows]
        cells = [
            [row["name"], row["summary"], row["source"], words] for row, words in zip(rows, here, strict=True)
        ]
        console().print(plain_table(["predictor", "what it expects", "source", "here"], cells))


@forecast_app.command(
    epilog=examples(
        "aryl forecast train --curve twitter_goog",
        "aryl forecast train --curve demand.csv --until 14d --out demand.lstm --loss squared",
    )
)
def train(
    *,
    curve: Curve,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The model. Default: CURVE.lstm in this folder.")
    ] = None,
    loss: Annotated[Loss, typer.Option(help="The paper's is squared.")] = Loss.quantile,
    until: Annotated[
        str, typer.Option(metavar="SHARE|TIME", help="Train on what is before; the rest is to judge by.")
    ] = "66.7%",
    interval: Interval = "5m",
    servers: Servers = 200,
    gpus_per_server: Gpus = 8,
    seed: Annotated[int, typer.Option(help="For everything that is drawn at random.")] = 1,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", help="Passes over the curve, at most. Default: 40.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")] = False,
) -> None:
    """Train the LSTM on the first part of a curve, and keep it in a file. Needs the extra 'forecast'."""
    from aryl.cli import backtest
    from aryl.cli.progress import Bars
    from aryl.forecast.lstm import Loss as TrainedLoss
    from aryl.forecast.lstm_store import save
    from aryl.forecast.lstm_training import EPOCHS, require_torch
    from aryl.forecast.lstm_training import train as train_model
    from aryl.sim.backtest import sampled_need
    from aryl.traces.curves import load_curve
    from aryl.whole_files import atomic_path

    require_torch()
    backtest.check_servers(servers, gpus_per_server)
    interval_s = backtest.seconds_of(interval, "--interval")
    loaded = load_curve(curve)
    until_s = backtest.cut_of(until, "--until", loaded, interval_s)
    target = Path(f"{loaded.name}.lstm") if out is None else out
    needs = sampled_need(loaded, servers, gpus_per_server, until_s, interval_s)
    began_s = time.perf_counter()
    # A place that can't be written is found out before and not after the training.
    with atomic_path(target, force=force) as staged:
        with Bars([f"training on {loaded.name}"]) as bars:
            model = train_model(
                needs,
                interval_s,
                loss=TrainedLoss(loss.value),
                seed=seed,
                epochs=EPOCHS if epochs is None else epochs,
                curve=loaded.name,
                from_s=float(loaded.time_s[0]),
                on_progress=lambda share, words: bars.report(0, share, words),
            )
        save(model, staged, force=True)
    facts = model.facts
    note(
        f"trained on {backtest.span_text(facts.from_s, facts.until_s)} of {facts.curve}: "
        f"{facts.epochs} passes in {time.perf_counter() - began_s:.1f} s"
    )
    rows = [
        [
            "mean absolute error on the last part, which it didn't see",
            f"{facts.tail_error_servers:.3f} servers",
        ],
        ["of a forecast that it stays as it is", f"{facts.last_error_servers:.3f} servers"],
    ]
    console().print(plain_table(["model", str(target)], rows))


@forecast_app.command(
    epilog=examples(
        "aryl forecast evaluate --curve nyc_taxi --report forecasts.html",
        "aryl forecast evaluate --curve twitter_goog --model twitter_goog.lstm --frontier",
        "aryl forecast evaluate --curve demand.csv --predictor last,week --from 14d --headroom 4 -o json",
    )
)
def evaluate(
    *,
    curve: Curve,
    predictor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="P[,P...]", help="Names of 'aryl forecast list'; may be repeated. Default: all."
        ),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For lstm: a file of 'aryl forecast train'.")
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh/--no-refresh", help="Whether lstm goes on learning every day.")
    ] = True,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="SHARE|TIME", help="Judge by what is after; what is before is known to all."
        ),
    ] = "66.7%",
    interval: Interval = "5m",
    servers: Servers = 200,
    gpus_per_server: Gpus = 8,
    load: Annotated[
        str, typer.Option(metavar="TIME", help="How long a returned server loads its models.")
    ] = "6m",
    vacate: Annotated[str, typer.Option(metavar="TIME", help="How long a job takes to leave.")] = "60s",
    headroom: Annotated[
        str | None,
        typer.Option(
            metavar="H", help="What is kept on top: 4, 2%, risk=9% or quantile=99%. Default: risk=9%."
        ),
    ] = None,
    settle: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long less has to do before more is lent. Default: 15m."),
    ] = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Also the default predictor with risks from 1 to 50%.")
    ] = False,
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="Format.")] = OutputFormat.table,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a page with plots.")] = None,
    jobs_in_parallel: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Rows at the same time. Default: one for each CPU.")
    ] = None,
) -> None:
    """Judge predictors on the rest of a curve: their errors, and what is lent and short in simulations."""
    from aryl.cli import backtest

    if report is not None and find_spec("plotly") is None:
        raise InputError(
            "the page needs plotly", file="--report", expected="pip install 'aryl[report]' first"
        )
    with backtest.one_thread():
        from aryl.traces.curves import load_curve

        backtest.check_servers(servers, gpus_per_server)
        interval_s = backtest.seconds_of(interval, "--interval")
        loaded = load_curve(curve)
        from_s = backtest.cut_of(start, "--from", loaded, interval_s)
        if loaded.end_s - from_s < interval_s:
            raise InputError(
                "nothing is left to judge by", field="--from", found=start, expected="an earlier time"
            )
        predictors = backtest.chosen_predictors(predictor, model)
        if model is not None:
            from aryl.forecast.lstm_store import load as load_model

            facts = load_model(model).facts
            backtest.check_model(facts, model, loaded, from_s, interval_s)
            if refresh:
                from aryl.forecast.lstm_training import require_torch

                require_torch()
        asked = backtest.Asked(
            curve=loaded,
            source=curve,
            servers=servers,
            gpus_per_server=gpus_per_server,
            from_s=from_s,
            interval=interval,
            load=load,
            vacate=vacate,
            headroom=headroom,
            settle=settle,
            model=model,
            refresh=refresh,
        )
        _evaluate(asked, predictors, frontier, output, report, jobs_in_parallel)


def _evaluate(
    asked: Asked,
    predictors: list[str],
    frontier: bool,
    output: OutputFormat,
    report: Path | None,
    processes: int | None,
) -> None:
    from aryl.cli import backtest
    from aryl.cli.parallel import run_all
    from aryl.cli.progress import Bars
    from aryl.cli.staging import Staging
    from aryl.report.forecast_page import write_forecast_page

    tasks = backtest.rows_of(asked, predictors, frontier=frontier)
    count = processes or backtest.processes_for(len(tasks))
    with Staging(report=report) as staging:
        with Bars([task.label for task in tasks]) as bars:
            rows = run_all(tasks, count, bars.report, execute=backtest.judge_row)
        test = backtest.test_of(asked, tasks, rows, backtest.shown_of(predictors))
        if staging.report is not None:
            write_forecast_page(test, staging.report)
        staging.commit()
    note(backtest.told_of(test))
    backtest.print_test(test, output)
    if report is not None:
        note(f"report: {report}")
