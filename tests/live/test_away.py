"""The control plane, or what runs the workers, goes away and comes back (scenarios L2 and L3)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.cluster import LiveCluster, eventually, live_cluster
from tests.live.witness import (
    assert_allocated_is_live,
    living_workers,
    met_twice,
    steps_of,
    witness_env,
    witness_program,
)

from aryl.core.model import JobState, Tenure

HOUR_S = 3600.0
# On the cluster's clock an hour is over in a second; programs run in their own time.
HURRIED = {"speed": HOUR_S}
BOTH = {"V100": 1.0, "T4": 1.0}


@pytest.fixture
def hurried(tmp_path: Path) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path, clock=HURRIED, cluster={"training": {"servers": 1}}) as cluster:
        cluster.demand(1)
        yield cluster


def submit(cluster: LiveCluster, name: str, workers: object = 1, **more: object) -> str:
    """Submit a job that goes on until the file of its name is there."""
    run = witness_program(cluster)
    file = {"run": run, "env": witness_env(cluster, UNTIL=str(cluster.folder / name)), **more}
    return cluster.submit(name, workers, **file)


def let_end(cluster: LiveCluster, name: str) -> None:
    (cluster.folder / name).touch()


def test_an_hour_without_a_control_plane_is_noticed_by_no_job(hurried: LiveCluster) -> None:
    cluster = hurried
    at_home = submit(cluster, "at-home", 2)
    away = submit(cluster, "away", 4, gpu_types={"V100": 0.5, "T4": 1.0})
    ends_well = submit(cluster, "ends-well")
    ends_badly = submit(
        cluster,
        "ends-badly",
        run=f"while [ ! -e {cluster.folder}/ends-badly ]; do sleep 0.02; done; exit 9",
        max_failures=1,
    )
    for job_id in (at_home, away, ends_well):
        cluster.wait_state(job_id, JobState.RUNNING)
    cluster.wait_state(ends_badly, JobState.RUNNING)
    loans = cluster.client.loans().loans
    assert [loan.server for loan in loans] == ["I2"]
    pids = {job_id: sorted(cluster.worker_pids(job_id)) for job_id in (at_home, away)}

    cluster.kill()
    let_end(cluster, "ends-well")
    let_end(cluster, "ends-badly")
    eventually(
        lambda: not cluster.worker_pids(ends_well) and not cluster.worker_pids(ends_badly), "they don't end"
    )
    time.sleep(HOUR_S / HURRIED["speed"])
    cluster.start()

    for job_id in (at_home, away):
        view = cluster.client.job(job_id)
        assert (view.state, view.attempt, view.resizes) == (JobState.RUNNING, 1, 0)
        assert sorted(cluster.worker_pids(job_id)) == pids[job_id]
    assert cluster.wait_state(ends_well).state is JobState.SUCCEEDED
    view = cluster.wait_state(ends_badly, JobState.FAILED)
    assert "exited with 9" in view.message
    assert cluster.server("I2").tenure is Tenure.ON_LOAN
    assert cluster.client.loans().loans == loans
    assert_allocated_is_live(cluster, cluster.client.servers)
    for name, job_id in (("at-home", at_home), ("away", away)):
        let_end(cluster, name)
        assert cluster.wait_state(job_id).attempt == 1
        steps = steps_of(cluster, job_id)
        assert steps == list(range(1, len(steps) + 1))
    assert met_twice(cluster) == ""


def test_what_is_over_stays_over_and_no_name_comes_twice(tmp_path: Path) -> None:
    with live_cluster(tmp_path, lease=0.5) as cluster:
        well = cluster.submit("job", run="true", checkpoint=None)
        badly = cluster.submit("job", run="false", checkpoint=None, max_failures=1)
        gone = submit(cluster, "job")
        cluster.wait_state(gone, JobState.RUNNING)
        cluster.client.cancel(gone)
        before = [cluster.wait_state(job_id) for job_id in (well, badly, gone)]
        assert [view.state for view in before] == [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED]
        histories = [cluster.client.history(job_id) for job_id in (well, badly, gone)]

        cluster.kill()
        cluster.start()
        after = cluster.submit("job", run="true", checkpoint=None)
        assert cluster.wait_state(after).state is JobState.SUCCEEDED
        assert after not in (well, badly, gone)
        assert [cluster.client.job(job_id) for job_id in (well, badly, gone)] == before
        assert [cluster.client.history(job_id) for job_id in (well, badly, gone)] == histories
        # A job that is over isn't cancelled either.
        assert cluster.client.cancel(well).state is JobState.SUCCEEDED


def test_a_daemon_that_is_told_to_end_resigns_and_the_next_one_need_not_wait(tmp_path: Path) -> None:
    # A lease much longer than anybody's patience.
    with live_cluster(tmp_path, lease=600) as cluster:
        job_id = submit(cluster, "goes-on", 2)
        cluster.wait_state(job_id, JobState.RUNNING)
        pids = sorted(cluster.worker_pids(job_id))
        assert cluster.stop() == 0
        assert sorted(cluster.worker_pids(job_id)) == pids
        cluster.start()
        view = cluster.client.job(job_id)
        assert (view.state, view.attempt) == (JobState.RUNNING, 1)
        assert sorted(cluster.worker_pids(job_id)) == pids
        let_end(cluster, "goes-on")
        assert cluster.wait_state(job_id).attempt == 1
        assert met_twice(cluster) == ""


@pytest.mark.parametrize("leads", [True, False], ids=["while a daemon leads", "while none does"])
def test_jobs_whose_supervisor_dies_start_again_and_are_not_blamed(tmp_path: Path, leads: bool) -> None:
    with live_cluster(tmp_path, lease=0.5, cluster={"training": {"servers": 1}}) as cluster:
        names = ("first", "second")
        jobs = {name: submit(cluster, name, 2, max_failures=1) for name in names}
        for job_id in jobs.values():
            cluster.wait_state(job_id, JobState.RUNNING)
        waits = submit(cluster, "waits", 2)
        daemon = cluster.daemons[-1]
        if not leads:
            cluster.kill()
        old = set(living_workers(cluster))
        os.kill(cluster.supervisor_pid(), signal.SIGKILL)
        if not leads:
            daemon = cluster.start()

        def again() -> bool:
            views = [cluster.client.job(job_id) for job_id in jobs.values()]
            return all(view.state is JobState.RUNNING and view.attempt == 2 for view in views)

        eventually(again, "they don't start again", cluster.said)
        assert not old & set(living_workers(cluster))
        assert daemon.poll() is None
        # They were first, and still are.
        assert cluster.client.job(waits).state is JobState.PENDING
        assert_allocated_is_live(cluster, cluster.client.servers)
        assert all(server.up for server in cluster.client.servers())
        for name in (*names, "waits"):
            let_end(cluster, name)
        for job_id in (*jobs.values(), waits):
            view = cluster.wait_state(job_id)
            assert (view.state, view.failures, view.preemptions) == (JobState.SUCCEEDED, 0, 0)
        assert met_twice(cluster) == ""
