"""How workers leave, and that nobody takes their place before they are gone: with notice, late, or not at
all. What takes minutes in life takes seconds here.
"""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.live.cluster import LiveCluster, eventually, live_cluster
from tests.live.holding import STUBBORN, Held

from aryl.core.model import JobState, Tenure
from aryl.wire.views import HistoryEntry

SLACK_S = 0.05  # the clocks of two processes are read one after the other
# Accepted by lent servers alone.
ON_LOAN = {"T4": 1.0, "K80": 1.0}

# Says when it was told what, and goes on; the second attempt ends at once.
UNMOVED = """
import os, signal, sys, time
def note(number, frame): print(signal.Signals(number).name, time.time(), flush=True)
signal.signal(signal.SIGUSR1, note)
signal.signal(signal.SIGTERM, note)
if os.environ["ARYL_ATTEMPT"] != "1":
    sys.exit(0)
print("ready", flush=True)
while True:
    time.sleep(1000)
"""
# Says when it began, and runs until there is a file of its job's name.
UNTIL_TOLD = """
import os, sys, time
print("began", time.time(), "on", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
while not os.path.exists(os.environ["ARYL_JOB_ID"] + ".end"):
    time.sleep(0.05)
"""
# Needs a while to leave, and says when it was ready to.
SLOW_TO_LEAVE = """
import os, signal, sys, time
told = []
signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
signal.signal(signal.SIGTERM, lambda *_: None)
print("began", time.time(), "on", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
while not told:
    time.sleep(0.02)
time.sleep(1.5)
print("ended", time.time(), flush=True)
sys.exit(75)
"""


def test_notice_term_and_kill_come_in_time_and_the_job_is_preempted_not_failed(tmp_path: Path) -> None:
    """R8, with 3 s of grace of which the last is SIGTERM's, instead of 90 and 30."""
    with live_cluster(tmp_path, cluster={"training": {"servers": 1}}) as cluster:
        cluster.program("unmoved.py", UNMOVED)
        cluster.program("until_told.py", UNTIL_TOLD)
        low = cluster.submit(
            "low",
            gpus_per_worker=4,
            run=[sys.executable, "-u", "unmoved.py"],
            checkpoint={"signal": "USR1", "grace": "3s", "term": "1s"},
        )
        cluster.wait_said(low, "ready")
        high = cluster.submit("high", gpus_per_worker=4, priority=9, run=[sys.executable, "until_told.py"])
        cluster.wait_state(high, JobState.RUNNING)
        waiting = cluster.wait_state(low, JobState.PENDING)
        assert (waiting.preemptions, waiting.failures) == (1, 0)
        preempted = _entry(cluster, low, "preempted")
        assert (preempted.cause, preempted.beneficiary, preempted.attempt) == ("priority", high, 1)

        _, notice, term = (line.split() for line in cluster.log_path(low).read_text().splitlines())
        assert (notice[0], term[0]) == ("SIGUSR1", "SIGTERM")
        assert float(notice[1]) >= preempted.at - SLACK_S
        assert float(term[1]) >= preempted.at + 2 - SLACK_S
        assert _began(cluster, high) >= preempted.at + 3 - SLACK_S
        assert "failed" not in [entry.kind for entry in cluster.client.history(low).entries]

        _tell_to_end(cluster, high)
        view = cluster.wait_state(low)
        assert (view.state, view.attempt, view.failures) == (JobState.SUCCEEDED, 2, 0)


def test_a_program_that_saves_on_notice_does_no_step_twice(tmp_path: Path) -> None:
    """R8: at most one step may be lost; this one loses none."""
    with live_cluster(tmp_path, cluster={"training": {"servers": 1}}) as cluster:
        low = cluster.submit("low", gpus_per_worker=4, env={"STEPS": "60"})
        cluster.wait_said(low, "step 5")
        high = cluster.submit("high", gpus_per_worker=4, priority=9, run="true", checkpoint=None)
        assert cluster.wait_state(high).state is JobState.SUCCEEDED
        view = cluster.wait_state(low)
        assert (view.state, view.attempt, view.preemptions, view.failures) == (JobState.SUCCEEDED, 2, 1, 0)
        assert _entry(cluster, low, "stopped").text.endswith("are kept")
        first, second = (cluster.log_path(low, attempt).read_text() for attempt in (1, 2))
        (saved,) = re.findall(r"^saved (\d+)$", first, re.MULTILINE)
        assert second.startswith(f"start 0 of 1 at {saved}\n")
        steps = re.findall(r"^step (\d+)$", first + second, re.MULTILINE)
        assert [int(step) for step in steps] == list(range(1, 61))


def test_a_server_whose_worker_does_not_die_is_suspect_and_another_one_is_taken(tmp_path: Path) -> None:
    """R9, with 1 s of grace and stuck 1 s after it, instead of 60."""
    with live_cluster(tmp_path, stuck_after=1, kill_wait=1) as cluster:
        cluster.program("stubborn.py", STUBBORN)
        cluster.demand(0)
        jobs = [
            cluster.submit(
                name,
                2,
                gpus_per_worker=2,
                gpu_types=ON_LOAN,
                run=[sys.executable, "stubborn.py"],
                checkpoint=None,
            )
            for name in ("a", "b")
        ]
        server_of = {job: cluster.wait_workers(job, 2).placement[0].server for job in jobs}
        assert set(server_of.values()) == {"I1", "I2"}
        for job in jobs:
            for rank in (0, 1):
                cluster.wait_said(job, "ready", rank=rank)
        with ExitStack() as stack:
            held = {job: [stack.enter_context(Held(pid)) for pid in cluster.worker_pids(job)] for job in jobs}
            cluster.demand(1)
            stuck = eventually(
                lambda: next((job for job in jobs if _is(cluster, job, JobState.PREEMPTING)), None),
                "nobody has to go",
                cluster.said,
            )
            other = next(job for job in jobs if job != stuck)
            server, second = server_of[stuck], server_of[other]
            eventually(lambda: cluster.server(server).health == "suspect", "nobody suspects it", cluster.said)
            assert cluster.metrics()['aryl_servers{health="suspect"}'] == 1.0
            assert f"a worker of {stuck} on {server} doesn't die" in cluster.said()

            # Inference gets another server instead, without waiting for this one.
            cluster.wait_state(other, JobState.PREEMPTING)
            for one in held[other]:
                one.let_go()
            eventually(
                lambda: cluster.server(second).tenure is Tenure.OWNED, "it isn't returned", cluster.said
            )

            # It is lent out no more, nor are its GPUs given to anybody.
            assert _is(cluster, stuck, JobState.PREEMPTING)
            cluster.demand(0)
            third = cluster.submit("c", gpu_types=ON_LOAN, run="true", checkpoint=None)
            again = cluster.wait_workers(other, 2)
            assert [place.server for place in again.placement] == [second]
            assert _is(cluster, third, JobState.PENDING)
            view = cluster.server(server)
            assert (view.health, view.leaving_gpus, view.jobs) == ("suspect", 4, [])

            # With one of the two gone it isn't well yet.
            held[stuck][0].let_go()
            eventually(
                lambda: f"the worker of {stuck} on {server} that didn't die is gone" in cluster.said(),
                "the first end isn't seen",
                cluster.said,
            )
            assert cluster.server(server).health == "suspect"
            held[stuck][1].let_go()
        eventually(lambda: cluster.server(server).health == "healthy", "it doesn't heal", cluster.said)
        eventually(lambda: _is(cluster, stuck, JobState.RUNNING), "it doesn't go on", cluster.said)
        assert cluster.metrics()['aryl_servers{health="suspect"}'] == 0.0
        assert cluster.client.job(stuck).failures == 0


def test_a_worker_that_dies_while_the_daemon_is_away_leaves_no_suspicion(tmp_path: Path) -> None:
    with live_cluster(tmp_path, stuck_after=0.5, kill_wait=0.5, lease=1) as cluster:
        cluster.program("stubborn.py", STUBBORN)
        job = cluster.submit("a", run=[sys.executable, "stubborn.py"], checkpoint=None)
        cluster.wait_said(job, "ready")
        server = cluster.client.job(job).placement[0].server
        (pid,) = cluster.worker_pids(job)
        with Held(pid):
            cluster.client.cancel(job)
            eventually(lambda: cluster.server(server).health == "suspect", "nobody suspects it", cluster.said)
            cluster.kill()
            cluster.start()
            eventually(lambda: cluster.server(server).health == "suspect", "it was forgotten", cluster.said)
            cluster.kill()
        eventually(lambda: not cluster.worker_pids(job), "it doesn't end")
        cluster.start()
        assert cluster.wait_state(job).state is JobState.CANCELLED
        eventually(lambda: cluster.server(server).health == "healthy", "it doesn't heal", cluster.said)


def test_the_next_owner_starts_only_when_the_last_one_is_gone(tmp_path: Path) -> None:
    """R10, with 1.5 s to leave instead of 40: after a preemption and after a scale-in."""
    with live_cluster(tmp_path, cluster={"training": {"servers": 1}}) as cluster:
        cluster.program("slow.py", SLOW_TO_LEAVE)
        cluster.program("until_told.py", UNTIL_TOLD)
        victim = cluster.submit("victim", gpus_per_worker=4, run=[sys.executable, "slow.py"])
        cluster.wait_said(victim, "began")
        owner = cluster.submit(
            "owner", gpus_per_worker=4, priority=9, run=[sys.executable, "until_told.py"], checkpoint=None
        )
        cluster.wait_state(owner, JobState.RUNNING)
        assert _began(cluster, owner) >= _ended(cluster, victim)
        cluster.client.cancel(victim)
        _tell_to_end(cluster, owner)
        cluster.wait_state(owner)

        elastic = cluster.submit("elastic", [2, 4], run=[sys.executable, "slow.py"])
        cluster.wait_workers(elastic, 4)
        cluster.wait_said(elastic, "began")
        newcomer = cluster.submit("newcomer", 2, run=[sys.executable, "until_told.py"], checkpoint=None)
        cluster.wait_state(newcomer, JobState.RUNNING)
        left = [_ended(cluster, elastic, rank) for rank in range(4)]
        began = [_began(cluster, newcomer, rank) for rank in range(2)]
        assert min(began) >= max(left)
        cluster.wait_workers(elastic, 2)
        eventually(lambda: len(_devices(cluster, elastic, 0)) == 2, "it doesn't start again", cluster.said)
        assert not set(_devices(cluster, elastic, 0)[-1]) & set(_devices(cluster, newcomer, 0)[-1])


def _is(cluster: LiveCluster, job_id: str, state: JobState) -> bool:
    return cluster.client.job(job_id).state is state


def _entry(cluster: LiveCluster, job_id: str, kind: str) -> HistoryEntry:
    return next(entry for entry in cluster.client.history(job_id).entries if entry.kind == kind)


def _times(cluster: LiveCluster, job_id: str, word: str, rank: int) -> list[float]:
    text = cluster.log_path(job_id, rank=rank).read_text()
    return [float(time) for time in re.findall(rf"^{word} (\S+)", text, re.MULTILINE)]


def _began(cluster: LiveCluster, job_id: str, rank: int = 0) -> float:
    cluster.wait_said(job_id, "began", rank=rank)
    return _times(cluster, job_id, "began", rank)[0]


def _ended(cluster: LiveCluster, job_id: str, rank: int = 0) -> float:
    return _times(cluster, job_id, "ended", rank)[0]


def _devices(cluster: LiveCluster, job_id: str, rank: int) -> list[list[str]]:
    text = cluster.log_path(job_id, rank=rank).read_text()
    return [found.split(",") for found in re.findall(r"^began \S+ on (\S+)$", text, re.MULTILINE)]


def _tell_to_end(cluster: LiveCluster, job_id: str) -> None:
    (cluster.work / f"{job_id}.end").touch()
