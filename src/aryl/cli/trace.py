"""`aryl trace`: job traces and demand curves, from the catalogue or from files.

A command that makes a trace writes it to OUT, by whose ending it chooses the format, or as CSV to stdout
without one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aryl.cli.output import OutputFormat, console, examples, note, plain_table, print_csv, print_json
from aryl.cli.run_options import Limit, Output, Window
from aryl.cli.trace_describe import curve_rows, trace_tables
from aryl.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from aryl.traces.model import DemandCurve, Trace

trace_app = typer.Typer(no_args_is_help=True, help="Job traces and demand curves.")

Input = Annotated[str, typer.Argument(metavar="NAME|PATH", help="A name of 'aryl trace list', or a file.")]
Out = Annotated[
    Path | None,
    typer.Argument(
        metavar="OUT", help="A .csv, .csv.gz, .parquet or .jsonl file; CSV on stdout without one."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite OUT if it exists.")]
Seed = Annotated[int, typer.Option(help="For everything that is drawn at random.")]


@trace_app.callback()
def _trace() -> None:
    """Job traces and demand curves: list, fetch, describe, check, convert, sample, scale, draw."""


@trace_app.command("list", epilog=examples("aryl trace list", "aryl trace list -o json"))
def list_entries(output: Output = OutputFormat.table) -> None:
    """List the traces and curves that have a name, and whether they are on this machine."""
    from aryl.traces.catalogue import locate
    from aryl.traces.published import ENTRIES

    rows: list[dict[str, Any]] = []
    for entry in ENTRIES:
        here = entry.bundled is not None or all(locate(file) is not None for file in entry.files)
        rows.append(
            {
                "name": entry.name,
                "kind": entry.kind,
                "present": here,
                "summary": entry.summary,
                "licence": entry.licence,
                "source": entry.source,
            }
        )
    if output is OutputFormat.json:
        print_json({"entries": rows})
    elif output is OutputFormat.csv:
        print_csv(rows)
    else:
        titles = ["name", "kind", "here", "what it is", "licence", "source"]
        cells = [[str(cell) for cell in row.values()] for row in rows]
        for row in cells:
            row[2] = "yes" if row[2] == "True" else "no"
        console().print(plain_table(titles, cells))


@trace_app.command(epilog=examples("aryl trace fetch philly", "aryl trace fetch nyc_taxi"))
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of 'aryl trace list'.")],
) -> None:
    """Download a published trace or curve into the cache and check that it is the one we know."""
    from aryl.cli.progress import Bars
    from aryl.traces.fetch import entry_to_fetch, fetch_entry

    entry = entry_to_fetch(name)
    if entry.bundled is not None:
        note(f"{name} comes with Aryl; there is nothing to fetch")
        return
    with Bars([name]) as bars:

        def progress(received: int, expected: int | None) -> None:
            share = min(received / expected, 1.0) if expected else 0.0
            bars.report(0, share, f"{received / 1e6:.1f} MB")

        paths = fetch_entry(entry, progress=progress)
    note(f"{name}: licence {entry.licence}; please cite {entry.source}")
    for path in paths:
        print(path)


@trace_app.command(
    epilog=examples("aryl trace describe philly", "aryl trace describe itp --window 14d,29d -o json")
)
def describe(
    source: Input, window: Window = None, limit: Limit = None, output: Output = OutputFormat.table
) -> None:
    """Show what a planner needs: work, sizes, running times, load and arrivals; or a curve's shape."""
    from aryl.traces.curves import is_curve, load_curve
    from aryl.traces.describe import describe_curve, describe_trace

    if is_curve(source):
        if window is not None or limit is not None:
            raise InputError("--window and --limit are for traces", found=source)
        row = describe_curve(load_curve(source))
        if output is OutputFormat.json:
            print_json(row)
        elif output is OutputFormat.csv:
            print_csv([row])
        else:
            console().print(plain_table(["curve", source], curve_rows(row)))
        return
    summary = describe_trace(_load(source, window, limit)).as_dict()
    if output is OutputFormat.json:
        print_json(summary)
    elif output is OutputFormat.csv:
        print_csv([{key: value for key, value in summary.items() if not isinstance(value, list | tuple)}])
    else:
        for table in trace_tables(summary):
            console().print(table)


@trace_app.command(epilog=examples("aryl trace validate jobs.csv", "aryl trace validate demand.csv -o json"))
def validate(source: Input, output: Output = OutputFormat.table) -> None:
    """Check a trace or a curve; the first thing that is wrong is an error with its line, and exit code 2."""
    from aryl.traces.curves import is_curve, load_curve

    row: dict[str, Any]
    if is_curve(source):
        curve = load_curve(source)
        row = {"source": source, "kind": "curve", "valid": True, "rows": len(curve.busy), "unit": curve.unit}
    else:
        row = {"source": source, "kind": "trace", "valid": True, "rows": len(_load(source, None, None).jobs)}
    if output is OutputFormat.json:
        print_json(row)
    elif output is OutputFormat.csv:
        print_csv([row])
    else:
        what = "jobs" if row["kind"] == "trace" else "rows"
        print(f"{source}: a valid {row['kind']} of {row['rows']:,} {what}")


@trace_app.command(
    epilog=examples(
        "aryl trace convert philly philly.parquet",
        "aryl trace convert unsorted.csv sorted.csv",
        "aryl trace convert itp basic.csv --window 14d,29d --scenario basic --seed 1",
    )
)
def convert(
    *,
    source: Input,
    out: Out = None,
    window: Window = None,
    limit: Limit = None,
    scenario: Annotated[
        str | None, typer.Option(help="Fill in what it doesn't say: basic, advanced, heterogeneous, ideal.")
    ] = None,
    seed: Seed = 1,
    force: Force = False,
) -> None:
    """Write a trace or a curve in Aryl's own format, in order of submission."""
    from aryl.traces.assign import assign_scenario
    from aryl.traces.curves import is_curve, load_curve

    if is_curve(source):
        if window is not None or limit is not None or scenario is not None:
            raise InputError("--window, --limit and --scenario are for traces", found=source)
        _write_curve(load_curve(source), out, force)
        return
    trace = _load(source, window, limit, sort=True)
    _write(trace if scenario is None else assign_scenario(trace, scenario, seed), out, force)


@trace_app.command(
    epilog=examples(
        "aryl trace sample philly small.csv --share 10%", "aryl trace sample itp --jobs 500 --seed 7"
    )
)
def sample(
    *,
    source: Input,
    out: Out = None,
    share: Annotated[str | None, typer.Option(help="Share of the jobs to keep, such as 10% or 0.1.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Number of jobs to keep.")] = None,
    window: Window = None,
    seed: Seed = 1,
    force: Force = False,
) -> None:
    """Keep a random part of a trace, in its order."""
    from aryl.files.units import share as as_share
    from aryl.traces.sample import sample_trace

    part = None if share is None else _number(as_share, share, "--share")
    _write(sample_trace(_load(source, window, None), share=part, jobs=jobs, seed=seed), out, force)


@trace_app.command(
    epilog=examples(
        "aryl trace scale philly busier.csv --arrivals 1.5 --copies",
        "aryl trace scale itp long.csv --durations 2",
    )
)
def scale(
    *,
    source: Input,
    out: Out = None,
    arrivals: Annotated[
        float | None, typer.Option(help="So many times as many submissions in a time.")
    ] = None,
    copies: Annotated[
        bool,
        typer.Option("--copies", help="By submitting copies, not by squeezing the time between submissions."),
    ] = False,
    durations: Annotated[float | None, typer.Option(help="So many times the running times.")] = None,
    window: Window = None,
    seed: Seed = 1,
    force: Force = False,
) -> None:
    """Make a trace denser or sparser, and its jobs longer or shorter."""
    from aryl.traces.sample import scale_arrivals, scale_durations

    if arrivals is None and durations is None:
        raise InputError("say what to scale", expected="--arrivals, --durations or both")
    trace = _load(source, window, None)
    if durations is not None:
        trace = scale_durations(trace, durations)
    if arrivals is not None:
        trace = scale_arrivals(trace, arrivals, copies=copies, seed=seed)
    _write(trace, out, force)


@trace_app.command(epilog=examples("aryl trace fit itp itp.json", "aryl trace fit jobs.csv --window 0,7d"))
def fit(
    *,
    source: Input,
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="A JSON file; stdout without one.")
    ] = None,
    window: Window = None,
    force: Force = False,
) -> None:
    """Fit a small model to a trace: arrivals by hour of the week, sizes, running times by size."""
    from aryl.traces.fit import fit_trace, model_json, write_model

    model = fit_trace(_load(source, window, None))
    if out is None:
        sys.stdout.write(model_json(model))
        return
    write_model(model, out, force=force)
    note(f"wrote {out}")


@trace_app.command(
    epilog=examples(
        "aryl trace synth week.csv --jobs 10000 --days 7 --seed 3",
        "aryl trace synth --model mine.json --jobs 500 --days 1 --busy-gpus 200",
    )
)
def synth(
    *,
    out: Out = None,
    model: Annotated[
        Path | None, typer.Option(help="A model that 'aryl trace fit' wrote; by default one fitted to itp.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of jobs.")] = 1500,
    days: Annotated[float, typer.Option(help="Days over which they are submitted.")] = 3.0,
    seed: Seed = 1,
    max_gpus: Annotated[int | None, typer.Option(help="Leave larger jobs out.")] = None,
    max_duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Leave longer jobs out, such as 1d.")
    ] = None,
    busy_gpus: Annotated[
        float | None, typer.Option(help="Stretch running times until so many GPUs are busy on average.")
    ] = None,
    force: Force = False,
) -> None:
    """Draw a synthetic trace from a fitted model."""
    from aryl.traces.catalogue import bundled_path
    from aryl.traces.fit import read_model
    from aryl.traces.synth import draw

    drawn = draw(
        read_model(bundled_path("itp-fitted.json") if model is None else model),
        jobs,
        days,
        seed,
        max_gpus=max_gpus,
        max_duration_s=None if max_duration is None else _seconds(max_duration, "--max-duration"),
        busy_gpus=busy_gpus,
    )
    _write(drawn, out, force)


@trace_app.command("synth-curve", epilog=examples("aryl trace synth-curve demand.csv --days 14 --peak 90%"))
def synth_curve(
    *,
    out: Out = None,
    days: Annotated[float, typer.Option(help="Its length in days.")] = 5.0,
    seed: Seed = 1,
    trough: Annotated[str, typer.Option(help="Lowest share of the pool that is busy, at 03:00.")] = "25%",
    peak: Annotated[str, typer.Option(help="Highest share, at 15:00.")] = "92%",
    noise: Annotated[str, typer.Option(help="Standard deviation of the noise, as a share.")] = "1.5%",
    force: Force = False,
) -> None:
    """Draw a synthetic curve of inference demand with a daily cycle."""
    from aryl.files.units import share
    from aryl.traces.synth import draw_curve

    curve = draw_curve(
        days,
        seed,
        trough=_number(share, trough, "--trough"),
        peak=_number(share, peak, "--peak"),
        noise=_number(share, noise, "--noise"),
    )
    _write_curve(curve, out, force)


def _number(parse: Callable[[object], float], text: str, flag: str) -> float:
    from aryl.files.units import UnitError

    try:
        return parse(text)
    except UnitError as error:
        raise InputError("wrong value", field=flag, found=text, expected=error.expected) from None


def _seconds(text: str, flag: str) -> float:
    from aryl.files.units import seconds

    return _number(seconds, text, flag)


def _load(source: str, window: str | None, limit: int | None, *, sort: bool = False) -> Trace:
    from aryl.traces.load import load_trace

    bounds: tuple[float, float] | None = None
    if window is not None:
        parts = window.split(",")
        if len(parts) != 2:
            raise InputError(
                "wrong value", field="--window", found=window, expected="START,END, such as 14d,29d"
            )
        bounds = (_seconds(parts[0], "--window"), _seconds(parts[1], "--window"))
    return load_trace(source, window=bounds, limit=limit, sort=sort)


def _write(trace: Trace, out: Path | None, force: bool) -> None:
    from aryl.traces.canonical import trace_frame

    _write_frame(trace_frame(trace), out, force, f"{len(trace.jobs):,} jobs")


def _write_curve(curve: DemandCurve, out: Path | None, force: bool) -> None:
    from aryl.traces.curves import curve_frame

    _write_frame(curve_frame(curve), out, force, f"{len(curve.busy):,} rows")


def _write_frame(frame: pl.DataFrame, out: Path | None, force: bool, what: str) -> None:
    from aryl.traces.tables import write_table

    if out is None:
        sys.stdout.write(frame.write_csv())
        return
    write_table(frame, out, force=force)
    note(f"wrote {what} to {out}")
