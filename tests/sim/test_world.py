"""From an experiment to a world: what jobs, servers, demand and scripted events become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aryl.core import events as ev
from aryl.core.model import Accounting, JobSpec, Pool, ServerSpec
from aryl.core.speedup import LINEAR, Amdahl
from aryl.errors import InputError
from aryl.policies.catalogue import parse_policy
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import experiment_from_mapping
from aryl.sim.world import World, build_world, declare, load_workload

ALL = float("inf")


def experiment(jobs: Any = (), **sections: Any) -> Experiment:
    cluster = {"training": {"servers": 2}, "inference": {"servers": 2}}
    return experiment_from_mapping(
        {"cluster": cluster, "jobs": list(jobs) if jobs == () else jobs, **sections}
    )


def spec_of(job: dict[str, Any], **sections: Any) -> JobSpec:
    (spec,) = load_workload(experiment([{"id": "A", "duration": 60, "workers": 4, **job}], **sections)).specs
    return spec


def world(given: Experiment, policy: str = "fifo") -> World:
    return build_world(given, load_workload(given), parse_policy(policy))


def everything(given: Experiment, policy: str = "fifo") -> list[ev.Event]:
    """All events of a world in which nobody ever starts anything."""
    driver, seen = world(given, policy).driver, list[ev.Event]()
    while (polled := driver.poll(ALL)) is not None:
        seen += polled
    return seen


def test_an_inline_job_becomes_a_spec() -> None:
    given = experiment(
        [
            {
                "id": "E",
                "submit": "2m",
                "workers": {"sizes": [4, 8, 16]},
                "gpus_per_worker": 2,
                "work": "120 gpu-min",
                "priority": 3,
                "user": "ada",
                "project": "vision",
                "estimate": "20m",
                "checkpoint": "5m",
                "heterogeneous": True,
                "speedup": {"amdahl": 0.5},
            }
        ]
    )
    workload = load_workload(given)
    assert workload.specs == (
        JobSpec(
            "E",
            0,
            120.0,
            4,
            16,
            2,
            (4, 8, 16),
            1200.0,
            3,
            "ada",
            "vision",
            "",
            (),
            False,
            True,
            0.7,
            300.0,
            Amdahl(0.5),
        ),
    )
    assert workload.durations_s == {"E": 900.0}  # 7,200 GPU-seconds on 8 GPUs


def test_without_an_estimate_the_scheduler_is_told_the_truth() -> None:
    assert spec_of({}).estimate_s == 60.0


@pytest.mark.parametrize(
    ("of_job", "by_default", "checkpoint_s"),
    [
        (None, None, None),
        (None, "10m", 600.0),
        (None, "continuous", 0.0),
        ("90", "10m", 90.0),
        ("continuous", None, 0.0),
        ("none", "10m", None),
    ],
)
def test_how_often_a_job_saves(
    of_job: str | None, by_default: str | None, checkpoint_s: float | None
) -> None:
    job = {} if of_job is None else {"checkpoint": of_job}
    simulation = {} if by_default is None else {"checkpoint": by_default}
    assert spec_of(job, simulation=simulation).checkpoint_s == checkpoint_s


def test_speedup_and_mixed_efficiency_can_be_set_for_all() -> None:
    spec = spec_of({}, simulation={"speedup": {"amdahl": 0.1}, "mixed_efficiency": 0.9})
    assert (spec.speedup, spec.mixed_efficiency) == (Amdahl(0.1), 0.9)
    assert spec_of({"speedup": "linear"}).speedup == LINEAR


def test_inline_jobs_are_taken_in_the_order_of_submission_and_then_of_the_file() -> None:
    jobs = [
        {"id": name, "submit": at, "workers": 1, "duration": 1} for name, at in (("c", 9), ("b", 3), ("a", 3))
    ]
    assert [(spec.job_id, spec.sequence) for spec in load_workload(experiment(jobs)).specs] == [
        ("b", 0),
        ("a", 1),
        ("c", 2),
    ]


@pytest.mark.parametrize(
    ("gpu_types", "fungible"),
    [
        ({"V100": 1, "T4": 0.33}, True),
        ({"T4": 0.33}, False),
        ({"V100": 1, "A100": 2}, False),
        ({}, False),
    ],
)
def test_a_job_that_names_its_own_and_the_inference_pools_type_is_fungible(
    gpu_types: dict[str, float], fungible: bool
) -> None:
    job = {"gpu_types": gpu_types} if gpu_types else {}
    assert spec_of(job).fungible is fungible
    assert spec_of({**job, "fungible": True}).fungible is True


def _trace(folder: Path, text: str) -> Experiment:
    path = folder / "jobs.csv"
    path.write_text(text, encoding="utf-8")
    return experiment({"trace": str(path)})


def test_a_bare_trace_has_gangs_of_one_gpu_workers(tmp_path: Path) -> None:
    given = _trace(tmp_path, "job_id,submit_s,gpus,duration_s\nx,0,4,100\ny,5,1,7\n")
    workload = load_workload(given)
    assert workload.specs == (
        JobSpec("x", 0, 0.0, 4, 4, estimate_s=100.0, mixed_efficiency=0.7),
        JobSpec("y", 1, 5.0, 1, 1, estimate_s=7.0, mixed_efficiency=0.7),
    )
    assert workload.durations_s == {"x": 100.0, "y": 7.0}


def test_a_trace_says_what_it_knows(tmp_path: Path) -> None:
    given = _trace(
        tmp_path,
        "job_id,submit_s,gpus,duration_s,min_workers,max_workers,gpus_per_worker,sizes,user,project,priority,model,"
        "gpu_types,fungible,heterogeneous,estimate_s,checkpoint_s\n"
        "x,1,8,100,4,8,2,4;8,ada,vision,2,resnet,,true,true,150,30\n",
    )
    (spec,) = load_workload(given).specs
    assert spec == JobSpec(
        "x", 0, 1.0, 4, 8, 2, (4, 8), 150.0, 2, "ada", "vision", "resnet", (), True, True, 0.7, 30.0, LINEAR
    )


def test_the_servers_are_declared_training_first_with_the_rules() -> None:
    given = experiment(
        cluster={
            "training": {"gpu_types": {"H100": 1, "A100": 1}, "speeds": {"H100": 2}, "gpus_per_server": 4},
            "inference": {"servers": 2, "names": ["web-1", "web-2"], "speed": 0.5},
            "accounting": "slower",
            "projects": {"vision": {"guaranteed": 8}},
        },
        inference={"headroom": "50%", "deadline": "1m"},
        simulation={"resize_s": 1, "restart_s": 2, "vacate_s": 3},
    )
    assert declare(given) == ev.ClusterDeclared(
        0.0,
        (
            ServerSpec("T1", Pool.TRAINING, "H100", 4, 2.0),
            ServerSpec("T2", Pool.TRAINING, "A100", 4, 1.0),
            ServerSpec("web-1", Pool.INFERENCE, "T4", 8, 0.5),
            ServerSpec("web-2", Pool.INFERENCE, "T4", 8, 0.5),
        ),
        Accounting.SLOWER,
        1.0,
        2.0,
        3.0,
        1,
        60.0,
        (("vision", 8),),
    )


def test_a_gang_that_could_never_fit_is_refused_and_the_others_are_not() -> None:
    jobs = [{"id": f"j{workers}", "workers": workers, "duration": 1} for workers in (16, 17)]
    fits, too_large = world(experiment(jobs)).arrivals
    assert isinstance(fits, ev.Submitted)
    assert too_large == ev.Refused(0.0, "j17", "the gang doesn't fit into the empty cluster")


def test_a_gang_that_fits_on_lent_servers_only_is_refused_by_a_policy_that_doesnt_lend() -> None:
    given = experiment([{"id": "A", "workers": 8, "duration": 1, "gpu_types": {"T4": 1.0}, "fungible": True}])
    assert isinstance(world(given, "fifo").arrivals[0], ev.Refused)
    assert isinstance(world(given, "aryl").arrivals[0], ev.Submitted)


def test_a_worker_that_no_server_is_large_enough_for_is_refused() -> None:
    given = experiment([{"id": "A", "workers": 1, "gpus_per_worker": 9, "duration": 1}])
    assert isinstance(world(given, "aryl").arrivals[0], ev.Refused)


def test_scripted_events_of_servers_and_jobs() -> None:
    given = experiment(
        [{"id": "E", "workers": [2, 8], "duration": 9}],
        events=[
            {"at": "1m", "server": "T1", "state": "down"},
            {"at": "2m", "server": "T1", "state": "up"},
            {"at": "3m", "server": "I1", "state": "drain"},
            {"at": "4m", "server": "I1", "state": "undrain"},
            {"at": "6m", "job": "E", "min_workers": 3},
            {"at": "5m", "job": "E", "max_workers": 6},
            {"at": "7m", "job": "E", "cancel": True},
        ],
    )
    scripted = [event for event in everything(given) if event.at > 0.0]
    assert scripted == [
        ev.ServerLost(60.0, "T1"),
        ev.ServerReturned(120.0, "T1"),
        ev.ServerDrained(180.0, "I1", True),
        ev.ServerDrained(240.0, "I1", False),
        ev.LimitsChanged(300.0, "E", 2, 6),
        ev.LimitsChanged(360.0, "E", 3, 6),
        ev.CancelRequested(420.0, "E"),
    ]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([{"at": 1, "job": "E", "max_workers": 1}], "min_workers above max_workers"),
        ([{"at": 1, "job": "E", "min_workers": 9}], "min_workers above max_workers"),
        (
            [{"at": 2, "job": "E", "min_workers": 8}, {"at": 1, "job": "E", "max_workers": 4}],
            "min_workers above max_workers",
        ),
        ([{"at": 1, "job": "E", "min_workers": 3}], "none of its sizes"),
    ],
)
def test_limits_that_a_job_cant_have_are_refused_before_anything_runs(
    events: list[dict[str, Any]], words: str
) -> None:
    given = experiment([{"id": "E", "workers": {"sizes": [2, 4, 8]}, "duration": 9}], events=events)
    with pytest.raises(InputError, match=words):
        world(given)


def test_an_event_for_a_job_that_the_trace_doesnt_have_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,gpus,duration_s\nresnet-1,0,4,100\n", encoding="utf-8")
    given = experiment({"trace": str(path)}, events=[{"at": 1, "job": "resnet-2", "cancel": True}])
    with pytest.raises(InputError, match=r"resnet-2.*did you mean 'resnet-1'"):
        world(given)


def _reports(given: Experiment) -> list[tuple[float, float, float]]:
    return [
        (event.at, event.need_servers, event.forecast_servers)
        for event in everything(given)
        if isinstance(event, ev.DemandReported)
    ]


def test_points_of_demand_are_reported_each_interval_with_the_lead_that_giving_back_takes() -> None:
    given = experiment(
        inference={"points": [[0, 0], [100, 2]], "forecast": "oracle", "deadline": 10, "load": 10},
        simulation={"interval": 30, "vacate_s": 10},
    )
    # lead = 30 + 10 + 10 + 10 s
    assert _reports(given) == [(0, 0, 0), (30, 0, 0), (60, 0, 2), (90, 0, 2), (120, 2, 2)]


def test_a_lead_and_a_forecast_can_be_chosen() -> None:
    points = {"points": [[0, 0], [60, 2]], "interpolate": "line"}
    oracle = experiment(inference={**points, "forecast": "oracle", "lead": 15}, simulation={"interval": 30})
    assert _reports(oracle) == [(0, 0, 0.5), (30, 1, 1.5), (60, 2, 2), (90, 2, 2)]
    last = experiment(inference={**points, "forecast": "last", "headroom": 0}, simulation={"interval": 30})
    assert _reports(last) == [(0, 0, 0), (30, 1, 1), (60, 2, 2), (90, 2, 2)]


def test_without_a_word_about_demand_all_inference_servers_are_needed() -> None:
    assert _reports(experiment()) == [(0, 2, 2)]


def test_without_inference_servers_nobody_reports_a_demand() -> None:
    assert _reports(experiment(cluster={"training": {"servers": 1}})) == []


def test_nothing_happens_after_until() -> None:
    jobs = [{"id": f"j{at}", "submit": at, "workers": 1, "duration": 1} for at in (0, 50, 60)]
    assert {event.at for event in everything(experiment(jobs, simulation={"until": 50}))} == {0.0, 50.0}
