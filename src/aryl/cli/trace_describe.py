"""The tables of `aryl trace describe`: rounded for people, a bar where a shape says more than a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aryl.cli.output import plain_table

if TYPE_CHECKING:
    from rich.table import Table

_BAR = 30


def _bar(value: float, largest: float) -> str:
    return "█" * round(_BAR * value / largest) if largest > 0 else ""


def trace_tables(summary: Mapping[str, Any]) -> list[Table]:
    """Four tables of a `TraceSummary` as a dictionary: the whole, sizes, load by day, arrivals by hour."""
    from aryl.files.units import human_seconds

    duration = summary["duration_s"]
    assignment = summary["assignment"]
    whole = [
        ["jobs", f"{summary['jobs']:,}"],
        ["days from first to last submission", f"{summary['days']:.1f}"],
        ["GPU-hours", f"{summary['gpu_hours']:,.0f}"],
        [
            "GPUs a job, mean / by service",
            f"{summary['mean_gpus']:.2f} / {summary['mean_gpus_by_service']:.2f}",
        ],
        ["running time, mean", human_seconds(duration["mean"])],
        [
            "running time, 5 / 25 / 50 / 75 / 95 / 99 %",
            " / ".join(human_seconds(duration[f"p{rank}"]) for rank in (5, 25, 50, 75, 95, 99)),
        ],
        ["running time, longest", human_seconds(duration["max"])],
        ["busy GPUs without any queue, mean", f"{summary['busy_gpus_mean']:,.0f}"],
        ["busy GPUs without any queue, peak", f"{summary['busy_gpus_peak']:,}"],
        ["jobs an hour", f"{summary['jobs_per_hour']:.1f}"],
        ["users / projects", f"{summary['users']} / {summary['projects']}"],
        [
            "elastic, share of jobs / of GPU time",
            f"{assignment['elastic']:.1%} / {assignment['elastic_gpu_time']:.1%}",
        ],
        ["fungible / heterogeneous", f"{assignment['fungible']:.1%} / {assignment['heterogeneous']:.1%}"],
    ]
    sizes = [
        [
            str(row["gpus"]),
            f"{row['jobs']:,}",
            f"{row['share_of_jobs']:.1%}",
            f"{row['share_of_gpu_time']:.1%}",
            _bar(row["share_of_gpu_time"], 1.0),
        ]
        for row in summary["sizes"]
    ]
    return [
        plain_table(["trace", str(summary["name"])], whole),
        plain_table(["GPUs", "jobs", "of jobs", "of GPU time", ""], sizes),
        _series("day", "busy GPUs", summary["busy_gpus_by_day"], "{:,.0f}"),
        _series("hour of day", "jobs an hour", summary["jobs_by_hour_of_day"], "{:.1f}"),
    ]


def _series(index: str, title: str, values: Sequence[float], form: str) -> Table:
    largest = max(values, default=0.0)
    rows = [[str(place), form.format(value), _bar(value, largest)] for place, value in enumerate(values)]
    return plain_table([index, title, ""], rows)


def curve_rows(row: Mapping[str, Any]) -> list[list[str]]:
    """A curve's summary as rows of text."""
    return [
        [key.replace("_", " "), f"{value:,.6g}" if isinstance(value, float) else str(value)]
        for key, value in row.items()
    ]
