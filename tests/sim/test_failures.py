"""Random failures: right on average, alternating, and the same for the same seed."""

from __future__ import annotations

import pytest

from aryl.core.events import Event, ServerLost, ServerReturned
from aryl.sim.experiment_file import experiment_from_mapping
from aryl.sim.failures import random_failures
from aryl.sim.run import run

HOUR_S = 3600.0
NAMES = [f"T{number}" for number in range(1, 41)]


def drawn(seed: int = 7) -> list[Event]:
    return list(
        random_failures(NAMES, every_s=20 * HOUR_S, lasting_s=HOUR_S, seed=seed, until_s=2000 * HOUR_S)
    )


def server_of(event: Event) -> str:
    assert isinstance(event, ServerLost | ServerReturned)
    return event.server_id


def test_a_server_is_lost_and_returns_in_turn_and_ends_up() -> None:
    for name in NAMES:
        kinds = [type(event) for event in drawn() if server_of(event) == name]
        assert kinds == [ServerLost, ServerReturned] * (len(kinds) // 2)


def test_losses_come_as_often_and_last_as_long_as_asked_for() -> None:
    events = drawn()
    lost_s: dict[str, float] = {}
    away_s = []
    for event in events:
        if isinstance(event, ServerLost):
            lost_s[event.server_id] = event.at
        else:
            away_s.append(event.at - lost_s.pop(server_of(event)))
    # 40 servers, 2,000 h, one failure in 21 h each: 3,810 expected, standard deviation about 60.
    assert len(away_s) == pytest.approx(40 * 2000 / 21, rel=0.06)
    assert sum(away_s) / len(away_s) == pytest.approx(HOUR_S, rel=0.06)


def test_events_ascend_and_depend_on_the_seed_alone() -> None:
    events = drawn()
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert events == drawn()
    assert events != drawn(seed=8)


def test_jobs_outlive_the_failures_of_their_servers() -> None:
    experiment = experiment_from_mapping(
        {
            "cluster": {"training": {"servers": 3}},
            "jobs": [
                {
                    "id": f"J{number}",
                    "submit": number * 600,
                    "workers": [4, 8],
                    "duration": "5h",
                    "checkpoint": "10m",
                }
                for number in range(12)
            ],
            "simulation": {"failures": {"every": "6h", "lasting": "30m"}, "seed": 3, "check": True},
        }
    )
    summary = run(experiment, "aryl").summary
    calm = run(experiment_from_mapping({**calm_of(experiment), "policies": ["aryl"]}), "aryl").summary
    assert summary["finished"] == calm["finished"] == 12
    assert summary["lost_gpu_s"] > 0 == calm["lost_gpu_s"]
    assert summary["jct_s"]["mean"] > calm["jct_s"]["mean"]


def calm_of(experiment: object) -> dict[str, object]:
    """The same experiment without failures."""
    from aryl.sim.experiment import Experiment
    from aryl.sim.experiment_file import to_mapping

    assert isinstance(experiment, Experiment)
    mapping = dict(to_mapping(experiment))
    mapping["simulation"] = {**mapping["simulation"], "failures": None}
    return mapping
