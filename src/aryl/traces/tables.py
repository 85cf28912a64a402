"""Reads and writes CSV, Parquet and JSON lines as one shape: a table that still knows the line of each row.

Nothing is interpreted here. CSV and JSON lines arrive as text, so that a bad number is found by us, with its
line, and not by a parser that only knows its byte offset. Line 1 of a CSV file is its header. Parquet has no
lines; there a row is named by its number, from 1. Blank lines are skipped.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from aryl.errors import InputError
from aryl.traces.columns import cell_text
from aryl.whole_files import atomic_path

_SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def format_of(path: Path) -> str:
    """`csv`, `parquet` or `jsonl`, from the file's name (a trailing `.gz` is looked through).

    Raises:
        InputError: the name ends in nothing that is known.
    """
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    kind = _SUFFIXES.get(suffixes[-1].lower()) if suffixes else None
    if kind is None:
        raise InputError(
            "can't tell the format from the name",
            file=str(path),
            expected="a name that ends in .csv, .csv.gz, .parquet, .jsonl or .ndjson",
        )
    return kind


@dataclass(frozen=True, slots=True)
class Table:
    """Cells, a column per name, nulls where a cell is empty, and where the rows came from."""

    file: str
    frame: pl.DataFrame
    kind: str
    text: str = field(default="", repr=False)
    row_numbers: tuple[int, ...] | None = field(default=None, repr=False)
    header_line: int | None = None

    def line(self, row: int) -> int | None:
        """The line of the file on which row `row` (from 0) stands; None where a file has no lines."""
        number = row if self.row_numbers is None else self.row_numbers[row]
        if self.kind == "parquet":
            return None
        if self.kind == "jsonl":
            return number + 1
        # A quoted cell may hold line breaks, so lines are counted only now that somebody asks.
        reader = csv.reader(io.StringIO(self.text, newline=""))
        end_of_previous = 0
        for index, _ in enumerate(reader):
            # Each blank line before the header counts as one.
            if index == number + (self.header_line or 1):
                break
            end_of_previous = reader.line_num
        return end_of_previous + 1

    def place(self, row: int) -> str:
        """The row in words: `line 7`, or `row 6` where a file has no lines."""
        line = self.line(row)
        return f"row {row + 1}" if line is None else f"line {line}"

    def error(
        self,
        message: str,
        row: int | None = None,
        *,
        field: str | None = None,
        found: object = None,
        expected: str | None = None,
    ) -> InputError:
        """An `InputError` about this file and, if it is about one row, about that row."""
        line = None if row is None else self.line(row)
        if row is not None and line is None:
            message = f"row {row + 1}: {message}"
        return InputError(message, file=self.file, line=line, field=field, found=found, expected=expected)


def read_table(path: Path) -> Table:
    """The file's cells.

    Raises:
        InputError: the file can't be read, is empty, isn't in the format that its name says, a line of it has
            too many cells or isn't an object, or a column is named twice.
    """
    kind = format_of(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=str(path)) from None
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise InputError(f"is a damaged gzip file: {error}", file=str(path)) from None
    if not content.strip():
        raise InputError("is empty", file=str(path), expected="a table with at least one row")
    if kind == "parquet":
        return _read_parquet(path, content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8 text", file=str(path), line=line) from None
    return _read_jsonl(path, text) if kind == "jsonl" else _read_csv(path, text)


def _read_parquet(path: Path, content: bytes) -> Table:
    try:
        frame = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"is not a Parquet file: {reason}", file=str(path)) from None
    return Table(str(path), frame, "parquet")


def _read_csv(path: Path, text: str) -> Table:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    start = len(text) - len(text.lstrip("\n"))
    header = [name.strip() for name in next(csv.reader(io.StringIO(text[start:], newline="")))]
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise InputError("the column is named twice", file=str(path), line=start + 1, field=twice)
    try:
        frame = pl.read_csv(io.BytesIO(text[start:].encode()), infer_schema=False, raise_if_empty=False)
        frame.columns = header
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise _ragged(path, text, len(header)) or InputError(
            f"is not a CSV table: {reason}", file=str(path)
        ) from None
    return _without_blank_rows(Table(str(path), frame, "csv", text, header_line=start + 1))


def _ragged(path: Path, text: str, width: int) -> InputError | None:
    reader = csv.reader(io.StringIO(text, newline=""))
    for cells in reader:
        if len(cells) > width:
            message, expected = f"the line has {len(cells)} cells", f"{width}, as in the header"
            return InputError(message, file=str(path), line=reader.line_num, expected=expected)
    return None


def _read_jsonl(path: Path, text: str) -> Table:
    rows: list[dict[str, str | None]] = []
    numbers: list[int] = []
    names: dict[str, None] = {}
    for number, line in enumerate(text.split("\n")):
        if not line.strip():
            continue
        try:
            cells = json.loads(line)
        except ValueError as error:
            raise InputError(f"is not JSON: {error}", file=str(path), line=number + 1) from None
        if not isinstance(cells, dict):
            raise InputError("is not a JSON object", file=str(path), line=number + 1, found=line[:40])
        rows.append({name: None if value is None else cell_text(value) for name, value in cells.items()})
        numbers.append(number)
        names.update(dict.fromkeys(cells))
    columns = {name: pl.Series([row.get(name) for row in rows], dtype=pl.String) for name in names}
    return _without_blank_rows(Table(str(path), pl.DataFrame(columns), "jsonl", row_numbers=tuple(numbers)))


def _without_blank_rows(table: Table) -> Table:
    """Empty text becomes null, and rows of nulls alone go, while the others keep their place in the file."""
    frame = table.frame.with_columns(pl.all().str.strip_chars())
    frame = frame.with_columns(
        pl.when(pl.col(name).str.len_bytes() > 0).then(pl.col(name)).alias(name) for name in frame.columns
    )
    if frame.height == 0 or frame.width == 0:
        return replace(table, frame=frame)
    kept = frame.select(~pl.all_horizontal(pl.all().is_null())).to_series()
    if kept.all():
        return replace(table, frame=frame)
    places = range(frame.height) if table.row_numbers is None else table.row_numbers
    numbers = tuple(place for place, keep in zip(places, kept.to_list(), strict=True) if keep)
    return replace(table, frame=frame.filter(kept), row_numbers=numbers)


def without_needless_zeros(values: pl.Series) -> pl.Series:
    """The column, as whole numbers if it holds nothing else: seconds are written `60`, not `60.0`."""
    if not values.dtype.is_float() or values.is_null().all():
        return values
    whole = ((values == values.floor()) & (values.abs() < 2.0**53)).all()
    return values.cast(pl.Int64) if whole else values


def write_table(frame: pl.DataFrame, path: Path, *, force: bool = False) -> None:
    """Writes a table as CSV, Parquet or JSON lines, by the name's ending; `.gz` compresses the text formats.

    Raises:
        InputError: the ending is unknown, the folder doesn't exist, or the file exists and `force` isn't set.
    """
    kind = format_of(path)
    with atomic_path(path, force=force) as temporary:
        if kind == "parquet":
            frame.write_parquet(temporary)
            return
        text = frame.write_csv() if kind == "csv" else frame.write_ndjson()
        # A fixed time in the header keeps equal tables equal byte for byte.
        content = text.encode()
        temporary.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
