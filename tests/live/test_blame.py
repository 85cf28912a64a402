"""Whose fault was it? A server on which everything fails at once is set apart; a job that fails wherever it
runs is failed, and no server is blamed for it.
"""

from __future__ import annotations

from pathlib import Path

from tests.live.cluster import LiveCluster, eventually, live_cluster

from aryl.core.model import JobState

# Fails at once on a broken server, until that is repaired, and takes its time elsewhere.
UNLESS_BROKEN = """
[ "$ARYL_SERVER_ID" = T1 ] && [ ! -e repaired ] && exit 1
while [ ! -e "$ARYL_JOB_ID.end" ]; do sleep 0.05; done
"""
NO_INFERENCE = {"servers": 0}


def test_a_server_that_fails_every_launch_is_set_apart_until_an_operator_has_looked(tmp_path: Path) -> None:
    """L6: three failures of three jobs, all at once."""
    with live_cluster(tmp_path, cluster={"inference": NO_INFERENCE}) as cluster:
        jobs = [cluster.submit(name, run=UNLESS_BROKEN, checkpoint=None) for name in ("a", "b", "c")]
        for job in jobs:
            view = cluster.wait_attempt(job, 2)
            assert [place.server for place in view.placement] == ["T2"]
            assert view.failures == 1
        assert cluster.server("T1").health == "quarantined"
        assert cluster.metrics()['aryl_servers{health="quarantined"}'] == 1.0

        # Nothing goes there, though it is free, and the next daemon knows it too.
        waits = cluster.submit("waits", 4, run=UNLESS_BROKEN, checkpoint=None)
        cluster.kill()
        cluster.start()
        assert cluster.client.job(waits).state is JobState.PENDING
        apart = cluster.server("T1")
        assert (apart.health, apart.used_gpus, apart.up) == ("quarantined", 0, True)
        why = cluster.client.why(waits)
        assert (why.needed_gpus, why.free_gpus) == (4, 1)

        (cluster.work / "repaired").touch()
        assert cluster.client.undrain("T1").health == "healthy"
        placed = cluster.wait_workers(waits, 4).placement
        assert [place.server for place in placed] == ["T1"]
        for job in (*jobs, waits):
            (cluster.work / f"{job}.end").touch()
            assert cluster.wait_state(job).state is JobState.SUCCEEDED


def test_a_job_that_fails_on_three_healthy_servers_is_failed_and_no_server_is_blamed(tmp_path: Path) -> None:
    """L6. Each server rests for a moment, so the job is tried on all three."""
    with live_cluster(tmp_path, cluster={"training": {"servers": 3}, "inference": NO_INFERENCE}) as cluster:
        job = cluster.submit("broken", run="echo hopeless; exit 3", checkpoint=None)
        cluster.wait_state(job)
        view = cluster.client.job(job)
        assert (view.state, view.attempt, view.failures) == (JobState.FAILED, 3, 3)
        assert "3 times" in view.message
        assert "exited with 3" in view.message
        launched = [entry.text for entry in cluster.client.history(job).entries if entry.kind == "launched"]
        assert {text.split()[-2] for text in launched} == {"T1", "T2", "T3"}
        assert not any(server.health == "quarantined" for server in cluster.client.servers())
        eventually(lambda: _all_healthy(cluster), "they don't recover", cluster.said)
        # Nor does one job that fails three times on the same server bring that into disrepute.
        for server in ("T2", "T3"):
            cluster.client.drain(server)
        again = cluster.submit("again", run="exit 1", checkpoint=None)
        cluster.wait_state(again)
        assert [
            entry.text.split()[-2]
            for entry in cluster.client.history(again).entries
            if entry.kind == "launched"
        ] == ["T1", "T1", "T1"]
        assert cluster.server("T1").health in ("resting", "healthy")


def _all_healthy(cluster: LiveCluster) -> bool:
    return all(server.health == "healthy" for server in cluster.client.servers())
