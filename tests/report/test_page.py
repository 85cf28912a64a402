"""The page: complete in itself, safe to open, and right about what it shows."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aryl.errors import InputError
from aryl.report import charts
from aryl.report.page import page, write_page

if TYPE_CHECKING:
    from tests.report.conftest import Drive


def figures_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    figures: dict[str, Any] = json.loads(found[1])
    return figures


def cells(text: str, label: str) -> list[str]:
    found = re.search(rf'<th scope="row">{re.escape(label)}</th>(.*?)</tr>', text)
    assert found is not None
    return re.findall(r"<td>(.*?)</td>", found[1])


def test_the_page_needs_no_network_and_stays_small(told: Drive, tmp_path: Path) -> None:
    write_page([told.outcome()], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    tags = re.findall(r"<(?:script|link|img|iframe|object|embed|source)\b[^>]*>", text.split("<script>")[0])
    tags += re.findall(r"<script\b[^>]*>", text)
    assert tags
    assert not [tag for tag in tags if re.search(r"https?:|//", tag) or " src=" in tag]
    assert "@import" not in text.split("<script>")[0]
    assert "Plotly" in text
    assert len(text) < 8e6


def test_runs_stand_side_by_side_with_ratios_to_the_first(
    told: Drive, new_drive: Callable[..., Drive]
) -> None:
    other = new_drive(1, 2)
    other.submit("A", 4)
    other.now_s = 20.0
    other.plan()
    text = page([told.outcome(policy="fifo"), other.outcome(policy="idle"), told.outcome(policy="aryl")], "")
    assert cells(text, "JCT, mean") == ["85 s", "–", "85 s<small>×1.00</small>"]
    assert cells(text, "Finished") == ["4", "0", "4"]
    assert cells(text, "Training usage") == ["68.3 %", "0.0 %", "68.3 %"]
    assert re.findall(r'<th scope="col">(.*?)</th>', text) == ["Measure", "fifo", "idle", "aryl"]


def test_every_measure_of_the_table_is_explained(told: Drive) -> None:
    text = page([told.outcome()], "")
    rows = re.findall(r'<th scope="row">(.*?)</th>', text)
    assert len(rows) > 20
    assert re.findall(r"<dt>(.*?)</dt>", text) == rows


def test_names_can_not_break_out_of_the_page(told: Drive) -> None:
    text = page([told.outcome(policy="</script><script>alert(1)</script>")], "")
    assert "<script>alert" not in text
    assert figures_of(text)["queue"]["data"][0]["name"] == "</script><script>alert(1)</script>"


def test_runs_of_one_policy_are_told_apart(told: Drive) -> None:
    text = page([told.outcome(), told.outcome()], "")
    assert re.findall(r'<th scope="col">(.*?)</th>', text) == ["Measure", "by-hand", "by-hand (2)"]


def test_the_distributions_hold_the_finished_jobs(told: Drive) -> None:
    figure = figures_of(page([told.outcome()], ""))
    jct, queuing = figure["jct"]["data"][0], figure["queuing"]["data"][0]
    assert (jct["x"], jct["y"]) == ([20.0, 80.0, 90.0, 150.0], [25.0, 50.0, 75.0, 100.0])
    # No wait at all can't be drawn on a logarithmic axis.
    assert queuing["x"] == [1.0, 1.0, 30.0, 70.0]


def test_a_distribution_of_many_jobs_keeps_its_ends_in_few_points() -> None:
    values = np.arange(1.0, 70_001.0)
    line = charts.distribution([values], ["fifo"], "JCT")["data"][0]
    assert len(line["x"]) == charts.MOST_STEPS
    assert (line["x"][0], line["x"][-1], line["y"][-1]) == (1.0, 70_000.0, 100.0)


def test_the_pools_are_drawn_as_they_were_used(told: Drive) -> None:
    traces = {trace["name"]: trace for trace in figures_of(page([told.outcome()], ""))["pools0"]["data"]}
    held = dict(zip(*(traces["inference: held by jobs on loan"][axis] for axis in "xy"), strict=True))
    assert (held[0.0], held[10.0], held[70.0]) == (0.0, 8.0, 0.0)
    needed = dict(zip(*(traces["inference: needed"][axis] for axis in "xy"), strict=True))
    assert (needed[0.0], needed[60.0]) == (8.0, 16.0)


def test_a_long_run_is_drawn_with_a_bounded_number_of_points(new_drive: Callable[..., Drive]) -> None:
    drive = new_drive(1, 1)
    for second in range(4000):
        drive.now_s = float(second)
        drive.need(second % 2)
    outcome = drive.outcome(end_s=4000.0)
    series = outcome.series
    assert len(series.need_gpus) == 1500
    assert float((series.need_gpus * np.diff(series.edge_s)).sum()) == pytest.approx(2000 * 8)
    assert len(outcome.demand.time_s) == 4000


def test_a_run_in_which_nothing_happened_has_a_page(new_drive: Callable[..., Drive]) -> None:
    assert cells(page([new_drive(1).outcome()], ""), "JCT, mean") == ["–"]


def test_without_plotly_the_error_says_what_to_install(
    told: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(InputError, match=r"aryl\[report\]"):
        write_page([told.outcome()], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
