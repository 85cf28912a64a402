"""Scenarios: the shares that come out, that the trace wins, and that a seed decides everything else."""

from __future__ import annotations

import os
from dataclasses import fields, replace

import pytest

from aryl.errors import InputError
from aryl.traces.assign import SCENARIOS, assign_scenario, find_scenario, summarise_assignment
from aryl.traces.estimates import perturb_estimates
from aryl.traces.load import load_trace
from aryl.traces.model import Trace, TraceJob

DATA = os.environ.get("ARYL_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="ARYL_DATA does not name a folder with the public traces")
DAY_S = 86400.0
SMALL = load_trace("synthetic-small")
RESOLVED = ("min_workers", "max_workers", "gpus_per_worker", "fungible", "heterogeneous", "priority")


def one(**said: object) -> TraceJob:
    return replace(TraceJob("a", 0.0, 8, 60.0), **said)  # type: ignore[arg-type]


def resolved(job: TraceJob, scenario: str | None) -> TraceJob:
    return assign_scenario(Trace("t", "t", (job,)), scenario, 1).jobs[0]


@pytest.mark.parametrize("scenario", [None, *SCENARIOS])
def test_nothing_is_left_open_and_nothing_else_is_touched(scenario: str | None) -> None:
    assigned = assign_scenario(SMALL, scenario, 1)
    for before, after in zip(SMALL.jobs, assigned.jobs, strict=True):
        assert all(getattr(after, name) is not None for name in RESOLVED)
        assert after.min_workers is not None
        assert after.min_workers * (after.gpus_per_worker or 0) == after.gpus
        untouched = [field.name for field in fields(TraceJob) if field.name not in RESOLVED]
        assert all(getattr(after, name) == getattr(before, name) for name in untouched)


def test_without_a_scenario_a_job_is_an_inelastic_gang_of_single_gpus() -> None:
    job = resolved(one(), None)
    assert (job.min_workers, job.max_workers, job.gpus_per_worker) == (8, 8, 1)
    assert (job.fungible, job.heterogeneous, job.priority) == (False, False, 0)


def test_basic_has_5_percent_elastic_jobs_with_36_percent_of_the_gpu_time_and_21_percent_fungible() -> None:
    summary = summarise_assignment(assign_scenario(SMALL, "basic", 1))
    assert summary.elastic == pytest.approx(0.05, abs=1 / summary.jobs)
    assert summary.elastic_gpu_time == pytest.approx(0.36, abs=0.001)
    assert summary.fungible == pytest.approx(0.21, abs=1 / summary.jobs)
    assert summary.heterogeneous == 0.0


def test_elastic_jobs_may_grow_to_twice_their_base_demand() -> None:
    elastic = [job for job in assign_scenario(SMALL, "basic", 1).jobs if job.max_workers != job.min_workers]
    assert len(elastic) == 75
    assert all(job.max_workers == 2 * (job.min_workers or 0) for job in elastic)


def test_advanced_is_basic_with_10_percent_heterogeneous_jobs_drawn_from_the_fungible() -> None:
    basic = assign_scenario(SMALL, "basic", 3).jobs
    advanced = assign_scenario(SMALL, "advanced", 3).jobs
    assert [replace(job, heterogeneous=False) for job in advanced] == list(basic)
    assert sum(job.heterogeneous is True for job in advanced) == 150
    assert all(job.fungible for job in advanced if job.heterogeneous)


def test_in_heterogeneous_every_fungible_job_is_heterogeneous() -> None:
    jobs = assign_scenario(SMALL, "heterogeneous", 3).jobs
    assert [job.heterogeneous for job in jobs] == [job.fungible for job in jobs]


def test_in_ideal_every_job_is_everything() -> None:
    summary = summarise_assignment(assign_scenario(SMALL, "ideal", 3))
    assert (summary.elastic, summary.fungible, summary.heterogeneous) == (1.0, 1.0, 1.0)


def test_mixed_gpu_types_cost_30_percent_of_the_speed_except_in_ideal() -> None:
    assert {name: scenario.mixed_efficiency for name, scenario in SCENARIOS.items()} == {
        "basic": 0.7,
        "advanced": 0.7,
        "heterogeneous": 0.7,
        "ideal": 1.0,
    }


def test_a_seed_decides() -> None:
    assert assign_scenario(SMALL, "advanced", 5) == assign_scenario(SMALL, "advanced", 5)
    assert assign_scenario(SMALL, "advanced", 5) != assign_scenario(SMALL, "advanced", 6)


def test_what_the_trace_says_wins_over_the_scenario() -> None:
    rigid = one(max_workers=8, fungible=False, priority=4)
    job = resolved(rigid, "ideal")
    assert (job.max_workers, job.fungible, job.heterogeneous, job.priority) == (8, False, False, 4)
    assert resolved(one(heterogeneous=False), "ideal").heterogeneous is False
    assert resolved(one(sizes=(8, 16, 64)), "ideal").max_workers == 64
    assert resolved(one(gpu_types=(("V100", 1.0),)), "ideal").fungible is False


def test_what_the_trace_implies_is_filled_in() -> None:
    assert resolved(one(gpus_per_worker=4), None).min_workers == 2
    assert resolved(one(min_workers=2), None).gpus_per_worker == 4
    assert resolved(one(min_workers=2), "ideal").max_workers == 4
    assert resolved(one(gpu_types=(("V100", 1.0), ("T4", 0.3))), None).fungible is True
    assert resolved(one(heterogeneous=True), None).fungible is True


def test_jobs_that_the_trace_makes_elastic_count_towards_the_share() -> None:
    jobs = tuple(
        replace(job, max_workers=3 * job.gpus) if n < 75 else job for n, job in enumerate(SMALL.jobs)
    )
    assigned = assign_scenario(replace(SMALL, jobs=jobs), "basic", 1).jobs
    assert [n for n, job in enumerate(assigned) if job.max_workers != job.min_workers] == list(range(75))


def test_the_share_of_gpu_time_is_as_near_as_the_trace_allows() -> None:
    # 5 of 100 equal jobs hold 5 % of the GPU time whatever is drawn.
    equal = Trace("t", "t", tuple(TraceJob(f"j{n}", 0.0, 1, 60.0) for n in range(100)))
    assert summarise_assignment(assign_scenario(equal, "basic", 1)).elastic_gpu_time == pytest.approx(0.05)
    # One job with 36 of 100 units, and without it none near: it has to be drawn.
    mixed = (TraceJob("big", 0.0, 1, 36.0), *(TraceJob(f"j{n}", 0.0, 1, 64 / 19) for n in range(19)))
    assert assign_scenario(Trace("t", "t", mixed), "basic", 1).jobs[0].max_workers == 2


def test_a_gang_that_does_not_divide_is_refused() -> None:
    with pytest.raises(InputError, match="job 'a': does not divide gpus") as caught:
        resolved(one(gpus_per_worker=3), None)
    assert caught.value.field == "gpus_per_worker"


def test_an_unknown_scenario_gets_the_nearest_name_and_a_negative_seed_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        find_scenario("advance")
    assert caught.value.nearest == "advanced"
    with pytest.raises(InputError, match="seed"):
        assign_scenario(SMALL, "basic", -1)


def test_wrong_and_missing_estimates_have_the_asked_for_shares() -> None:
    trace = perturb_estimates(SMALL, share=0.3, error=0.5, missing=0.2, seed=1)
    wrong = [job for job in trace.jobs if job.estimate_s is not None]
    assert (len(wrong), sum(not job.estimate_known for job in trace.jobs)) == (450, 300)
    ratios = [(job.estimate_s or 0) / job.duration_s for job in wrong]
    assert 0.5 <= min(ratios) < 0.55
    assert 1.45 < max(ratios) <= 1.5
    assert not any(job.estimate_known is False and job.estimate_s is not None for job in trace.jobs)
    assert [job.duration_s for job in trace.jobs] == [job.duration_s for job in SMALL.jobs]


def test_an_error_above_100_percent_still_gives_positive_estimates() -> None:
    trace = perturb_estimates(SMALL, share=1, error=3, missing=0, seed=1)
    assert min((job.estimate_s or 0) / job.duration_s for job in trace.jobs) == pytest.approx(0.01)


def test_estimates_follow_the_seed_and_jobs_that_are_not_drawn_keep_theirs() -> None:
    told = replace(SMALL, jobs=tuple(replace(job, estimate_s=7.0) for job in SMALL.jobs))
    first = perturb_estimates(told, share=0.1, error=0.2, missing=0.1, seed=1)
    assert first == perturb_estimates(told, share=0.1, error=0.2, missing=0.1, seed=1)
    assert first != perturb_estimates(told, share=0.1, error=0.2, missing=0.1, seed=2)
    assert sum(job.estimate_s == 7.0 for job in first.jobs) == 1200


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": 1.5},
        {"share": -0.1},
        {"missing": 2.0},
        {"share": 0.7, "missing": 0.7},
        {"error": -1.0},
        {"seed": -1},
    ],
)
def test_impossible_shares_of_estimates_are_refused(wrong: dict[str, float]) -> None:
    arguments: dict[str, float] = {"share": 0.1, "error": 0.1, "missing": 0.1, "seed": 1, **wrong}
    with pytest.raises(InputError):
        perturb_estimates(SMALL, **arguments)  # type: ignore[arg-type]


@needs_data
@pytest.mark.parametrize(("name", "start"), [("itp", 14), ("philly", 24)])
def test_the_traces_of_the_evaluation_reach_36_percent(name: str, start: int) -> None:
    trace = load_trace(name, window=(start * DAY_S, (start + 15) * DAY_S))
    summary = summarise_assignment(assign_scenario(trace, "basic", 1))
    assert summary.elastic == pytest.approx(0.05, abs=1e-4)
    assert summary.elastic_gpu_time == pytest.approx(0.36, abs=1e-6)
