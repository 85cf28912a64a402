"""What bounds an experiment: each job's work and shortest time, and the GPUs that training could use."""

from __future__ import annotations

from typing import Any

import pytest

from aryl.report.bound import Bound
from aryl.sim.experiment_file import experiment_from_mapping
from aryl.sim.limit import bound_of
from aryl.sim.world import load_workload


def bound(jobs: list[dict[str, Any]], training: dict[str, Any] | None = None, **sections: Any) -> Bound:
    cluster = {"training": training or {"servers": 2, "gpu_type": "V100"}, **sections.pop("cluster", {})}
    mapping = {"cluster": cluster, "jobs": jobs, **sections}
    experiment = experiment_from_mapping(mapping)
    return bound_of(experiment, load_workload(experiment))


T4 = {"servers": 3, "gpu_type": "T4", "speed": 0.5}


def test_a_job_has_its_work_at_base_demand_and_is_fastest_at_its_largest() -> None:
    limit = bound([{"id": "A", "submit": 30, "workers": [2, 8], "gpus_per_worker": 2, "duration": 100}])
    assert limit.jobs["A"] == (30.0, 25.0, 400.0)


def test_a_speed_up_curve_says_how_fast_the_largest_is() -> None:
    job = {"id": "A", "workers": [4, 16], "duration": 900, "speedup": {"amdahl": 0.5}}
    assert bound([job]).jobs["A"].shortest_s == pytest.approx(900.0 * (0.5 + 0.5 / 16) / (0.5 + 0.5 / 4))


def test_limits_that_change_later_count_from_the_beginning() -> None:
    """With fewer workers a job along a curve makes more of a GPU."""
    job = {"id": "A", "workers": [4, 4], "duration": 900, "speedup": {"amdahl": 0.5}}
    changes = [{"at": 10, "job": "A", "max_workers": 16}, {"at": 20, "job": "A", "min_workers": 1}]
    changed = bound([job], events=changes).jobs["A"]
    assert changed.shortest_s == pytest.approx(900.0 * (0.5 + 0.5 / 16) / (0.5 + 0.5 / 4))
    assert changed.work_gpu_s == pytest.approx(900.0 * 1.6)  # 1 worker has 1 / 1.6 of the speed of 4


def test_a_faster_gpu_shortens_the_shortest_time_where_a_worker_runs_faster_on_it() -> None:
    job = {"id": "A", "duration": 60, "workers": [2, 4], "gpu_types": {"V100": 1, "A100": 3}}
    mixed = {"servers": 2, "gpu_types": {"V100": 1, "A100": 1}}
    assert bound([job], mixed, cluster={"accounting": "slower"}).jobs["A"].shortest_s == 10.0
    assert bound([job], mixed).jobs["A"].shortest_s == 30.0
    assert bound([job]).jobs["A"].shortest_s == 30.0


def test_training_has_its_own_gpus_and_what_inference_leaves_at_what_it_is_worth() -> None:
    inference = {"points": [[0, 1.2], [600, 3], [1200, 0]]}
    fungible = {"id": "A", "workers": 4, "duration": 3000, "fungible": True}
    limit = bound([fungible], cluster={"inference": T4}, inference=inference)
    assert limit.room is not None
    # 16 GPUs of its own; 1, 0 and 3 whole servers of 8 GPUs at half the speed.
    assert [*zip(limit.room.from_s.tolist(), limit.room.gpus.tolist(), strict=True)] == [
        (0.0, 20.0),
        (600.0, 16.0),
        (1200.0, 28.0),
    ]


def test_what_no_job_can_use_is_no_room() -> None:
    limit = bound([{"id": "A", "workers": 4, "duration": 3000}], cluster={"inference": T4})
    assert limit.room is not None
    assert limit.room.gpus.tolist() == [16.0]


def test_a_need_along_a_line_leaves_what_its_better_end_leaves() -> None:
    inference = {"points": [[0, 3], [120, 1]], "interpolate": "line"}
    fungible = {"id": "A", "workers": 4, "duration": 90, "fungible": True}
    limit = bound([fungible], cluster={"inference": T4}, inference=inference)
    assert limit.room is not None
    assert limit.room.gpus.tolist()[:2] == [20.0, 24.0]
