"""Demand curves: units, scaling, windows, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from aryl.errors import InputError
from aryl.traces.curves import is_curve, load_curve, mean_busy, scale_curve, window_curve, write_curve
from aryl.traces.model import DemandCurve

DATA = os.environ.get("ARYL_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="ARYL_DATA does not name a folder with the public curves")
DAY_S = 86400.0


def curve(busy: list[float], unit: str | None = None, step_s: float = 10.0) -> DemandCurve:
    time_s = np.arange(len(busy), dtype=np.float64) * step_s
    return DemandCurve("c", "c.csv", np.asarray(time_s), np.array(busy, dtype=np.float64), unit)


def read(folder: Path, text: str) -> DemandCurve:
    (folder / "demand.csv").write_text(text)
    return load_curve(str(folder / "demand.csv"))


@pytest.mark.parametrize(
    ("header", "unit"),
    [
        ("time_s,servers", "servers"),
        ("time_s,gpus", "gpus"),
        ("time_s,share", "share"),
        ("time_s,busy_servers", "servers"),
        ("time_s,busy (gpus)", "gpus"),
        ("time_s,busy [share]", "share"),
        ("share,time_s", "share"),
        ("time_s,busy", None),
    ],
)
def test_the_header_says_the_unit(tmp_path: Path, header: str, unit: str | None) -> None:
    loaded = read(tmp_path, f"{header}\n0,0\n1,1\n")
    assert (loaded.unit, loaded.busy.tolist()) == (unit, [0.0, 1.0])


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("time_s,servers\n0,1\n5,-2\n", 3, "servers"),
        ("time_s,servers\n0,nan\n", 2, "servers"),
        ("time_s,servers\n0,1\n5,\n", 3, "servers"),
        ("time_s,servers\n0,1\n5,2\n5,3\n", 4, "time_s"),
        ("time_s,servers\n9,1\n5,2\n", 3, "time_s"),
        ("time_s,servers\nsoon,1\n", 2, "time_s"),
        ("time_s,share\n0,0.5\n5,95\n", 3, "share"),
        ("timestamp,value\nnoon,1\n", 2, "timestamp"),
        ("time_s,watts\n0,1\n", 1, None),
        ("time_s,servers,gpus\n0,1,1\n", 1, None),
    ],
)
def test_a_bad_curve_is_named_with_line_and_column(
    tmp_path: Path, text: str, line: int, field: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert (caught.value.line, caught.value.field) == (line, field)


@pytest.mark.parametrize("text", ["", "time_s,servers\n"])
def test_an_empty_curve_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="at least one row"):
        read(tmp_path, text)


def test_a_published_curve_counts_from_its_first_row(tmp_path: Path) -> None:
    loaded = read(tmp_path, "timestamp,value\n2014-07-01 00:00:00,5\n2014-07-01 00:30:00,7.5\n")
    assert (loaded.time_s.tolist(), loaded.busy.tolist(), loaded.unit) == ([0.0, 1800.0], [5.0, 7.5], None)
    assert loaded.end_s == 3600.0


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
def test_a_curve_survives_a_round_trip(tmp_path: Path, ending: str) -> None:
    written = curve([0.0, 1.25, 7.0], "gpus")
    write_curve(written, tmp_path / f"c{ending}")
    loaded = load_curve(str(tmp_path / f"c{ending}"))
    assert (loaded.time_s.tolist(), loaded.busy.tolist(), loaded.unit) == (
        [0.0, 10.0, 20.0],
        [0.0, 1.25, 7.0],
        "gpus",
    )
    assert is_curve(str(tmp_path / f"c{ending}"))


def test_gpus_and_shares_become_servers() -> None:
    assert scale_curve(curve([0, 8, 20], "gpus"), servers=4, gpus_per_server=8).busy.tolist() == [
        0.0,
        1.0,
        2.5,
    ]
    assert scale_curve(curve([0, 0.5, 1], "share"), servers=4, gpus_per_server=8).busy.tolist() == [
        0.0,
        2.0,
        4.0,
    ]


def test_no_curve_needs_more_servers_than_there_are() -> None:
    scaled = scale_curve(curve([1, 9], "servers"), servers=4, gpus_per_server=8)
    assert (scaled.busy.tolist(), scaled.unit) == ([1.0, 4.0], "servers")


def test_a_curve_without_a_unit_is_scaled_by_its_percentile_and_bursts_are_cut_off() -> None:
    busy = [float(value) for value in range(1000)] + [50000.0]
    scaled = scale_curve(curve(busy), servers=100, gpus_per_server=8, peak=0.9)
    assert np.percentile(scaled.busy, 99.5) == pytest.approx(90.0)
    assert scaled.busy.max() == 90.0
    assert scaled.busy[500] == pytest.approx(90.0 * 500 / np.percentile(busy, 99.5))


@pytest.mark.parametrize("peak", [0.0, 1.5, float("nan")])
def test_a_peak_that_is_no_share_is_refused(peak: float) -> None:
    with pytest.raises(InputError, match="peak"):
        scale_curve(curve([1.0]), servers=1, gpus_per_server=8, peak=peak)


def test_a_curve_of_zeros_without_a_unit_can_not_be_scaled() -> None:
    with pytest.raises(InputError, match="can't be scaled"):
        scale_curve(curve([0.0, 0.0]), servers=1, gpus_per_server=8)


def test_a_window_begins_with_the_value_that_holds_at_its_start() -> None:
    window = window_curve(curve([1, 2, 3, 4], "servers"), 15, 35)
    assert (window.time_s.tolist(), window.busy.tolist()) == ([0.0, 5.0, 15.0], [2.0, 3.0, 4.0])


def test_the_last_value_holds_for_one_step() -> None:
    assert window_curve(curve([1, 2], "servers"), 0, 20).busy.tolist() == [1.0, 2.0]
    with pytest.raises(InputError, match="ends too early"):
        window_curve(curve([1, 2], "servers"), 0, 20.5)


def test_a_curve_that_ends_too_early_names_file_length_and_need() -> None:
    with pytest.raises(InputError) as caught:
        window_curve(curve([1, 2, 3], "servers", step_s=DAY_S), 0, 15 * DAY_S)
    assert caught.value.file == "c.csv"
    assert "covers 259200 s (3 days)" in str(caught.value)
    assert "at least 1296000 s (15 days)" in str(caught.value)


def test_a_curve_that_begins_too_late_is_refused() -> None:
    late = DemandCurve("c", "c.csv", np.array([5.0, 6.0]), np.array([1.0, 1.0]), "servers")
    with pytest.raises(InputError, match="begins at 5 s"):
        window_curve(late, 0, 6)


def test_a_single_point_holds_for_ever() -> None:
    assert window_curve(curve([3], "servers"), 0, 1e9).busy.tolist() == [3.0]


@needs_data
def test_the_taxi_curve_leaves_about_43_percent_of_the_servers_loanable() -> None:
    servers = 520
    scaled = scale_curve(load_curve("nyc_taxi"), servers=servers, gpus_per_server=8, peak=0.95)
    window = window_curve(scaled, 14 * DAY_S, 29 * DAY_S)
    assert len(window.busy) == 15 * 48
    headroom = 0.02 * servers
    loanable = np.maximum(servers - np.ceil(window.busy) - headroom, 0).mean() / servers
    assert loanable == pytest.approx(0.43, abs=0.015)
    assert mean_busy(window) / servers == pytest.approx(0.536, abs=0.001)


@needs_data
@pytest.mark.parametrize(("name", "days"), [("nyc_taxi", 215), ("twitter_goog", 55), ("elb", 14)])
def test_the_published_curves_have_their_length(name: str, days: int) -> None:
    assert load_curve(name).end_s / DAY_S == pytest.approx(days, abs=0.1)
