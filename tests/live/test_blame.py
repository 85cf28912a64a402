"""Whose fault was it? A server on which everything fails at once is set apart; a job that fails wherever it
runs is failed, and no server is blamed for it.
"""

from __future__ import annotations

from pathlib import Path

from tests.live.cluster import LiveCluster, eventually, live_cluster

from aryl.core.cluster import Cluster
from aryl.core.events import ClusterDeclared, Submitted
from aryl.core.evolve import evolve
from aryl.core.model import Health, JobSpec, JobState, Pool, ServerSpec
from aryl.live.troubles import REST_S, Troubles

# Fails on a broken server, until that is repaired, as soon as it may; takes its time elsewhere.
UNLESS_BROKEN = """
if [ "$ARYL_SERVER_ID" = T1 ] && [ ! -e repaired ]; then
    while [ ! -e go ]; do sleep 0.02; done
    exit 1
fi
while [ ! -e "$ARYL_JOB_ID.end" ]; do sleep 0.05; done
"""
NO_INFERENCE = {"servers": 0}


def test_a_server_that_fails_every_launch_is_set_apart_until_an_operator_has_looked(tmp_path: Path) -> None:
    """L6: three failures of three jobs, all at once."""
    # All three are there before the first one fails, and that still counts as at once.
    soon = {"within": 60}
    with live_cluster(tmp_path, cluster={"inference": NO_INFERENCE}, quarantine=soon) as cluster:
        jobs = [cluster.submit(name, run=UNLESS_BROKEN, checkpoint=None) for name in ("a", "b", "c")]
        for job in jobs:
            cluster.wait_workers(job, 1)
        (cluster.work / "go").touch()
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


def test_one_job_that_fails_on_one_server_again_and_again_brings_it_no_disrepute() -> None:
    troubles, cluster = Troubles(), _cluster("T1", "T2")
    for at_s in (0.0, 10.0, 20.0, 30.0):
        assert _fail(troubles, cluster, "T1", "broken", at_s) is Health.RESTING
        _rest(troubles, cluster, at_s + REST_S)
    # Another one that fails there too is what turns the scale.
    assert _fail(troubles, cluster, "T1", "other", 40.0) is Health.QUARANTINED


def test_what_a_job_has_itself_to_blame_for_counts_against_no_server_any_more() -> None:
    troubles, cluster = Troubles(), _cluster("T1", "T2", "T3")
    assert _fail(troubles, cluster, "T1", "broken", 0.0) is Health.RESTING
    assert _fail(troubles, cluster, "T1", "broken", 1.0) is Health.RESTING
    assert _fail(troubles, cluster, "T2", "broken", 2.0) is Health.RESTING
    assert _fail(troubles, cluster, "T3", "broken", 3.0) is Health.RESTING
    _rest(troubles, cluster, 3.0 + REST_S)
    # Two failures on T1 would have been there already.
    assert _fail(troubles, cluster, "T1", "other", 20.0) is Health.RESTING
    assert _fail(troubles, cluster, "T1", "third", 21.0) is Health.RESTING
    assert _fail(troubles, cluster, "T1", "fourth", 22.0) is Health.QUARANTINED


def test_failures_of_one_instant_are_counted_together() -> None:
    troubles, cluster = Troubles(), _cluster("T1")
    # All are heard of before the state has changed.
    events = [
        event
        for job in ("broken", "other", "third", "fourth")
        for event in troubles.failed(cluster, ("T1",), job, ran_s=0.5, now_s=1.0)
    ]
    for event in events:
        evolve(cluster, event)
    assert cluster.server_by_id["T1"].health is Health.QUARANTINED
    assert list(troubles.rested(cluster, 1.0 + REST_S)) == []
    assert list(troubles.failed(cluster, ("T1",), "other", ran_s=0.5, now_s=9.0)) == []


def test_a_launch_that_went_well_for_a_while_is_nobody_s_reproach() -> None:
    troubles, cluster = Troubles(), _cluster("T1")
    for job in ("broken", "other", "third"):
        assert not list(troubles.failed(cluster, ("T1",), job, ran_s=2.5, now_s=0.0))
    for job in ("broken", "other"):
        assert _fail(troubles, cluster, "T1", job, 10.0) is Health.RESTING
    troubles.went_well(iter(["T1"]))
    assert _fail(troubles, cluster, "T1", "third", 11.0) is Health.RESTING


def _cluster(*servers: str) -> Cluster:
    cluster = Cluster(lambda job, now_s: ())
    evolve(
        cluster,
        ClusterDeclared(0.0, tuple(ServerSpec(server, Pool.TRAINING, "V100", 4) for server in servers)),
    )
    for number, job in enumerate(("broken", "other", "third", "fourth")):
        evolve(cluster, Submitted(0.0, JobSpec(job, number, 0.0, 1, 1)))
    return cluster


def _fail(troubles: Troubles, cluster: Cluster, server: str, job: str, now_s: float) -> Health:
    """A launch fails at once; how the server stands then."""
    for event in troubles.failed(cluster, (server,), job, ran_s=0.5, now_s=now_s):
        evolve(cluster, event)
    return cluster.server_by_id[server].health


def _rest(troubles: Troubles, cluster: Cluster, now_s: float) -> None:
    for event in troubles.rested(cluster, now_s):
        evolve(cluster, event)
    assert all(server.health is Health.HEALTHY for server in cluster.servers)


def _all_healthy(cluster: LiveCluster) -> bool:
    return all(server.health == "healthy" for server in cluster.client.servers())
