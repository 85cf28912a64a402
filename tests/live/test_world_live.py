"""From a configuration to the cluster that the engine is told of, and to who tells what inference needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.core.helpers import job

from aryl.core.cluster import Cluster
from aryl.core.events import ClusterDeclared, DemandReported, LendingLimited, ServerLost, ServersJoined
from aryl.core.evolve import evolve
from aryl.core.model import Accounting, Pool, ServerSpec
from aryl.errors import InputError
from aryl.live import world
from aryl.live.clock import WallClock
from aryl.live.config import ServeConfig
from aryl.live.demand import InferenceDesk, Word
from aryl.live.hooks import LoanHooks, OnLimit, Ready
from aryl.live.sources.observation import Observation, Unit
from aryl.policies.catalogue import parse_policy

ENDLESS_S = float("inf")


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
    more = {"load": 5, "min_servers": 1, "max_lent": 2, "ready": "report"}
    assert world.declare(config(more)) == replace(
        DECLARED, load_s=5.0, least_kept_servers=1, most_lent_servers=2, confirms_returns=True
    )
    assert world.declare(config({"hooks": {"restore": "true"}})) == replace(DECLARED, confirms_returns=True)


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
        {"confirms_returns": True},
        {"load_s": 9.0},
        {"least_kept_servers": 1},
        {"most_lent_servers": 1},
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


def test_servers_that_have_joined_are_nothing_that_a_configuration_has_to_name() -> None:
    cluster = cluster_from(DECLARED)
    found = ServerSpec("T3", Pool.TRAINING, "V100", 4)
    evolve(cluster, ServersJoined(1.0, (found,)))
    world.check_same_cluster(cluster, DECLARED)
    with pytest.raises(InputError, match="with the new T3"):
        world.check_same_cluster(cluster, replace(DECLARED, servers=(*DECLARED.servers, found)))
    with pytest.raises(InputError, match="without I2"):
        world.check_same_cluster(cluster, replace(DECLARED, servers=DECLARED.servers[:3]))
    # Nor do other rules need them.
    evolve(cluster, replace(DECLARED, at=2.0, resize_s=9.0))


def test_a_gang_is_measured_against_the_servers_that_there_are_now() -> None:
    yardstick = world.Yardstick(DECLARED, parse_policy("aryl"))
    cluster = cluster_from(DECLARED)
    large, other = job("a", 12), job("b", 1, gpu_types=(("A100", 1.0),))

    def servers() -> list[ServerSpec]:
        return [server.spec for server in cluster.servers]

    assert not yardstick.could_ever_start(large, servers())
    evolve(cluster, ServersJoined(1.0, (ServerSpec("T3", Pool.TRAINING, "V100", 4),)))
    evolve(cluster, ServerLost(1.0, "T3"))  # it may come back
    assert yardstick.could_ever_start(large, servers())
    assert yardstick.could_ever_start(large)
    assert not yardstick.could_ever_start(other, servers())
    evolve(cluster, ServersJoined(2.0, (ServerSpec("T3", Pool.TRAINING, "A100", 2, 2.0),)))
    assert yardstick.could_ever_start(other, servers())
    assert not yardstick.could_ever_start(large, servers())


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


def desk_of(config: ServeConfig) -> InferenceDesk:
    """Its clock begins at midnight, UTC."""
    return world.inference_desk(config, WallClock(0.0, config.clock.speed), world.give_back(config))


@pytest.mark.parametrize(("written", "before", "after"), [("50%", 1.0, 2.0), (1, 1.0, 1.0)])
def test_a_headroom_in_percent_follows_the_servers_that_join_and_leave(
    written: object, before: float, after: float
) -> None:
    desk = desk_of(config({"headroom": written, "settle": 0}))
    cluster = cluster_from(DECLARED)
    desk.take_over(cluster)

    def kept() -> float | None:
        (report,) = desk.told(Word(0.0, 0.0), 0.0)
        assert isinstance(report, DemandReported)
        return report.headroom_servers

    assert kept() == before
    joining = (ServerSpec("I3", Pool.INFERENCE, "T4", 2, 0.5), ServerSpec("T3", Pool.TRAINING, "V100", 4))
    evolve(cluster, ServersJoined(0.0, joining))
    assert kept() == after
    evolve(cluster, ServerLost(0.0, "I3"))
    assert kept() == before
    evolve(cluster, ServerLost(0.0, "I2"))
    assert kept() == before


def test_without_a_curve_the_inference_side_reports_and_its_word_grows_old_in_cluster_time() -> None:
    desk = desk_of(config({"stale_after": 30}, clock={"speed": 60}))
    assert desk.next_s() == ENDLESS_S
    assert desk.told(Word(0.0, 0.5), 0.0) == [DemandReported(0.0, 0.5, 0.5, 1.0)]
    assert desk.due(1799.0) == [DemandReported(1799.0, 0.5, 0.5, 1.0, (), 0.0)]
    assert desk.next_s() == 1800.0


def test_an_oracle_replays_points_with_a_forecast_as_long_as_giving_back_takes() -> None:
    points = {"points": [[0, 1], [100, 2]], "interval": 60, "forecast": "oracle"}
    desk = desk_of(config({**points, "load": 4}))
    # Interval, deadline, vacating and loading: 60 + 20 + 3 + 4 seconds.
    assert desk.due(12.0) == [DemandReported(12.0, 1.0, 1.0, 1.0)]
    assert desk.next_s() == 60.0
    assert desk.due(60.0) == [DemandReported(60.0, 1.0, 2.0, 1.0)]
    assert desk_of(config({**points, "load": 4})).due(13.0) == [DemandReported(13.0, 1.0, 2.0, 1.0)]
    hasty = desk_of(config({**points, "lead": 0}))
    assert hasty.due(76.0) == [DemandReported(76.0, 1.0, 1.0, 1.0)]
    slanted = desk_of(config({**points, "interpolate": "line", "lead": 0}))
    assert slanted.due(50.0) == [DemandReported(50.0, 1.5, 1.5, 1.0)]
    # It makes no errors that a headroom could cover.
    assert desk_of(config({**points, "headroom": {"risk": 0.1}})).due(0.0) == [
        DemandReported(0.0, 1.0, 1.0, 0.0)
    ]


def test_a_curve_is_foreseen_as_a_report_is_and_less_is_kept_when_it_has_been_enough_for_a_while() -> None:
    points = {"points": [[0, 2], [60, 1]], "interval": 60, "forecast": "last"}
    desk = desk_of(config({**points, "settle": 120}))
    told = [desk.due(60.0 * tick) for tick in range(4)]
    assert told == [
        [DemandReported(0.0, 2.0, 2.0, 1.0)],
        [DemandReported(60.0, 1.0, 2.0, 1.0)],
        [DemandReported(120.0, 1.0, 2.0, 1.0)],
        [DemandReported(180.0, 1.0, 1.0, 1.0)],
    ]
    prompt = desk_of(config({**points, "settle": 0, "headroom": {"quantile": 0.9, "at_least": "50%"}}))
    told = [prompt.due(60.0 * tick) for tick in range(2)]
    assert told == [[DemandReported(0.0, 2.0, 2.0, 1.0)], [DemandReported(60.0, 1.0, 1.0, 1.0)]]


def test_a_curve_is_replayed_on_the_scale_of_the_pool() -> None:
    desk = desk_of(config({"curve": "synthetic-day", "peak": 0.5}))
    told = [report for hour in range(24) for report in desk.due(hour * 3600.0)]
    needs = [report.need_servers for report in told if isinstance(report, DemandReported)]
    assert len(needs) == 24
    assert 0.0 < min(needs) < max(needs) <= 2.0


def test_a_curve_that_there_is_none_of_is_an_error_in_the_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="synthetic-dya"):
        desk_of(config({"curve": "synthetic-dya"}))
    with pytest.raises(InputError, match="none"):
        desk_of(config({"curve": str(tmp_path / "none.csv")}))
    with pytest.raises(InputError, match="synthetic-dya"):
        world.check_machine(config({"curve": "synthetic-dya"}))


def test_a_calendar_limits_what_is_lent_in_time_for_servers_to_be_back() -> None:
    calendar = {"zone": "UTC", "windows": [{"from": "22:00", "to": "06:30", "max_lent": 1}]}
    desk = desk_of(config({"calendar": calendar, "load": 97}, clock={"speed": 2}))
    assert desk.due(0.0) == [LendingLimited(0.0, 1)]
    # Two of the cluster's seconds pass in a real one; 20 + 3 + 97 of them are needed.
    closes_s = 2 * 6.5 * 3600.0
    assert desk.next_s() == closes_s - 120.0
    assert desk.due(closes_s - 120.0) == [LendingLimited(closes_s - 120.0, 0)]


def test_what_is_polled_is_told_in_servers(tmp_path: Path) -> None:
    assert world.demand_poller(config(), lambda _: None) is None
    file = tmp_path / "need"
    file.write_text('{"need": 3, "forecast": 4, "at": 1700000000}')
    told: list[Observation] = []
    poller = world.demand_poller(config({"file": {"path": str(file), "unit": "gpus"}}), told.append)
    assert poller is not None
    poller.poll()
    assert told == [Observation(1.7e9, 3.0, Unit.GPUS, 4.0)]
    cluster = Cluster(parse_policy("fifo").order)
    evolve(cluster, world.declare(config({})))
    assert world.of_the_pool(told[0], cluster) == Observation(1.7e9, 1.5, Unit.SERVERS, 2.0)
    # A pool that has grown counts as it is: 2, 2 and 8 GPUs.
    evolve(cluster, ServersJoined(1.0, (ServerSpec("I9", Pool.INFERENCE, "T4", 8),)))
    assert world.of_the_pool(told[0], cluster).need == pytest.approx(3.0 / 4.0)
    half = Observation(1.7e9, 0.5, Unit.SHARE)
    assert world.of_the_pool(half, cluster).need == pytest.approx(1.5)
    poller.close()


def test_hooks_are_argument_vectors() -> None:
    assert world.loan_hooks(config()) == LoanHooks()
    hooks = {"release": "./release", "restore": ["/bin/restore", "now"], "drain_limit": 7}
    assert world.loan_hooks(config({"hooks": {**hooks, "on_limit": "force"}})) == LoanHooks(
        ("/bin/sh", "-c", "./release"), ("/bin/restore", "now"), 7.0, OnLimit.FORCE
    )
    assert world.loan_hooks(config({"ready": "report"})) == LoanHooks(ready=Ready.REPORT)


def test_emulated_gpus_count_from_nought_and_real_ones_are_those_of_the_machine() -> None:
    assert world.gpu_indices(config()) == {"T1": (0, 1, 2, 3), "T2": (0, 1, 2, 3), "I1": (0, 1), "I2": (0, 1)}
    assert world.gpu_indices(config(gpus="real")) == {
        "T1": (0, 1, 2, 3),
        "T2": (4, 5, 6, 7),
        "I1": (8, 9),
        "I2": (10, 11),
    }
