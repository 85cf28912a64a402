"""The whole path, once: a job file in, real processes, a result out; then a server is lent and taken back."""

from __future__ import annotations

import re
from pathlib import Path

from tests.live.cluster import eventually, live_cluster

from aryl.core.model import JobState, Tenure


def test_a_job_runs_and_its_output_is_there(tmp_path: Path) -> None:
    with live_cluster(tmp_path) as cluster:
        job_id = cluster.submit("hello", 2, run="echo hello $RANK of $WORLD_SIZE", checkpoint=None)
        assert cluster.wait_state(job_id).state is JobState.SUCCEEDED
        assert "".join(cluster.client.logs(job_id, rank=1)) == "hello 1 of 2"
        assert cluster.stop() == 0


def test_an_elastic_job_grows_onto_a_lent_server_and_shrinks_without_losing_a_step(tmp_path: Path) -> None:
    with live_cluster(tmp_path, cluster={"training": {"servers": 1}}) as cluster:
        cluster.demand(2)
        job_id = cluster.submit(
            "grows",
            [2, 8],
            gpu_types={"V100": 1.0, "T4": 1.0},
            heterogeneous=True,
            estimate=600,
            env={"STEPS": "200"},
        )
        cluster.wait_workers(job_id, 4)
        cluster.demand(1)
        cluster.wait_workers(job_id, 8)
        assert cluster.server("I2").tenure is Tenure.ON_LOAN
        cluster.demand(2)
        cluster.wait_workers(job_id, 4)
        eventually(lambda: cluster.server("I2").tenure is Tenure.OWNED, "I2 isn't returned", cluster.said)
        view = cluster.wait_state(job_id)
        assert (view.state, view.attempt, view.preemptions) == (JobState.SUCCEEDED, 1, 0)
        steps = re.findall(r"^step (\d+)$", cluster.log_path(job_id).read_text(), re.MULTILINE)
        assert [int(step) for step in steps] == list(range(1, 201))
