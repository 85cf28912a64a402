"""Servers that come and go by themselves, a daemon from outside of the cluster, and one that dies at an
awkward moment.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live.cluster import LiveCluster, eventually
from tests.ray.live import cluster_on_ray
from tests.ray.raylets import RayServer, RayServers
from tests.ray.test_ray_faults import runs_on, watched

from aryl.core.model import JobState, Tenure

pytestmark = pytest.mark.xdist_group("ray")

EAGER = "aryl:cooldown=0,min_interval=0"
LONG = {"STEPS": "100000", "STEP_S": "0.05"}
# Nothing is said of servers: they are found.
FOUND = {"training": {"servers": 0}, "inference": {"servers": 0, "speed": 1.0}}


def names(cluster: LiveCluster) -> dict[str, bool]:
    """The servers that are known, and whether they are up."""
    return {server.server: server.up for server in cluster.client.servers()}


def test_servers_are_found_and_join_leave_and_come_back_while_jobs_run(tmp_path: Path) -> None:
    with (
        RayServers([RayServer("T1")]) as servers,
        cluster_on_ray(tmp_path, servers, policy=EAGER, cluster=FOUND) as cluster,
    ):
        eventually(lambda: names(cluster) == {"T1": True}, "T1 isn't found", cluster.said)
        first = cluster.submit("first", 1, gpus_per_worker=8, env=LONG)
        cluster.wait_workers(first, 1)
        second = cluster.submit("second", 1, gpus_per_worker=8, env=LONG)
        servers.add(RayServer("T2"), RayServer("I1", "inference", "T4"))
        cluster.wait_workers(second, 1)
        eventually(
            lambda: names(cluster) == {"T1": True, "T2": True, "I1": True}, "not all join", cluster.said
        )
        assert runs_on(cluster, second) == {"T2"}
        found = cluster.server("I1")
        assert (found.pool.value, found.gpu_type, found.gpus) == ("inference", "T4", 8)
        servers.lose("T2")
        eventually(lambda: not names(cluster)["T2"], "the loss isn't noticed", cluster.said)
        # The next daemon knows of all that ever joined.
        cluster.kill()
        cluster.start()
        assert names(cluster) == {"T1": True, "T2": False, "I1": True}
        servers.start("T2")
        cluster.wait_attempt(second, 2)
        cluster.wait_workers(second, 1)
        assert runs_on(cluster, second) == {"T2"}
        assert cluster.client.job(first).attempt == 1


def test_a_daemon_outside_of_the_cluster_runs_jobs_and_adopts_them(
    tmp_path: Path, six_servers: RayServers
) -> None:
    with cluster_on_ray(tmp_path, six_servers, ray={"address": six_servers.client_address}) as cluster:
        job_id = cluster.submit("from-outside", 2, gpus_per_worker=5, env=LONG)
        cluster.wait_workers(job_id, 2)
        before = sorted(cluster.worker_pids(job_id))
        cluster.kill()
        cluster.start()
        cluster.wait_workers(job_id, 2)
        assert sorted(cluster.worker_pids(job_id)) == before
        cluster.client.cancel(job_id)
        cluster.wait_state(job_id, JobState.CANCELLED)
        assert cluster.stop() == 0


def test_a_daemon_that_dies_while_a_server_is_taken_back_leaves_it_to_the_next_one(
    tmp_path: Path, six_servers: RayServers
) -> None:
    with cluster_on_ray(tmp_path, six_servers, policy=EAGER) as cluster:
        cluster.demand(0.0)
        types = {"V100": 1.0, "T4": 1.0}
        settings = {"gpus_per_worker": 8, "gpu_types": types, "heterogeneous": True, "env": LONG}
        job_id = cluster.submit("elastic", [1, 6], **settings)
        cluster.wait_workers(job_id, 6)
        eventually(lambda: {"I1", "I2"} <= runs_on(cluster, job_id), "nothing is lent", cluster.said)
        with watched(cluster, job_id) as seen:
            cluster.demand(2.0)
            cluster.kill()
            cluster.start()
            cluster.demand(2.0)
            for server_id in ("I1", "I2"):
                eventually(
                    lambda server_id=server_id: cluster.server(server_id).tenure is Tenure.OWNED,  # type: ignore[misc]
                    f"{server_id} doesn't come home",
                    cluster.said,
                )
            cluster.wait_workers(job_id, 4)
            eventually(lambda: runs_on(cluster, job_id) == {"T1", "T2", "T3", "T4"}, "it isn't where it is")
        view = cluster.client.job(job_id)
        assert (view.attempt, view.preemptions, view.failures) == (1, 0, 0)
        assert all(len(generations) <= 1 for generations in seen), seen
        loans = [loan for loan in cluster.client.loans().loans if loan.returned is not None]
        assert sorted(loan.server for loan in loans) == ["I1", "I2"]
