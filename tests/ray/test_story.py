"""The whole story on one Ray cluster: Serve under a load that falls and rises, its idle server lent to a job
that trains, and given back in time.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.live.cluster import LiveCluster, all_pids, environment_of, eventually
from tests.live.elastic_jobs import (
    EXAMPLES,
    LOADING_S,
    check_each_step_once,
    settle,
    steps_of,
    submit_example,
)
from tests.ray.live import cluster_on_ray
from tests.ray.raylets import RayServer, RayServers
from tests.ray.serve_yard import ServeYard, ServingServers

from aryl.core.model import JobState

pytestmark = pytest.mark.xdist_group("ray")

DEADLINE_S = 40.0
BUSY, IDLE = 30.0, 4.0  # requests a second


class Watch:
    """Looks again and again whether each GPU has one user, and who that is."""

    def __init__(self, cluster: LiveCluster, yard: ServeYard) -> None:
        self._cluster, self._yard = cluster, yard
        self.wrong: list[str] = []
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on)

    def _look_on(self) -> None:
        while not self._over.wait(0.3):
            self.looks += 1
            for server in self._cluster.client.servers():
                if server.used_gpus + server.free_gpus + server.leaving_gpus != server.gpus:
                    self.wrong.append(f"the books of {server}")
            before = self._workers()
            serving = {server for server, _ in self._yard.replicas() if server}
            # Whoever trains there both before and after a replica was seen has met it.
            for server_id, gpus in self._workers().items():
                if server_id in serving and server_id in before:
                    self.wrong.append(f"a replica and a worker on {server_id}")
                if len(set(gpus)) != len(gpus):
                    self.wrong.append(f"a GPU of {server_id} has two workers: {gpus}")

    def _workers(self) -> dict[str, list[str]]:
        """The GPUs of living workers by server; what a worker starts is a part of it."""
        found: dict[tuple[str, ...], list[str]] = {}
        for pid in all_pids():
            entries = dict(entry.partition("=")[::2] for entry in environment_of(pid))
            ours = entries.get("ARYL_RUN_DIR", "").startswith(f"{self._cluster.state}/")
            if ours and entries["ARYL_SERVER_ID"]:  # a lighthouse is on no server
                which = [entries[f"ARYL_{name}"] for name in ("SERVER_ID", "ATTEMPT", "GENERATION", "RANK")]
                found[tuple(which)] = entries["CUDA_VISIBLE_DEVICES"].split(",")
        by_server: dict[str, list[str]] = defaultdict(list)
        for (server_id, *_), gpus in found.items():
            by_server[server_id] += gpus
        return by_server

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        self._thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._thread.join()


def test_idle_servers_of_serve_train_and_are_back_when_the_load_is(tmp_path: Path) -> None:
    servers = [RayServer("T1", gpus=4), *(RayServer(f"I{number}", "inference", "T4", 4) for number in (1, 2))]
    inference = {
        "ray_serve": {"every": "1s"},
        "interval": "1s",
        "settle": "2s",
        "forecast": "last",
        "headroom": 0,
        "deadline": DEADLINE_S,
        "hooks": {"drain_limit": "60s"},
    }
    with (
        ServingServers(servers) as ray,
        cluster_on_ray(
            tmp_path,
            ray,
            policy="aryl:cooldown=0,min_interval=0",
            inference=inference,
            workdirs=[str(EXAMPLES)],
        ) as cluster,
        served_on(ray) as yard,
        Watch(cluster, yard).watching() as watch,
    ):
        with yard.load(f"0:{BUSY}") as busy:
            eventually(lambda: len(serving_on(yard)) == 2, "Serve doesn't grow", cluster.said, LOADING_S)
            eventually(lambda: on_loan(cluster) == [], "nothing comes back", cluster.said)
            settings = {
                "workers": "[1, 3]",
                "gpus_per_worker": "4",
                "gpu_types": "{V100: 1.0, T4: 1.0}",
                "heterogeneous": "true",
                "env.BATCHES": "1000000",
            }
            job_id = submit_example(cluster, "torch_torchft.yaml", settings)
            settle(cluster, job_id, 1)
        with yard.load(f"0:{IDLE}") as idle:
            settle(cluster, job_id, 2)
            (lent,) = on_loan(cluster)
            assert yard.on(lent) == []
        with yard.load(f"0:{BUSY}") as busy_again:
            eventually(lambda: len(serving_on(yard)) == 2, "Serve stays small", cluster.said, LOADING_S)
            settle(cluster, job_id, 1)
            eventually(lambda: not cluster.server(lent).restoring, "it never serves", cluster.said)
        view = cluster.client.job(job_id)
        assert (view.state, view.attempt, view.preemptions) == (JobState.RUNNING, 1, 0)
        # It may have been lent before the load had risen for the first time.
        loan = next(loan for loan in cluster.client.loans().loans if loan.server == lent)
        cluster.client.cancel(job_id)
        cluster.wait_state(job_id, JobState.CANCELLED)
        steps = steps_of(cluster, job_id)
    for load in (busy, idle, busy_again):
        assert load.told["failed"] == 0, load.told
        assert load.told["answered"] == load.told["sent"] > 0
    assert check_each_step_once(steps) > 0
    assert {said["size"] for said in steps} == {1, 2}
    assert watch.wrong == []
    assert watch.looks > 10
    assert loan.returned is not None
    assert loan.reclaim_asked is not None
    assert loan.returned - loan.reclaim_asked <= DEADLINE_S


@contextmanager
def served_on(ray: RayServers) -> Iterator[ServeYard]:
    """Serve with one replica, which may become four, on the inference servers."""
    yard = ServeYard(ray)
    try:
        yard.deploy(gpus=2, least=1, most=4, down=4, up=1)
        yield yard
    finally:
        yard.close()


def serving_on(yard: ServeYard) -> set[str]:
    """The servers on which replicas serve."""
    return {server for server, stage in yard.replicas() if stage == "RUNNING"}


def on_loan(cluster: LiveCluster) -> list[str]:
    return [server.server for server in cluster.client.servers() if server.tenure.value != "owned"]
