"""Gangs of all three launchers on the servers of a Ray cluster, as the daemon runs them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.live.cluster import LiveCluster, eventually
from tests.live.elastic_jobs import (
    EXAMPLES,
    LOADING_S,
    check_each_step_once,
    last_step,
    settle,
    steps_of,
    submit_example,
    worker_pids,
)
from tests.ray.live import cluster_on_ray
from tests.ray.raylets import RayServers

from aryl.backends.gangs.elastic import LIGHTHOUSE_RANK
from aryl.core.model import JobState

pytestmark = pytest.mark.xdist_group("ray")

# Sizes change here faster than anybody would want them to.
EAGER = "aryl:cooldown=0,min_interval=0"


def servers_of(cluster: LiveCluster, job_id: str) -> dict[str, int]:
    return {place.server: place.base + place.flexible for place in cluster.client.job(job_id).placement}


def was_replaced(cluster: LiveCluster, job_id: str) -> bool:
    return any(entry.kind == "worker-replaced" for entry in cluster.client.history(job_id).entries)


def test_workers_join_leave_and_die_on_several_servers_and_each_step_is_done_once(
    tmp_path: Path, six_servers: RayServers
) -> None:
    with cluster_on_ray(tmp_path, six_servers, workdirs=[str(EXAMPLES)], policy=EAGER) as cluster:
        settings = {"workers": "[1, 2]", "gpus_per_worker": "8", "env.BATCHES": "1000000"}
        job_id = submit_example(cluster, "torch_torchft.yaml", settings)
        settle(cluster, job_id, 2)
        assert len(servers_of(cluster, job_id)) == 2
        cluster.client.resize(job_id, max_workers=3)
        settle(cluster, job_id, 3)
        before = worker_pids(cluster, job_id)
        killed = max(before.keys() - {LIGHTHOUSE_RANK})
        os.kill(before[killed], signal.SIGKILL)
        eventually(lambda: was_replaced(cluster, job_id), "it isn't replaced", cluster.said)
        settle(cluster, job_id, 3)
        before = worker_pids(cluster, job_id)
        # The daemon dies as soon as it has promised the next size.
        cluster.client.resize(job_id, max_workers=2)
        cluster.kill()
        cluster.start()
        settle(cluster, job_id, 2)
        assert worker_pids(cluster, job_id).items() < before.items()  # nothing was started anew
        view = cluster.client.job(job_id)
        assert (view.attempt, view.preemptions, view.failures) == (1, 0, 0)
        cluster.client.cancel(job_id)
        cluster.wait_state(job_id, JobState.CANCELLED)
        check_each_step_once(steps_of(cluster, job_id))


@pytest.mark.parametrize("file", ["torch_process.yaml", "torch_torchrun.yaml"])
def test_a_gang_over_two_servers_goes_on_at_the_step_at_which_its_size_changed(
    tmp_path: Path, six_servers: RayServers, file: str
) -> None:
    with cluster_on_ray(tmp_path, six_servers, workdirs=[str(EXAMPLES)], policy=EAGER) as cluster:
        settings = {"workers": "[1, 2]", "gpus_per_worker": "5", "env.STEPS": "60", "env.STEP_S": "0.2"}
        job_id = submit_example(cluster, file, settings)

        def works_with(workers: int) -> bool:
            steps = steps_of(cluster, job_id)
            return bool(steps) and steps[-1]["workers"] == workers

        eventually(lambda: works_with(2), "it never works with two", cluster.said, LOADING_S)
        assert sorted(servers_of(cluster, job_id).values()) == [1, 1]
        left = last_step(cluster, job_id)
        cluster.client.resize(job_id, max_workers=1)
        eventually(lambda: works_with(1), "it never works with one", cluster.said, LOADING_S)
        view = cluster.wait_state(job_id)
        assert (view.state, view.attempt, view.preemptions, view.failures) == (JobState.SUCCEEDED, 1, 0, 0)
        steps = [said["step"] for said in steps_of(cluster, job_id)]
    assert left < 60
    assert steps == list(range(1, 61))
