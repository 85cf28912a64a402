"""What an experiment file means."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from aryl.files.cluster_config import PoolConfig
from aryl.files.inference_fields import ForecastConfig, Headroom
from aryl.sim.experiment import Experiment, JobsConfig
from aryl.sim.experiment_file import experiment_from_mapping, load_experiment, to_mapping

CONTRACT = """\
cluster:
  training:  {servers: 443, gpus_per_server: 8, gpu_type: V100}
  inference: {servers: 520, gpus_per_server: 8, gpu_type: T4, speed: 0.33}
jobs: {trace: itp, window: [14d, 29d], scenario: basic, seed: 1}
inference: {curve: nyc_taxi, peak: 95%, headroom: 2%}
policies: [fifo, aryl]
simulation: {interval: 300, restart_s: 63, resize_s: 10, seed: 1, until: 15d}
events:
  - {at: 10m, server: T1, state: down}
  - {at: 20m, server: T1, state: up}
  - {at: 30m, job: E, max_workers: 6}
  - {at: 40m, job: A, cancel: true}
sweep: {"simulation.interval": [60, 300], "jobs.seed": [1, 2, 3]}
"""
INLINE = """\
name: shrink before kill
cluster:
  training: {servers: 2}
  inference: {servers: 2, names: [web-1, web-2]}
  projects: {vision: {guaranteed: 8}}
jobs:
  - {id: A, submit: 2m, workers: 8, duration: 10m}
  - {id: E, submit: 0, workers: [4, 16], gpus_per_worker: 2, work: 120 gpu-min, checkpoint: 15m, priority: -1}
  - {id: 7, workers: {sizes: [8, 16, 32]}, work: 1 gpu-h, checkpoint: continuous, speedup: {amdahl: 5%}}
  - id: H
    workers: {min: 2, max: 4}
    duration: 90
    speedup: {points: {"2": 1.0, "4": 1.8}}
    gpu_types: {V100: 1, T4: 0.33}
    fungible: true
    heterogeneous: true
    project: vision
    estimate: 2m
inference: {points: [[0, 1], [55m, 1.5]], headroom: 1, interpolate: line}
simulation: {speedup: linear}
events: [{at: 1m, server: web-2, state: drain}]
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "experiment.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def small(**changes: Any) -> Experiment:
    jobs = [{"id": "A", "workers": 4, "duration": "10m"}]
    return experiment_from_mapping({"cluster": {"training": {"servers": 1}}, "jobs": jobs, **changes})


def test_the_file_of_the_reference_is_read_in_seconds_and_shares(tmp_path: Path) -> None:
    experiment = load_experiment(written(tmp_path, CONTRACT))
    assert isinstance(experiment.jobs, JobsConfig)
    assert experiment.name == "experiment"
    assert experiment.jobs.window == (14 * 86400.0, 29 * 86400.0)
    assert experiment.cluster.inference.speed == 0.33
    assert experiment.inference.peak == 0.95
    assert experiment.inference.headroom == Headroom(share=0.02)
    assert experiment.simulation.until == 15 * 86400.0
    assert experiment.curve_start_s == 14 * 86400.0
    assert [event.at for event in experiment.events] == [600.0, 1200.0, 1800.0, 2400.0]
    assert experiment.sweep == {"simulation.interval": [60, 300], "jobs.seed": [1, 2, 3]}


def test_inline_jobs_are_read_in_every_form(tmp_path: Path) -> None:
    experiment = load_experiment(written(tmp_path, INLINE))
    a, e, seven, h = experiment.inline_jobs()
    assert (a.submit, a.min_workers, a.max_workers, a.duration_s, a.base_gpus) == (120.0, 8, 8, 600.0, 8)
    assert (e.min_workers, e.max_workers, e.base_gpus, e.duration_s, e.checkpoint) == (4, 16, 8, 900.0, 900.0)
    assert (seven.id, seven.sizes, seven.checkpoint, seven.duration_s) == (
        "7",
        (8, 16, 32),
        "continuous",
        450.0,
    )
    assert seven.speedup is not None
    assert seven.speedup.curve()(1) == 1.0
    assert h.speedup is not None
    assert h.speedup.curve()(3) == pytest.approx(1.4)
    assert h.gpu_types == {"V100": 1.0, "T4": 0.33}
    assert (h.estimate, h.project, h.fungible, h.heterogeneous) == (120.0, "vision", True, True)
    assert experiment.inference.points == [(0.0, 1.0), (3300.0, 1.5)]
    assert experiment.inference.headroom.in_servers(100) == 1
    assert experiment.curve_start_s == 0.0
    assert experiment.cluster.server_names() == ["T1", "T2", "web-1", "web-2"]
    assert experiment.cluster.projects["vision"].guaranteed == 8
    assert experiment.simulation.speedup is None


@pytest.mark.parametrize("text", [CONTRACT, INLINE])
def test_an_experiment_survives_being_written_down_and_sent_to_another_process(
    tmp_path: Path, text: str
) -> None:
    experiment = load_experiment(written(tmp_path, text))
    assert experiment_from_mapping(to_mapping(experiment)) == experiment
    assert pickle.loads(pickle.dumps(experiment)) == experiment


def test_what_is_left_out_has_the_documented_default() -> None:
    experiment = small()
    rules, demand = experiment.simulation, experiment.inference
    assert experiment.policies == ["fifo", "aryl"]
    assert (rules.interval, rules.restart_s, rules.resize_s, rules.vacate_s, rules.seed) == (
        300,
        63,
        10,
        0,
        1,
    )
    assert (rules.until, rules.checkpoint, rules.mixed_efficiency, rules.speedup, rules.check) == (
        None,
    ) * 4 + (False,)
    assert (demand.peak, demand.interpolate, demand.drain, demand.from_s) == (0.95, "step", 0.0, None)
    assert demand.forecast == ForecastConfig(predictor="regression", model=None, refresh=True)
    assert demand.headroom == Headroom(risk=0.09, at_least=0.02)
    assert (demand.lead, demand.deadline, demand.load, demand.settle) == (None, 0.0, 0.0, 900.0)
    assert (demand.min_servers, demand.max_lent, demand.calendar, rules.start) == (0, None, None, None)
    assert (experiment.cluster.training.gpu_type, experiment.cluster.training.speed) == ("V100", 1.0)
    assert (experiment.cluster.inference.gpu_type, experiment.cluster.inference.speed) == ("T4", 0.33)
    assert (experiment.cluster.inference.servers, experiment.cluster.accounting) == (0, "more-gpus")
    assert experiment.curve_start_s == 0.0


def test_a_mixed_pool_numbers_its_servers_group_by_group() -> None:
    pool = PoolConfig.model_validate({"gpu_types": {"H100": 2, "A100": 1}, "speeds": {"A100": 0.5}})
    assert pool.servers == 3
    assert list(zip(pool.server_names("T"), pool.server_gpu_types(), strict=True)) == [
        ("T1", "H100"),
        ("T2", "H100"),
        ("T3", "A100"),
    ]
    assert (pool.speed_of("H100"), pool.speed_of("A100")) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("written_as", "pool", "servers"),
    [
        ("2%", 520, 11),
        ("2%", 50, 1),
        ("7%", 100, 7),
        (0.02, 520, 11),
        (3, 520, 3),
        (0, 520, 0),
        ("0%", 520, 0),
    ],
)
def test_headroom_is_a_number_of_servers_or_a_share_rounded_up(
    written_as: object, pool: int, servers: int
) -> None:
    assert small(inference={"headroom": written_as}).inference.headroom.in_servers(pool) == servers


def test_wrong_and_missing_estimates_are_shares_with_an_error() -> None:
    jobs = {"trace": "itp", "estimates": {"wrong": "60%", "error": "10x", "missing": "10%"}}
    experiment = small(jobs=jobs)
    assert isinstance(experiment.jobs, JobsConfig)
    assert experiment.jobs.estimates is not None
    assert (experiment.jobs.estimates.wrong, experiment.jobs.estimates.missing) == (0.6, 0.1)
    assert experiment.jobs.estimates.error.share == 9.0


def test_an_experiment_cannot_be_changed_after_it_was_checked() -> None:
    with pytest.raises(ValueError, match="frozen"):
        small().simulation.interval = 1.0


def test_the_curve_starts_where_it_is_told_to_else_with_the_jobs_window() -> None:
    def start_s(inference: dict[str, Any]) -> float:
        return experiment_from_mapping(
            {
                "cluster": {"training": {"servers": 1}, "inference": {"servers": 1}},
                "jobs": {"trace": "itp", "window": ["14d", "29d"]},
                "inference": {"curve": "nyc_taxi", **inference},
            }
        ).curve_start_s

    assert (start_s({}), start_s({"from": "2h"})) == (14 * 86400.0, 7200.0)
