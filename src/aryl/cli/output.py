"""What the commands print: data on stdout in the asked-for format, everything else on stderr.

Tables are for people, so times and shares are rounded there; JSON and CSV carry the plain numbers. Without a
terminal a table is as wide as it needs to be, because a pipe has no edge to wrap at.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Summary = Mapping[str, Any]


class OutputFormat(str, Enum):  # noqa: UP042 - Typer shows the plain words of a str enum
    """The formats of `-o`."""

    table = "table"
    json = "json"
    csv = "csv"


def examples(*lines: str) -> str:
    """The epilog of a command's help."""
    # Rich keeps a line of an epilog to itself only between empty ones.
    return "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])


def note(message: str) -> None:
    """A message for people, on stderr."""
    print(message, file=sys.stderr)


def warn(message: str) -> None:
    """A warning, on stderr."""
    print(f"warning: {message}", file=sys.stderr)


def console(stream: TextIO | None = None) -> Console:
    """A console on stdout that never cuts a table where there is no terminal."""
    from rich.console import Console

    target = stream or sys.stdout
    return Console(file=target, width=None if target.isatty() else 400, highlight=False, soft_wrap=False)


def print_json(value: object) -> None:
    """One JSON document. What JSON has no number for, an empty mean say, becomes null."""
    print(json.dumps(without_nan(value), indent=2, ensure_ascii=False, allow_nan=False))


def without_nan(value: Any) -> Any:
    """`value` with NaN and infinity replaced by None, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return value


def flat(row: Summary, prefix: str = "") -> dict[str, Any]:
    """Nested keys joined with dots: `{"jct_s": {"mean": 1}}` becomes `{"jct_s.mean": 1}`."""
    columns: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            columns |= flat(value, f"{name}.")
        else:
            columns[name] = "; ".join(map(str, value)) if isinstance(value, list) else value
    return columns


def print_csv(rows: Sequence[Summary]) -> None:
    """The rows as CSV; the columns are those of all rows, in the order in which they first appear."""
    flattened = [flat(without_nan(row)) for row in rows]
    columns = list(dict.fromkeys(name for row in flattened for name in row))
    writer = csv.DictWriter(sys.stdout, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flattened)


def number(row: Summary, *keys: str) -> float:
    """A number inside a summary; NaN where it has none."""
    value: Any = row
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) else math.nan


def _times(row: Summary, key: str) -> str:
    from aryl.files.units import human_seconds

    return " / ".join(human_seconds(number(row, key, part)) for part in ("mean", "median", "p95"))


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value * 100:.1f}%"


def _whole(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}"


def _ratio(row: Summary, first: Summary, key: str) -> str:
    mine, theirs = number(row, key, "mean"), number(first, key, "mean")
    if math.isnan(mine) or math.isnan(theirs) or theirs <= 0:
        return "-"
    return f"{mine / theirs:.2f}"


def _over_bound(row: Summary) -> str:
    from aryl.report.terms import over_bound

    value = over_bound(row)
    return "-" if value is None else f"{value:.3f}"


def _shortfall(row: Summary) -> str:
    from aryl.files.units import human_seconds

    value = number(row, "inference_shortfall_server_s")
    return "0" if value == 0 else human_seconds(value)


_MEASURES: tuple[tuple[str, Callable[[Summary, Summary], str]], ...] = (
    ("finished", lambda run, _: _whole(number(run, "finished"))),
    ("unfinished", lambda run, _: _whole(number(run, "unfinished"))),
    ("queuing mean / median / p95", lambda run, _: _times(run, "queuing_s")),
    ("ratio", lambda run, first: _ratio(run, first, "queuing_s")),
    ("JCT mean / median / p95", lambda run, _: _times(run, "jct_s")),
    ("ratio", lambda run, first: _ratio(run, first, "jct_s")),
    ("JCT : bound", lambda run, _: _over_bound(run)),
    ("usage", lambda run, _: _percent(number(run, "usage", "overall"))),
    ("preemptions", lambda run, _: _whole(number(run, "preemptions"))),
    ("loans", lambda run, _: _whole(number(run, "loans"))),
    ("server shortfall", lambda run, _: _shortfall(run)),
)


def summary_tables(runs: Sequence[Summary], width: int) -> list[Table]:
    """One table with a row a run or, where `width` columns are too few for it, tables with a column a run.

    Ratios are to the first policy with the same swept values, and smaller is better.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.markup import escape
    from rich.table import Table

    swept = any(run.get("sweep") for run in runs)
    titles = [*(["sweep"] if swept else []), "policy", *(title for title, _ in _MEASURES)]
    firsts: dict[str, Summary] = {}
    rows: list[list[str]] = []
    for run in runs:
        label = sweep_text(run)
        first = firsts.setdefault(label, run)
        cells = [str(run.get("policy", "")), *(cell(run, first) for _, cell in _MEASURES)]
        rows.append([label, *cells] if swept else cells)
    widths = [max(map(cell_len, column)) + 3 for column in zip(titles, *rows, strict=True)]
    names = 2 if swept else 1
    if sum(widths) < width:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for index, title in enumerate(titles):
            table.add_column(title, justify="left" if index < names else "right", no_wrap=True)
        for row in rows:
            table.add_row(*map(escape, row))
        return [table]
    return _tables_by_column(titles, rows, names, width)


def _tables_by_column(titles: list[str], rows: list[list[str]], names: int, width: int) -> list[Table]:
    from rich import box
    from rich.cells import cell_len
    from rich.markup import escape
    from rich.table import Table

    # "queuing mean / median / p95" becomes three rows, so that a column is as narrow as one time.
    measures = [
        (part, index, at)
        for index, title in enumerate(titles[names:], names)
        for at, part in enumerate(title.split(" / "))
    ]
    cells = [[row[index].split(" / ")[at] for _, index, at in measures] for row in rows]
    first = max(cell_len(part) for part, _, _ in measures) + 4
    widest = max(cell_len(cell) for column in cells for cell in column) + 3
    heads = [row[:names] for row in rows]
    widest = max(widest, min(18, max(cell_len(line) + 3 for head in heads for line in head)))
    columns = max(1, (width - first) // widest)
    tables: list[Table] = []
    for start in range(0, len(rows), columns):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("", no_wrap=True)
        for head in heads[start : start + columns]:
            table.add_column(escape("\n".join(head)), justify="right", overflow="fold", max_width=widest - 2)
        for number_of_row, (part, _, at) in enumerate(measures):
            some = cells[start : start + columns]
            table.add_row(("  " if at else "") + part, *(escape(column[number_of_row]) for column in some))
        tables.append(table)
    return tables


def sweep_text(run: Summary) -> str:
    """The swept values of a run on one line."""
    return " ".join(f"{key}={value}" for key, value in (run.get("sweep") or {}).items())


def print_runs(runs: Sequence[Summary], output: OutputFormat) -> None:
    """The summaries of some runs, in order."""
    if output is OutputFormat.json:
        print_json({"runs": list(runs)})
    elif output is OutputFormat.csv:
        print_csv(runs)
    else:
        target = console()
        for table in summary_tables(runs, target.width):
            target.print(table)


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of texts."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table
