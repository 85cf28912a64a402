"""Lending on a real daemon whose inference side is a file, or which has a calendar: what is unknown is left
alone, and what was promised is kept all the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.live.cluster import LiveCluster, eventually, live_cluster

from aryl.core.model import JobState, Tenure
from aryl.wire.views import LoanList

# Accepted by lent servers alone.
ON_LOAN = {"T4": 1.0, "K80": 1.0}
THREE = {"inference": {"servers": 3}}


def test_a_file_that_is_not_written_any_more_is_the_silence_of_the_inference_side(tmp_path: Path) -> None:
    """I3, with a file as the source: what is 3 min old counts for nothing."""
    file = tmp_path / "need.json"
    demand = {"file": {"path": str(file), "every": 0.1}, "stale_after": "3m"}
    with live_cluster(tmp_path, cluster=THREE, inference=demand) as cluster:
        job = cluster.submit("lives", gpu_types=ON_LOAN, env={"STEPS": "100000"})
        # Nothing is known yet, and an old file says nothing either.
        _write(file, 1, age_s=181)
        _settled(cluster)
        assert _loans(cluster).need_servers is None
        assert _lent(cluster) == []

        # It was written almost 3 min ago: what it says holds for some moments.
        _write(file, 1, age_s=170)
        placed = cluster.wait_state(job, JobState.RUNNING).placement[0].server
        blind = _wait(cluster, lambda loans: loans.degraded)
        assert (blind.on_loan, blind.need_servers) == (2, 1.0)
        assert cluster.metrics()["aryl_inference_degraded"] == 1.0
        assert cluster.said().count("the inference side has fallen silent") == 1

        # The need in a file that is too old is no ground for anything.
        _write(file, 3, age_s=200)
        _settled(cluster)
        assert len(_lent(cluster)) == 2
        other = next(server for server in _lent(cluster) if server != placed)
        cluster.client.reclaim(other)
        eventually(lambda: _lent(cluster) == [placed], "it isn't returned", cluster.said)
        assert cluster.client.job(job).preemptions == 0
        assert _loans(cluster).degraded

        # A fresh one ends it: what was taken back by hand stays, the third is lent.
        _write(file, 1)
        eventually(lambda: len(_lent(cluster)) == 2, "nothing is lent", cluster.said)
        assert other not in _lent(cluster)
        assert not _loans(cluster).degraded
        assert cluster.client.job(job).preemptions == 0


def test_servers_are_back_before_the_window_closes_though_nothing_has_been_heard_for_long(
    tmp_path: Path,
) -> None:
    """I4. The window closes in hours; the second daemon believes that giving back takes all of them but some
    seconds.
    """
    closes = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(hours=6)
    window = {"from": f"{closes - timedelta(hours=12):%H:%M}", "to": f"{closes:%H:%M}", "max_lent": 2}
    lending = {"calendar": {"zone": "UTC", "windows": [window]}, "stale_after": 0.5}
    with live_cluster(tmp_path, cluster=THREE, inference=lending) as cluster:
        cluster.demand(0)
        job = cluster.submit("guest", gpu_types=ON_LOAN, env={"STEPS": "100000"})
        cluster.wait_state(job, JobState.RUNNING)
        night = _wait(cluster, lambda loans: loans.degraded)
        assert (night.on_loan, night.lending_cap, night.limit) == (2, 2, "calendar")
        assert cluster.stop() == 0

        give_back_s = round(closes.timestamp() - time.time()) - 4
        with live_cluster(tmp_path, cluster=THREE, inference={**lending, "load": give_back_s}) as later:
            day = _wait(later, lambda loans: loans.on_loan == 0)
            assert (day.degraded, day.lending_cap, day.limit) == (True, 0, "calendar")
            assert later.wait_state(job, JobState.PENDING).preemptions == 1
            at_s, most = later.query(
                "SELECT at, json_extract(body, '$.most_servers') FROM journal"
                " WHERE type = 'LendingLimited' ORDER BY sequence DESC LIMIT 1"
            )[0]
            assert most == 0
            zero_unix_s = later.query("SELECT epoch_s FROM ground")[0][0]
            assert zero_unix_s + at_s >= closes.timestamp() - give_back_s
            # By day nothing is lent whatever is said.
            later.demand(0)
            _settled(later)
            assert _lent(later) == []


def test_a_calendar_that_is_taken_out_limits_nothing_after_the_next_start(tmp_path: Path) -> None:
    never = {"zone": "UTC", "windows": [{"from": "00:00", "to": "24:00", "max_lent": 0}]}
    with live_cluster(tmp_path, cluster=THREE, inference={"calendar": never}) as cluster:
        cluster.demand(1)
        _settled(cluster)
        assert (_lent(cluster), _loans(cluster).limit) == ([], "calendar")
        assert cluster.stop() == 0
        with live_cluster(tmp_path, cluster=THREE) as later:
            eventually(lambda: len(_lent(later)) == 2, "nothing is lent", later.said)
            assert (_loans(later).lending_cap, _loans(later).limit) == (3, None)


def _write(file: Path, need: int, age_s: float = 0.0) -> None:
    part = file.with_suffix(".part")
    part.write_text(str(need), encoding="utf-8")
    at_s = time.time() - age_s
    os.utime(part, (at_s, at_s))
    part.replace(file)


def _settled(cluster: LiveCluster) -> None:
    """Whatever had been said before a job that is over by now has been heard."""
    cluster.wait_state(cluster.submit("more", run="true", checkpoint=None))


def _loans(cluster: LiveCluster) -> LoanList:
    return cluster.client.loans()


def _wait(cluster: LiveCluster, there: Callable[[LoanList], bool]) -> LoanList:
    def look() -> LoanList | None:
        loans = _loans(cluster)
        return loans if there(loans) else None

    return eventually(look, "it never comes to that", cluster.said)


def _lent(cluster: LiveCluster) -> list[str]:
    return [server.server for server in cluster.client.servers() if server.tenure is Tenure.ON_LOAN]
