"""The reference page and the models know the same keys, and its examples are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from aryl.files.cluster_config import ClusterConfig, PoolConfig
from aryl.files.fields import Strict
from aryl.sim.experiment import (
    Experiment,
    InferenceConfig,
    JobsConfig,
    ScriptedEvent,
    SimulationConfig,
)
from aryl.sim.experiment_file import experiment_from_mapping
from aryl.sim.experiment_jobs import InlineJob

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "experiment-file.md").read_text(encoding="utf-8")
EXAMPLES = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
SMALLEST = {
    "cluster": {"training": {"servers": 1}},
    "jobs": [{"id": "E", "workers": [4, 16], "duration": 9}, {"id": "A", "workers": 8, "duration": 9}],
}


@pytest.mark.parametrize(
    "model", [Experiment, ClusterConfig, PoolConfig, JobsConfig, InlineJob, InferenceConfig, SimulationConfig]
)
def test_every_key_is_in_the_reference(model: type[Strict]) -> None:
    documented = set(re.findall(r"`(\w+)`", PAGE))
    assert set(model.known_keys()) - documented == set()


def test_every_key_of_an_event_is_in_the_reference() -> None:
    assert all(re.search(rf"\b{key}\b", PAGE) for key in ScriptedEvent.known_keys())


@pytest.mark.parametrize("example", EXAMPLES, ids="-".join)
def test_the_examples_of_the_reference_are_valid(example: dict[str, object]) -> None:
    whole = {**SMALLEST, **({"jobs": {"trace": "itp"}} if "sweep" in example else {}), **example}
    assert experiment_from_mapping(whole).policies == ["fifo", "aryl"]
