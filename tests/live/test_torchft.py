"""Workers that join, leave and die while the others go on, as the daemon runs them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.live.cluster import LiveCluster, eventually, live_cluster
from tests.live.elastic_jobs import (
    EXAMPLES,
    check_each_step_once,
    last_step,
    longest_pauses,
    settle,
    steps_of,
    submit_example,
    worker_pids,
)

from aryl.backends.local_elastic import LIGHTHOUSE_RANK
from aryl.core.model import JobState

YAML = "torch_torchft.yaml"


def history(cluster: LiveCluster, job_id: str) -> list[str]:
    return [entry.kind for entry in cluster.client.history(job_id).entries]


def test_a_job_changes_its_size_loses_a_worker_and_its_daemon_and_does_each_step_once(tmp_path: Path) -> None:
    with live_cluster(tmp_path, workdirs=[str(EXAMPLES)]) as cluster:
        job_id = submit_example(cluster, YAML, workers="[1, 2]", env__BATCHES="1000000", env__STEP_S="0.05")
        changes = {"start": settle(cluster, job_id, 2)}
        cluster.client.resize(job_id, max_workers=4)
        changes["2 -> 4"] = settle(cluster, job_id, 4)
        cluster.client.resize(job_id, max_workers=1)
        changes["4 -> 1"] = settle(cluster, job_id, 1)
        cluster.client.resize(job_id, max_workers=3)
        changes["1 -> 3"] = settle(cluster, job_id, 3)
        before = worker_pids(cluster, job_id)
        killed = max(before.keys() - {LIGHTHOUSE_RANK})
        os.kill(before[killed], signal.SIGKILL)
        eventually(lambda: "worker-replaced" in history(cluster, job_id), "it isn't replaced", cluster.said)
        changes["killed"] = settle(cluster, job_id, 3)
        before = worker_pids(cluster, job_id)
        assert len(before.keys() - {LIGHTHOUSE_RANK}) == 3
        assert killed not in before
        # The daemon dies as soon as it has promised the next size.
        cluster.client.resize(job_id, max_workers=2)
        cluster.kill()
        cluster.start()
        changes["3 -> 2, without the daemon"] = settle(cluster, job_id, 2)
        cluster.wait_workers(job_id, 2)
        after = worker_pids(cluster, job_id)
        assert after.items() < before.items()  # nothing was started anew
        view = cluster.client.job(job_id)
        assert (view.attempt, view.preemptions, view.failures) == (1, 0, 0)
        cluster.client.cancel(job_id)
        cluster.wait_state(job_id, JobState.CANCELLED)
        steps = steps_of(cluster, job_id)
    check_each_step_once(steps)
    for change, pause_s in zip(changes, longest_pauses(steps, list(changes.values())), strict=True):
        print(f"{change}: the longest pause is {pause_s:.3f} s")
        assert pause_s < 10.0
