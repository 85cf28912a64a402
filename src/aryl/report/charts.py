"""The page's charts as plain plotly figures: a list of traces and a layout each.

They are plain data, so that the page holds only what is drawn: series come thinned from the outcome,
distributions are reduced to 400 steps, numbers are rounded to four digits. Colours are names such as `@c0`,
which page.js replaces by those of the reader's light or dark theme; runs differ by dash as well as by
colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aryl.core.model import Pool
from aryl.report.outcome import Floats, Outcome

Figure = dict[str, Any]

MOST_STEPS = 400
COLOURS = 8
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

_UNITS = ((4 * 86_400.0, "days", 86_400.0), (4 * 3_600.0, "hours", 3_600.0), (240.0, "minutes", 60.0))


def pools(outcome: Outcome, end_s: float) -> Figure:
    """How both pools are used from zero to `end_s`: training above, inference below."""
    series = outcome.series
    unit, unit_s = _unit(end_s)
    at = _rounded(series.edge_s / unit_s, 6)
    training, inference = outcome.gpus(Pool.TRAINING), outcome.gpus(Pool.INFERENCE)
    traces = [
        _steps(at, series.training_gpus, "training: held by jobs", "@c0", width=0)
        | _filled("@c0", "training"),
        _level(at, training, "training: all GPUs"),
    ]
    x_axis = {"title": {"text": unit}, "range": [0, end_s / unit_s]}
    y_axis: Figure = {"title": {"text": "training GPUs"}, "rangemode": "tozero"}
    layout: Figure = {"xaxis": x_axis, "yaxis": y_axis, "hovermode": "x"}
    if inference:
        below = min(max(inference / (training + inference), 0.35), 0.65)
        y_axis["domain"] = [below + 0.04, 1]
        x_axis["anchor"] = "y2"
        layout["yaxis2"] = {
            "title": {"text": "inference GPUs"},
            "rangemode": "tozero",
            "domain": [0, below - 0.04],
            "anchor": "x",
        }
        need = _steps(at, series.need_gpus, "inference: needed", "@c2", axis="y2", width=0)
        loaned = _steps(at, series.loaned_gpus, "inference: held by jobs on loan", "@c1", axis="y2", width=0)
        traces += [
            need | _filled("@c2", "inference"),
            loaned | _filled("@c1", "inference"),
            _level(at, inference, "inference: all GPUs", axis="y2"),
        ]
    return {"data": traces, "layout": layout, "height": 540 if inference else 320}


def queue(outcomes: Sequence[Outcome], labels: Sequence[str]) -> Figure:
    """How many jobs wait, over time, one line a run."""
    unit, unit_s = _unit(max(float(outcome.series.edge_s[-1]) for outcome in outcomes))
    traces = [
        _steps(
            _rounded(outcome.series.edge_s / unit_s, 6),
            outcome.series.pending,
            label,
            f"@c{index % COLOURS}",
            dash=DASHES[index % len(DASHES)],
        )
        for index, (outcome, label) in enumerate(zip(outcomes, labels, strict=True))
    ]
    layout = {
        "xaxis": {"title": {"text": unit}},
        "yaxis": {"title": {"text": "jobs waiting"}, "rangemode": "tozero"},
        "hovermode": "x",
    }
    return {"data": traces, "layout": layout, "height": 340}


def distribution(values: Sequence[Floats], labels: Sequence[str], title: str) -> Figure:
    """The share of jobs that need at most so many seconds, on a logarithmic scale; one second at least."""
    traces = []
    for index, (some, label) in enumerate(zip(values, labels, strict=True)):
        if len(some) == 0:
            continue
        # Every job is a step; with many jobs every so many, the shortest and the longest among them.
        at = np.unique(np.linspace(0, len(some) - 1, min(len(some), MOST_STEPS)).round().astype(int))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label,
                "x": _rounded(np.maximum(np.sort(some)[at], 1.0), 4),
                "y": _rounded(100.0 * (at + 1) / len(some), 4),
                "line": {
                    "color": f"@c{index % COLOURS}",
                    "dash": DASHES[index % len(DASHES)],
                    "width": 2,
                    "shape": "hv",
                },
                "hovertemplate": "%{y:.1f} % within %{x:,.0f} s",
            }
        )
    layout = {
        "xaxis": {"title": {"text": f"{title}, seconds"}, "type": "log", "dtick": 1, "tickformat": ",.0f"},
        "yaxis": {"title": {"text": "% of finished jobs"}, "range": [0, 100]},
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout, "height": 340}


def _unit(span_s: float) -> tuple[str, float]:
    for least_s, unit, unit_s in _UNITS:
        if span_s >= least_s:
            return unit, unit_s
    return "seconds", 1.0


def _steps(
    at: list[float],
    level: Floats,
    name: str,
    colour: str,
    *,
    axis: str = "y",
    dash: str = "solid",
    width: float = 1.5,
) -> Figure:
    """A level as a line of steps; its last value is drawn up to the last edge."""
    values = _rounded(level, 4)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": at,
        "y": [*values, *values[-1:]],
        "yaxis": axis,
        "line": {"color": colour, "dash": dash, "width": width, "shape": "hv"},
        "hovertemplate": "%{y:,.1f}",
    }


def _filled(colour: str, stack: str) -> Figure:
    """What makes a line an area on top of the earlier areas of its stack."""
    return {"stackgroup": stack, "fillcolor": f"{colour}/fill"}


def _level(at: list[float], value: float, name: str, *, axis: str = "y") -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [at[0], at[-1]],
        "y": [value, value],
        "yaxis": axis,
        "line": {"color": "@ink", "dash": "dash", "width": 1},
        "hovertemplate": "%{y:,.0f}",
    }


def _rounded(values: Floats, digits: int) -> list[float]:
    """To so many significant digits: more can't be seen, and would make the page larger."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
