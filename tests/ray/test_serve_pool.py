"""Ray Serve as the inference pool, on a real cluster and under requests that never stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
from tests.ray.serve_yard import GPUS, PATIENCE_S, ServeYard, need, serve_yard, until, within

from aryl.backends.ray.connection import RayAddress, connect
from aryl.backends.ray.serve import controller
from aryl.backends.ray.serve.pool import ServePool
from aryl.errors import ArylError, InputError

pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def yard() -> Iterator[ServeYard]:
    with serve_yard() as yard:
        yield yard


def test_a_server_is_lent_and_given_back_under_requests_that_never_fail(yard: ServeYard) -> None:
    pool = ServePool("app")
    yard.rest(3)
    with yard.load("0:15") as load:
        seen = pool.read()
        assert seen.servers == 1.5
        assert sorted(gpus for each in seen.hosting.values() for gpus in each) == [2, 2, 2]
        chosen = yard.to_lend(seen)
        assert pool.release(chosen, within(PATIENCE_S)) == ""
        assert yard.on(chosen) == []
        assert yard.free_gpus(chosen) == GPUS  # which training may have now

        yard.deploy(gpus=2, least=6, most=6)  # more than there is room for
        others = [server for server in yard.servers if server != chosen]
        until(
            lambda: [yard.on(server) for server in others] == [["RUNNING"] * 2] * 2, "all other places taken"
        )
        end_s = time.monotonic() + 3
        while time.monotonic() < end_s:
            assert yard.on(chosen) == []
            time.sleep(0.2)
        assert pool.read().servers == 3.0  # those that wait are needed, too
        assert chosen not in pool.read().hosting

        assert pool.restore(chosen, within(PATIENCE_S)) == ""
        assert yard.on(chosen) == ["RUNNING"] * 2  # it serves when all that was wanted there does
        assert yard.gated() == set()
    assert load.told["failed"] == 0, load.told
    assert load.told["answered"] == load.told["sent"] > 100


def test_the_need_follows_the_requests_and_the_autoscaler_does_not_fight_the_loans(yard: ServeYard) -> None:
    pool = ServePool()
    yard.rest(2)
    with yard.load("0:1") as load:
        yard.deploy(gpus=2, least=1, most=6, up=1, down=1)
        until(lambda: need(pool) == 0.5 and yard.stages() == ["RUNNING"], "one replica at rest")
        for server in ("I1", "I2"):
            assert pool.release(server, within(PATIENCE_S)) == ""
    assert load.told["failed"] == 0, load.told
    with yard.load("0:20") as load:
        until(lambda: need(pool) > 1.0, "a need that one server can't meet")
        until(lambda: "" in dict(yard.replicas()), "a replica that waits for a place")
        assert {server for server, _ in yard.replicas()} <= {"I3", ""}
        assert pool.restore("I1", within(PATIENCE_S)) == ""
        assert "RUNNING" in yard.on("I1")
        assert yard.on("I2") == []
    assert load.told["failed"] == 0, load.told
    assert load.told["answered"] == load.told["sent"] > 0
    # Serve lets go of those that wait first, and nothing ever comes to the server that stayed lent.
    until(lambda: need(pool) == 0.5 and yard.stages() == ["RUNNING"], "one replica again")
    assert yard.on("I2") == []


def test_a_daemon_that_takes_over_finds_the_gates_of_the_last_one(yard: ServeYard) -> None:
    yard.rest(2)
    assert ServePool().release("I1", within(PATIENCE_S)) == ""
    assert ServePool().release("I2", within(0.0)) != ""  # called off, and nobody restored it
    yard.ray = connect(RayAddress(yard.cluster.address))  # as another process would
    pool = ServePool()
    assert "I1" in yard.gated()
    assert yard.on("I1") == []
    assert pool.release("I1", within(PATIENCE_S)) == ""
    gates = len(yard.gated())
    pool.take_over(["I1"])
    assert yard.gated() == {"I1"}
    assert gates >= 1
    pool.take_over(["I3", "I2"])  # which its journal says are lent
    assert "I1" not in yard.gated()
    assert yard.gated() == {"I2", "I3"}
    until(lambda: yard.on("I2") + yard.on("I3") == [], "no replica where gates were put back")
    pool.take_over([])
    assert yard.gated() == set()


def test_a_lent_server_that_fails_has_its_gates_again_before_any_replica_comes(yard: ServeYard) -> None:
    pool = ServePool()
    yard.rest(2)
    assert pool.release("I1", within(PATIENCE_S)) == ""
    yard.deploy(gpus=2, least=5, most=5)  # one of them waits for a place, beside the gates
    until(lambda: len(yard.on("I2") + yard.on("I3")) == 4, "all other places taken")
    yard.cluster.lose("I1")
    until(lambda: "no server of that name" in pool.release("I1", within(0.1)), "the loss is seen")
    yard.cluster.start("I1")
    assert pool.release("I1", within(PATIENCE_S)) == ""
    assert yard.on("I1") == []
    assert yard.free_gpus("I1") == GPUS
    assert pool.restore("I1", within(PATIENCE_S)) == ""
    assert "RUNNING" in yard.on("I1")


def test_a_server_is_emptied_although_the_controller_of_serve_dies_meanwhile(yard: ServeYard) -> None:
    pool = ServePool()
    yard.rest(3)
    chosen = yard.to_lend(pool.read())
    with yard.load("0:10") as load:
        actor = yard.ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
        yard.ray.kill(actor, no_restart=False)
        assert pool.release(chosen, within(PATIENCE_S)) == ""
        assert yard.on(chosen) == []
    assert load.told["failed"] == 0, load.told


def test_another_version_of_serve_still_lends_only_what_is_empty(
    yard: ServeYard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    yard.rest(2)
    monkeypatch.setattr(controller, "_vacating_inside", _missing)
    monkeypatch.setattr(controller, "_requests_inside", _missing)
    pool = ServePool()
    hosting = pool.read().hosting
    busy = next(iter(hosting))
    with caplog.at_level(logging.WARNING):
        assert "of 4 GPUs in use" in pool.release(busy, within(3.0))
    # Each is said once, however often it is tried.
    assert len([text for text in caplog.messages if "another version of Ray Serve" in text]) == 2
    assert yard.on(busy) == ["RUNNING"] * len(hosting[busy])
    assert pool.restore(busy, within(PATIENCE_S)) == ""
    empty = next(server for server in yard.servers if server not in hosting)
    assert pool.release(empty, within(PATIENCE_S)) == ""
    assert pool.restore(empty, within(PATIENCE_S)) == ""


def test_replicas_that_the_gates_would_not_stop_are_named_and_nothing_is_lent(yard: ServeYard) -> None:
    from ray import serve

    yard.rest(1)

    @serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0.1, "num_gpus": 1})
    class Careless:
        def __call__(self) -> str:
            return "here"

    serve.run(Careless.bind(), name="careless", route_prefix=None)  # type: ignore[attr-defined]
    try:
        with pytest.raises(ArylError, match="careless/Careless of Ray Serve asks for GPUs, but not"):
            ServePool().read()
        assert "careless/Careless" in ServePool().release("I1", within(PATIENCE_S))
        assert yard.gated() == set()
    finally:
        serve.delete("careless")


def test_an_application_that_is_not_there_is_named_with_the_nearest(yard: ServeYard) -> None:
    with pytest.raises(InputError, match=r"found 'apq'.*did you mean 'app'"):
        ServePool("apq").read()


def test_a_server_that_is_not_there_is_not_handed_over(yard: ServeYard) -> None:
    assert "no server of that name" in ServePool().release("I9", within(PATIENCE_S))
    assert "isn't in the Ray cluster" in ServePool(ready_within_s=0.1).restore("I9", within(PATIENCE_S))


def _missing() -> object:
    def missing(controller: object, *_: object) -> None:
        raise AttributeError("there is no such name in this version")

    return missing
