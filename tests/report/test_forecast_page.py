"""The page about a back test: complete in itself, and right about what it shows."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aryl.errors import InputError
from aryl.report.forecast_page import TITLES, BackTest, cells, forecast_page, write_forecast_page
from aryl.report.judged import HOURS, PERCENTILES, Accuracy, Course, Judged, Lending

DAY_S = 86_400.0
ORACLE = Lending(DAY_S, 0.0, 36_000.0, 18_000.0, 4, 3)


def accuracy() -> Accuracy:
    by_hour = np.full((HOURS, len(PERCENTILES)), math.nan)
    by_hour[7] = [-2.0, -1.0, 0.0, 1.0, 2.5]
    return Accuracy(1.234567891, -0.5, 0.25, 0.48, 0.905, by_hour)


def course() -> Course:
    at = np.array([DAY_S, 1.5 * DAY_S])
    need = np.array([4.0, 8.0])
    return Course(at, need, need + 1.0, need + 2.0, np.array([7.0, 10.0]))


def back_test(*, label: str = "week", shown: str | None = "week", frontier: bool = True) -> BackTest:
    rows = [
        Judged(
            label,
            "week",
            "risk=9%",
            900.0,
            Lending(DAY_S, 600.0, 36_000.0, 16_200.0, 9, 8),
            accuracy(),
            course(),
        ),
        Judged("oracle", "oracle", "0", 0.0, ORACLE),
    ]
    if frontier:
        rows += [
            Judged(
                f"week, risk {risk}%",
                "week",
                f"risk={risk}%",
                900.0,
                Lending(DAY_S, 60.0 * risk, 36_000.0, 3600.0 * risk, 2, 1),
                is_frontier=True,
            )
            for risk in (1, 5)
        ]
    return BackTest("taxi", 200, DAY_S, 2 * DAY_S, 300.0, 720.0, tuple(rows), ORACLE, shown)


def figures_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    figures: dict[str, Any] = json.loads(found[1])
    return figures


def test_a_row_is_one_object_of_plain_numbers() -> None:
    test = back_test()
    assert test.rows[0].as_dict(ORACLE) == {
        "label": "week",
        "predictor": "week",
        "headroom": "risk=9%",
        "settle_s": 900.0,
        "accuracy": {
            "mae_servers": 1.23457,
            "bias_servers": -0.5,
            "pinball_servers": 0.25,
            "within_50": 0.48,
            "within_90": 0.905,
        },
        "shortfall_server_min": 10.0,
        "idle_server_h": 10.0,
        "lent_server_h": 4.5,
        "lent_share_of_idle": 0.45,
        "loans_per_day": 9.0,
        "reclaims_per_day": 8.0,
        "lent_share_of_oracle": 0.9,
    }
    assert test.rows[1].as_dict(None)["accuracy"] is None
    assert test.rows[1].as_dict(None)["lent_share_of_oracle"] is None


def test_nothing_idle_and_nothing_lent_are_no_division_by_zero() -> None:
    nothing = Lending(DAY_S, 0.0, 0.0, 0.0, 0, 0)
    assert nothing.lent_share == 0.0
    assert ORACLE.share_of(nothing) is None


def test_the_cells_are_rounded_and_unknown_ones_are_dashes() -> None:
    test = back_test()
    row = cells(test.rows[0], test.oracle)
    assert dict(zip(TITLES, row, strict=True)) == {
        "error": "1.23",
        "bias": "-0.50",
        "pinball": "0.25",
        "in 50 %": "48.0%",
        "in 90 %": "90.5%",
        "shortfall": "10",
        "lent": "4",
        "of idle": "45.0%",
        "of oracle": "90.0%",
        "loans": "9.0",
        "reclaims": "8.0",
    }
    assert cells(test.rows[1], None)[:5] == ["-"] * 5
    assert cells(test.rows[1], None)[8] == "-"


def test_the_trade_off_has_a_point_for_each_row_and_a_line_of_the_frontier() -> None:
    data = figures_of(forecast_page(back_test(), ""))["tradeoff"]["data"]
    assert [(trace["name"], trace["x"], trace["y"]) for trace in data] == [
        ("week", [4.5], [10.0]),
        ("oracle", [5.0], [0.0]),
        ("week, by headroom", [1.0, 5.0], [1.0, 5.0]),
    ]
    assert data[2]["text"] == ["risk=1%", "risk=5%"]
    assert len(figures_of(forecast_page(back_test(frontier=False), ""))["tradeoff"]["data"]) == 2


def test_the_shown_row_is_drawn_in_days_of_the_curve() -> None:
    data = figures_of(forecast_page(back_test(), ""))["course"]["data"]
    assert [(trace["name"], trace["x"], trace["y"]) for trace in data] == [
        ("need", [1.0, 1.5], [4.0, 8.0]),
        ("forecast", [1.0, 1.5], [5.0, 9.0]),
        ("kept: forecast and headroom", [1.0, 1.5], [6.0, 10.0]),
        ("at home", [1.0, 1.5], [7.0, 10.0]),
    ]


def test_hours_that_were_not_seen_are_left_out() -> None:
    data = figures_of(forecast_page(back_test(), ""))["hours"]["data"]
    assert [(trace["name"], trace["x"], trace["y"]) for trace in data] == [
        ("5 %", [7], [-2.0]),
        ("25 %", [7], [-1.0]),
        ("median", [7], [0.0]),
        ("75 %", [7], [1.0]),
        ("95 %", [7], [2.5]),
    ]


@pytest.mark.parametrize("shown", ["oracle", None])
def test_a_row_without_forecasts_is_not_drawn_over_time(shown: str | None) -> None:
    assert set(figures_of(forecast_page(back_test(shown=shown), ""))) == {"tradeoff"}


def test_every_column_is_explained_and_every_chart_has_its_place() -> None:
    text = forecast_page(back_test(), "")
    assert re.findall(r"<dt>(.*?)</dt>", text) == list(TITLES)
    assert re.findall(r'<th scope="col">(.*?)</th>', text) == ["Predictor", *TITLES]
    assert set(re.findall(r'<div class="chart" id="(\w+)"', text)) == set(figures_of(text))


def test_a_name_can_not_break_out_of_the_page() -> None:
    wicked = "</script><script>alert(1)</script>"
    text = forecast_page(back_test(label=wicked, shown=wicked), "")
    assert "<script>alert" not in text
    assert figures_of(text)["tradeoff"]["data"][0]["name"] == wicked


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    write_forecast_page(back_test(), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    tags = re.findall(r"<(?:script|link|img|iframe|object|embed|source)\b[^>]*>", text.split("<script>")[0])
    assert tags
    assert not [tag for tag in tags if re.search(r"https?:|//", tag) or " src=" in tag]
    assert "Plotly" in text


def test_without_plotly_the_page_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(InputError, match=r"aryl\[report\]"):
        write_forecast_page(back_test(), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []
