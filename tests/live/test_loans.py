"""Servers between the pools, with a real inference side: drained before they are lent, taken back when they
can be, and left alone while nobody knows what is needed. Streams of 40 s take 3 s here, minutes a second.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.live.cluster import LiveCluster, eventually, live_cluster
from tests.live.serving import HOOK, TOKEN, Client, Serving

from aryl.core.model import JobState, Tenure
from aryl.errors import ConflictError, NotFoundError
from aryl.wire.views import LoanList

# Accepted by lent servers alone.
ON_LOAN = {"T4": 1.0, "K80": 1.0}
SLACK_S = 0.05
STREAM_TOKENS = 30  # one in 0.1 s


@contextmanager
def _with_serving(folder: Path, **hooks: Any) -> Iterator[tuple[LiveCluster, Serving]]:
    with Serving(["I1", "I2", "I3"]) as serving:
        hook = folder / "hook.py"
        hook.write_text(HOOK, encoding="utf-8")
        commands = {
            what: [sys.executable, "-I", str(hook), serving.url, what] for what in ("release", "restore")
        }
        with live_cluster(
            folder, cluster={"inference": {"servers": 3}}, inference={"hooks": {**commands, **hooks}}
        ) as cluster:
            yield cluster, serving


def test_a_server_is_lent_when_its_streams_have_ended_and_serves_again_afterwards(tmp_path: Path) -> None:
    """R11, with streams of 3 s."""
    with _with_serving(tmp_path) as (cluster, serving):
        cluster.demand(3)
        job = cluster.submit("waits", gpu_types=ON_LOAN, env={"STEPS": "100000"})
        streams = [serving.ask("I3", STREAM_TOKENS) for _ in range(3)]
        assert {stream.server for stream in streams} == {"I3"}

        cluster.demand(2)
        eventually(lambda: "I3" not in serving.active, "it is still routed to", cluster.said)
        view = cluster.server("I3")
        assert (view.tenure, view.handing_over) == (Tenure.ON_LOAN, True)
        # Others answer meanwhile, and nothing is placed yet.
        assert serving.ask("I3").server == "I1"
        assert cluster.client.job(job).state is JobState.PENDING

        cluster.wait_state(job, JobState.RUNNING)
        _all_answered(streams)
        lent = _lines(serving, "released")
        assert [server for server, _ in lent] == ["I3"]
        started = next(entry for entry in cluster.client.history(job).entries if entry.kind == "launched")
        assert started.at >= max(stream.ended_unix_s for stream in streams) - SLACK_S
        assert not cluster.server("I3").handing_over

        cluster.demand(3)
        eventually(lambda: "I3" in serving.active, "it isn't routed to again", cluster.said)
        assert serving.ask("I3").server == "I3"
        assert cluster.server("I3").tenure is Tenure.OWNED
        assert cluster.wait_state(job, JobState.PENDING).preemptions == 1


def test_a_loan_is_called_off_when_the_streams_last_too_long_and_another_server_is_lent(
    tmp_path: Path,
) -> None:
    """R11, with streams of 3 s and a limit of 1 s."""
    with _with_serving(tmp_path, drain_limit="1s") as (cluster, serving):
        cluster.demand(3)
        streams = [serving.ask("I3", STREAM_TOKENS) for _ in range(3)]
        cluster.demand(2)
        eventually(lambda: "called off" in cluster.said(), "nobody says so", cluster.said)
        assert "the loan of I3 is called off: its release took longer than 1 s" in cluster.said()
        eventually(lambda: "I3" in serving.active, "it isn't routed to again", cluster.said)
        eventually(lambda: _lent(cluster) == ["I2"], "no other is lent", cluster.said)
        assert serving.ask("I3").server == "I3"
        _all_answered(streams)

        (called_off,) = _events(cluster, "LoanCalledOff")
        assert called_off["server_id"] == "I3"
        assert called_off["reason"] == "its release took longer than 1 s"
        (loan,) = [loan for loan in cluster.client.loans().loans if loan.server == "I3"]
        assert loan.returned is not None


def test_a_loan_is_forced_when_the_streams_last_too_long_if_that_is_wanted(tmp_path: Path) -> None:
    """R11, with streams of 3 s and a limit of 1 s. What goes on is the inference side's own affair."""
    with _with_serving(tmp_path, drain_limit="1s", on_limit="force") as (cluster, serving):
        cluster.demand(3)
        streams = [serving.ask("I3", STREAM_TOKENS) for _ in range(3)]
        cluster.demand(2)
        eventually(
            # In this order: a server that isn't lent yet isn't handing over either.
            lambda: _lent(cluster) == ["I3"] and not cluster.server("I3").handing_over,
            "it isn't handed over",
            cluster.said,
        )
        assert "the loan of I3 is forced: its release took longer than 1 s" in cluster.said()
        assert "I3" not in serving.active
        assert [event["server_id"] for event in _events(cluster, "HandedOver")] == ["I3"]
        _all_answered(streams)


def test_a_server_that_is_needed_while_it_drains_serves_again_at_once(tmp_path: Path) -> None:
    with _with_serving(tmp_path) as (cluster, serving):
        cluster.demand(3)
        endless = serving.ask("I3", 100_000)
        cluster.demand(2)
        eventually(lambda: "I3" not in serving.active, "it is still routed to", cluster.said)
        cluster.demand(3)
        eventually(lambda: "I3" in serving.active, "it isn't routed to again", cluster.said)
        assert endless.is_alive()
        view = cluster.server("I3")
        assert (view.tenure, view.handing_over) == (Tenure.OWNED, False)
        assert "called off" not in cluster.said()
        # It can be lent again afterwards, as if nothing had been.
        serving.hang_up()
        endless.join(60)
        cluster.demand(2)
        eventually(
            lambda: _lent(cluster) == ["I3"] and not cluster.server("I3").handing_over,
            "it isn't lent",
            cluster.said,
        )


def test_the_next_daemon_goes_on_with_what_hooks_had_begun(tmp_path: Path) -> None:
    with _with_serving(tmp_path) as (cluster, serving):
        cluster.demand(3)
        streams = [serving.ask("I3", STREAM_TOKENS)]
        cluster.demand(2)
        eventually(lambda: "I3" not in serving.active, "it is still routed to", cluster.said)
        assert cluster.stop() == 0
        assert "called off" not in cluster.said()
        cluster.start()
        eventually(lambda: not cluster.server("I3").handing_over, "it isn't handed over", cluster.said)
        assert _lent(cluster) == ["I3"]
        _all_answered(streams)

        hold = tmp_path / "hook.py.hold-restore"
        hold.touch()
        cluster.demand(3)
        eventually(lambda: cluster.server("I3").tenure is Tenure.OWNED, "no return", cluster.said)
        assert cluster.stop() == 0
        assert "I3" not in serving.active
        hold.unlink()
        cluster.start()
        eventually(lambda: "I3" in serving.active, "it isn't routed to again", cluster.said)
        assert cluster.metrics()["aryl_failed_restores_total"] == 0.0


def test_what_can_be_given_in_time_is_given_and_the_rest_is_withdrawn_when_the_need_falls(
    tmp_path: Path,
) -> None:
    """R12: three servers asked for, two given, one short. The third runs a job that will be over in time, so
    it is waited for; then the need falls.
    """
    with live_cluster(
        tmp_path, cluster={"inference": {"servers": 3}}, inference={"deadline": "60s"}
    ) as cluster:
        cluster.demand(0)
        job = cluster.submit("quick", gpu_types=ON_LOAN, estimate=30, env={"STEPS": "100000"})
        busy = cluster.wait_state(job, JobState.RUNNING).placement[0].server

        asked = cluster.client.report_demand(3)
        assert asked.need_servers == 3
        given = eventually(lambda: _loans_with(cluster, on_loan=1), "two aren't given", cluster.said)
        assert given.shortfall_servers == 1.0
        assert cluster.metrics()["aryl_inference_shortfall_servers"] == 1.0
        assert cluster.server(busy).tenure is Tenure.RECLAIMING

        cluster.demand(2)
        eventually(lambda: _lent(cluster) == [busy], "it isn't withdrawn", cluster.said)
        assert cluster.server(busy).reclaim_by is None
        assert cluster.client.loans().shortfall_servers == 0.0
        view = cluster.client.job(job)
        assert (view.state, view.attempt, view.preemptions) == (JobState.RUNNING, 1, 0)


def test_when_the_inference_side_falls_silent_nothing_is_lent_or_taken_back_on_a_guess(
    tmp_path: Path,
) -> None:
    """I3, with reports that are too old after 1 s instead of 3 min."""
    with live_cluster(
        tmp_path, cluster={"inference": {"servers": 3}}, inference={"stale_after": "1s"}
    ) as cluster:
        cluster.demand(1)
        job = cluster.submit("lives", gpu_types=ON_LOAN, env={"STEPS": "100000"})
        placed = cluster.wait_state(job, JobState.RUNNING).placement[0].server
        blind = eventually(lambda: _degraded(cluster), "it isn't degraded", cluster.said)
        assert (blind.on_loan, blind.need_servers) == (2, 1.0)
        assert cluster.metrics()["aryl_inference_degraded"] == 1.0
        assert "the inference side has fallen silent" in cluster.said()
        with pytest.raises(ConflictError, match="silent"):
            cluster.client.give("I1")

        # A reclaim by hand works, and no other server is lent in its place.
        other = next(server for server in _lent(cluster) if server != placed)
        cluster.client.reclaim(other)
        eventually(lambda: _lent(cluster) == [placed], "it isn't returned", cluster.said)
        done = cluster.submit("more", run="true", checkpoint=None)
        cluster.wait_state(done)
        assert _lent(cluster) == [placed]
        assert cluster.client.job(job).preemptions == 0
        assert cluster.client.loans().degraded

        # It ends with the next report: what was taken back by hand stays, another one is lent instead.
        assert not cluster.client.report_demand(1).degraded
        eventually(lambda: len(_lent(cluster)) == 2, "nothing is lent", cluster.said)
        assert other not in _lent(cluster)


def test_a_drain_ends_a_loan_in_time_and_the_job_goes_on_where_it_was(tmp_path: Path) -> None:
    """L7: the job leaves with what it has done, and comes back when the server does."""
    with live_cluster(tmp_path, cluster={"inference": {"servers": 1}}) as cluster:
        cluster.demand(0)
        job = cluster.submit("guest", gpu_types=ON_LOAN, env={"STEPS": "100000"})
        cluster.wait_state(job, JobState.RUNNING)

        cluster.client.drain("I1", deadline_s=1)
        cluster.wait_state(job, JobState.PENDING)
        eventually(lambda: cluster.server("I1").tenure is Tenure.OWNED, "no return", cluster.said)
        stopped = next(entry for entry in cluster.client.history(job).entries if entry.kind == "preempted")
        assert stopped.cause == "drain"
        text = cluster.log_path(job).read_text()
        saved = text.splitlines()[-1].removeprefix("saved ")
        done = cluster.submit("more", run="true", checkpoint=None)
        cluster.wait_state(done)
        assert _lent(cluster) == []

        cluster.client.undrain("I1")
        assert cluster.wait_state(job, JobState.RUNNING).attempt == 2
        again = cluster.log_path(job, attempt=2)
        eventually(lambda: again.exists() and "\n" in again.read_text(), "it doesn't begin", cluster.said)
        assert again.read_text().startswith(f"start 0 of 1 at {saved}\n")


@pytest.mark.parametrize("policy", ["aryl", "aryl:no-loaning"])
def test_a_drain_that_is_taken_back_in_time_leaves_the_loan_as_it_was(policy: str, tmp_path: Path) -> None:
    """L7: whether the policy would lend the server anyway, or an operator has."""
    with live_cluster(
        tmp_path, policy=policy, cluster={"training": {"servers": 1}, "inference": {"servers": 1}}
    ) as cluster:
        cluster.demand(0)
        if policy != "aryl":
            cluster.client.give("I1")
        # The only training server is taken.
        cluster.wait_workers(cluster.submit("host", 4, env={"STEPS": "100000"}), 4)
        both = {"V100": 1.0, "T4": 1.0}
        job = cluster.submit("guest", gpu_types=both, env={"STEPS": "100000"})
        cluster.wait_state(job, JobState.RUNNING)
        draining = cluster.client.drain("I1", deadline_s=600)
        assert (draining.draining, draining.jobs) == (True, [job])
        eventually(lambda: cluster.server("I1").tenure is Tenure.RECLAIMING, "no reclaim", cluster.said)
        cluster.client.undrain("I1")
        eventually(lambda: _lent(cluster) == ["I1"], "the loan doesn't go on", cluster.said)
        view = cluster.client.job(job)
        assert (view.state, view.attempt, view.preemptions) == (JobState.RUNNING, 1, 0)


def test_what_operators_want_of_loans_is_done_or_refused(tmp_path: Path) -> None:
    with live_cluster(tmp_path) as cluster:
        client = cluster.client
        with pytest.raises(ConflictError, match="no server is on loan"):
            client.reclaim()
        with pytest.raises(ConflictError, match="not said yet"):
            client.give("I1")
        cluster.demand(0)
        job = cluster.submit("guest", gpu_types=ON_LOAN, env={"STEPS": "100000"})
        busy = cluster.wait_state(job, JobState.RUNNING).placement[0].server
        (idle,) = {"I1", "I2"} - {busy}

        # Of the policy's choice: the one that costs nothing.
        client.reclaim()
        eventually(lambda: _lent(cluster) == [busy], "the other one is taken back", cluster.said)
        with pytest.raises(ConflictError, match="isn't on loan"):
            client.reclaim(idle)
        with pytest.raises(NotFoundError, match="did you mean 'I1'"):
            client.reclaim("I11")
        with pytest.raises(ConflictError, match="training pool"):
            client.give("T1")
        # It stays at home, whatever inference says, until it is given.
        cluster.demand(0)
        assert _lent(cluster) == [busy]
        client.give(idle)
        eventually(lambda: set(_lent(cluster)) == {"I1", "I2"}, "it isn't lent", cluster.said)
        with pytest.raises(ConflictError, match="on-loan already"):
            client.give(idle)

        # By name and by a time: the job may stay until then.
        asked = time.time()
        client.reclaim(busy, deadline_s=2)
        assert cluster.client.job(job).state is JobState.RUNNING
        cluster.wait_workers(job, 1)
        eventually(lambda: cluster.server(busy).tenure is Tenure.OWNED, "no return", cluster.said)
        stopped = next(entry for entry in client.history(job).entries if entry.kind == "preempted")
        assert stopped.at >= asked + 2 - SLACK_S
        # There is another server on loan: it goes on there.
        eventually(
            lambda: [place.server for place in client.job(job).placement] == [idle], "no move", cluster.said
        )
        # Inference needs one that is at home: the other can't be given beside it.
        cluster.demand(1)
        with pytest.raises(ConflictError, match="would be left, and 1 are needed"):
            client.give(busy)


def _loans_with(cluster: LiveCluster, on_loan: int) -> LoanList | None:
    loans = cluster.client.loans()
    return loans if loans.on_loan == on_loan else None


def _degraded(cluster: LiveCluster) -> LoanList | None:
    loans = cluster.client.loans()
    return loans if loans.degraded else None


def _lent(cluster: LiveCluster) -> list[str]:
    return [server.server for server in cluster.client.servers() if server.tenure is Tenure.ON_LOAN]


def _lines(serving: Serving, what: str) -> list[tuple[str, float]]:
    return [(server, at) for said, server, at in serving.log if said == what]


def _all_answered(streams: list[Client]) -> None:
    for stream in streams:
        stream.join(60)
        assert stream.body == TOKEN * STREAM_TOKENS


def _events(cluster: LiveCluster, kind: str) -> list[dict[str, Any]]:
    """The journal's events of one kind."""
    rows = cluster.query("SELECT body FROM journal WHERE type = ? ORDER BY sequence", kind)
    return [json.loads(body) for (body,) in rows]
