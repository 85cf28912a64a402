"""Parts of the Ray backend that need no Ray: names, the registry, which GPU stands for which."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from aryl.backends.ray.hands import with_real_gpus
from aryl.backends.ray.places import Place, installation, is_ours, keeper_name, worker_key, worker_name
from aryl.backends.ray.registry import Registry
from aryl.backends.supervisor.protocol import WorkerKey, WorkerSpec
from aryl.errors import ConflictError, FencedError

LEASE_S = 0.2


def test_a_workers_name_leads_back_to_it_whatever_its_job_is_called() -> None:
    key = WorkerKey("a.b-1.2", 3, 0, 17)
    assert worker_key(worker_name(key)) == key
    assert worker_key(keeper_name("T1", "abc")) is None
    assert worker_key("worker:a.b.c.d") is None
    assert worker_key("worker:a.1.2") is None
    assert is_ours(worker_name(key))
    assert not is_ours("SERVE_CONTROLLER_ACTOR")


def test_two_installations_and_two_incarnations_have_folders_of_their_own() -> None:
    one, other = installation(Path("/a/state")), installation(Path("/b/state"))
    assert one != other
    first, second = Place(one, "T1", "0" * 40), Place(one, "T1", "1" * 40)
    assert first.above == second.above
    assert first.folder != second.folder
    assert Place(other, "T1", "0" * 40).above != first.above


def test_a_server_that_moved_to_another_machine_waits_until_its_old_lease_is_certainly_over() -> None:
    registry = Registry(LEASE_S)
    assert registry.renew("T1", "old", "machine-a", {})
    assert not registry.renew("T1", "new", "machine-b", {})
    assert registry.look(0)["servers"]["T1"]["node"] == "old"
    time.sleep(LEASE_S * 1.5)
    assert registry.renew("T1", "new", "machine-b", {"wrong": ""})
    seen = registry.look(0)["servers"]["T1"]
    assert (seen["node"], seen["wrong"]) == ("new", "")
    # The old one is late by now.
    assert not registry.renew("T1", "old", "machine-a", {})


def test_on_the_same_machine_the_newer_incarnation_has_it_at_once() -> None:
    registry = Registry(3600.0)
    assert registry.renew("T1", "old", "machine-a", {})
    assert registry.renew("T1", "new", "machine-a", {})


def test_whoever_was_replaced_is_refused_and_another_installation_too() -> None:
    registry = Registry(LEASE_S)
    epoch = registry.take_over("ours", 2)
    assert registry.take_over("ours", 2) == epoch == registry.look(2)["epoch"]
    with pytest.raises(FencedError):
        registry.take_over("ours", 1)
    with pytest.raises(FencedError):
        registry.look(1)
    assert [registry.admit(fence) for fence in (1, 2, 3)] == [False, True, True]
    with pytest.raises(ConflictError, match=r"ray\.namespace"):
        registry.take_over("theirs", 3)


def spec(rank: int, server_id: str, gpus: tuple[int, ...], visible: str) -> WorkerSpec:
    return WorkerSpec(
        WorkerKey("a", 1, 0, rank), ("true",), "/", {"CUDA_VISIBLE_DEVICES": visible}, "/log", server_id, gpus
    )


def visible(specs: list[WorkerSpec]) -> list[str]:
    return [one.env["CUDA_VISIBLE_DEVICES"] for one in specs]


def test_workers_of_a_server_see_all_of_their_gpus_as_ray_gave_them_in_the_order_of_their_ranks() -> None:
    specs = [spec(0, "T1", (0, 1), "0,1,2,3"), spec(1, "T1", (2, 3), "0,1,2,3"), spec(2, "T2", (0,), "0")]
    assert visible(with_real_gpus(specs, [["6", "7"], ["0", "1"], ["5"]])) == ["6,7,0,1", "6,7,0,1", "5"]


def test_where_ray_gives_no_gpus_they_stay_as_they_were_counted() -> None:
    specs = [spec(0, "T1", (0, 1), "0,1"), spec(1, "", (), "")]
    assert visible(with_real_gpus(specs, [[], []])) == ["0,1", ""]
