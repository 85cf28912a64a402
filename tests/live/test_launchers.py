"""Gangs that restart from a checkpoint at each new size, as the daemon runs them: processes and torchrun."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.live.cluster import LiveCluster, environment_of, eventually, live_cluster
from tests.live.elastic_jobs import EXAMPLES, LOADING_S, last_step, steps_file, steps_of, submit_example

from aryl.core.model import JobState

# Sizes change here faster than anybody would want them to.
EAGER = "aryl:cooldown=0,min_interval=0"
ONE_OR_TWO = {"workers": "[1, 2]", "env.STEPS": "10000", "env.STEP_S": "0.2"}

# Takes its time before it can hear a notice, at its first start.
LATE = """
import os, sys, time
print("loading", flush=True)
while not os.path.exists(os.environ["ARYL_JOB_ID"] + ".go"):
    time.sleep(0.02)
"""
LATE_WITH_TRAIN = (
    LATE
    + """
from aryl import train
step = 0
while not train.should_save(step):
    step = max(train.exchange(step)) + 1
    time.sleep(0.02)
train.exit_saved()
"""
)
LATE_BY_ITSELF = (
    LATE
    + """
import signal
signal.signal(signal.SIGUSR1, lambda *_: os._exit(75))
while True:
    time.sleep(1)
"""
)


def wait_for_step(cluster: LiveCluster, job_id: str, workers: int, more: int = 5) -> None:
    """Wait until a gang of so many workers has done some more steps."""
    before = last_step(cluster, job_id)

    def there() -> bool:
        steps = steps_of(cluster, job_id)
        return bool(steps) and steps[-1]["workers"] == workers and steps[-1]["step"] >= before + more

    eventually(
        there,
        f"{job_id} never works with {workers} workers",
        lambda: f"{steps_of(cluster, job_id)[-3:]}\n{cluster.logs(job_id)[-6000:]}\n{cluster.said()}",
        within_s=LOADING_S,
    )


def sizes(steps: list[dict[str, Any]]) -> list[int]:
    return [size for size, _ in groupby(said["workers"] for said in steps)]


def journal(cluster: LiveCluster, kind: str) -> list[dict[str, Any]]:
    """The events of a kind in the journal."""
    with sqlite3.connect(cluster.state / "aryl.db") as store:
        rows = [json.loads(body) for (body,) in store.execute("select body from journal order by sequence")]
    store.close()
    return [row for row in rows if row["type"] == kind]


def test_processes_restart_where_they_agreed_to_stop_and_a_killed_one_takes_the_gang_with_it(
    tmp_path: Path,
) -> None:
    with live_cluster(tmp_path, workdirs=[str(EXAMPLES)], policy=EAGER) as cluster:
        job_id = submit_example(cluster, "torch_process.yaml", ONE_OR_TWO)
        wait_for_step(cluster, job_id, 2, more=15)
        cluster.client.resize(job_id, max_workers=1)
        wait_for_step(cluster, job_id, 1, more=10)
        learned = eventually(
            lambda: [event for event in journal(cluster, "Learned") if event["speedup"]] or None,
            "no curve",
            cluster.said,
        )
        (_, one), (_, two) = learned[0]["speedup"]["points"][:2]
        assert learned[0]["speedup"]["type"] == "Points"
        assert one < two
        view = cluster.client.job(job_id)
        # 10,000 steps of at least 0.2 s.
        assert view.estimate_s is not None
        assert view.remaining_s is not None
        assert view.estimate_s > view.remaining_s > 1800
        assert "learned" in [entry.kind for entry in cluster.client.history(job_id).entries]
        cluster.client.resize(job_id, max_workers=2)
        wait_for_step(cluster, job_id, 2)
        steps = steps_of(cluster, job_id)
        assert [said["step"] for said in steps] == list(range(1, len(steps) + 1))
        assert sizes(steps) == [2, 1, 2]
        view = cluster.client.job(job_id)
        assert (view.attempt, view.failures, view.resizes) == (1, 0, 2)
        killed = next(pid for pid in cluster.worker_pids(job_id) if "ARYL_RANK=1" in environment_of(pid))
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: cluster.client.job(job_id).attempt == 2, "it isn't started again", cluster.said)
        assert cluster.client.job(job_id).failures == 1
        folder = steps_file(cluster, job_id).parent
        saved = max(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))
        entries = cluster.client.history(job_id).entries
        (launched_s,) = [entry.at for entry in entries if (entry.kind, entry.attempt) == ("launched", 2)]
        again = eventually(
            lambda: [said for said in steps_of(cluster, job_id) if said["at"] > launched_s] or None,
            "it doesn't go on",
            cluster.said,
            LOADING_S,
        )
        assert again[0]["step"] == saved + 1
        cluster.client.cancel(job_id)
        cluster.wait_state(job_id, JobState.CANCELLED)


def test_torchrun_agents_save_restart_and_end_with_all_that_they_started(tmp_path: Path) -> None:
    training = {"servers": 2, "gpus_per_server": 1}
    with live_cluster(tmp_path, workdirs=[str(EXAMPLES)], cluster={"training": training}) as cluster:
        job_id = submit_example(cluster, "torch_torchrun.yaml", ONE_OR_TWO)
        assert [place.server for place in cluster.wait_workers(job_id, 2).placement] == ["T1", "T2"]
        wait_for_step(cluster, job_id, 2)
        first = set(cluster.worker_pids(job_id))
        assert len(first) >= 4  # two agents, and a worker of each in a session of its own
        cluster.client.resize(job_id, max_workers=1)
        wait_for_step(cluster, job_id, 1)
        steps = steps_of(cluster, job_id)
        assert [said["step"] for said in steps] == list(range(1, len(steps) + 1))
        assert sizes(steps) == [2, 1]
        view = cluster.wait_workers(job_id, 1)
        assert (view.attempt, view.failures, view.resizes) == (1, 0, 1)
        assert (cluster.state / "jobs" / job_id / "run" / "1-0" / "saved-1-0").exists()
        assert not first & set(cluster.worker_pids(job_id))
        cluster.client.cancel(job_id)
        cluster.wait_state(job_id, JobState.CANCELLED)
        assert cluster.worker_pids(job_id) == []


def test_the_plain_example_is_submitted_as_it_says_and_a_late_program_hears_the_notice(
    tmp_path: Path,
) -> None:
    with live_cluster(tmp_path, workdirs=[str(EXAMPLES), str(tmp_path)]) as cluster:
        submitted = subprocess.run(
            [sys.executable, "-m", "aryl", "submit", "plain.yaml", "--env", "STEP_S=0.04", "--wait"],
            cwd=EXAMPLES,
            env={**os.environ, "ARYL_SERVER": cluster.url},
            capture_output=True,
            text=True,
            check=False,
        )
        assert submitted.returncode == 0, submitted.stderr
        job_id = submitted.stdout.split()[0]
        assert cluster.client.job(job_id).state is JobState.SUCCEEDED
        steps = steps_of(cluster, job_id)
        assert [said["step"] for said in steps] == list(range(1, 201))
        assert sizes(steps) == [4]
        assert "pi is about 3.14" in cluster.log_path(job_id).read_text(encoding="utf-8")
        for name, program in (("with-train", LATE_WITH_TRAIN), ("by-itself", LATE_BY_ITSELF)):
            hears_late(cluster, name, program)


def hears_late(cluster: LiveCluster, name: str, program: str) -> None:
    """A gang that is told to leave before it can hear it leaves as soon as it can."""
    cluster.program(f"{name}.py", program)
    job_id = cluster.submit(
        name, [1, 2], run=[sys.executable, f"{name}.py"], checkpoint={"signal": "USR1", "grace": 3600}
    )
    cluster.wait_workers(job_id, 2)
    logs = [cluster.log_path(job_id, rank=rank) for rank in (0, 1)]
    eventually(
        lambda: all(log.exists() and "loading" in log.read_text(encoding="utf-8") for log in logs),
        f"{job_id} doesn't load",
    )
    cluster.client.resize(job_id, max_workers=1)
    cluster.wait_state(job_id, JobState.RESIZING)
    (cluster.work / f"{job_id}.go").touch()
    view = cluster.wait_workers(job_id, 1)
    assert (view.attempt, view.failures) == (1, 0)
    cluster.client.cancel(job_id)
