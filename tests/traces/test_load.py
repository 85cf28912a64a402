"""Names, paths, windows, and the published originals in their own formats."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from aryl.errors import InputError
from aryl.traces.canonical import write_canonical
from aryl.traces.load import limit_trace, load_trace, window_trace
from aryl.traces.model import Trace, TraceJob

DATA = os.environ.get("ARYL_DATA", "").split(os.pathsep)[0]
needs_data = pytest.mark.skipif(not DATA, reason="ARYL_DATA does not name a folder with the public traces")

ITP = "job_id,submission_time,duration,num_gpu\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
DAY_S = 86400.0


def numbers(jobs: tuple[TraceJob, ...]) -> list[tuple[float, int, float]]:
    return [(job.submit_s, job.gpus, job.duration_s) for job in jobs]


def jobs_at(*submits: float) -> Trace:
    return Trace("t", "t", tuple(TraceJob(f"j{n}", at, 1, 1.0) for n, at in enumerate(submits)))


def test_an_itp_file_starts_at_its_first_job_in_order_of_submission_and_id(tmp_path: Path) -> None:
    (tmp_path / "c1.csv").write_text(f"{ITP}b,70,9,4\na,70,8,2\nz,50,7,1\n")
    trace = load_trace(str(tmp_path / "c1.csv"))
    assert [(job.job_id, job.submit_s, job.gpus, job.project) for job in trace.jobs] == [
        ("z", 0.0, 1, "c1"),
        ("a", 20.0, 2, "c1"),
        ("b", 20.0, 4, "c1"),
    ]


def test_a_folder_of_itp_files_keeps_the_clock_that_they_share(tmp_path: Path) -> None:
    (tmp_path / "c1.csv").write_text(f"{ITP}b,70,9,4\n")
    (tmp_path / "c2.csv").write_text(f"{ITP}a,70,9,4\nc,60,9,4\n")
    jobs = load_trace(str(tmp_path)).jobs
    assert [(job.job_id, job.submit_s) for job in jobs] == [("c", 60.0), ("b", 70.0), ("a", 70.0)]


def test_an_id_in_two_itp_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c1.csv").write_text(f"{ITP}a,70,9,4\n")
    (tmp_path / "c2.csv").write_text(f"{ITP}a,80,9,4\n")
    with pytest.raises(InputError, match="occurs twice"):
        load_trace(str(tmp_path))


def test_a_philly_file_is_sorted_and_starts_at_its_first_submission(tmp_path: Path) -> None:
    late, early = "2017-10-09 07:01:55", "2017-10-09 06:01:55"
    rows = f"{late},66.0,1,66.0,vc1\n{early},20.0,2,40.0,vc2\n{late},5.0,1,5.0,vc1\n"
    (tmp_path / "p.csv").write_text(f"{PHILLY}{rows}\n")
    jobs = load_trace(str(tmp_path / "p.csv")).jobs
    assert numbers(jobs) == [(0.0, 2, 20.0), (3600.0, 1, 5.0), (3600.0, 1, 66.0)]
    assert [job.project for job in jobs] == ["vc2", "vc1", "vc1"]
    assert len({job.job_id for job in jobs}) == 3


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        (f"{ITP}a,0,5,1\nb,x,5,1\n", 3, "submission_time"),
        (f"{ITP}a,0,5,1\nb,1,-5,1\n", 3, "duration"),
        (f"{ITP}a,0,5,0\n", 2, "num_gpu"),
        (f"{ITP}a,0,5\n", 2, "num_gpu"),
        (f"{PHILLY}yesterday,5,1,5,vc\n", 2, "timestamp"),
        (f"{PHILLY}2017-10-09 07:01:55,nan,1,5,vc\n", 2, "duration"),
    ],
)
def test_a_bad_cell_of_an_original_is_named(tmp_path: Path, text: str, line: int, field: str) -> None:
    (tmp_path / "o.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        load_trace(str(tmp_path / "o.csv"))
    assert (caught.value.line, caught.value.field) == (line, field)


def test_a_window_takes_its_start_but_not_its_end_and_counts_from_its_start() -> None:
    window = window_trace(jobs_at(0, 10, 15, 20), 10, 20)
    assert [(job.job_id, job.submit_s) for job in window.jobs] == [("j1", 0.0), ("j2", 5.0)]


@pytest.mark.parametrize("window", [(5, 5), (9, 1), (-1, 5), (0, float("nan"))])
def test_an_impossible_window_is_refused(window: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="not a window"):
        window_trace(jobs_at(0, 1), *window)


def test_a_window_without_jobs_says_where_the_jobs_are() -> None:
    with pytest.raises(InputError, match=r"3 to 7 s"):
        window_trace(jobs_at(3, 7), 10, 20)


def test_a_limit_takes_the_first_jobs_of_the_window() -> None:
    trace = limit_trace(window_trace(jobs_at(0, 1, 2, 3), 1, 9), 2)
    assert [job.job_id for job in trace.jobs] == ["j1", "j2"]
    assert limit_trace(trace, 99) == trace
    with pytest.raises(InputError, match="limit"):
        limit_trace(trace, 0)


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(InputError) as caught:
        load_trace("phily")
    assert caught.value.nearest == "philly"


def test_a_curve_is_not_a_trace() -> None:
    with pytest.raises(InputError, match="is a curve, not a trace"):
        load_trace("nyc_taxi")


def test_a_trace_that_is_not_here_says_where_it_was_looked_for_and_how_to_fetch_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARYL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(InputError) as caught:
        load_trace("philly")
    text = str(caught.value)
    assert str(tmp_path / "data/jobs/philly/philly.csv") in text
    assert str(tmp_path / "cache/aryl/jobs/philly/philly.csv") in text
    assert "aryl trace fetch philly" in text


def test_a_name_is_found_in_any_of_several_folders_plain_or_gzipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARYL_DATA", os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")]))
    folder = tmp_path / "b" / "jobs" / "itp"
    folder.mkdir(parents=True)
    (folder / "cluster04.csv").write_text(f"{ITP}a,7,5,1\n")
    assert load_trace("itp/cluster04").name == "itp/cluster04"
    assert numbers(load_trace("itp/cluster04").jobs) == [(0.0, 1, 5.0)]


@needs_data
def test_itp_cluster06_is_the_anchor() -> None:
    assert numbers(load_trace("itp/cluster06").jobs) == numbers(load_trace(f"{DATA}/anchors/itp06.csv").jobs)


@needs_data
def test_ten_thousand_philly_jobs_are_the_anchor() -> None:
    jobs = load_trace("philly").jobs[30000:40000]
    shifted = [(submit - jobs[0].submit_s, gpus, time) for submit, gpus, time in numbers(jobs)]
    assert shifted == numbers(load_trace(f"{DATA}/anchors/philly10k.csv").jobs)


@needs_data
def test_the_windows_of_the_evaluation_have_the_known_numbers_of_jobs() -> None:
    assert len(load_trace("itp").jobs) == 69351
    assert len(load_trace("itp", window=(14 * DAY_S, 29 * DAY_S)).jobs) == 26317
    assert len(load_trace("philly").jobs) == 82247
    assert len(load_trace("philly", window=(24 * DAY_S, 39 * DAY_S)).jobs) == 23694


@needs_data
def test_all_of_itp_is_read_and_checked_in_seconds(tmp_path: Path) -> None:
    write_canonical(load_trace("itp"), tmp_path / "itp.csv")
    started = time.perf_counter()
    assert len(load_trace(str(tmp_path / "itp.csv")).jobs) == 69351
    # About 0.4 s on two cores of 2020; the slack is for a busy machine.
    assert time.perf_counter() - started < 4
