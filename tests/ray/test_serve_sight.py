"""What follows from what Ray Serve says of itself: the need, where replicas stand, and whether one serves."""

from __future__ import annotations

from typing import Any

import pytest

from aryl.backends.ray.serve.sight import InferenceServer, Sight, sight_of

RESOURCE = "aryl_inference"
I1 = InferenceServer("I1", "node-1", 4)
I2 = InferenceServer("I2", "node-2", 4)
SERVERS = [I1, I2]
SCALING = {
    "target_ongoing_requests": 2.0,
    "max_replicas": 6,
    "policy": {"policy_function": "ray.serve.autoscaling_policy:default_autoscaling_policy"},
}


def replica(node: str | None = "node-1", state: str = "RUNNING", actor: str = "") -> dict[str, Any]:
    return {"node_id": node, "state": state, "actor_name": actor}


def deployment(
    *replicas: dict[str, Any],
    target: int | None = None,
    units: float = 1,
    gpus: float | None = None,
    **config: Any,
) -> dict[str, Any]:
    return {
        "deployment_config": config,
        "target_num_replicas": len(replicas) if target is None else target,
        "required_resources": {"GPU": units if gpus is None else gpus, RESOURCE: units},
        "replicas": list(replicas),
    }


def seen(
    *deployments: dict[str, Any],
    requests: float | None = None,
    groups: dict[str, dict[str, float]] | None = None,
    application: str | None = None,
    app: dict[str, Any] | None = None,
) -> Sight:
    named = {f"D{number}": each for number, each in enumerate(deployments)}
    asked = {} if requests is None else {("app", "D0"): requests}
    details = {"applications": {"app": {"deployments": named, **(app or {})}}}
    return sight_of(details, groups or {}, asked, resource=RESOURCE, application=application)


def test_a_deployment_needs_its_target_whether_its_replicas_have_a_place_or_not() -> None:
    sight = seen(deployment(replica(), replica(None, "STARTING"), target=3))
    assert sight.need_servers(4) == 0.75


@pytest.mark.parametrize(
    ("requests", "servers"), [(0.0, 0.25), (2.0, 0.25), (2.1, 0.5), (8.0, 1.0), (1000.0, 1.5)]
)
def test_requests_call_for_replicas_before_the_autoscaler_does_up_to_its_limit(
    requests: float, servers: float
) -> None:
    sight = seen(deployment(replica(), autoscaling_config=SCALING), requests=requests)
    assert sight.need_servers(4) == servers


def test_requests_count_only_where_the_autoscaler_is_serves_own() -> None:
    own = {**SCALING, "policy": {"policy_function": "mine:policy"}}
    assert seen(deployment(replica(), autoscaling_config=own), requests=9.0).need_servers(4) == 0.25
    of_the_app = {"deployed_app_config": {"autoscaling_policy": {"policy_function": "mine:policy"}}}
    sight = seen(deployment(replica(), autoscaling_config=SCALING), requests=9.0, app=of_the_app)
    assert sight.need_servers(4) == 0.25


@pytest.mark.parametrize(
    ("units", "servers"), [(0.5, 0.125), (1, 0.25), (2, 0.5), (3, 1.0), (4, 1.0), (6, 1.5)]
)
def test_a_replica_counts_as_the_part_of_a_server_that_others_like_it_lose(
    units: float, servers: float
) -> None:
    assert seen(deployment(replica(), units=units)).need_servers(4) == servers


def test_only_the_application_that_was_asked_for_is_needed_but_all_replicas_are_seen() -> None:
    sight = seen(deployment(replica()), application="another")
    assert sight.need_servers(4) == 0.0
    assert sight.hosting(SERVERS) == {"I1": (1,)}


def test_replicas_without_gpus_are_no_need_and_stand_on_nothing() -> None:
    sight = seen(deployment(replica(), replica(), units=0))
    assert sight.need_servers(4) == 0.0
    assert sight.hosting(SERVERS) == {}


def test_hosting_has_each_replica_that_keeps_its_place() -> None:
    sight = seen(
        deployment(replica("node-2", "STARTING"), replica("node-2"), replica("node-1", "STOPPING"), target=2),
        deployment(replica("node-2"), replica(None, "STARTING"), replica("elsewhere"), units=2),
    )
    assert sight.hosting(SERVERS) == {"I2": (2, 1, 1)}


def test_a_replica_that_moves_counts_where_it_was_only_until_another_one_has_a_place() -> None:
    moving = replica("node-1", "PENDING_MIGRATION")
    waits = seen(deployment(moving, replica(None, "STARTING"), target=1))
    assert waits.hosting(SERVERS) == {"I1": (1,)}
    placed = seen(deployment(moving, replica("node-2", "STARTING"), target=1))
    assert placed.hosting(SERVERS) == {"I2": (1,)}


def test_a_part_of_a_gpu_takes_the_room_of_a_whole_one() -> None:
    assert seen(deployment(replica(), replica(), units=0.5)).hosting(SERVERS) == {"I1": (1, 1)}


def test_a_replica_with_bundles_stands_where_its_bundles_are() -> None:
    bundles = [{"CPU": 1}, {"GPU": 2, RESOURCE: 2}]
    one = deployment(replica("node-2", actor="R1"), units=0, placement_group_bundles=bundles)
    sight = seen(one, groups={"R1": {"node-1": 2.0}})
    assert sight.hosting(SERVERS) == {"I1": (2,)}
    assert sight.need_servers(4) == 0.5


def test_a_replica_on_several_servers_at_once_fits_nowhere_else() -> None:
    bundles = [{"GPU": 1, RESOURCE: 1}] * 2
    one = deployment(replica(actor="R1"), units=0, placement_group_bundles=bundles)
    sight = seen(one, groups={"R1": {"node-1": 1.0, "node-2": 1.0}})
    assert sight.hosting(SERVERS) == {"I1": (5,), "I2": (5,)}


@pytest.mark.parametrize(
    ("units", "gpus", "fine"), [(1, 1, True), (2, 1, True), (0, 0, True), (1, 2, False), (0, 0.5, False)]
)
def test_gpus_without_as_many_units_are_named(units: float, gpus: float, fine: bool) -> None:
    sight = seen(deployment(replica(), units=units, gpus=gpus))
    assert (sight.uncounted == "") is fine
    assert fine or "app/D0" in sight.uncounted


def test_a_controller_that_has_just_come_back_is_unsure() -> None:
    assert seen(deployment(replica(None, "RECOVERING"))).unsure
    assert not seen(deployment(replica(), replica(None, "STARTING"))).unsure


@pytest.mark.parametrize(
    ("replicas", "target", "serves"),
    [
        ([replica()], 1, True),
        ([replica(None, "STARTING")], 1, False),  # it would fit here
        ([replica(state="STARTING")], 1, False),
        ([replica("node-2", "STARTING")], 1, True),  # that is another server's affair
        ([replica()] * 4 + [replica(None, "STARTING")], 5, True),  # full
        ([replica()] * 3 + [replica(state="STOPPING"), replica(None, "STARTING")], 4, True),
        ([], 0, True),
    ],
)
def test_a_server_serves_once_its_replicas_do_and_none_waits_that_would_fit(
    replicas: list[dict[str, Any]], target: int, serves: bool
) -> None:
    assert seen(deployment(*replicas, target=target)).serves(I1) is serves
