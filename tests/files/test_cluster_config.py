"""A cluster in a file: what is written back, and what a slip of the finger must not do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.errors import InputError
from aryl.files.cluster_config import ClusterConfig
from aryl.files.inference_fields import Headroom
from aryl.files.yaml_source import YamlSource, plain_values

counts = st.integers(1, 6)
types = st.sampled_from(["V100", "T4", "A100", "H100"])
plain_pools = st.fixed_dictionaries(
    {"servers": st.integers(0, 6)},
    optional={"gpus_per_server": counts, "gpu_type": types, "speed": st.floats(0.01, 100)},
)
mixed_pools = st.builds(lambda groups: {"gpu_types": groups}, st.dictionaries(types, counts, min_size=1))
pools = plain_pools | mixed_pools


@given(pools, pools, st.dictionaries(st.sampled_from("abc"), st.builds(lambda n: {"guaranteed": n}, counts)))
@settings(deadline=None)
def test_a_cluster_survives_being_written_down(training: object, inference: object, projects: object) -> None:
    written = {"training": training, "inference": inference, "projects": projects}
    cluster = YamlSource(written).validate(ClusterConfig)
    assert YamlSource(plain_values(cluster)).validate(ClusterConfig) == cluster
    assert len(cluster.server_names()) == cluster.training.servers + cluster.inference.servers


@pytest.mark.parametrize(
    ("training", "error"),
    [
        (
            {"servers": 10**300},
            "training.servers: wrong value (found 'a huge number'); "
            "expected a whole number from 0 to 1000000",
        ),
        (
            {"servers": "9" * 30},
            f"training.servers: wrong value (found '{'9' * 30}'); expected a whole number, at least 0",
        ),
        (
            {"servers": 1, "speeds": {"V100": 10**400}},
            "training.speeds.V100: wrong value (found 'a huge number'); expected a speed above 0",
        ),
        (
            {"servers": 1, "speed": 10**400},
            "training.speed: wrong value (found 'a huge number'); expected a number, at least 0",
        ),
        (
            {"servers": 1, "gpu_type": "V\ud800"},
            "training.gpu_type: wrong value (found 'V\\ud800'); expected a text without control characters",
        ),
        (
            {"servers": 1, "gpus\ud800": 1},
            "training.gpus\\ud800: unknown key; expected one of servers, gpus_per_server, gpu_type, speed, "
            "names, gpu_types, speeds; did you mean 'gpu_types'?",
        ),
        (
            {"servers": 1, "gpu_types": {f"G{n}": 0 for n in range(2000)}},
            "training.gpu_types: more than 1000 GPU types",
        ),
    ],
)
def test_what_is_beyond_all_measure_is_refused(training: object, error: str) -> None:
    with pytest.raises(InputError) as caught:
        YamlSource({"training": training}).validate(ClusterConfig)
    assert str(caught.value) == error


def test_a_value_that_is_nested_or_long_is_shown_short() -> None:
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    with pytest.raises(InputError) as caught:
        YamlSource({"share": deep}).validate(Headroom)
    assert str(caught.value) == "share: wrong value (found 'a list'); expected a share such as 95% or 0.95"
    with pytest.raises(InputError) as caught:
        YamlSource({"share": "x" * 1000}).validate(Headroom)
    assert str(caught.value) == (
        f"share: wrong value (found '{'x' * 120}…'); expected a share such as 95% or 0.95"
    )
