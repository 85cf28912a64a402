"""The head of a Ray cluster ends and starts again, with its state kept in Redis."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live.cluster import eventually
from tests.ray.live import cluster_on_ray
from tests.ray.raylets import RayServer, RayServers

from aryl.core.model import JobState

pytestmark = pytest.mark.xdist_group("ray")

# The head may be away for a while without harm.
PATIENT = {"lease": 40.0}


def test_workers_go_on_without_the_head_and_are_adopted_when_it_is_back(tmp_path: Path) -> None:
    with (
        RayServers([RayServer("T1"), RayServer("T2")], keeps_state=True) as servers,
        cluster_on_ray(tmp_path, servers, ray=PATIENT) as cluster,
    ):
        long = {"STEPS": "100000", "STEP_S": "0.05"}
        job_id = cluster.submit("goes-on", 2, gpus_per_worker=6, env=long)
        short = cluster.submit("ends-meanwhile", 1, env={"STEPS": "150", "STEP_S": "0.05"})
        cluster.wait_workers(short, 1)
        cluster.wait_workers(job_id, 2)
        before = sorted(cluster.worker_pids(job_id))
        servers.kill_head()
        waiting = cluster.submit("waits", 1, gpus_per_worker=8, env={"STEPS": "5"})
        servers.restart_head()
        eventually(lambda: "it is opened again" in cluster.said(), "nobody notices", cluster.said)
        assert cluster.wait_state(short).attempt == 1
        assert sorted(cluster.worker_pids(job_id)) == before
        # All that is to know is known again: what goes on, what has ended, what has to begin.
        cluster.client.cancel(job_id)
        cluster.wait_state(job_id, JobState.CANCELLED)
        assert cluster.wait_state(waiting).state is JobState.SUCCEEDED
        assert before
        view = cluster.client.job(job_id)
        assert (view.attempt, view.failures, view.preemptions) == (1, 0, 0)
        eventually(lambda: cluster.server("T1").free_gpus == 8, "its GPUs aren't free", cluster.said)


def test_a_daemon_whose_cluster_is_gone_ends_when_it_is_told(tmp_path: Path) -> None:
    with RayServers([RayServer("T1")]) as servers, cluster_on_ray(tmp_path, servers) as cluster:
        job_id = cluster.submit("lost", 1, env={"STEPS": "100000", "STEP_S": "0.05"})
        cluster.wait_workers(job_id, 1)
        servers.kill_head()
        eventually(lambda: not cluster.worker_pids(job_id), "its lease never ends", cluster.said)
        assert cluster.stop() == 0
