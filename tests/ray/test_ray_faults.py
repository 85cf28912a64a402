"""Servers of a Ray cluster that die, are cut off and come back: nothing runs twice, nothing is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.live.cluster import LiveCluster, environment_of, eventually
from tests.ray.live import cluster_on_ray
from tests.ray.raylets import RayServer, RayServers

from aryl.core.model import JobState

pytestmark = pytest.mark.xdist_group("ray")

EAGER = "aryl:cooldown=0,min_interval=0"
LONG = {"STEPS": "100000", "STEP_S": "0.05"}


@pytest.fixture(scope="module")
def servers() -> Iterator[RayServers]:
    """Three training servers on cables of their own."""
    with RayServers([RayServer(f"T{number}") for number in range(1, 4)], wired=True) as cluster:
        yield cluster


def placed(cluster: LiveCluster, job_id: str) -> list[str]:
    return sorted(place.server for place in cluster.client.job(job_id).placement)


def is_up(cluster: LiveCluster, server_id: str) -> bool:
    return cluster.server(server_id).up


def runs_on(cluster: LiveCluster, job_id: str) -> set[str]:
    """Where processes of a job really are."""
    found = set()
    for pid in cluster.worker_pids(job_id):
        entries = dict(entry.partition("=")[::2] for entry in environment_of(pid))
        found.add(entries.get("ARYL_SERVER_ID", ""))
    return found


@contextmanager
def watched(cluster: LiveCluster, job_id: str) -> Iterator[set[frozenset[str]]]:
    """Looks all the time at which attempts and generations of a job have living processes at once."""
    seen: set[frozenset[str]] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            now = set()
            for pid in cluster.worker_pids(job_id):
                entries = dict(entry.partition("=")[::2] for entry in environment_of(pid))
                if "ARYL_RANK" in entries:
                    now.add(f"{entries['ARYL_ATTEMPT']}.{entries['ARYL_GENERATION']}")
            seen.add(frozenset(now))
            time.sleep(0.02)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield seen
    finally:
        over.set()
        looker.join()


def test_when_a_raylet_dies_an_elastic_job_goes_on_and_an_inelastic_one_restarts_from_its_checkpoint(
    tmp_path: Path, servers: RayServers
) -> None:
    with cluster_on_ray(tmp_path, servers, policy=EAGER) as cluster:
        elastic = cluster.submit("elastic", [1, 2], gpus_per_worker=8, env=LONG)
        cluster.wait_workers(elastic, 2)
        inelastic = cluster.submit("inelastic", 1, gpus_per_worker=8, env=LONG)
        cluster.wait_workers(inelastic, 1)
        cluster.wait_said(elastic, "step 5")
        (lost, stays) = placed(cluster, elastic)
        with watched(cluster, elastic) as seen:
            servers.kill(lost)
            eventually(lambda: not is_up(cluster, lost), "the loss isn't noticed", cluster.said)
            view = cluster.wait_workers(elastic, 1)
            eventually(lambda: runs_on(cluster, elastic) == {stays}, "it doesn't go on", cluster.said)
        assert (view.attempt, view.failures, view.preemptions) == (1, 0, 0)
        assert all(len(generations) <= 1 for generations in seen), seen
        servers.start(lost)
        eventually(lambda: is_up(cluster, lost), "it doesn't come back", cluster.said)
        cluster.wait_workers(elastic, 2)
        # Now the other one: saved by a notice, then lost with its server.
        (home,) = placed(cluster, inelastic)
        cluster.client.drain(home, 0.0)
        cluster.wait_attempt(inelastic, 2)
        cluster.client.undrain(home)
        cluster.wait_said(inelastic, "start 0 of 1 at [1-9]", attempt=2)
        (home,) = placed(cluster, inelastic)
        with watched(cluster, inelastic) as seen:
            servers.kill(home)
            servers.start(home)
            cluster.wait_attempt(inelastic, 3)
            cluster.wait_said(inelastic, "start 0 of 1 at [1-9]", attempt=3)
        assert all(len(attempts) <= 1 for attempts in seen), seen
        assert cluster.client.job(inelastic).failures == 0


def test_a_server_that_is_cut_off_ends_its_workers_before_they_run_elsewhere_and_is_used_again(
    tmp_path: Path, servers: RayServers
) -> None:
    with cluster_on_ray(tmp_path, servers, policy=EAGER) as cluster:
        job_id = cluster.submit("alone", 1, gpus_per_worker=8, env=LONG)
        cluster.wait_workers(job_id, 1)
        cluster.wait_said(job_id, "step 5")
        (home,) = placed(cluster, job_id)
        with watched(cluster, job_id) as seen:
            servers.cut(home)
            try:
                cluster.wait_attempt(job_id, 2)
                cluster.wait_said(job_id, "step 5", attempt=2)
                assert home not in runs_on(cluster, job_id)
                assert not is_up(cluster, home)
            finally:
                servers.mend(home)
            servers_back(cluster, servers, home)
        assert all(len(attempts) <= 1 for attempts in seen), seen
        # All of its GPUs can be used again.
        others = [cluster.submit(f"other-{number}", 1, gpus_per_worker=8, env=LONG) for number in (1, 2)]
        for other in others:
            cluster.wait_workers(other, 1)
        assert home in {server for other in others for server in placed(cluster, other)}


def servers_back(cluster: LiveCluster, servers: RayServers, server_id: str) -> None:
    """Wait until a server that was mended is up; Ray may have ended its raylet meanwhile."""
    for _ in range(2):
        try:
            eventually(lambda: is_up(cluster, server_id), "it doesn't come back", cluster.said, within_s=15.0)
            return
        except AssertionError:
            servers.start(server_id)
    eventually(lambda: is_up(cluster, server_id), "it doesn't come back", cluster.said)


def test_a_daemon_that_dies_while_a_server_is_cut_off_leaves_nothing_that_runs_twice(
    tmp_path: Path, servers: RayServers
) -> None:
    with cluster_on_ray(tmp_path, servers, policy=EAGER) as cluster:
        job_id = cluster.submit("alone", 1, gpus_per_worker=8, env=LONG)
        cluster.wait_workers(job_id, 1)
        cluster.wait_said(job_id, "step 5")
        (home,) = placed(cluster, job_id)
        with watched(cluster, job_id) as seen:
            servers.cut(home)
            cluster.kill()
            cluster.start()
            cluster.wait_attempt(job_id, 2)
            cluster.wait_said(job_id, "step 5", attempt=2)
            servers.mend(home)
            servers_back(cluster, servers, home)
        assert all(len(attempts) <= 1 for attempts in seen), seen
        assert cluster.client.job(job_id).failures == 0
        cluster.client.cancel(job_id)
        cluster.wait_state(job_id, JobState.CANCELLED)
