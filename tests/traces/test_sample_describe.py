"""Describing, sampling and scaling."""

from __future__ import annotations

import json

import numpy as np
import pytest

from aryl.errors import InputError
from aryl.traces.describe import busy_gpus_by_day, describe_curve, describe_trace
from aryl.traces.model import DemandCurve, Trace, TraceJob
from aryl.traces.sample import sample_trace, scale_arrivals, scale_durations

HOUR_S, DAY_S = 3600.0, 86400.0


def trace(*jobs: tuple[float, int, float]) -> Trace:
    return Trace("t", "t", tuple(TraceJob(f"j{n}", *job) for n, job in enumerate(jobs)))


MANY = trace(*((float(n), 1 + n % 3, 10.0) for n in range(200)))


def test_a_summary_adds_up() -> None:
    summary = describe_trace(
        trace((0, 1, HOUR_S), (0, 3, HOUR_S), (HOUR_S, 4, 2 * HOUR_S), (DAY_S, 4, HOUR_S))
    )
    assert (summary.jobs, summary.days, summary.gpu_hours) == (4, 1.0, 16.0)
    assert summary.mean_gpus == 3.0
    assert summary.mean_gpus_by_service == pytest.approx((1 + 9 + 32 + 16) / 16)
    assert summary.busy_gpus_peak == 4
    assert summary.busy_gpus_mean == pytest.approx(16 / 24)
    assert summary.duration_s["p50"] == HOUR_S
    assert [(row.gpus, row.jobs, row.share_of_gpu_time) for row in summary.sizes] == [
        (1, 1, 1 / 16),
        (3, 1, 3 / 16),
        (4, 2, 12 / 16),
    ]
    assert summary.jobs_by_hour_of_day[:2] == (1.5, 1.0)
    json.dumps(summary.as_dict(), allow_nan=False)


def test_load_by_day_counts_the_time_that_jobs_would_run() -> None:
    by_day = busy_gpus_by_day(trace((0.5 * DAY_S, 2, DAY_S), (2.0 * DAY_S, 1, 9 * DAY_S)))
    assert by_day.tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_a_trace_of_one_job_has_no_rate_and_no_division_by_zero() -> None:
    summary = describe_trace(trace((5, 2, 0)))
    assert (summary.days, summary.jobs_per_hour, summary.busy_gpus_mean, summary.gpu_hours) == (
        0.0,
        0.0,
        0.0,
        0.0,
    )
    json.dumps(summary.as_dict(), allow_nan=False)


def test_a_curve_is_described_in_its_unit() -> None:
    row = describe_curve(DemandCurve("c", "c", np.array([0.0, DAY_S / 2]), np.array([2.0, 4.0]), "gpus"))
    assert (row["unit"], row["days"], row["step_s"], row["mean"], row["max"]) == (
        "gpus",
        1.0,
        DAY_S / 2,
        3.0,
        4.0,
    )


def test_a_sample_keeps_order_and_jobs_and_follows_the_seed() -> None:
    sample = sample_trace(MANY, share=0.1, seed=1)
    places = [MANY.jobs.index(job) for job in sample.jobs]
    assert len(places) == 20
    assert places == sorted(set(places))
    assert sample == sample_trace(MANY, jobs=20, seed=1)
    assert sample != sample_trace(MANY, jobs=20, seed=2)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"share": 0.5, "jobs": 3},
        {"share": 0.0},
        {"share": 1.2},
        {"jobs": 0},
        {"jobs": 201},
        {"share": 0.001},
    ],
)
def test_an_impossible_sample_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        sample_trace(MANY, **wrong)  # type: ignore[arg-type]


def test_squeezing_time_raises_the_rate() -> None:
    assert [job.submit_s for job in scale_arrivals(trace((0, 1, 5), (9, 1, 5)), 3).jobs] == [0.0, 3.0]


def test_copies_keep_the_clock_and_get_names_of_their_own() -> None:
    jobs = scale_arrivals(trace((0, 1, 5), (9, 1, 5)), 2, copies=True).jobs
    assert [(job.job_id, job.submit_s) for job in jobs] == [("j0", 0), ("j0~2", 0), ("j1", 9), ("j1~2", 9)]


def test_a_fraction_of_copies_is_drawn() -> None:
    assert len(scale_arrivals(MANY, 1.5, copies=True, seed=1).jobs) == pytest.approx(300, abs=25)
    assert len(scale_arrivals(MANY, 0.5, copies=True, seed=1).jobs) == pytest.approx(100, abs=25)
    assert scale_arrivals(MANY, 1.5, copies=True, seed=1) == scale_arrivals(MANY, 1.5, copies=True, seed=1)


def test_a_copy_whose_name_is_taken_is_refused() -> None:
    taken = Trace("t", "t", (TraceJob("a", 0, 1, 1), TraceJob("a~2", 0, 1, 1)))
    with pytest.raises(InputError, match=r"taken \(found 'a~2'\)"):
        scale_arrivals(taken, 2, copies=True)


def test_running_times_and_estimates_grow_together() -> None:
    job = TraceJob("a", 4, 1, 10, estimate_s=12)
    (longer,) = scale_durations(Trace("t", "t", (job,)), 2.5).jobs
    assert (longer.submit_s, longer.duration_s, longer.estimate_s) == (4, 25.0, 30.0)


@pytest.mark.parametrize("factor", [0, -1, float("inf"), float("nan")])
def test_an_impossible_factor_is_refused(factor: float) -> None:
    with pytest.raises(InputError, match="factor"):
        scale_arrivals(MANY, factor)
    with pytest.raises(InputError, match="factor"):
        scale_durations(MANY, factor)
