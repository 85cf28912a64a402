"""Workers that join, leave and die while the others go on, as the daemon runs them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.live.cluster import LiveCluster, eventually, live_cluster
from tests.live.elastic_jobs import (
    EXAMPLES,
    LOADING_S,
    check_each_step_once,
    last_step,
    longest_pauses,
    settle,
    steps_of,
    submit_example,
    worker_pids,
)

from aryl.backends.gangs.elastic import LIGHTHOUSE_RANK
from aryl.core.model import JobState

# Sizes change here faster than anybody would want them to.
EAGER = "aryl:cooldown=0,min_interval=0"
YAML = "torch_torchft.yaml"


def history(cluster: LiveCluster, job_id: str) -> list[str]:
    return [entry.kind for entry in cluster.client.history(job_id).entries]


def test_a_job_changes_its_size_loses_a_worker_and_its_daemon_and_does_each_step_once(tmp_path: Path) -> None:
    with live_cluster(tmp_path, workdirs=[str(EXAMPLES)], policy=EAGER) as cluster:
        job_id = submit_example(
            cluster, YAML, {"workers": "[1, 2]", "env.BATCHES": "1000000", "env.STEP_S": "0.08"}
        )
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
        changes["3 -> 2, without the daemon"] = last_step(cluster, job_id)
        cluster.client.resize(job_id, max_workers=2)
        cluster.kill()
        cluster.start()
        settle(cluster, job_id, 2)
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


def test_a_preempted_job_and_one_whose_lighthouse_died_go_on_from_what_was_saved(tmp_path: Path) -> None:
    with live_cluster(tmp_path, workdirs=[str(EXAMPLES)]) as cluster:
        job_id = submit_example(cluster, YAML, {"workers": "2", "env.BATCHES": "400", "env.STEP_S": "0.04"})
        settle(cluster, job_id, 2)
        (place,) = cluster.client.job(job_id).placement
        cluster.client.drain(place.server, 0.0)
        eventually(lambda: cluster.client.job(job_id).attempt == 2, "it isn't preempted", cluster.said)
        left = last_step(cluster, job_id)
        eventually(lambda: last_step(cluster, job_id) > left, "it doesn't go on", cluster.said, LOADING_S)
        # Nothing was lost or done twice so far.
        assert check_each_step_once(steps_of(cluster, job_id)) > left
        os.kill(worker_pids(cluster, job_id)[LIGHTHOUSE_RANK], signal.SIGKILL)
        view = cluster.wait_state(job_id)
        assert (view.state, view.attempt) == (JobState.SUCCEEDED, 3)
        assert (view.preemptions, view.failures) == (1, 1)
        entries = cluster.client.history(job_id).entries
        assert any(entry.kind == "crashed" and "the lighthouse" in entry.text for entry in entries)
        steps = steps_of(cluster, job_id)
    # Nobody was left to save when the lighthouse was gone: that attempt is done again from where it began, or
    # from what it had saved by itself.
    (third_s,) = [entry.at for entry in entries if (entry.kind, entry.attempt) == ("launched", 3)]
    last_attempt = [said for said in steps if said["at"] > third_s]
    saved = last_attempt[0]["step"] - 1
    assert saved == left or saved % 100 == 0
    before = [said for said in steps if said["at"] < third_s and said["step"] <= saved]
    check_each_step_once(before + last_attempt)
    assert 400 <= max(said["batch"] for said in last_attempt) + 1 <= 401
