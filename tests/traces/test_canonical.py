"""The canonical table: what is read is what was written, and everything wrong is named with its place."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aryl.errors import InputError
from aryl.traces.canonical import read_canonical, write_canonical
from aryl.traces.model import Trace, TraceJob

HEADER = "job_id,submit_s,gpus,duration_s"
FORMATS = (".csv", ".csv.gz", ".parquet", ".jsonl")


def read_text(folder: Path, text: str, name: str = "jobs.csv", *, sort: bool = False) -> Trace:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_canonical(path, sort=sort)


def refusal(folder: Path, text: str, name: str = "jobs.csv") -> InputError:
    with pytest.raises(InputError) as caught:
        read_text(folder, text, name)
    assert caught.value.file == str(folder / name)
    return caught.value


FULL = TraceJob(
    "full",
    1.5,
    8,
    60.25,
    min_workers=4,
    max_workers=16,
    gpus_per_worker=2,
    sizes=(4, 8, 16),
    user="u1",
    project="p, with a comma",
    priority=-3,
    model='resnet "50"',
    gpu_types=(("V100", 1.0), ("T4", 0.33)),
    fungible=True,
    heterogeneous=False,
    estimate_s=50.0,
    checkpoint_s=900.0,
    estimate_known=False,
)


@pytest.mark.parametrize("ending", FORMATS)
def test_every_column_survives_a_round_trip(tmp_path: Path, ending: str) -> None:
    trace = Trace("t", "t", (TraceJob("bare", 0.0, 1, 0.0), FULL))
    path = tmp_path / f"t{ending}"
    write_canonical(trace, path)
    assert read_canonical(path).jobs == trace.jobs


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    finite = st.floats(0, 1e9, allow_nan=False)
    submits = sorted(draw(st.lists(finite, min_size=1, max_size=5)))
    word = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=6)
    jobs = []
    for number, submit_s in enumerate(submits):
        base, per_worker = draw(st.integers(1, 9)), draw(st.integers(1, 4))
        growth = draw(st.none() | st.integers(0, 9))
        jobs.append(
            TraceJob(
                f"j{number}",
                submit_s,
                base * per_worker,
                draw(finite),
                min_workers=base,
                max_workers=None if growth is None else base + growth,
                gpus_per_worker=draw(st.none() | st.just(per_worker)),
                user=draw(st.none() | word),
                priority=draw(st.none() | st.integers(-9, 9)),
                gpu_types=draw(st.none() | st.just((("A", 0.1 + 0.2), ("B", 1.0)))),
                fungible=draw(st.none() | st.booleans()),
                estimate_s=draw(st.none() | st.floats(0.001, 1e9)),
            )
        )
    return Trace("t", "t", tuple(jobs))


@pytest.mark.parametrize("ending", FORMATS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=traces())
def test_any_trace_survives_a_round_trip(tmp_path: Path, ending: str, trace: Trace) -> None:
    path = tmp_path / f"t{ending}"
    write_canonical(trace, path, force=True)
    assert read_canonical(path).jobs == trace.jobs


def test_lists_and_mappings_are_read_from_json_lines(tmp_path: Path) -> None:
    numbers = '"job_id": "a", "submit_s": 0, "gpus": 8, "duration_s": 1'
    row = f'{{{numbers}, "sizes": [8, 16], "gpu_types": {{"V": 1, "T": 0.5}}}}'
    (job,) = read_text(tmp_path, row, "jobs.jsonl").jobs
    assert (job.sizes, job.gpu_types) == ((8, 16), (("V", 1.0), ("T", 0.5)))


def test_lists_are_read_from_parquet(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"job_id": [7], "submit_s": [0], "gpus": [8.0], "duration_s": [1], "sizes": [[8, 16]]}
    )
    frame.write_parquet(tmp_path / "jobs.parquet")
    (job,) = read_canonical(tmp_path / "jobs.parquet").jobs
    assert (job.job_id, job.gpus, job.sizes) == ("7", 8, (8, 16))


def test_windows_line_ends_a_byte_order_mark_and_blank_lines_do_not_matter(tmp_path: Path) -> None:
    plain = read_text(tmp_path, f"{HEADER}\na,0,1,5\nb,1,2,6\n").jobs
    assert read_text(tmp_path, f"\ufeff{HEADER}\r\na, 0,1,5\r\n\r\nb,1,2,6\r\n").jobs == plain


def test_blank_lines_before_the_header_count_as_lines(tmp_path: Path) -> None:
    assert refusal(tmp_path, f"\n\n{HEADER}\na,0,1,5\nb,0,1,-5\n").line == 5
    assert refusal(tmp_path, f"\n\n{HEADER},colour\na,0,1,5,red\n").line == 3


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mangled_file_is_read_or_refused_and_never_crashes(tmp_path: Path, data: st.DataObject) -> None:
    text = f"{HEADER},sizes,gpu_types\na,0,8,5,8;16,V:1;T:2\nb,1,1,5,,\n"
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 6))
        new = data.draw(
            st.sampled_from(["", ",", "\n", "\r", '"', "nan", "-1", "\0", " ", ";", "1e400", "9" * 30])
        )
        text = text[:place] + new + text[place + cut :]
    # What it is doesn't matter here, only that nothing but our own error comes out.
    with contextlib.suppress(InputError):
        assert read_text(tmp_path, text).jobs


def test_a_running_time_of_zero_is_allowed(tmp_path: Path) -> None:
    assert read_text(tmp_path, f"{HEADER}\na,0,1,0\n").jobs[0].duration_s == 0.0


@pytest.mark.parametrize(
    ("row", "field", "found"),
    [
        ("b,1,1,-3", "duration_s", "-3"),
        ("b,1,1,nan", "duration_s", "nan"),
        ("b,1,1,inf", "duration_s", "inf"),
        ("b,1,1,long", "duration_s", "long"),
        ("b,1,1,", "duration_s", None),
        ("b,-1,1,5", "submit_s", "-1"),
        ("b,NaN,1,5", "submit_s", "NaN"),
        ("b,soon,1,5", "submit_s", "soon"),
        ("b,1,0,5", "gpus", "0"),
        ("b,1,-8,5", "gpus", "-8"),
        ("b,1,1.5,5", "gpus", "1.5"),
        ("b,1,many,5", "gpus", "many"),
        (",1,1,5", "job_id", None),
        ("a,1,1,5", "job_id", "a"),
    ],
)
def test_a_bad_cell_is_named_with_line_and_column(
    tmp_path: Path, row: str, field: str, found: str | None
) -> None:
    error = refusal(tmp_path, f"{HEADER}\na,0,1,5\n\n{row}\n")
    assert (error.line, error.field, error.found) == (4, field, found)
    assert error.expected


@pytest.mark.parametrize(
    ("columns", "cells", "field"),
    [
        ("min_workers,max_workers", "4,2", "min_workers"),
        ("min_workers,max_workers", "0,2", "min_workers"),
        ("max_workers", "7", "max_workers"),
        ("gpus_per_worker", "3", "gpus_per_worker"),
        ("min_workers,gpus_per_worker", "2,2", "gpus"),
        ("min_workers", "3", "gpus"),
        ("sizes,max_workers", "8;16;32,16", "sizes"),
        ("sizes", "4;8", "sizes"),
        ("sizes", "16;32", "sizes"),
        ("sizes", "8;x", "sizes"),
        ("sizes", "16;8", "sizes"),
        ("gpu_types", "V100:fast", "gpu_types"),
        ("gpu_types", "V100:-1", "gpu_types"),
        ("gpu_types", "T4:1;T4:2", "gpu_types"),
        ("fungible", "maybe", "fungible"),
        ("fungible,heterogeneous", "no,yes", "fungible"),
        ("estimate_s", "0", "estimate_s"),
        ("checkpoint_s", "-5", "checkpoint_s"),
        ("priority", "high", "priority"),
    ],
)
def test_a_contradiction_is_named_with_line_and_column(
    tmp_path: Path, columns: str, cells: str, field: str
) -> None:
    error = refusal(tmp_path, f"{HEADER},{columns}\na,0,8,5,{cells}\n")
    assert (error.line, error.field) == (2, field)


def test_a_duplicate_id_names_both_lines(tmp_path: Path) -> None:
    error = refusal(tmp_path, f"{HEADER}\na,0,1,5\nb,0,1,5\na,1,1,5\n")
    assert "line 4, job_id: the id is already used by line 2" in str(error)


def test_an_unknown_column_gets_the_nearest_name(tmp_path: Path) -> None:
    error = refusal(tmp_path, "job_id,submit_s,gpu,duration_s\na,0,1,5\n")
    assert (error.line, error.nearest) == (1, "gpus")


def test_a_missing_column_is_named_with_what_is_there(tmp_path: Path) -> None:
    error = refusal(tmp_path, "job_id,submit_s,gpus\na,0,1\n")
    assert "'duration_s' is missing" in str(error)
    assert error.found == "job_id, submit_s, gpus"


def test_an_unsorted_file_names_the_first_line_out_of_order_and_the_remedy(tmp_path: Path) -> None:
    text = f"{HEADER}\na,5,1,5\nb,9,1,5\nc,3,1,5\nd,1,1,5\n"
    error = refusal(tmp_path, text)
    assert (error.line, error.found) == (4, "3 after 9")
    assert "aryl trace convert" in str(error)
    assert [job.job_id for job in read_text(tmp_path, text, sort=True).jobs] == ["d", "c", "a", "b"]


def test_sorting_keeps_the_order_of_ties(tmp_path: Path) -> None:
    text = f"{HEADER}\nz,5,1,5\ny,5,1,5\nx,1,1,5\n"
    assert [job.job_id for job in read_text(tmp_path, text, sort=True).jobs] == ["x", "z", "y"]


@pytest.mark.parametrize("text", ["", "\n\n", f"{HEADER}\n", HEADER])
def test_a_file_without_jobs_is_refused(tmp_path: Path, text: str) -> None:
    assert "at least one" in str(refusal(tmp_path, text))


def test_a_line_with_too_many_cells_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path, f"{HEADER}\na,0,1,5\nb,0,1,5,9\n")
    assert (error.line, error.expected) == (3, "4, as in the header")


def test_a_column_named_twice_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, f"{HEADER},gpus\na,0,1,5,1\n").field == "gpus"


def test_line_breaks_inside_a_cell_do_not_shift_the_line(tmp_path: Path) -> None:
    assert refusal(tmp_path, f'{HEADER}\n"a\nb",0,1,5\nc,1,1,-5\n').line == 4


def test_a_bad_json_line_is_named(tmp_path: Path) -> None:
    good = '{"job_id": "a", "submit_s": 0, "gpus": 1, "duration_s": 5}'
    assert refusal(tmp_path, f"{good}\n\n{{oops\n", "jobs.jsonl").line == 3
    assert refusal(tmp_path, f"{good}\n[1]\n", "jobs.jsonl").line == 2
    assert refusal(tmp_path, f"{good}\n{good.replace('1,', 'true,')}\n", "jobs.jsonl").field == "gpus"


def test_a_parquet_row_is_named_by_its_number(tmp_path: Path) -> None:
    frame = pl.DataFrame({"job_id": ["a", "b"], "submit_s": [0, 1], "gpus": [1, 0], "duration_s": [5, 5]})
    frame.write_parquet(tmp_path / "jobs.parquet")
    with pytest.raises(InputError, match=r"gpus: row 2: too small \(found 0\)"):
        read_canonical(tmp_path / "jobs.parquet")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("jobs.parquet", b"not parquet", "not a Parquet file"),
        ("jobs.csv", b"job_id\n\xff\xfe", "not UTF-8"),
        ("jobs.csv.gz", b"\x1f\x8bbroken", "damaged gzip"),
        ("jobs.txt", b"x", "can't tell the format"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_canonical(tmp_path / name)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        read_canonical(tmp_path / "none.csv")


def test_writing_refuses_to_overwrite_and_leaves_nothing_behind(tmp_path: Path) -> None:
    trace = Trace("t", "t", (TraceJob("a", 0.0, 1, 5.0),))
    path = tmp_path / "t.csv"
    write_canonical(trace, path)
    path.write_text("mine")
    with pytest.raises(InputError, match="--force"):
        write_canonical(trace, path)
    assert path.read_text() == "mine"
    write_canonical(trace, path, force=True)
    assert path.read_text() == f"{HEADER}\na,0,1,5\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


def test_equal_traces_give_equal_gzip_files(tmp_path: Path) -> None:
    trace = Trace("t", "t", (TraceJob("a", 0.0, 1, 5.0),))
    write_canonical(trace, tmp_path / "a.csv.gz")
    write_canonical(trace, tmp_path / "b.csv.gz")
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).decode().startswith(HEADER)
