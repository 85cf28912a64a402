"""Reads the published traces as their authors published them, so that nobody has to convert anything first.

Two formats, told apart from the canonical one by their headers:

* **itp** (ElasticFlow, ASPLOS 2023): `job_id,submission_time,duration,num_gpu`, one file a cluster, seconds
  from the start of the collection. Ten clusters share that clock, so a trace of several files keeps it: its
  zero is the start of the collection, about half an hour before the first job. A single cluster starts at
  its first job.
* **Philly** (Jeon et al., USENIX ATC 2019, the job-level extract published with Sia):
  `timestamp,duration,num_gpus, gpu_time,cluster`, unordered, without ids. Its zero is the first submission.

Order is part of a trace, because ties are broken by it: itp by (submission, cluster, id), Philly by
(submission, running time, GPUs, cluster), which is all that its rows have.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from aryl.errors import InputError
from aryl.traces.model import Trace, TraceJob
from aryl.traces.tables import Table

Schema = dict[str, type[pl.DataType]]

_ITP: Schema = {"job_id": pl.String, "submission_time": pl.Int64, "duration": pl.Int64, "num_gpu": pl.Int64}
_PHILLY: Schema = {
    "timestamp": pl.Datetime,
    "duration": pl.Float64,
    "num_gpus": pl.Int64,
    "cluster": pl.String,
}


def is_itp(table: Table) -> bool:
    """Whether the table's header is that of an itp file."""
    return set(_ITP) <= set(table.frame.columns)


def is_philly(table: Table) -> bool:
    """Whether the table's header is that of the Philly extract."""
    return set(_PHILLY) <= set(table.frame.columns)


def read_itp(tables: Sequence[tuple[str, Table]], name: str, source: str) -> Trace:
    """One trace of the given clusters' files, each with its cluster's name, which becomes the jobs' project.

    Raises:
        InputError: a cell can't be read or is out of its range, or an id occurs twice.
    """
    frames = []
    for cluster, table in tables:
        frame = _typed(table, _ITP)
        _refuse(table, frame["submission_time"] < 0, "submission_time", "a number of seconds >= 0")
        _refuse(table, frame["duration"] < 0, "duration", "a number of seconds >= 0")
        _refuse(table, frame["num_gpu"] < 1, "num_gpu", "a whole number >= 1")
        frames.append(frame.with_columns(pl.lit(cluster).alias("cluster")))
    jobs = pl.concat(frames).sort("submission_time", "cluster", "job_id")
    if jobs["job_id"].n_unique() < jobs.height:
        twice = jobs.filter(jobs["job_id"].is_duplicated())["job_id"][0]
        raise InputError(
            "the id occurs twice", file=source, field="job_id", found=twice, expected="unique ids"
        )
    start_s = jobs["submission_time"][0] if len(tables) == 1 else 0
    submit_s = pl.col("submission_time") - start_s
    return _trace(name, source, jobs.select("job_id", submit_s, "num_gpu", "duration", "cluster"))


def read_philly(table: Table, name: str, source: str) -> Trace:
    """The Philly trace; a job's id is its place in the order of the trace, its project the virtual cluster.

    Raises:
        InputError: a cell can't be read or is out of its range.
    """
    frame = _typed(table, _PHILLY)
    _refuse(table, frame["duration"] < 0, "duration", "a number of seconds >= 0")
    _refuse(table, frame["num_gpus"] < 1, "num_gpus", "a whole number >= 1")
    jobs = frame.sort("timestamp", "duration", "num_gpus", "cluster", maintain_order=True)
    submit_s = (pl.col("timestamp") - jobs["timestamp"][0]).dt.total_seconds()
    ids = pl.Series("job_id", [f"philly-{place:05d}" for place in range(jobs.height)])
    return _trace(name, source, jobs.select(ids, submit_s, "num_gpus", "duration", "cluster"))


def _typed(table: Table, schema: Schema) -> pl.DataFrame:
    """The columns that we use, as numbers; the first cell that isn't one is an error with its line."""
    if table.frame.height == 0:
        raise table.error("has a header and no job", expected="at least one job")
    columns = []
    for name, dtype in schema.items():
        raw = table.frame[name].cast(pl.String)
        if dtype is pl.Datetime:
            values = raw.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
        else:
            values = raw.cast(dtype, strict=False)
        columns.append(values)
        unreadable = values.is_null() if dtype != pl.Float64 else values.is_null() | ~values.is_finite()
        expected = "a time such as 2017-10-09 07:01:55" if dtype is pl.Datetime else "a value in every row"
        _refuse(table, unreadable, name, expected if dtype in (pl.Datetime, pl.String) else "a number")
    return pl.DataFrame(columns)


def _refuse(table: Table, bad: pl.Series, field: str, expected: str) -> None:
    if bad.fill_null(True).any():
        row = int(bad.fill_null(True).arg_true()[0])
        raise table.error(
            "unusable", row, field=field, found=table.frame[field][row] or "", expected=expected
        )


def _trace(name: str, source: str, table: pl.DataFrame) -> Trace:
    """Jobs from columns in the order job_id, submit_s, gpus, duration_s, project."""
    seconds = table.with_columns(pl.nth(1, 3).cast(pl.Float64))
    jobs = tuple(
        TraceJob(job, at, size, time, project=group) for job, at, size, time, group in seconds.iter_rows()
    )
    return Trace(name, source, jobs)
