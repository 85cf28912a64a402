"""Fitted models and what is drawn from them; the bundled samples are exactly what their recipe gives."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aryl.errors import InputError
from aryl.traces.canonical import write_canonical
from aryl.traces.catalogue import bundled_path
from aryl.traces.curves import load_curve, mean_busy, write_curve
from aryl.traces.describe import describe_trace
from aryl.traces.fit import fit_trace, model_json, read_model, write_model
from aryl.traces.load import load_trace
from aryl.traces.model import Trace, TraceJob
from aryl.traces.synth import DAY, SMALL, draw, draw_curve

DATA = os.environ.get("ARYL_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="ARYL_DATA does not name a folder with the public traces")
HOUR_S, DAY_S = 3600.0, 86400.0
MODEL = read_model(bundled_path("itp-fitted.json"))


def test_the_bundled_trace_is_what_its_recipe_draws(tmp_path: Path) -> None:
    write_canonical(draw(MODEL, **asdict(SMALL)), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes() == bundled_path("synthetic-small.csv").read_bytes()


def test_the_bundled_curve_is_what_its_recipe_draws(tmp_path: Path) -> None:
    write_curve(draw_curve(**asdict(DAY)), tmp_path / "c.csv")
    assert (tmp_path / "c.csv").read_bytes() == bundled_path("synthetic-day.csv").read_bytes()


def test_the_bundled_samples_fit_each_other_and_the_demo() -> None:
    summary = describe_trace(load_trace("synthetic-small"))
    curve = load_curve("synthetic-day")
    assert (summary.jobs, round(summary.days)) == (1500, 3)
    assert summary.busy_gpus_mean / (22 * 8) == pytest.approx(0.9, abs=0.01)
    assert summary.busy_gpus_peak > 22 * 8
    assert curve.unit == "share"
    assert curve.end_s >= summary.last_submit_s + DAY_S
    assert 0.3 < 1 - mean_busy(curve) < 0.5


def test_a_seed_decides() -> None:
    assert draw(MODEL, 50, 1, 7) == draw(MODEL, 50, 1, 7)
    assert draw(MODEL, 50, 1, 7) != draw(MODEL, 50, 1, 8)
    assert draw_curve(2, 7).busy.tolist() == draw_curve(2, 7).busy.tolist()
    assert draw_curve(2, 7).busy.tolist() != draw_curve(2, 8).busy.tolist()


def test_what_is_drawn_resembles_what_was_fitted() -> None:
    drawn = describe_trace(draw(MODEL, 20000, 28, 1))
    shares = {row.gpus: row.share_of_jobs for row in drawn.sizes}
    for size in MODEL.sizes:
        assert shares.get(size.gpus, 0.0) == pytest.approx(size.share, abs=0.01)
    one_gpu = [job.duration_s for job in draw(MODEL, 20000, 28, 1).jobs if job.gpus == 1]
    fitted_s = MODEL.sizes[0].duration_s[MODEL.levels.index(0.5)]
    assert np.median(one_gpu) == pytest.approx(fitted_s, rel=0.05)
    refitted = fit_trace(draw(MODEL, 20000, 28, 1))
    assert np.corrcoef(refitted.hour_of_week, MODEL.hour_of_week)[0, 1] > 0.9


def test_the_limits_hold_and_the_load_is_met() -> None:
    trace = draw(MODEL, 400, 2, 1, max_gpus=8, max_duration_s=HOUR_S)
    assert max(job.gpus for job in trace.jobs) <= 8
    assert max(job.duration_s for job in trace.jobs) <= HOUR_S
    assert 0 <= trace.jobs[0].submit_s <= trace.jobs[-1].submit_s < 2 * DAY_S
    loaded = draw(MODEL, 400, 2, 1, busy_gpus=50)
    gpu_s = sum(job.gpus * job.duration_s for job in loaded.jobs)
    assert gpu_s / (2 * DAY_S) == pytest.approx(50, rel=1e-3)


def test_all_times_are_whole_seconds() -> None:
    for job in draw(MODEL, 200, 1, 1, busy_gpus=33).jobs:
        assert job.submit_s == int(job.submit_s)
        assert job.duration_s == int(job.duration_s) >= 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobs": 0},
        {"days": 0},
        {"seed": -1},
        {"busy_gpus": 0},
        {"max_gpus": 0},
        {"max_duration_s": 1},
        {"days": float("inf")},
    ],
)
def test_impossible_wishes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        draw(MODEL, **{"jobs": 5, "days": 1, "seed": 1, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [{"days": 0}, {"seed": -1}, {"trough": 0.9, "peak": 0.5}, {"peak": 1.5}, {"noise": -1}, {"step_s": 0}],
)
def test_an_impossible_curve_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        draw_curve(**{"days": 1, "seed": 1, **wrong})


def test_a_curve_without_noise_is_its_cycle() -> None:
    curve = draw_curve(1, 1, trough=0.2, peak=0.8, noise=0, step_s=HOUR_S)
    assert (curve.busy[3], curve.busy[15]) == (0.2, 0.8)
    assert mean_busy(curve) == pytest.approx(0.5, abs=1e-4)


def test_a_fit_finds_sizes_and_the_hours_of_the_week() -> None:
    jobs = tuple(
        TraceJob(f"j{n}", n * 1800.0 if n < 4 else n * HOUR_S, 1 + n % 2, 60.0 * (1 + n % 2))
        for n in range(8)
    )
    model = fit_trace(Trace("t", "t", jobs))
    assert [(size.gpus, size.share, size.duration_s[0]) for size in model.sizes] == [
        (1, 0.5, 60.0),
        (2, 0.5, 120.0),
    ]
    assert (
        model.hour_of_week[0] == model.hour_of_week[1] == pytest.approx(2 * model.hour_of_week[4], rel=1e-3)
    )
    assert model.hour_of_week[2] == 0.0


def test_jobs_at_one_instant_can_not_be_fitted() -> None:
    with pytest.raises(InputError, match="one instant"):
        fit_trace(Trace("t", "t", (TraceJob("a", 5, 1, 1), TraceJob("b", 5, 1, 1))))


def test_a_model_survives_a_round_trip(tmp_path: Path) -> None:
    write_model(MODEL, tmp_path / "m.json")
    assert read_model(tmp_path / "m.json") == MODEL


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", "other", "format"),
        ("sizes", None, "is not a fitted model"),
        ("sizes", [], "no jobs"),
        ("hour_of_week", [1.0], "168 rates"),
        ("levels", [0.0, 0.5], "levels"),
        ("days", 0, "no jobs"),
        ("jobs", "many", "is not a fitted model"),
    ],
)
def test_a_damaged_model_is_refused(tmp_path: Path, key: str, value: object, message: str) -> None:
    content = json.loads(model_json(MODEL))
    content[key] = value
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        read_model(tmp_path / "m.json")


def test_a_model_without_a_key_names_it(tmp_path: Path) -> None:
    content = json.loads(model_json(MODEL))
    del content["levels"]
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="'levels' is missing"):
        read_model(tmp_path / "m.json")


def test_quantiles_that_fall_are_refused(tmp_path: Path) -> None:
    first = MODEL.sizes[0]
    falling = replace(first, duration_s=first.duration_s[::-1])
    write_model(replace(MODEL, sizes=(falling,)), tmp_path / "m.json")
    with pytest.raises(InputError, match="size of 1 GPUs"):
        read_model(tmp_path / "m.json")


@needs_data
def test_the_bundled_model_is_the_fit_of_itp() -> None:
    assert model_json(fit_trace(load_trace("itp"))) == bundled_path("itp-fitted.json").read_text()
