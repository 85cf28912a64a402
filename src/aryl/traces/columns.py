"""The columns of the canonical trace table: their names, kinds, and how a cell is read and written.

A cell is text in CSV and in JSON lines and may be typed in Parquet; both take the same road here. A whole
column is parsed at once, because traces have tens of thousands of rows, and the first bad row is looked up
only if there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import polars as pl


class Kind(Enum):
    """How the cells of a column are read."""

    TEXT = "text"
    INTEGER = "a whole number"
    SECONDS = "a number of seconds"
    FLAG = "true or false"
    SIZES = "whole numbers with ';' between them, ascending, such as 8;16;32"
    SPEEDS = "pairs such as V100:1.0;T4:0.33"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. A value below `least` is refused, and so is `least` itself where `above` is set."""

    name: str
    kind: Kind
    required: bool = False
    least: float | None = None
    above: bool = False

    @property
    def expected(self) -> str:
        """What a cell must be, in words, for error messages."""
        if self.least is None:
            return self.kind.value
        return f"{self.kind.value} {'>' if self.above else '>='} {self.least:g}"

    def allows(self, values: pl.Series) -> pl.Series:
        """Which values are finite and not too small (nulls count as allowed)."""
        good = pl.repeat(True, len(values), eager=True)
        if values.dtype.is_float():
            good = good & values.is_finite()
        if self.least is not None:
            good = good & (values > self.least if self.above else values >= self.least)
        return good | values.is_null()


# In the order of `TraceJob`'s fields, so that a row of columns is a row of arguments.
COLUMNS: tuple[Column, ...] = (
    Column("job_id", Kind.TEXT, required=True),
    Column("submit_s", Kind.SECONDS, required=True, least=0),
    Column("gpus", Kind.INTEGER, required=True, least=1),
    Column("duration_s", Kind.SECONDS, required=True, least=0),
    Column("min_workers", Kind.INTEGER, least=1),
    Column("max_workers", Kind.INTEGER, least=1),
    Column("gpus_per_worker", Kind.INTEGER, least=1),
    Column("sizes", Kind.SIZES),
    Column("user", Kind.TEXT),
    Column("project", Kind.TEXT),
    Column("priority", Kind.INTEGER),
    Column("model", Kind.TEXT),
    Column("gpu_types", Kind.SPEEDS),
    Column("fungible", Kind.FLAG),
    Column("heterogeneous", Kind.FLAG),
    Column("estimate_s", Kind.SECONDS, least=0, above=True),
    Column("checkpoint_s", Kind.SECONDS, least=0, above=True),
    Column("estimate_known", Kind.FLAG),
)
NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)

_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_TYPES: dict[Kind, type[pl.DataType]] = {
    Kind.TEXT: pl.String,
    Kind.INTEGER: pl.Int64,
    Kind.SECONDS: pl.Float64,
    Kind.FLAG: pl.Boolean,
    Kind.SIZES: pl.String,
    Kind.SPEEDS: pl.String,
}


def storage_type(column: Column) -> type[pl.DataType]:
    """The type that a written file gives the column; lists are written as text."""
    return _TYPES[column.kind]


def parse_column(column: Column, raw: pl.Series) -> pl.Series:
    """The column's cells as values: null where a cell is empty or unreadable; the caller tells them apart."""
    if column.kind is Kind.TEXT:
        return raw.cast(pl.String)
    if column.kind is Kind.INTEGER:
        return _integers(raw)
    if column.kind is Kind.SECONDS:
        return raw.cast(pl.Float64, strict=False) if raw.dtype != pl.Boolean else _nulls(raw, pl.Float64)
    if column.kind is Kind.FLAG:
        return _flags(raw)
    parse = parse_sizes if column.kind is Kind.SIZES else parse_speeds
    text = raw.cast(pl.String) if raw.dtype == pl.String or raw.dtype.is_numeric() else _joined(raw)
    good = {
        value: value for value in text.unique().to_list() if value is not None and parse(value) is not None
    }
    return text.replace_strict(good, default=None, return_dtype=pl.String)


def python_values(column: Column, values: pl.Series) -> list[object]:
    """A parsed column as what `TraceJob` holds: tuples for lists, plain values for the others."""
    cells: list[object] = values.to_list()
    if column.kind not in (Kind.SIZES, Kind.SPEEDS):
        return cells
    parse: Callable[[str], object] = parse_sizes if column.kind is Kind.SIZES else parse_speeds
    # A trace has few distinct lists, so each spelling is parsed once.
    known = {text: parse(text) for text in values.unique().to_list() if text is not None}
    return [None if text is None else known[str(text)] for text in cells]


def _nulls(raw: pl.Series, dtype: type[pl.DataType]) -> pl.Series:
    return pl.Series(raw.name, [None] * len(raw), dtype=dtype)


def _integers(raw: pl.Series) -> pl.Series:
    if raw.dtype == pl.Boolean:
        return _nulls(raw, pl.Int64)
    whole = raw.cast(pl.Int64, strict=False) if raw.dtype == pl.String else _nulls(raw, pl.Int64)
    number = raw.cast(pl.Float64, strict=False)
    # 8.0 is a whole number; 8.5 and 1e300 are not ones that we can hold.
    fits = number.is_finite() & (number == number.floor()) & (number.abs() < 2.0**53)
    rounded = pl.select(pl.when(fits.fill_null(False)).then(number.fill_nan(None))).to_series()
    return whole.fill_null(rounded.cast(pl.Int64, strict=False))


def _flags(raw: pl.Series) -> pl.Series:
    if raw.dtype == pl.Boolean:
        return raw
    text = raw.cast(pl.String).str.to_lowercase()
    return text.replace_strict(_FLAGS, default=None, return_dtype=pl.Boolean)


def _joined(raw: pl.Series) -> pl.Series:
    return pl.Series(raw.name, [None if v is None else cell_text(v) for v in raw.to_list()], dtype=pl.String)


def cell_text(value: object) -> str:
    """A value as a cell's text: lists joined with ';', pairs as name:speed, flags in lower case."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ";".join(f"{name}:{speed}" for name, speed in value.items() if speed is not None)
    if isinstance(value, list | tuple | pl.Series):
        return ";".join(":".join(map(str, part)) if isinstance(part, tuple) else str(part) for part in value)
    return repr(value) if isinstance(value, float) else str(value)


def parse_sizes(text: str) -> tuple[int, ...] | None:
    """`8;16;32` as numbers, or None if the text is not an ascending list of whole numbers of at least 1."""
    try:
        sizes = tuple(int(part) for part in text.split(";"))
    except ValueError:
        return None
    ascending = all(low < high for low, high in pairwise(sizes))
    return sizes if ascending and sizes[0] >= 1 else None


def parse_speeds(text: str) -> tuple[tuple[str, float], ...] | None:
    """`V100:1.0;T4:0.33` as pairs of GPU type and relative speed (1 if left out), or None if unreadable."""
    pairs: list[tuple[str, float]] = []
    for part in text.split(";"):
        name, colon, speed_text = part.partition(":")
        try:
            speed = float(speed_text) if colon else 1.0
        except ValueError:
            return None
        if not name.strip() or not 0 < speed < float("inf"):
            return None
        pairs.append((name.strip(), speed))
    return tuple(pairs) if len({name for name, _ in pairs}) == len(pairs) else None
