"""A server that came home counts once it serves, with a real daemon, also one that was killed meanwhile."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from tests.live.cluster import LiveCluster, eventually, live_cluster

from aryl.core.model import Tenure
from aryl.errors import ConflictError, InputError, NotFoundError


def held_up(folder: Path) -> list[str]:
    """A restore that says that it has begun and waits for a file."""
    script = (
        f"echo begun >> {shlex.quote(str(folder / 'restores'))}; "
        f"while [ ! -e {shlex.quote(str(folder / 'gate'))} ]; do sleep 0.02; done"
    )
    return ["/bin/sh", "-c", script]


def restores(folder: Path) -> int:
    path = folder / "restores"
    return len(path.read_text().split()) if path.exists() else 0


def send_home(cluster: LiveCluster) -> None:
    """Both servers are lent, and needed again."""
    cluster.demand(0)
    eventually(lambda: _all(cluster, Tenure.ON_LOAN), "they aren't lent", cluster.said)
    cluster.demand(2)
    eventually(lambda: _all(cluster, Tenure.OWNED), "they don't return", cluster.said)


def account(cluster: LiveCluster) -> tuple[int, int, float]:
    """What serves, what loads, what is missing."""
    loans = cluster.client.loans()
    return loans.serving_servers, loans.restoring_servers, loans.shortfall_servers


def measured(cluster: LiveCluster) -> tuple[float, ...]:
    """The same by the metrics."""
    metrics = cluster.metrics()
    names = ("serving", "restoring", "shortfall")
    return tuple(metrics[f"aryl_inference_{name}_servers"] for name in names)


def words(cluster: LiveCluster) -> list[str]:
    """Which servers were said to be back in service, in order."""
    rows = cluster.query("SELECT body FROM journal WHERE type = 'BackInService' ORDER BY sequence")
    return [json.loads(body)["server_id"] for (body,) in rows]


def test_servers_that_are_being_restored_do_not_serve_though_the_daemon_is_killed(tmp_path: Path) -> None:
    """kill -9 in the middle of a restore: the next daemon restores again, and counts them only then."""
    with live_cluster(tmp_path, inference={"hooks": {"restore": held_up(tmp_path)}}) as cluster:
        assert account(cluster) == (2, 0, 0.0)
        send_home(cluster)
        eventually(lambda: restores(tmp_path) == 2, "they aren't restored", cluster.said)
        assert account(cluster) == measured(cluster) == (0, 2, 2.0)
        assert cluster.server("I1").restoring

        cluster.kill()
        cluster.start()
        eventually(lambda: restores(tmp_path) == 4, "they aren't restored again", cluster.said)
        assert account(cluster) == (0, 2, 2.0)
        assert words(cluster) == []
        # Whoever knows better may say so.
        assert cluster.client.report_ready("I2").serving_servers == 1
        assert account(cluster) == (1, 1, 1.0)

        (tmp_path / "gate").touch()
        eventually(lambda: account(cluster) == (2, 0, 0.0), "they don't serve again", cluster.said)
        assert words(cluster) == ["I2", "I1"]
        assert not cluster.server("I1").restoring
        assert cluster.metrics()["aryl_failed_restores_total"] == 0.0

        # What has come home in peace isn't restored again.
        assert cluster.stop() == 0
        cluster.start()
        assert account(cluster) == (2, 0, 0.0)
        assert restores(tmp_path) == 4


def test_servers_are_in_service_when_the_side_says_so_where_it_has_to(tmp_path: Path) -> None:
    with live_cluster(tmp_path, inference={"ready": "report"}) as cluster:
        send_home(cluster)
        assert account(cluster) == (0, 2, 2.0)
        with pytest.raises(NotFoundError, match="did you mean 'I1'"):
            cluster.client.report_ready("I11")
        with pytest.raises(ConflictError, match="training pool"):
            cluster.client.report_ready("T1")
        assert cluster.client.report_ready("I2").restoring_servers == 1
        with pytest.raises(ConflictError, match="isn't being restored: it is in service"):
            cluster.client.report_ready("I2")

        cluster.kill()
        cluster.start()
        assert account(cluster) == (1, 1, 1.0)
        cluster.client.report_ready("I1")
        assert account(cluster) == (2, 0, 0.0)
        assert words(cluster) == ["I2", "I1"]


def test_a_report_says_what_is_kept_and_where_replicas_stand(tmp_path: Path) -> None:
    with live_cluster(tmp_path) as cluster:
        client = cluster.client
        told = client.report_demand(
            0.5, 1.0, headroom_servers=1.0, hosting={"I1": [2, 1]}, measured_at=time.time() - 1.0
        )
        assert (told.need_servers, told.forecast_servers, told.headroom_servers) == (0.5, 1.0, 1.0)
        # What was so long ago is taken note of, and counts for nothing.
        assert client.report_demand(0.75, measured_at=1000.0).need_servers == 0.5
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"hosting": {"I11": [1]}}, "hosting: no inference server .*'I11'.* did you mean 'I1'"),
            ({"hosting": {"T1": [1]}}, "hosting: no inference server .*'T1'"),
            ({"hosting": {"I1": [2, 3]}}, r"hosting\.I1: .*found 5.* expected at most 4 GPUs"),
            ({"measured_at": 4e9}, "measured_at: the report is of the future"),
        ]
        for more, why in wrong:
            with pytest.raises(InputError, match=why):
                client.report_demand(0.75, **more)
        assert client.report_demand(0.25, hosting={"I2": [4]}).headroom_servers == 0.0

        # The last word is repeated until the next one.
        rows = cluster.query("SELECT body FROM journal WHERE type = 'DemandReported' ORDER BY sequence")
        bodies = [json.loads(body) for (body,) in rows]
        reported = [(body["need_servers"], body["headroom_servers"], str(body["hosting"])) for body in bodies]
        first, second = dict.fromkeys(reported)
        assert first[:2] == (0.5, 1.0)
        assert ("I1" in first[2], "[2, 1]" in first[2], "I2" in first[2]) == (True, True, False)
        assert second[:2] == (0.25, 0.0)
        assert ("I1" in second[2], "I2" in second[2], "[4]" in second[2]) == (False, True, True)


def _all(cluster: LiveCluster, tenure: Tenure) -> bool:
    views = [cluster.server(name) for name in ("I1", "I2")]
    return all(view.tenure is tenure and not view.handing_over for view in views)
