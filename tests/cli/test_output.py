"""Tables and formats of results."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
from rich.console import Console

from aryl.cli.output import flat, print_json, summary_tables

POLICIES = ("fifo", "aryl:loaning", "aryl:scaling", "aryl")


def summary(policy: str, jct_s: float, **more: Any) -> dict[str, Any]:
    return {
        "policy": policy,
        "finished": 20000,
        "unfinished": 7,
        "queuing_s": {"mean": jct_s / 10, "median": 10.0, "p95": 900.0},
        "jct_s": {"mean": jct_s, "median": 3000.0, "p95": 9000.0},
        "jct_bound_s": 800.0,
        "usage": {"overall": 0.375},
        "preemptions": 3,
        "loans": 2,
        "inference_shortfall_server_s": 0.0,
        **more,
    }


def drawn(runs: list[dict[str, Any]], width: int) -> list[str]:
    text = io.StringIO()
    for table in summary_tables(runs, width):
        Console(file=text, width=width).print(table)
    return text.getvalue().splitlines()


def test_a_wide_terminal_gets_a_row_for_each_policy() -> None:
    lines = drawn([summary("fifo", 4000.0), summary("aryl", 1000.0)], 200)
    (aryl,) = [line.split() for line in lines if "aryl" in line]
    cells = "aryl 20,000 7 | 100 s / 10 s / 15 min 0.25 | 16.7 min / 50 min / 2.5 h 0.25 1.250 | 37.5% 3 2 0"
    assert aryl == cells.replace("|", "").split()


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_narrow_terminal_gets_a_column_for_each_policy_and_nothing_is_cut(width: int) -> None:
    lines = drawn([summary(policy, 4000.0) for policy in POLICIES], width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    assert [line.split() for line in lines if "JCT" in line] == [
        ["JCT", "mean", *["66.7", "min"] * 4],
        ["JCT", ":", "bound", *["5.000"] * 4],
    ]
    assert [line.split() for line in lines if "preemptions" in line] == [["preemptions", *["3"] * 4]]


def test_more_policies_than_fit_side_by_side_go_below() -> None:
    lines = drawn([summary(f"policy-number-{index}", 4000.0) for index in range(9)], 80)
    assert max(map(len, lines)) <= 80
    assert "".join(lines).count("policy-number-") == 9


def test_ratios_are_to_the_first_policy_with_the_same_swept_values() -> None:
    runs = [
        summary(policy, jct_s, sweep={"jobs.seed": seed})
        for seed, policy, jct_s in (
            (1, "fifo", 400.0),
            (1, "aryl", 200.0),
            (2, "fifo", 800.0),
            (2, "aryl", 80.0),
        )
    ]
    lines = [line.split() for line in drawn(runs, 220) if "jobs.seed" in line]
    assert [(line[0], line[1], line[-6]) for line in lines] == [
        ("jobs.seed=1", "fifo", "1.00"),
        ("jobs.seed=1", "aryl", "0.50"),
        ("jobs.seed=2", "fifo", "1.00"),
        ("jobs.seed=2", "aryl", "0.10"),
    ]


def test_a_mean_of_nothing_is_a_dash_and_in_json_null(capsys: pytest.CaptureFixture[str]) -> None:
    run = summary("fifo", math.nan)
    assert any("- / 50 min / 2.5 h" in line for line in drawn([run], 200))
    print_json(run)
    assert json.loads(capsys.readouterr().out)["jct_s"] == {"mean": None, "median": 3000.0, "p95": 9000.0}


def test_nested_numbers_become_columns_with_dots() -> None:
    assert flat({"a": {"b": 1, "c": {"d": 2}}, "notes": ["x", "y"]}) == {
        "a.b": 1,
        "a.c.d": 2,
        "notes": "x; y",
    }
