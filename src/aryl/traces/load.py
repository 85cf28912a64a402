"""From a name or a path to a trace: the only door through which the rest of Aryl reads jobs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from aryl.errors import InputError
from aryl.traces.canonical import trace_of
from aryl.traces.catalogue import resolve
from aryl.traces.model import Trace, TraceJob
from aryl.traces.originals import is_itp, is_philly, read_itp, read_philly
from aryl.traces.published import Entry
from aryl.traces.tables import Table, read_table


def load_trace(
    name_or_path: str,
    *,
    window: tuple[float, float] | None = None,
    limit: int | None = None,
    sort: bool = False,
) -> Trace:
    """The trace of that name in the catalogue, or in that file; canonical, itp and Philly files are told by
    header.

    Args:
        name_or_path: such as `itp`, `itp/cluster04`, `philly` or `jobs.csv`; a folder of itp files is one
            trace. window: (start, end) in seconds from the trace's start, see `window_trace`. limit: take
            only the first so many jobs, after the window. sort: order a canonical file by submission instead
            of refusing one that isn't in order.

    Raises:
        InputError: nothing of this name, a malformed file, or no job left.
    """
    entry, paths = resolve(name_or_path, "trace")
    trace = _read(name_or_path, entry, paths, sort=sort)
    if window is not None:
        trace = window_trace(trace, *window)
    return trace if limit is None else limit_trace(trace, limit)


def _read(name_or_path: str, entry: Entry | None, paths: list[Path], *, sort: bool) -> Trace:
    tables = [read_table(path) for path in paths]
    name = entry.name if entry else Path(name_or_path).name.split(".")[0]
    source = entry.name if entry else name_or_path
    if len(tables) > 1 or is_itp(tables[0]):
        return read_itp(
            [(_cluster(path), _itp(table)) for path, table in zip(paths, tables, strict=True)], name, source
        )
    if is_philly(tables[0]):
        return read_philly(tables[0], name, source)
    return replace(trace_of(tables[0], name, sort=sort), source=source)


def _cluster(path: Path) -> str:
    return path.name.split(".")[0]


def _itp(table: Table) -> Table:
    if not is_itp(table):
        raise table.error(
            "is one of several files in a folder, but has not the header of an itp trace",
            found=", ".join(table.frame.columns),
            expected="job_id, submission_time, duration, num_gpu",
        )
    return table


def window_trace(trace: Trace, start_s: float, end_s: float) -> Trace:
    """The jobs with `start_s <= submit_s < end_s`, with submissions counted from `start_s`.

    Raises:
        InputError: the window is empty or upside down, or no job is submitted in it.
    """
    if not (math.isfinite(start_s) and math.isfinite(end_s) and 0 <= start_s < end_s):
        raise InputError(
            "not a window of time",
            field="window",
            found=f"[{start_s:.10g}, {end_s:.10g}]",
            expected="0 <= start < end",
        )
    jobs = tuple(_shifted(job, -start_s) for job in trace.jobs if start_s <= job.submit_s < end_s)
    if not jobs:
        raise InputError(
            f"no job of '{trace.name}' is submitted in the window",
            field="window",
            found=f"[{start_s:.10g}, {end_s:.10g}] s",
            expected=f"a part of {trace.jobs[0].submit_s:.10g} to {trace.jobs[-1].submit_s:.10g} s",
        )
    return replace(trace, jobs=jobs)


def _shifted(job: TraceJob, by_s: float) -> TraceJob:
    return replace(job, submit_s=job.submit_s + by_s) if by_s else job


def limit_trace(trace: Trace, jobs: int) -> Trace:
    """The first so many jobs, or all if there are fewer.

    Raises:
        InputError: `jobs` is less than 1.
    """
    if jobs < 1:
        raise InputError("too few jobs", field="limit", found=jobs, expected="at least 1")
    return replace(trace, jobs=trace.jobs[:jobs])
