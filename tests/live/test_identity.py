"""A submission that is repeated is one job (scenario L5)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.live.cluster import PATIENCE_S, LiveCluster, live_cluster

from aryl.client import ArylClient
from aryl.core.model import JobState
from aryl.errors import InputError
from aryl.wire.job_file import JobFile
from aryl.wire.views import JobView

AT_ONCE = 5


def submit_at_once(cluster: LiveCluster, job: JobFile, key: str) -> list[JobView]:
    """The answers to the same submission, sent by several clients at the same moment."""
    together = threading.Barrier(AT_ONCE)

    def submit() -> JobView:
        with ArylClient(cluster.url, timeout_s=PATIENCE_S) as client:
            client.whoami()  # the connection is there already
            together.wait()
            return client.submit(job, idempotency_key=key)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [future.result() for future in [pool.submit(submit) for _ in range(AT_ONCE)]]


def test_a_submission_that_is_repeated_at_once_or_after_a_crash_is_one_job(tmp_path: Path) -> None:
    with live_cluster(tmp_path, lease=0.5, cluster={"training": {"servers": 1}}) as cluster:
        # It takes the whole pool, so that the others wait and all answers are the same.
        blocks = cluster.submit("blocks", 4, env={"STEPS": "100000"})
        cluster.wait_state(blocks, JobState.RUNNING)
        job = cluster.job("once")
        answers = submit_at_once(cluster, job, "the key")
        assert answers == [answers[0]] * AT_ONCE
        job_id = answers[0].job_id
        assert [view.job_id for view in cluster.client.jobs() if view.name == "once"] == [job_id]

        with pytest.raises(InputError, match="Idempotency-Key"):
            cluster.client.submit(cluster.job("once", priority=1), idempotency_key="the key")
        another = cluster.client.submit(job, idempotency_key="another key").job_id
        assert another != job_id

        cluster.kill()
        cluster.start()
        assert {view.job_id for view in submit_at_once(cluster, job, "the key")} == {job_id}
        with pytest.raises(InputError, match="Idempotency-Key"):
            cluster.client.submit(cluster.job("once", priority=1), idempotency_key="the key")
        assert {view.job_id for view in cluster.client.jobs()} == {blocks, job_id, another}

        cluster.client.cancel(blocks)
        for waiting in (job_id, another):
            assert cluster.wait_state(waiting).state is JobState.SUCCEEDED
        # It is over by now, and the answer says so.
        again = cluster.client.submit(job, idempotency_key="the key")
        assert (again.job_id, again.state) == (job_id, JobState.SUCCEEDED)
