"""One HTML page about a back test of predictors; like a report of runs it needs nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from aryl.errors import InputError
from aryl.report.charts import COLOURS, Figure
from aryl.report.judged import PERCENTILES, Accuracy, Course, Judged, Lending
from aryl.report.outcome import Floats
from aryl.whole_files import write_whole

DAY_S = 86_400.0

_COLUMNS = (
    ("error", "mean absolute error of the median forecast of the highest need until the lead is over"),
    ("bias", "mean of forecast minus need: below 0, too few servers were foreseen"),
    (
        "pinball",
        "mean pinball loss of the quantiles: the error of the whole forecast, not of its middle alone",
    ),
    ("in 50 %", "how often the need was between the quantiles of 25 and 75 %: 50 % is right, less too sure"),
    ("in 90 %", "how often it was between those of 5 and 95 %: 90 % is right, less too sure"),
    ("shortfall", "server-minutes that inference needed and didn't have"),
    ("lent", "server-hours on loan"),
    (
        "of idle",
        "the same as a share of what inference didn't need; above 100 % where needed servers were lent",
    ),
    ("of oracle", "the same as a share of what is lent if the future is known"),
    ("loans", "loans a day"),
    ("reclaims", "reclaims a day"),
)


@dataclass(frozen=True, slots=True)
class BackTest:
    """What the page is about: rows on one curve, from `from_s` to `until_s` of it.

    `shown`: the label of the row that is drawn over time, None for none; `oracle`: what one would have lent.
    """

    curve: str
    servers: int
    from_s: float
    until_s: float
    interval_s: float
    lead_s: float
    rows: tuple[Judged, ...]
    oracle: Lending | None = None
    shown: str | None = None


def write_forecast_page(test: BackTest, path: Path) -> None:
    """Write the page. Raises InputError where plotly is missing."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise InputError(
            "the page needs plotly, which isn't installed", expected="pip install 'aryl[report]' first"
        ) from None
    write_whole(path, [forecast_page(test, get_plotlyjs())])


def forecast_page(test: BackTest, plotly: str) -> str:
    """The page's text, with the text of plotly.js inside."""
    figures: dict[str, Figure] = {"tradeoff": tradeoff(test.rows)}
    parts = [
        f"<h1>Forecasts of {escape(test.curve)}</h1>",
        f'<p class="faint">{test.servers:,} inference servers; judged from day {test.from_s / DAY_S:.4g} to '
        f"day {test.until_s / DAY_S:.4g}, {test.lead_s / 60:.4g} minutes ahead.</p>",
        _table(test),
        "<h2>What lending costs</h2>",
        "<p>Further right more is lent, further down inference is short of less. The line joins "
        "one predictor with more and less headroom.</p>",
        _chart("tradeoff", "Shortfall against server-hours lent, a point for each row"),
    ]
    shown = next((row for row in test.rows if row.label == test.shown), None)
    if shown is not None and shown.course is not None:
        figures["course"] = course(shown.course)
        parts += [
            f"<h2>{escape(shown.label)} over time</h2>",
            "<p>Where the need rises above the servers at home, inference is short. A long time is drawn as "
            "means. Drag to look closer, double-click to go back.</p>",
            _chart("course", "Need, forecast, what is kept and the servers at home over time"),
        ]
    if shown is not None and shown.accuracy is not None:
        figures["hours"] = hours(shown.accuracy)
        parts += [
            f"<h2>When {escape(shown.label)} errs</h2>",
            "<p>Need minus median forecast by hour of the curve's day: above 0, too few servers were "
            "foreseen.</p>",
            _chart("hours", "Percentiles of the forecast's error by hour of day"),
        ]
    words = "".join(f"<dt>{name}</dt><dd>{escape(means)}</dd>" for name, means in _COLUMNS)
    parts.append(f'<h2 id="terms">What the words mean</h2><dl>{words}</dl>')
    # `<` inside a script element could end it; \u003c is the same character to JSON.
    data = json.dumps(figures, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>Forecasts of {escape(test.curve)}</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n"
        "<body>\n" + "\n".join(parts) + f'\n<script type="application/json" id="figures">{data}</script>\n'
        f"<script>{plotly}</script>\n<script>\n{_asset('page.js')}</script>\n</body>\n</html>\n"
    )


def tradeoff(rows: Sequence[Judged]) -> Figure:
    """Shortfall against server-hours lent: a point for each row, a line through those of a frontier."""
    traces: list[Figure] = []
    for index, row in enumerate(row for row in rows if not row.is_frontier):
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": row.label,
                "text": [row.label],
                "textposition": "top center",
                "marker": {"color": f"@c{index % COLOURS}", "size": 10},
                **_points([row]),
            }
        )
    if frontier := [row for row in rows if row.is_frontier]:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{frontier[0].predictor}, by headroom",
                "text": [row.headroom for row in frontier],
                "marker": {"color": "@ink", "size": 6},
                "line": {"color": "@ink", "dash": "dot", "width": 1},
                **_points(frontier),
            }
        )
    layout = {
        "xaxis": {"title": {"text": "server-hours lent"}},
        "yaxis": {"title": {"text": "shortfall, server-minutes"}, "rangemode": "tozero"},
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout, "height": 420}


def course(over_time: Course) -> Figure:
    """Need, forecast, what is kept and what is at home, in days of the curve."""
    lines = (
        ("need", over_time.need_servers, "@c0", "solid"),
        ("forecast", over_time.forecast_servers, "@c1", "dot"),
        ("kept: forecast and headroom", over_time.kept_servers, "@c2", "dash"),
        ("at home", over_time.home_servers, "@c3", "solid"),
    )
    days = _rounded(over_time.time_s / DAY_S, 7)
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": days,
            "y": _rounded(servers, 4),
            "line": {"color": colour, "dash": dash, "width": 1.5, "shape": "hv"},
            "hovertemplate": "%{y:,.1f}",
        }
        for name, servers, colour, dash in lines
    ]
    layout = {
        "xaxis": {"title": {"text": "day of the curve"}},
        "yaxis": {"title": {"text": "servers"}, "rangemode": "tozero"},
        "hovermode": "x",
    }
    return {"data": traces, "layout": layout, "height": 420}


def hours(accuracy: Accuracy) -> Figure:
    """Percentiles of need minus forecast by hour of the day; hours that the test didn't see are left out."""
    table = accuracy.by_hour_servers
    known = [hour for hour in range(len(table)) if not math.isnan(table[hour][0])]
    dashes = {0: "dot", 1: "dash", 2: "solid", 3: "dash", 4: "dot"}
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "median" if percentile == 50 else f"{percentile} %",
            "x": known,
            "y": _rounded(table[known, column], 4),
            "line": {"color": "@c0", "dash": dashes[column], "width": 2 if percentile == 50 else 1},
            "marker": {"color": "@c0", "size": 4},
            "hovertemplate": "%{y:,.1f}",
        }
        for column, percentile in enumerate(PERCENTILES)
    ]
    layout = {
        "xaxis": {"title": {"text": "hour of the curve's day"}, "range": [-0.5, 23.5], "dtick": 3},
        "yaxis": {"title": {"text": "need minus forecast, servers"}},
        "hovermode": "x",
    }
    return {"data": traces, "layout": layout, "height": 340}


def cells(row: Judged, oracle: Lending | None) -> list[str]:
    """The figures of a row as text, in the order of the table's columns."""
    values = row.as_dict(oracle)
    accuracy: dict[str, float] = values["accuracy"] or {}

    def known(value: float | None, form: str, factor: float = 1.0) -> str:
        return "-" if value is None or math.isnan(value) else form.format(value * factor)

    return [
        known(accuracy.get("mae_servers"), "{:.2f}"),
        known(accuracy.get("bias_servers"), "{:+.2f}"),
        known(accuracy.get("pinball_servers"), "{:.2f}"),
        known(accuracy.get("within_50"), "{:.1f}%", 100.0),
        known(accuracy.get("within_90"), "{:.1f}%", 100.0),
        known(values["shortfall_server_min"], "{:,.0f}"),
        known(values["lent_server_h"], "{:,.0f}"),
        known(values["lent_share_of_idle"], "{:.1f}%", 100.0),
        known(values["lent_share_of_oracle"], "{:.1f}%", 100.0),
        known(values["loans_per_day"], "{:,.1f}"),
        known(values["reclaims_per_day"], "{:,.1f}"),
    ]


TITLES = tuple(name for name, _ in _COLUMNS)


def _table(test: BackTest) -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in TITLES)
    rows = "".join(
        f'<tr><th scope="row">{escape(row.label)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells(row, test.oracle))
        + "</tr>"
        for row in test.rows
    )
    return (
        '<p>What the columns mean is said <a href="#terms">at the end</a>.</p>\n'
        '<div class="scroll" tabindex="0" role="region" aria-label="Figures of all rows"><table>'
        f'<thead><tr><th scope="col">Predictor</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _points(rows: Sequence[Judged]) -> dict[str, Any]:
    return {
        "x": [float(f"{row.lending.lent_server_s / 3600.0:.6g}") for row in rows],
        "y": [float(f"{row.lending.shortfall_server_s / 60.0:.6g}") for row in rows],
        "hovertemplate": "%{text}: %{y:,.0f} server-minutes short, %{x:,.0f} server-hours lent"
        "<extra></extra>",
    }


def _chart(name: str, described: str) -> str:
    return f'<div class="chart" id="{name}" role="img" aria-label="{escape(described)}"></div>'


def _asset(name: str) -> str:
    return package_files("aryl.report").joinpath(name).read_text(encoding="utf-8")


def _rounded(values: Floats, digits: int) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
