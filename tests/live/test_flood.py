"""Clients submit at once while daemons come and go: in the end each submission is one job that ran once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.cluster import LiveCluster, eventually
from tests.live.load import (
    Flood,
    assert_all_accounted_for,
    assert_gpus_are_held_by_the_living,
    assert_store_is_whole,
)
from tests.live.store.databases import KINDS, postgres_server

from aryl.core.model import JobState

SUBMISSIONS = 150
RUN = ["sh", "-c", 'echo "$ARYL_JOB_ID" >> ran; sleep "$SECONDS_TO_SLEEP"']


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store in either database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'aryl.db'}"
        return
    with postgres_server() as postgres:
        yield postgres.new_url()


@pytest.fixture
def cluster(url: str, tmp_path: Path) -> Iterator[LiveCluster]:
    """Sixty servers, half of the inference side's to be lent."""
    made = LiveCluster(
        tmp_path,
        cluster={
            "training": {"servers": 40, "gpus_per_server": 1, "gpu_type": "V100"},
            "inference": {"servers": 20, "gpus_per_server": 1, "gpu_type": "T4"},
        },
        store=url,
    )
    try:
        yield made
    finally:
        made.close()


def test_nothing_is_lost_or_doubled_while_daemons_die_and_stop(cluster: LiveCluster, url: str) -> None:
    jobs = [
        cluster.job(
            f"sleeper{number % 3}",
            run=RUN,
            checkpoint=None,
            gpu_types={"V100": 1.0, "T4": 1.0} if number % 2 else None,
            env={"SECONDS_TO_SLEEP": f"{number % 7 / 5}"},
        )
        for number in range(SUBMISSIONS)
    ]
    flood = Flood(lambda: cluster.url, jobs, clients=6)
    cluster.start()
    try:
        cluster.demand(10)
        flood.start()
        flood.wait_for(50)
        cluster.kill()
        cluster.start()
        flood.wait_for(100)
        assert cluster.stop() == 0, cluster.said()  # it ends although it has no quiet moment
        cluster.start()
        cluster.demand(10)
        flood.wait_for(SUBMISSIONS)
    finally:
        flood.close()

    def all_over() -> bool:
        states = assert_all_accounted_for(cluster, flood.answered, SUBMISSIONS)
        return states == {JobState.SUCCEEDED: SUBMISSIONS}

    assert_gpus_are_held_by_the_living(cluster)
    eventually(all_over, "not all jobs end well", cluster.said)
    assert_gpus_are_held_by_the_living(cluster)
    cluster.stop()
    state = assert_store_is_whole(url, flood.answered)
    assert len(state.ended) == SUBMISSIONS
    ran = Counter((cluster.work / "ran").read_text().split())
    assert ran == Counter(one.job_id for one in flood.answered)
