"""From a configuration to the cluster that the engine is told of, and to who tells what inference needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.core.helpers import job

from aryl.core.cluster import Cluster
from aryl.core.events import ClusterDeclared, DemandReported
from aryl.core.evolve import evolve
from aryl.core.model import Accounting, Pool, ServerSpec
from aryl.errors import InputError
from aryl.live import world
from aryl.live.config import ServeConfig
from aryl.live.demand import PushedDemand, ReplayedDemand
from aryl.live.hooks import LoanHooks, OnLimit
from aryl.policies.catalogue import parse_policy


def config(inference: dict[str, Any] | None = None, **more: Any) -> ServeConfig:
    base: dict[str, Any] = {
        "cluster": {
            "training": {"servers": 2, "gpus_per_server": 4},
            "inference": {"servers": 2, "gpus_per_server": 2, "gpu_type": "T4", "speed": 0.5},
            "projects": {"vision": {"guaranteed": 3}},
            "accounting": "slower",
        },
        "state": "/tmp/state",
        "store": "sqlite:////tmp/state/aryl.db",
        "workdirs": ["/tmp"],
        "inference": {"headroom": 1, "deadline": 20, **(inference or {})},
        "resize_s": 1,
        "restart_s": 2,
        "vacate_s": 3,
    }
    return ServeConfig.model_validate({**base, **more})


def cluster_from(declared: ClusterDeclared) -> Cluster:
    cluster = Cluster(parse_policy("fifo").order)
    evolve(cluster, declared)
    return cluster


DECLARED = ClusterDeclared(
    0.0,
    (
        ServerSpec("T1", Pool.TRAINING, "V100", 4, 1.0),
        ServerSpec("T2", Pool.TRAINING, "V100", 4, 1.0),
        ServerSpec("I1", Pool.INFERENCE, "T4", 2, 0.5),
        ServerSpec("I2", Pool.INFERENCE, "T4", 2, 0.5),
    ),
    Accounting.SLOWER,
    resize_s=1.0,
    restart_s=2.0,
    vacate_s=3.0,
    headroom_servers=1,
    reclaim_within_s=20.0,
    guaranteed=(("vision", 3),),
    confirms_loans=True,
)


def test_a_configuration_declares_the_whole_cluster() -> None:
    assert world.declare(config()) == DECLARED


def test_the_rules_of_a_declaration_are_those_of_the_cluster_that_heard_it() -> None:
    assert world.rules_of(cluster_from(DECLARED)) == world.rules_in(DECLARED)


@pytest.mark.parametrize(
    "change",
    [
        {"resize_s": 9.0},
        {"restart_s": 9.0},
        {"vacate_s": 9.0},
        {"headroom_servers": 9},
        {"reclaim_within_s": 9.0},
        {"guaranteed": ()},
        {"confirms_loans": False},
    ],
)
def test_every_rule_that_may_change_is_compared_and_can_be_declared_anew(change: dict[str, Any]) -> None:
    cluster = cluster_from(DECLARED)
    other = replace(DECLARED, **change)
    assert world.rules_of(cluster) != world.rules_in(other)
    evolve(cluster, other)
    assert world.rules_of(cluster) == world.rules_in(other)


def test_the_same_servers_under_other_rules_are_the_same_cluster() -> None:
    world.check_same_cluster(cluster_from(DECLARED), replace(DECLARED, resize_s=9.0))


@pytest.mark.parametrize(
    ("servers", "detail"),
    [
        (DECLARED.servers[:3], "without I2"),
        ((*DECLARED.servers, ServerSpec("I3", Pool.INFERENCE, "T4", 2)), "with the new I3"),
        ((*DECLARED.servers[:3], replace(DECLARED.servers[3], gpus=8)), "with other GPUs in I2"),
        ((*DECLARED.servers[:3], replace(DECLARED.servers[3], server_id="X")), "without I2, with the new X"),
        (DECLARED.servers[::-1], "in another order"),
        ((), "without I1 I2 T1 T2"),
    ],
)
def test_another_cluster_is_refused_with_what_is_different(
    servers: tuple[ServerSpec, ...], detail: str
) -> None:
    with pytest.raises(InputError) as caught:
        world.check_same_cluster(cluster_from(DECLARED), replace(DECLARED, servers=servers))
    assert str(caught.value) == (
        f"cluster: the store was begun with other servers; the configuration has the cluster {detail}; "
        "expected the servers that the store was begun with, or another store and state folder"
    )


def test_a_gang_is_measured_against_an_empty_cluster() -> None:
    yardstick = world.Yardstick(DECLARED, parse_policy("aryl"))
    types = (("V100", 1.0), ("T4", 1.0))
    for _ in range(2):  # the second time it is known
        assert yardstick.could_ever_start(job("a", 8))
        assert not yardstick.could_ever_start(job("b", 9))
        assert not yardstick.could_ever_start(job("c", 1, gpus_per_worker=5))
        assert not yardstick.could_ever_start(job("d", 1, gpu_types=(("A100", 1.0),)))
        mixed = job("e", 12, gpu_types=types, fungible=True, heterogeneous=True)
        assert yardstick.could_ever_start(mixed)
        assert not yardstick.could_ever_start(replace(mixed, heterogeneous=False))


def test_without_a_curve_the_inference_side_reports_and_its_word_grows_old_in_cluster_time() -> None:
    source = world.inference_source(config({"stale_after": 30}, clock={"speed": 60}))
    assert isinstance(source, PushedDemand)
    source.heard(0.0)
    assert source.next_s() == 1800.0


def test_points_are_replayed_with_a_forecast_as_long_as_a_reclaim_takes() -> None:
    source = world.inference_source(config({"points": [[0, 1], [100, 2]], "interval": 60}))
    assert isinstance(source, ReplayedDemand)
    # Interval, deadline and vacating: 60 + 20 + 3 seconds.
    assert source.due(16.0) == DemandReported(16.0, 1.0, 1.0)
    assert source.next_s() == 76.0
    assert source.due(76.0) == DemandReported(76.0, 1.0, 2.0)
    hasty = world.inference_source(config({"points": [[0, 1], [100, 2]], "interval": 60, "lead": 0}))
    assert hasty.due(76.0) == DemandReported(76.0, 1.0, 1.0)
    slanted = world.inference_source(config({"points": [[0, 1], [100, 2]], "interpolate": "line", "lead": 0}))
    assert slanted.due(50.0) == DemandReported(50.0, 1.5, 1.5)


def test_a_curve_is_replayed_on_the_scale_of_the_pool() -> None:
    source = world.inference_source(config({"curve": "synthetic-day", "peak": 0.5}))
    assert isinstance(source, ReplayedDemand)
    told = [source.due(hour * 3600.0) for hour in range(24)]
    needs = [report.need_servers for report in told if isinstance(report, DemandReported)]
    assert len(needs) == 24
    assert 0.0 < min(needs) < max(needs) <= 2.0


def test_a_curve_that_there_is_none_of_is_an_error_in_the_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="synthetic-dya"):
        world.inference_source(config({"curve": "synthetic-dya"}))
    with pytest.raises(InputError, match="none"):
        world.inference_source(config({"curve": str(tmp_path / "none.csv")}))


def test_hooks_are_argument_vectors() -> None:
    assert world.loan_hooks(config()) == LoanHooks()
    hooks = {"release": "./release", "restore": ["/bin/restore", "now"], "drain_limit": 7}
    assert world.loan_hooks(config({"hooks": {**hooks, "on_limit": "force"}})) == LoanHooks(
        ("/bin/sh", "-c", "./release"), ("/bin/restore", "now"), 7.0, OnLimit.FORCE
    )


def test_emulated_gpus_count_from_nought_and_real_ones_are_those_of_the_machine() -> None:
    assert world.gpu_indices(config()) == {"T1": (0, 1, 2, 3), "T2": (0, 1, 2, 3), "I1": (0, 1), "I2": (0, 1)}
    assert world.gpu_indices(config(gpus="real")) == {
        "T1": (0, 1, 2, 3),
        "T2": (4, 5, 6, 7),
        "I1": (8, 9),
        "I2": (10, 11),
    }
