"""Reads, checks and writes the canonical trace table, the one form that everything else in Aryl understands.

A table is checked before it is used, and refused on the first thing that is wrong: a trace that is silently
repaired gives results that nobody can reproduce. The one exception is order: `sort=True` sorts a table by
submission, which is what `aryl trace convert` does.

A running time of 0 is allowed: cluster logs hold jobs that ended the moment they began.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from aryl.errors import InputError, nearest_word
from aryl.traces.columns import (
    COLUMNS,
    NAMES,
    Column,
    Kind,
    cell_text,
    parse_column,
    python_values,
    storage_type,
)
from aryl.traces.model import Trace, TraceJob
from aryl.traces.tables import Table, read_table, without_needless_zeros, write_table

_RELATED = frozenset({"min_workers", "max_workers", "gpus_per_worker", "sizes", "fungible", "heterogeneous"})


def read_canonical(path: Path, *, sort: bool = False) -> Trace:
    """The trace in a CSV (`.csv`, `.csv.gz`), Parquet (`.parquet`) or JSON lines (`.jsonl`, `.ndjson`) file.

    Args:
        path: the file.
        sort: order the jobs by submission instead of refusing a file that isn't in that order.

    Raises:
        InputError: the file is missing, empty or malformed; a column is missing or unknown; a value is out of
            its range; an id occurs twice; the jobs are out of order. It names line, column and the expected.
    """
    return trace_of(read_table(path), path.name.split(".")[0], sort=sort)


def trace_of(table: Table, name: str, *, sort: bool = False) -> Trace:
    """The trace in a table that has been read. Raises like `read_canonical`."""
    _check_columns(table)
    if table.frame.height == 0:
        raise table.error("has a header and no job", expected="at least one job")
    present = [column for column in COLUMNS if column.name in table.frame.columns]
    values = {column.name: _checked(table, column) for column in present}
    _check_ids(table, values["job_id"])
    fields = [
        python_values(column, values[column.name]) if column in present else repeat(_default(column))
        for column in COLUMNS
    ]
    make: type = TraceJob
    jobs: list[TraceJob] = list(map(make, *fields))
    if not _RELATED.isdisjoint(values):
        for row, job in enumerate(jobs):
            _check_workers(table, row, job)
    submit_s = values["submit_s"].to_numpy()
    if sort:
        jobs = [jobs[row] for row in np.argsort(submit_s, kind="stable")]
    else:
        _check_order(table, submit_s)
    return Trace(name, table.file, tuple(jobs))


def _default(column: Column) -> bool | None:
    return True if column.name == "estimate_known" else None


def _check_columns(table: Table) -> None:
    line = table.header_line
    found = table.frame.columns
    for name in found:
        if name not in NAMES:
            near = nearest_word(name, NAMES)
            expected = None if near else "one of " + ", ".join(NAMES)
            raise InputError(
                f"unknown column '{name}'", file=table.file, line=line, expected=expected, nearest=near
            )
    for column in COLUMNS:
        if column.required and column.name not in found:
            raise InputError(
                f"the column '{column.name}' is missing",
                file=table.file,
                line=line,
                found=", ".join(found),
                expected="at least job_id, submit_s, gpus and duration_s",
            )


def _checked(table: Table, column: Column) -> pl.Series:
    raw = table.frame[column.name]
    values = parse_column(column, raw)
    absent = raw.is_null()
    if column.required and absent.any():
        row = int(absent.arg_true()[0])
        raise table.error("the cell is empty", row, field=column.name, expected=column.expected)
    bad = (values.is_null() & ~absent) | ~column.allows(values)
    if bad.any():
        row = int(bad.arg_true()[0])
        found = raw[row] if isinstance(raw[row], str | int | float) else cell_text(raw[row])
        complaint = _complaint(column, values[row])
        raise table.error(complaint, row, field=column.name, found=found, expected=column.expected)
    default = _default(column)
    return values if default is None else values.fill_null(default)


def _complaint(column: Column, value: object) -> str:
    if value is None:
        by_kind = {Kind.INTEGER: "not a whole number", Kind.SECONDS: "not a number"}
        return by_kind.get(column.kind, "not readable")
    if isinstance(value, float) and not np.isfinite(value):
        return "not a finite number"
    return "negative" if isinstance(value, int | float) and value < 0 else "too small"


def _check_ids(table: Table, ids: pl.Series) -> None:
    if ids.n_unique() == len(ids):
        return
    first: dict[str, int] = {}
    for row, job_id in enumerate(ids.to_list()):
        if job_id in first:
            message = f"the id is already used by {table.place(first[job_id])}"
            raise table.error(message, row, field="job_id", found=job_id, expected="a unique id")
        first[job_id] = row


def _check_order(table: Table, submit_s: npt.NDArray[np.float64]) -> None:
    early = np.flatnonzero(np.diff(submit_s) < 0)
    if len(early):
        row = int(early[0]) + 1
        raise table.error(
            f"out of order: earlier than {table.place(row - 1)}",
            row,
            field="submit_s",
            found=f"{submit_s[row]:.10g} after {submit_s[row - 1]:.10g}",
            expected="jobs in order of submission ('aryl trace convert' sorts them)",
        )


def _check_workers(table: Table, row: int, job: TraceJob) -> None:
    problem = worker_problem(job)
    if problem is not None:
        field, found, message, expected = problem
        raise table.error(message, row, field=field, found=found, expected=expected)


def worker_problem(job: TraceJob) -> tuple[str, object, str, str] | None:
    """What contradicts itself in a job, as (field, found, message, expected); None if nothing does."""
    low, high, per_worker, sizes = job.min_workers, job.max_workers, job.gpus_per_worker, job.sizes
    if low is not None and high is not None and low > high:
        return "min_workers", low, "more than max_workers", f"at most {high}"
    if per_worker is not None and job.gpus % per_worker:
        return "gpus_per_worker", per_worker, "does not divide gpus", f"a divisor of {job.gpus}"
    if low is not None and per_worker is not None and low * per_worker != job.gpus:
        return "gpus", job.gpus, "is not min_workers * gpus_per_worker", str(low * per_worker)
    if low is not None and job.gpus % low:
        return "gpus", job.gpus, "not a multiple of min_workers", f"a multiple of {low}"
    base = base_workers(job)
    if high is not None and base > high:
        return "max_workers", high, f"less than the base demand of {base} workers", f"at least {base}"
    if sizes is not None and (sizes[0] < base or (high is not None and sizes[-1] > high)):
        expected = f"sizes of at least {base}" if high is None else f"sizes from {base} to {high}"
        return "sizes", cell_text(sizes), "outside min_workers..max_workers", expected
    if sizes is not None and sizes[0] != base:
        return "sizes", cell_text(sizes), "without the base demand", f"{base} as the first size"
    if job.heterogeneous and job.fungible is False:
        return "fungible", "false", "a heterogeneous job holds both GPU types", "true or empty"
    return None


def base_workers(job: TraceJob) -> int:
    """Workers at base demand: what the row says, else `gpus / gpus_per_worker`, else one GPU each."""
    if job.min_workers is not None:
        return job.min_workers
    return job.gpus // (job.gpus_per_worker or 1)


def trace_frame(trace: Trace) -> pl.DataFrame:
    """The trace as a canonical table: the needed columns and every other that some job has a value in."""
    series = []
    for column in COLUMNS:
        cells: Sequence[object] = [getattr(job, column.name) for job in trace.jobs]
        default = _default(column)
        if not column.required and all(cell == default for cell in cells):
            continue
        if column.kind in (Kind.SIZES, Kind.SPEEDS):
            cells = [None if cell is None else cell_text(cell) for cell in cells]
        series.append(without_needless_zeros(pl.Series(column.name, cells, dtype=storage_type(column))))
    return pl.DataFrame(series)


def write_canonical(trace: Trace, path: Path, *, force: bool = False) -> None:
    """Writes the trace as CSV, Parquet or JSON lines, by the name's ending; the file is whole or not there.

    Raises:
        InputError: the ending is unknown, the folder doesn't exist, or the file exists and `force` isn't set.
    """
    write_table(trace_frame(trace), path, force=force)
