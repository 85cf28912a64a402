"""From a name or a path to a curve of inference demand, and from any unit to busy servers.

A canonical curve is a table `time_s,servers` (or `gpus`, or `share`), times ascending, each value holding
until the next row. The unit may also be written as `busy_servers`, `servers_busy` or `busy (servers)`; a
column `busy` has no unit. The published curves are `timestamp,value`, without a unit, and their zero is
their first row.

A curve without a unit is a proxy: only its shape means anything. It is scaled so that its 99.5th percentile
is the given share of the inference pool, and what is above is cut off there. A percentile and not the
maximum, because one burst would otherwise make all other days look idle.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from aryl.errors import InputError
from aryl.traces.catalogue import find_entry, resolve
from aryl.traces.model import DemandCurve
from aryl.traces.tables import Table, read_table, without_needless_zeros, write_table

UNITS = ("servers", "gpus", "share")
PEAK_PERCENTILE = 99.5
_BUSY = re.compile(r"(?:busy[ _]*)?[\(\[]?(servers|gpus|share)[\)\]]?(?:[ _]*busy)?", re.IGNORECASE)
_HEADERS = "time_s and one of servers, gpus, share; or timestamp and value"


def load_curve(name_or_path: str) -> DemandCurve:
    """The curve of that name in the catalogue, or in that file (CSV, Parquet or JSON lines).

    Raises:
        InputError: nothing of this name; the file is malformed or empty; a time is not after the one before;
            a value is negative or not finite, or a share is above 1.
    """
    entry, paths = resolve(name_or_path, "curve")
    if len(paths) != 1:
        raise InputError("is a folder", file=name_or_path, expected="one file with a curve")
    name = entry.name if entry else Path(name_or_path).name.split(".")[0]
    return _curve(read_table(paths[0]), name, entry.name if entry else name_or_path)


def is_curve(name_or_path: str) -> bool:
    """Whether the name is a curve's, or the file there has a curve's header.

    Raises:
        InputError: there is such a file, but it can't be read.
    """
    entry = find_entry(name_or_path)
    if entry is not None or not Path(name_or_path).is_file():
        return entry is not None and entry.kind == "curve"
    columns = set(read_table(Path(name_or_path)).frame.columns)
    return "time_s" in columns or {"timestamp", "value"} <= columns


def _curve(table: Table, name: str, source: str) -> DemandCurve:
    columns = table.frame.columns
    if {"timestamp", "value"} <= set(columns):
        time_column, busy_column, unit = "timestamp", "value", None
    else:
        time_column, busy_column, unit = _canonical_columns(table)
    if table.frame.height == 0:
        raise table.error("has a header and no row", expected="at least one row")
    time_s = _times(table, time_column)
    late = np.flatnonzero(np.diff(time_s) <= 0)
    if len(late):
        row = int(late[0]) + 1
        raise table.error(
            f"not after the time on {table.place(row - 1)}",
            row,
            field=time_column,
            found=table.frame[time_column][row],
            expected="times that ascend",
        )
    busy = _numbers(table, busy_column)
    _refuse(table, busy < 0, busy_column, "negative", "a number >= 0")
    if unit == "share":
        _refuse(table, busy > 1, busy_column, "more than the whole pool", "a share from 0 to 1")
    return DemandCurve(name, source, time_s, busy, unit)


def _canonical_columns(table: Table) -> tuple[str, str, str | None]:
    others = [name for name in table.frame.columns if name != "time_s"]
    line = table.header_line
    found = ", ".join(table.frame.columns)
    if len(others) != 1 or len(table.frame.columns) != 2:
        raise InputError(
            "not the columns of a curve", file=table.file, line=line, found=found, expected=_HEADERS
        )
    if others[0] == "busy":
        return "time_s", "busy", None
    match = _BUSY.fullmatch(others[0].strip())
    if match is None:
        raise InputError(
            "the unit is unknown", file=table.file, line=line, found=others[0], expected=_HEADERS
        )
    return "time_s", others[0], match.group(1).lower()


def _times(table: Table, column: str) -> npt.NDArray[np.float64]:
    raw = table.frame[column]
    if column == "time_s":
        return _numbers(table, column)
    stamps = (
        raw
        if raw.dtype.is_temporal()
        else raw.cast(pl.String).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    )
    _refuse(table, stamps.is_null().to_numpy(), column, "not a time", "a time such as 2014-07-01 00:30:00")
    seconds: npt.NDArray[np.float64] = (stamps - stamps[0]).dt.total_seconds().cast(pl.Float64).to_numpy()
    return seconds


def _numbers(table: Table, column: str) -> npt.NDArray[np.float64]:
    raw = table.frame[column]
    values: npt.NDArray[np.float64] = raw.cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()
    _refuse(table, ~np.isfinite(values), column, "not a finite number", "a number")
    return values


def _refuse(table: Table, bad: npt.NDArray[np.bool_], field: str, message: str, expected: str) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        found = table.frame[field][row]
        raise table.error(message, row, field=field, found="" if found is None else found, expected=expected)


def scale_curve(curve: DemandCurve, *, servers: int, gpus_per_server: int, peak: float = 0.95) -> DemandCurve:
    """The curve in busy servers (not rounded), never more than the pool has.

    Args:
        curve: in any unit or in none. servers: servers of the inference pool. gpus_per_server: GPUs of each.
            peak: only for a curve without a unit: the share of the pool that its 99.5th percentile stands
            for, 0 to 1.

    Raises:
        InputError: `peak` is not above 0 and at most 1, the pool is empty, or a curve without a unit is all
            zero.
    """
    if servers < 1 or gpus_per_server < 1:
        raise InputError("the inference pool is empty", found=servers, expected="at least one server and GPU")
    if not 0 < peak <= 1:
        raise InputError(
            "not a share of the pool", field="peak", found=peak, expected="above 0 and at most 1"
        )
    most = float(servers)
    if curve.unit == "servers":
        busy = curve.busy
    elif curve.unit == "gpus":
        busy = curve.busy / gpus_per_server
    elif curve.unit == "share":
        busy = curve.busy * servers
    else:
        top = float(np.percentile(curve.busy, PEAK_PERCENTILE))
        if top <= 0:
            raise InputError("can't be scaled: its 99.5th percentile is 0", file=curve.source)
        most = peak * servers
        busy = curve.busy / top * most
    return replace(curve, busy=np.minimum(busy, most), unit="servers")


def window_curve(curve: DemandCurve, start_s: float, end_s: float) -> DemandCurve:
    """The curve from `start_s` to `end_s`, with times counted from `start_s`; its first row is at 0.

    Raises:
        InputError: the window is empty or upside down, or the curve begins after `start_s` or ends before
            `end_s`.
    """
    if not 0 <= start_s < end_s < math.inf:
        raise InputError(
            "not a window of time",
            field="window",
            found=f"[{start_s:.10g}, {end_s:.10g}]",
            expected="0 <= start < end",
        )
    if curve.time_s[0] > start_s:
        raise InputError(
            f"the demand curve begins at {curve.time_s[0]:.10g} s, after the window does",
            file=curve.source,
            expected=f"a row at {start_s:.10g} s or before",
        )
    if curve.end_s < end_s:
        raise InputError(
            f"the demand curve ends too early: it covers {_span(curve.end_s)}",
            file=curve.source,
            expected=f"at least {_span(end_s)} (the window is {start_s:.10g} s to {end_s:.10g} s)",
        )
    first = int(np.searchsorted(curve.time_s, start_s, side="right")) - 1
    last = int(np.searchsorted(curve.time_s, end_s, side="left"))
    time_s = np.maximum(curve.time_s[first:last] - start_s, 0.0)
    return replace(curve, time_s=time_s, busy=curve.busy[first:last].copy())


def _span(seconds: float) -> str:
    return f"{seconds:.10g} s ({seconds / 86400:.4g} days)"


def mean_busy(curve: DemandCurve) -> float:
    """The time-weighted mean of the curve, in its own unit; a single point counts as itself."""
    if len(curve.time_s) == 1:
        return float(curve.busy[0])
    widths = np.diff(np.append(curve.time_s, curve.end_s))
    return float(np.average(curve.busy, weights=widths))


def curve_frame(curve: DemandCurve) -> pl.DataFrame:
    """The curve as a canonical table: `time_s` and a column named after its unit, or `busy` without one."""
    columns = (pl.Series("time_s", curve.time_s), pl.Series(curve.unit or "busy", curve.busy))
    return pl.DataFrame([without_needless_zeros(column) for column in columns])


def write_curve(curve: DemandCurve, path: Path, *, force: bool = False) -> None:
    """Writes the curve as a canonical CSV, Parquet or JSON lines file, by the name's ending.

    Raises:
        InputError: the ending is unknown, the folder doesn't exist, or the file exists and `force` isn't set.
    """
    write_table(curve_frame(curve), path, force=force)
