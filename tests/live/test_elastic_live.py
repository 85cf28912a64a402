"""Elastic jobs of real processes: what finishes part by part, what grows without losing a step or doesn't
grow because that wouldn't pay, and what hangs after a resize.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.live.cluster import LiveCluster, environment_of, eventually, live_cluster

from aryl.core.model import JobState

# Each worker runs until there is a file of its rank's name. Quick to start.
UNTIL_TOLD = """
import os, time
while not os.path.exists(os.environ["ARYL_JOB_ID"] + ".end-" + os.environ["RANK"]):
    time.sleep(0.05)
"""
# Reports a step every 0.1 s, until it is started again at another size: then it hangs, deaf to every notice.
HANGS_ONCE = """
import os, signal, time
from aryl.train.session import Session
session = Session()
if os.environ["ARYL_GENERATION"] != "0":
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    time.sleep(1000)
step = 0
while not os.path.exists(os.environ["ARYL_JOB_ID"] + ".end"):
    time.sleep(0.1)
    step += 1
    session.report(step)
    if session.should_save(step) and session.leaving:
        session.exit_saved()
"""
# Reports and goes on after a resize.
GOES_ON = HANGS_ONCE.replace('if os.environ["ARYL_GENERATION"] != "0"', "if False")
RUN = [sys.executable, "-I", "-S", "until_told.py"]


def test_what_is_reserved_is_what_lives_while_a_job_finishes_part_by_part(tmp_path: Path) -> None:
    """E4, with 6 workers instead of 20: 3 finish, a limit of 4 comes too late to matter, then one more
    finishes, and one more.
    """
    with live_cluster(tmp_path, cluster={"inference": {"servers": 0}}) as cluster:
        cluster.program("until_told.py", UNTIL_TOLD)
        job = cluster.submit("parts", [2, 6], run=RUN)
        cluster.wait_workers(job, 6)
        _assert_reserved_is_live(cluster, job, 6)
        _end(cluster, job, 1, 4, 5)
        cluster.wait_workers(job, 3)
        _assert_reserved_is_live(cluster, job, 3)
        cluster.client.resize(job, max_workers=4)
        # Somebody else can have what is free, and the limit changes nothing any more.
        other = cluster.submit("other", 5, run=RUN, checkpoint=None)
        cluster.wait_workers(other, 5)
        _assert_reserved_is_live(cluster, job, 3, elsewhere=5)
        _end(cluster, job, 0)
        cluster.wait_workers(job, 2)
        _assert_reserved_is_live(cluster, job, 2, elsewhere=5)
        _end(cluster, job, 3)
        cluster.wait_workers(job, 1)
        _assert_reserved_is_live(cluster, job, 1, elsewhere=5)
        _end(cluster, job, 2)
        view = cluster.wait_state(job)
        assert (view.state, view.attempt, view.resizes, view.failures) == (JobState.SUCCEEDED, 1, 0, 0)
        _end(cluster, other, *range(5))
        assert cluster.wait_state(other).state is JobState.SUCCEEDED
        assert _reserved(cluster) == 0


def test_a_job_grows_without_doing_a_step_twice_and_only_if_that_pays(tmp_path: Path) -> None:
    """E5: a resize costs 20 s here. It pays for a job of an hour and not for one of half a minute."""
    with live_cluster(
        tmp_path,
        policy="aryl:cooldown=0s,min_interval=0s",
        cluster={"training": {"servers": 1, "gpus_per_server": 6}, "inference": {"servers": 0}},
        resize_s=20,
    ) as cluster:
        cluster.program("until_told.py", UNTIL_TOLD)
        blocker = cluster.submit("blocker", 4, run=RUN, checkpoint=None, priority=1)
        cluster.wait_workers(blocker, 4)
        short = cluster.submit("short", [1, 2], estimate=30, env={"STEPS": "100000"})
        long = cluster.submit("long", [1, 3], estimate=3600, env={"STEPS": "100000"})
        for job in (short, long):
            cluster.wait_workers(job, 1)
            cluster.wait_said(job, "step 1")
        # The first one may have had to make room for the second.
        before = {job: cluster.client.job(job).resizes for job in (short, long)}
        _end(cluster, blocker, *range(4))
        cluster.wait_workers(long, 3)
        # Two passes more, with two GPUs free.
        for name in ("tick", "tock"):
            cluster.wait_state(cluster.submit(name, run="true", checkpoint=None))
        view = cluster.client.job(short)
        assert (view.state, view.workers, view.resizes) == (JobState.RUNNING, 1, before[short])
        assert cluster.client.job(long).resizes == before[long] + 1

        text = cluster.log_path(long).read_text
        saved = re.findall(r"^saved (\d+)$", text(), re.MULTILINE)[-1]
        eventually(
            lambda: f"start 0 of 3 at {saved}\nstep {int(saved) + 1}\n" in text(), "it doesn't go on", text
        )
        steps = _steps(cluster, long)
        assert steps == list(range(1, len(steps) + 1))


def test_the_others_train_again_when_one_is_taken_away(tmp_path: Path) -> None:
    """E6, where all goes well: the watchdog has nothing to do."""
    with live_cluster(tmp_path, watchdog=30, cluster={"training": {"servers": 1}}) as cluster:
        cluster.program("goes_on.py", GOES_ON)
        cluster.program("until_told.py", UNTIL_TOLD)
        job = _with_one_taken_away(cluster, "goes_on.py")
        cluster.wait_workers(job, 2)
        _touch(cluster, f"{job}.end")
        view = cluster.wait_state(job)
        assert (view.state, view.attempt, view.resizes) == (JobState.SUCCEEDED, 1, 1)
        assert cluster.metrics()["aryl_stalled_jobs_total"] == 0.0


def test_a_job_that_hangs_after_a_resize_is_started_again_and_that_is_said(tmp_path: Path) -> None:
    """E6, with a watchdog of 3 s instead of 60."""
    with live_cluster(tmp_path, watchdog=3, kill_wait=1, cluster={"training": {"servers": 1}}) as cluster:
        cluster.program("hangs.py", HANGS_ONCE)
        cluster.program("until_told.py", UNTIL_TOLD)
        job = _with_one_taken_away(cluster, "hangs.py")
        second = cluster.wait_attempt(job, 2)
        assert (second.failures, second.preemptions) == (0, 0)
        entries = cluster.client.history(job).entries
        stalled = [(entry.kind, entry.cause) for entry in entries if entry.cause == "stalled"]
        assert stalled == [("stalled", "stalled"), ("told-to-stop", "stalled")]
        assert [entry.attempt for entry in entries if entry.kind == "launched"] == [1, 2]
        assert cluster.metrics()["aryl_stalled_jobs_total"] == 1.0
        _touch(cluster, f"{job}.end")
        assert cluster.wait_state(job).state is JobState.SUCCEEDED


def test_a_job_that_falls_silent_while_the_daemon_is_away_is_started_again(tmp_path: Path) -> None:
    with live_cluster(
        tmp_path, watchdog=3, kill_wait=1, lease=1, cluster={"training": {"servers": 1}}
    ) as cluster:
        # Reports until it is told to fall silent.
        cluster.program("silent.py", GOES_ON.replace("    step += 1", SILENCE))
        job = cluster.submit("silent", run=[sys.executable, "silent.py"])
        cluster.wait_state(job, JobState.RUNNING)
        _wait_learned(cluster, job)
        cluster.kill()
        _touch(cluster, f"{job}.silence")
        cluster.start()
        cluster.wait_attempt(job, 2)
        assert "stalled" in [entry.cause for entry in cluster.client.history(job).entries]
        _touch(cluster, f"{job}.end")
        assert cluster.wait_state(job).state is JobState.SUCCEEDED


SILENCE = """
    while os.path.exists(os.environ["ARYL_JOB_ID"] + ".silence") and os.environ["ARYL_ATTEMPT"] == "1":
        time.sleep(1000)
    step += 1
"""


def _with_one_taken_away(cluster: LiveCluster, program: str) -> str:
    """A job of three workers that has reported, one of which has had to make room."""
    job = cluster.submit(
        "three",
        [1, 3],
        run=[sys.executable, program],
        checkpoint={"signal": "USR1", "grace": "3s", "term": "1s"},
    )
    cluster.wait_workers(job, 3)
    _wait_learned(cluster, job)
    cluster.submit("two", 2, run=RUN, checkpoint=None)
    cluster.wait_workers("two-2", 2)
    resized = [entry for entry in cluster.client.history(job).entries if entry.kind == "resized"]
    assert [entry.text.partition(";")[0] for entry in resized] == ["from 3 to 2 workers"]
    return job


def _wait_learned(cluster: LiveCluster, job: str) -> None:
    """Wait until its reports have reached the journal."""
    eventually(lambda: any(event == job for event in _learned(cluster)), f"{job} never reports", cluster.said)


def _learned(cluster: LiveCluster) -> list[str]:
    return [job for (job,) in cluster.query("SELECT job_id FROM journal WHERE type = 'Learned'")]


def _assert_reserved_is_live(cluster: LiveCluster, job: str, workers: int, elsewhere: int = 0) -> None:
    """Looked at from three sides: the job's row, its processes, and the servers."""
    view = cluster.client.job(job)
    assert (view.workers, view.gpus) == (workers, workers)
    ranks = {
        entry.removeprefix("RANK=")
        for pid in cluster.worker_pids(job)
        for entry in environment_of(pid)
        if entry.startswith("RANK=")
    }
    assert len(ranks) == workers
    assert _reserved(cluster) == workers + elsewhere


def _reserved(cluster: LiveCluster) -> int:
    return sum(server.used_gpus + server.leaving_gpus for server in cluster.client.servers())


def _steps(cluster: LiveCluster, job: str) -> list[int]:
    text = cluster.log_path(job).read_text() if cluster.log_path(job).exists() else ""
    return [int(step) for step in re.findall(r"^step (\d+)$", text, re.MULTILINE)]


def _end(cluster: LiveCluster, job: str, *ranks: int) -> None:
    for rank in ranks:
        _touch(cluster, f"{job}.end-{rank}")


def _touch(cluster: LiveCluster, name: str) -> None:
    (cluster.work / name).touch()
