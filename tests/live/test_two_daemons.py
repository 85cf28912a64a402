"""Two daemons on one store: one leads, the other one stands by and takes over (scenario L4)."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.live.cluster import PATIENCE_S, LiveCluster, eventually, live_cluster
from tests.live.store.databases import KINDS, new_job, postgres_server, ticks, write
from tests.live.witness import assert_allocated_is_live, met_twice, steps_of, witness_env, witness_program

from aryl.backends.supervisor.client import SupervisorClient
from aryl.client import ArylClient
from aryl.core.model import JobState
from aryl.errors import FencedError, UnreachableError
from aryl.live.config import load_serve_config
from aryl.live.store import Store

LEASE_S = 1.0


@pytest.fixture(scope="module")
def new_postgres_url() -> Iterator[Callable[[], str]]:
    with postgres_server() as server:
        yield server.new_url


@pytest.fixture(params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveCluster]:
    url = f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("new_postgres_url")()
    made = LiveCluster(tmp_path, lease=LEASE_S, store=url, policy="aryl:min_interval=0,cooldown=0")
    try:
        yield made
    finally:
        made.close()


def store_url(cluster: LiveCluster) -> str:
    return load_serve_config(cluster.config_file).store


def freeze(daemon: subprocess.Popen[bytes], store: str) -> None:
    """SIGSTOP, but not while it writes: a frozen writer would keep others out of an SQLite file."""

    def frozen() -> bool:
        daemon.send_signal(signal.SIGSTOP)
        if not store.startswith("sqlite:///"):
            return True
        path = store.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                daemon.send_signal(signal.SIGCONT)
                return False
        return True

    eventually(frozen, "it writes all the time")


def answer_of(ask: Callable[[], object], into: list[object]) -> threading.Thread:
    """Ask in a thread; the answer, or what was raised, ends up in the list."""

    def run() -> None:
        try:
            into.append(ask())
        except Exception as error:
            into.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def assert_is_refused(cluster: LiveCluster, store: str) -> None:
    """Whoever led before can neither write the journal, nor accept jobs, nor order the supervisor."""
    opened = Store.open(store)
    try:
        now = opened.observe()
        assert now is not None
        with pytest.raises(FencedError):
            write(opened, now.token - 1, ticks(1))
        with pytest.raises(FencedError):
            opened.accept(new_job(), "ann", None, "", 0.0, now.token - 1)
    finally:
        opened.close()
    with pytest.raises(FencedError):
        SupervisorClient.connect(cluster.state / "supervisor", now.token - 1, lambda _event: None)


def test_a_standby_refuses_what_changes_anything_and_takes_over_at_once_when_the_leader_resigns(
    tmp_path: Path,
) -> None:
    # Nobody waits for a lease here.
    with live_cluster(tmp_path, lease=600) as cluster:
        leader, leading = cluster.daemons[-1], cluster.url
        run, evening = witness_program(cluster), cluster.folder / "evening"
        job_id = cluster.submit("job", 2, run=run, env=witness_env(cluster, UNTIL=str(evening)))
        cluster.wait_state(job_id, JobState.RUNNING)
        pids = sorted(cluster.worker_pids(job_id))
        cluster.start(ready=False)
        with httpx.Client(base_url=cluster.url, trust_env=False) as standby:
            assert standby.get("/healthz").status_code == 200
            ready = standby.get("/readyz")
            assert (ready.status_code, ready.json()["status"]) == (503, "standby")
            body = {"name": "job", "run": "true", "workdir": str(cluster.work)}
            for method, path, content in (
                ("POST", "/v1/jobs", body),
                ("POST", f"/v1/jobs/{job_id}/cancel", None),
                ("POST", "/v1/servers/T1/drain", {}),
                ("PUT", "/v1/inference/demand", {"need_servers": 1}),
            ):
                refused = standby.request(method, path, json=content)
                assert refused.status_code == 503, path
                assert refused.headers["content-type"] == "application/problem+json"
                assert refused.json()["type"] == "urn:aryl:problem:unavailable"
            # What is in the store it knows.
            assert standby.get(f"/v1/jobs/{job_id}").json()["state"] == "RUNNING"
        assert httpx.get(f"{leading}/readyz", trust_env=False).status_code == 200

        leader.send_signal(signal.SIGTERM)
        assert leader.wait(timeout=PATIENCE_S) == 0
        eventually(lambda: cluster.client.health().status == "ok", "nobody takes over", cluster.said)
        assert sorted(cluster.worker_pids(job_id)) == pids
        evening.touch()
        assert cluster.wait_state(job_id).attempt == 1
        assert len(list(cluster.client.jobs())) == 1
        assert met_twice(cluster) == ""


def test_a_leader_that_freezes_is_replaced_and_refused_when_it_wakes(cluster: LiveCluster) -> None:
    first = cluster.start()
    store = store_url(cluster)
    frozen_client = ArylClient(cluster.url, timeout_s=PATIENCE_S, retries=0)
    run = witness_program(cluster)
    evening = cluster.folder / "evening"
    env = witness_env(cluster, UNTIL=str(evening))
    steady = cluster.submit("steady", 2, run=run, env=env)
    shrinks = cluster.submit("shrinks", [1, 4], run=run, env=env, estimate=600)
    cluster.wait_state(steady, JobState.RUNNING)
    cluster.wait_workers(shrinks, 4)
    pids = sorted(cluster.worker_pids(steady))

    second = cluster.start(ready=False)
    freeze(first, store)
    answers: list[object] = []
    late = cluster.job("late", run=run, env=witness_env(cluster))
    asking = [
        answer_of(lambda: frozen_client.submit(late, idempotency_key="late"), answers),
        answer_of(lambda: frozen_client.cancel(steady), answers),
    ]
    eventually(lambda: cluster.client.health().status == "ok", "nobody takes over", cluster.said)

    view = cluster.client.job(steady)
    assert (view.state, view.attempt) == (JobState.RUNNING, 1)
    assert sorted(cluster.worker_pids(steady)) == pids
    cluster.client.resize(shrinks, max_workers=2)
    cluster.wait_workers(shrinks, 2)
    resized = sorted(cluster.worker_pids(shrinks))

    first.send_signal(signal.SIGCONT)
    assert first.wait(timeout=PATIENCE_S) == FencedError.exit_code == 4
    for thread in asking:
        thread.join()
    frozen_client.close()
    assert [type(answer) for answer in answers if not isinstance(answer, UnreachableError)] == []
    with_key = cluster.client.submit(late, idempotency_key="late")
    assert cluster.wait_state(with_key.job_id).state is JobState.SUCCEEDED
    assert [view.job_id for view in cluster.client.jobs() if view.name == "late"] == [with_key.job_id]

    # What the first one has done since it woke has changed nothing.
    assert second.poll() is None
    assert cluster.client.health().status == "ok"
    assert sorted(cluster.worker_pids(steady)) == pids
    assert sorted(cluster.worker_pids(shrinks)) == resized
    assert cluster.client.job(steady).state is JobState.RUNNING
    assert_is_refused(cluster, store)
    assert_allocated_is_live(cluster, cluster.client.servers)
    evening.touch()
    for job_id in (steady, shrinks):
        view = cluster.wait_state(job_id)
        assert (view.state, view.attempt, view.failures) == (JobState.SUCCEEDED, 1, 0)
        steps = steps_of(cluster, job_id)
        assert steps == list(range(1, len(steps) + 1))
    assert met_twice(cluster) == ""
    assert cluster.stop() == 0
