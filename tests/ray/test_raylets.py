"""The Ray clusters of the tests: what is done to a server happens to it, and nothing is left of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ray.machines import descendants
from tests.ray.raylets import QUICK, RayServer, RayServers, alive, wait_for
from tests.ray.wires import cable_of

from aryl.backends.ray.connection import RayAddress, connect, disconnect

pytestmark = pytest.mark.xdist_group("ray")

NAMESPACE = "raylets"
# A server is lost later than elsewhere, so that one on a busy machine isn't lost without our doing.
PATIENT = {**QUICK, "health_check_failure_threshold": "10"}
ROOT = Path(__file__).parents[2]
# Says where its cluster is, then ends as it is told to, or waits to be killed.
HOLDER = """
import sys
from tests.ray.raylets import RayServer, RayServers
with RayServers([RayServer("T1")], wired=True) as servers:
    print(servers.folder, servers.yard, servers.raylet("T1"), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["ends", "dies"])
def test_nothing_is_left_of_a_cluster_when_its_test_(how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        folder, yard, raylet = holder.stdout.readline().split()
        processes = [int(yard), *descendants(int(yard))]
        assert int(raylet) in processes
        assert cable_of(int(yard)).exists()
        if how == "dies":
            holder.kill()
        else:
            holder.stdin.close()
    wait_for(lambda: not any(alive(pid) for pid in processes), "the end of all processes")
    wait_for(lambda: not cable_of(int(yard)).exists(), "the end of the network")
    assert not Path(folder).exists()


@pytest.fixture(scope="module")
def servers() -> Iterator[RayServers]:
    """Two servers on cables, under a head that keeps its state."""
    some = [RayServer("T1"), RayServer("I1", "inference", "T4", labels={"rack": "7"})]
    with RayServers(some, wired=True, keeps_state=True, settings=PATIENT) as cluster:
        yield cluster


@pytest.fixture
def ray(servers: RayServers) -> Iterator[Any]:
    """Ray, connected."""
    yield connect(RayAddress(servers.address, NAMESPACE))
    disconnect()


def counting(ray: Any, servers: RayServers, server_id: str, file: Path) -> Any:
    """An actor on a server that counts in a file all the time. Returns it when it does."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    class Counter:
        def __init__(self) -> None:
            import threading

            threading.Thread(target=self._count, daemon=True).start()

        def _count(self) -> None:
            import itertools
            import time

            for number in itertools.count():
                file.write_text(str(number))
                time.sleep(0.01)

        def pid(self) -> int:
            import os

            return os.getpid()

    there = NodeAffinitySchedulingStrategy(servers.node_id(server_id), soft=False)
    options = {"name": file.name, "lifetime": "detached", "num_cpus": 0, "num_gpus": 1}
    actor = ray.remote(Counter).options(scheduling_strategy=there, **options).remote()
    wait_for(file.exists, "the first count")
    return actor


def goes_on(file: Path) -> bool:
    """Whether it is counted there."""
    before = file.read_text()
    time.sleep(0.5)
    return file.read_text() != before


def is_alive(ray: Any, node_id: str) -> bool:
    return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())


def test_servers_have_their_labels_their_gpus_and_an_address_of_their_own(
    servers: RayServers, ray: Any
) -> None:
    nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    training, inference = (nodes[servers.node_id(name)] for name in ("T1", "I1"))
    expected = {"aryl.io/server": "I1", "aryl.io/pool": "inference", "aryl.io/gpu-type": "T4", "rack": "7"}
    assert expected.items() <= inference["Labels"].items()
    assert training["Resources"]["GPU"] == 8
    assert len({node["NodeManagerAddress"] for node in nodes.values()}) == len(nodes) == 3


def test_a_raylet_that_is_killed_is_lost_and_starts_again_under_the_same_name(
    servers: RayServers, ray: Any
) -> None:
    before = servers.node_id("T1")
    servers.kill("T1")
    assert not alive(servers.raylet("T1"))
    wait_for(lambda: not is_alive(ray, before), "the loss of the server")
    servers.start("T1")
    assert servers.node_id("T1") != before
    wait_for(lambda: is_alive(ray, servers.node_id("T1")), "the server again")


def test_nothing_runs_on_a_frozen_server_until_it_thaws(
    servers: RayServers, ray: Any, tmp_path: Path
) -> None:
    file = tmp_path / "frozen"
    actor = counting(ray, servers, "T1", file)
    servers.freeze("T1")
    assert not goes_on(file)
    servers.thaw("T1")
    wait_for(lambda: goes_on(file), "that it goes on")
    ray.kill(actor)


def test_a_server_that_is_cut_off_is_lost_and_computes_until_it_hears_of_that(
    servers: RayServers, ray: Any, tmp_path: Path
) -> None:
    file = tmp_path / "cut"
    actor = counting(ray, servers, "T1", file)
    pid = ray.get(actor.pid.remote())
    servers.cut("T1")
    try:
        wait_for(lambda: not is_alive(ray, servers.node_id("T1")), "the loss of the server")
        assert alive(pid)
        wait_for(lambda: goes_on(file), "that it still computes")
    finally:
        servers.mend("T1")
    wait_for(lambda: not alive(servers.raylet("T1")), "that the raylet hears of it")
    wait_for(lambda: not alive(pid), "the end of what it ran")
    servers.start("T1")
    wait_for(lambda: is_alive(ray, servers.node_id("T1")), "the server again")


def test_what_outlives_a_raylet_is_still_a_process_of_its_server(servers: RayServers, ray: Any) -> None:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def leave_behind() -> int:
        import subprocess

        # Its parent ends at once, and it isn't in the session of a worker.
        command = ["/bin/sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"]
        return int(subprocess.run(command, capture_output=True, check=True).stdout)

    there = NodeAffinitySchedulingStrategy(servers.node_id("I1"), soft=False)
    pid = ray.get(ray.remote(leave_behind).options(num_cpus=0, scheduling_strategy=there).remote())
    servers.kill("I1")
    servers.start("I1")
    assert alive(pid)
    assert pid in servers.processes("I1")
    assert pid not in servers.processes("T1")
    os.kill(pid, 9)


def test_a_head_that_starts_again_knows_what_it_knew(servers: RayServers, ray: Any, tmp_path: Path) -> None:
    file = tmp_path / "known"
    pid = ray.get(counting(ray, servers, "T1", file).pid.remote())
    address = servers.address
    disconnect()
    servers.kill_head()
    assert servers.processes("head") == []
    assert goes_on(file)
    servers.restart_head()
    assert servers.address == address
    again = connect(RayAddress(servers.address, NAMESPACE))
    assert again.get(again.get_actor(file.name).pid.remote()) == pid


def test_a_server_that_can_not_start_says_why(servers: RayServers) -> None:
    with pytest.raises(RuntimeError, match="must be nonnegative"):
        servers.add(RayServer("T9", gpus=-1))
    del servers.servers["T9"]
