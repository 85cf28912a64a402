"""A sweep makes one experiment of each combination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aryl.errors import InputError
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import experiment_from_mapping, load_experiment
from aryl.sim.policy_list import split_policies
from aryl.sim.sweep import expand_sweep, label_text

KNOWN = ("fifo", "sjf", "aryl", "aryl-plus")


def swept(sweep: dict[str, list[Any]]) -> Experiment:
    return experiment_from_mapping(
        {"cluster": {"training": {"servers": 1}}, "jobs": {"trace": "itp"}, "sweep": sweep}
    )


def test_without_a_sweep_there_is_the_experiment_itself() -> None:
    experiment = swept({})
    assert expand_sweep(experiment) == [({}, experiment)]


def test_all_combinations_come_in_order_and_the_last_key_varies_fastest() -> None:
    points = expand_sweep(swept({"simulation.interval": ["1m", 300], "jobs.seed": [1, 2, 3]}))
    assert [(point.simulation.interval, point.jobs.seed) for _, point in points] == [  # type: ignore[union-attr]
        (60.0, 1),
        (60.0, 2),
        (60.0, 3),
        (300.0, 1),
        (300.0, 2),
        (300.0, 3),
    ]
    assert points[1][0] == {"simulation.interval": "1m", "jobs.seed": 2}
    assert label_text(points[1][0]) == "simulation.interval=1m jobs.seed=2"
    assert all(point.sweep == {} for _, point in points)


def test_a_sweep_may_add_what_the_file_does_not_mention() -> None:
    points = expand_sweep(swept({"cluster.inference.servers": [0, 5]}))
    assert [point.cluster.inference.servers for _, point in points] == [0, 5]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        (
            '{"simulation.interval": [60, x]}',
            r"e\.yaml, line 3, simulation\.interval: wrong value .found 'x'",
        ),
        (
            '{"simulation.intervall": [60]}',
            r"line 3, simulation\.intervall: unknown key.*did you mean 'interval'",
        ),
        (
            '{"simulation.interval": 60}',
            r"line 3, sweep\.simulation\.interval: wrong value .found 60.; expected a list",
        ),
        ('{"sweep.x": [60]}', "this can't be swept"),
    ],
)
def test_a_wrong_sweep_is_found_when_the_file_is_read(tmp_path: Path, sweep: str, message: str) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(f"cluster: {{training: {{servers: 1}}}}\njobs: {{trace: itp}}\nsweep: {sweep}\n")
    with pytest.raises(InputError, match=message):
        load_experiment(file)


def test_a_combination_that_cannot_be_is_an_error_with_its_values() -> None:
    values: dict[str, list[Any]] = {
        "cluster.training.names": [["a"], ["a", "b"]],
        "cluster.training.servers": [1],
    }
    with pytest.raises(InputError, match=r"names"):
        expand_sweep(swept(values))


@pytest.mark.parametrize(
    ("text", "policies"),
    [
        ("fifo", ["fifo"]),
        ("fifo,aryl", ["fifo", "aryl"]),
        (" fifo , aryl ,", ["fifo", "aryl"]),
        ("aryl:loaning,reclaim=count", ["aryl:loaning,reclaim=count"]),
        ("fifo,aryl:loaning,reclaim=count,sjf", ["fifo", "aryl:loaning,reclaim=count", "sjf"]),
        ("aryl:loaning,aryl:scaling", ["aryl:loaning", "aryl:scaling"]),
        ("aryl:loaning;reclaim", ["aryl:loaning", "reclaim"]),
        ("fifo,fife", ["fifo", "fife"]),
    ],
)
def test_a_comma_after_a_colon_separates_options_unless_a_policy_follows(
    text: str, policies: list[str]
) -> None:
    assert split_policies(text, KNOWN) == policies
