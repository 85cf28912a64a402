"""What the state looks like from outside, in real time and in plain words."""

from __future__ import annotations

import pytest
from tests.core.helpers import claim, cluster_of, commit, happen, job, resize, run, stop, submit

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.model import Health, JobState, Pool, Slot, Tenure
from aryl.core.plan import Cause, Loan, Reclaim, Return
from aryl.live import answers
from aryl.live.clock import WallClock
from aryl.policies.catalogue import parse_policy
from aryl.policies.reasons import Wait
from aryl.wire.views import JobView, ServerView, WhyView

POLICY = parse_policy("fifo")


class Standing(WallClock):
    """Began at 1000 s of Unix time, hurries tenfold, and stands at 40 s of the cluster's."""

    def __init__(self) -> None:
        super().__init__(1000.0, 10.0)

    def now(self) -> float:
        return 40.0


CLOCK = Standing()


def view(job_id: str, state: JobState = JobState.PENDING, message: str = "") -> JobView:
    return JobView(
        job_id=job_id,
        name=job_id,
        project="",
        user="",
        state=state,
        attempt=0,
        workers=0,
        min_workers=1,
        max_workers=1,
        gpus_per_worker=1,
        priority=0,
        gpus=0,
        preemptions=0,
        failures=0,
        resizes=0,
        submitted=0.0,
        message=message,
    )


def why(cluster: Cluster, job_id: str) -> WhyView:
    return answers.why(cluster, POLICY, CLOCK, view(job_id))


def busy() -> Cluster:
    """`a` runs on both servers till 100 s, `w` waits for it."""
    cluster = cluster_of(2)
    a = job("a", 12, estimate_s=100.0, max_failures=3)
    run(cluster, a, Slot("T1", 8, 0, 1), Slot("T2", 4, 0, 1))
    submit(cluster, job("w", 8, max_failures=3))
    return cluster


def test_why_a_job_waits_is_told_with_numbers_and_a_time_for_clocks() -> None:
    cluster = busy()
    assert why(cluster, "w") == WhyView(
        job_id="w",
        state=JobState.PENDING,
        reason=Wait.NOT_ENOUGH_FREE,
        text=(
            "It needs 8 GPUs, but only 4 are free, at most 4 on one server. "
            "Once a has ended, it is expected to start in about 60 s."
        ),
        needed_gpus=8,
        free_gpus=4,
        best_server_free_gpus=4,
        behind=["a"],
        starts=1010.0,  # 100 s of the cluster are ten real ones
    )


def test_a_time_that_nobody_knows_is_none() -> None:
    cluster = cluster_of(1)
    run(cluster, job("a", 8), Slot("T1", 8, 0, 1))
    submit(cluster, job("w", 8))
    assert why(cluster, "w").starts is None


def test_a_job_that_has_failed_says_how_often() -> None:
    cluster = busy()
    happen(cluster, ev.Crashed(50.0, "a", 1, 0.0, "why"))
    assert why(cluster, "a").text.endswith(" It has failed 1 of 3 times.")
    assert "failed" not in why(cluster, "w").text


def test_a_job_that_does_not_wait_says_what_it_does() -> None:
    cluster = busy()
    assert why(cluster, "a") == WhyView(
        job_id="a",
        state=JobState.RUNNING,
        reason=None,
        text="It isn't waiting: it is RUNNING with 8 on T1, 4 on T2.",
    )
    happen(cluster, ev.WorkersDone(50.0, "a", 1, (Slot("T2", 4, 0, 1),)))
    assert why(cluster, "a").text == (
        "It isn't waiting: it is RUNNING with 8 on T1. Some of its workers are done."
    )
    commit(cluster, stop(cluster, "a"))
    assert why(cluster, "a").text.startswith("It isn't waiting: it is PREEMPTING.")


def test_a_job_that_the_loop_has_not_heard_of_was_accepted_a_moment_ago() -> None:
    assert why(cluster_of(1), "new").text == "It was accepted a moment ago."


def test_a_job_that_is_over_says_how_it_ended() -> None:
    cluster = busy()
    happen(cluster, ev.Finished(50.0, "a", 1))
    ended = view("a", JobState.FAILED, "worker 0 exited with 3")
    assert answers.why(cluster, POLICY, CLOCK, ended) == answers.why_over(ended)
    assert answers.why_over(ended) == WhyView(
        job_id="a",
        state=JobState.FAILED,
        reason=None,
        text="It isn't waiting: it is FAILED. worker 0 exited with 3",
    )
    assert answers.why_over(view("a", JobState.SUCCEEDED)).text == "It isn't waiting: it is SUCCEEDED."


def test_what_is_left_is_told_in_real_seconds_and_only_of_a_job_that_runs() -> None:
    cluster = busy()
    assert answers.left_s(cluster, CLOCK, "a") == 6.0  # 60 s of the cluster
    assert answers.left_s(cluster, CLOCK, "w") is None
    assert answers.left_s(cluster, CLOCK, "unknown") is None
    happen(cluster, ev.Tick(70.0))  # the state may be ahead of the clock, never behind
    assert answers.left_s(cluster, CLOCK, "a") == 3.0


def loaned() -> Cluster:
    """T1: `e` on four GPUs, two of them leaving; a claim on T2; I1 lent and in use, I2 asked back by 100 s,
    I3 at home, I4 down.
    """
    cluster = cluster_of(2, 4, headroom_servers=1)
    happen(cluster, ev.DemandReported(10.0, 2.5, 3.0))
    commit(cluster, Loan("I1"), Loan("I2"))
    run(cluster, job("e", 2, 4), Slot("T1", 2, 2, 1))
    run(cluster, job("f", 2, fungible=True, gpu_types=(("V100", 1.0), ("T4", 1.0))), Slot("I1", 2, 0, 1))
    commit(cluster, resize(cluster, "e", remove=(Slot("T1", 0, 2, 1),), cause=Cause.BASE_DEMAND))
    submit(cluster, job("w", 8))
    commit(cluster, claim(cluster, "w", Slot("T2", 8, 0, 1)))
    commit(cluster, Reclaim("I2", 100.0))
    happen(cluster, ev.ServerLost(cluster.now, "I4"))
    return cluster


def test_servers_are_shown_as_they_stand() -> None:
    cluster = loaned()
    happen(cluster, ev.ServerDrained(cluster.now, "T2", True, 60.0))
    happen(cluster, ev.HealthChanged(cluster.now, "I3", Health.QUARANTINED))
    plain = ServerView(
        server="T1",
        pool=Pool.TRAINING,
        tenure=Tenure.OWNED,
        gpu_type="V100",
        gpus=8,
        free_gpus=4,
        used_gpus=2,
        leaving_gpus=2,
        up=True,
        draining=False,
        health="healthy",
        handing_over=False,
        reclaim_by=None,
        jobs=["e"],
    )
    shown = {server.server: server for server in answers.servers(cluster, CLOCK)}
    assert list(shown) == ["T1", "T2", "I1", "I2", "I3", "I4"]
    assert shown["T1"] == plain
    nothing = {"used_gpus": 0, "leaving_gpus": 0, "jobs": []}
    claimed = 0 if cluster.server_by_id["T2"].held else 8
    assert shown["T2"] == plain.model_copy(
        update={**nothing, "server": "T2", "draining": True, "free_gpus": claimed, "reclaim_by": 1006.0}
    )
    inference = plain.model_copy(update={**nothing, "pool": Pool.INFERENCE, "gpu_type": "T4", "free_gpus": 8})
    assert shown["I1"] == inference.model_copy(
        update={
            "server": "I1",
            "tenure": Tenure.ON_LOAN,
            "free_gpus": 6,
            "used_gpus": 2,
            "jobs": ["f"],
        }
    )
    assert shown["I2"] == inference.model_copy(
        update={"server": "I2", "tenure": Tenure.RECLAIMING, "reclaim_by": 1010.0}
    )
    assert shown["I3"] == inference.model_copy(update={"server": "I3", "health": "quarantined"})
    assert shown["I4"] == inference.model_copy(update={"server": "I4", "up": False})


def test_a_server_that_is_being_handed_over_says_so() -> None:
    cluster = cluster_of(0, 1, confirms_loans=True)
    happen(cluster, ev.DemandReported(0.0, 0.0, 0.0))
    commit(cluster, Loan("I1"))
    assert [server.handing_over for server in answers.servers(cluster, CLOCK)] == [True]


def test_loans_come_with_the_account_of_the_inference_side() -> None:
    cluster = loaned()
    shown = answers.loans(cluster, CLOCK, ())
    assert (shown.loans, shown.inference_servers, shown.on_loan) == ([], 3, 2)
    assert (shown.need_servers, shown.forecast_servers, shown.reported) == (2.5, 3.0, 1001.0)
    assert (shown.degraded, shown.shortfall_servers) == (False, 1.5)
    assert (shown.serving_servers, shown.restoring_servers, shown.headroom_servers) == (1, 0, 1.0)
    happen(cluster, ev.TelemetryLost(cluster.now))
    assert answers.loans(cluster, CLOCK, ()).degraded


def test_before_its_first_word_nothing_is_known_of_the_inference_side() -> None:
    shown = answers.loans(cluster_of(1, 2), CLOCK, ())
    assert (shown.need_servers, shown.forecast_servers, shown.reported) == (None, None, None)
    assert (shown.shortfall_servers, shown.degraded, shown.on_loan) == (0.0, False, 0)


def test_the_headroom_is_what_the_inference_side_said_or_else_the_usual_one() -> None:
    cluster = cluster_of(1, 3, headroom_servers=1)
    assert answers.loans(cluster, CLOCK, ()).headroom_servers == 1.0
    happen(cluster, ev.DemandReported(0.0, 1.0, 1.0, 0.5))
    assert answers.loans(cluster, CLOCK, ()).headroom_servers == 0.5
    happen(cluster, ev.DemandReported(0.0, 1.0, 1.0, 0.0))
    assert answers.loans(cluster, CLOCK, ()).headroom_servers == 0.0


def test_a_server_that_came_home_is_short_until_it_serves() -> None:
    cluster = cluster_of(1, 3, confirms_returns=True)
    happen(cluster, ev.DemandReported(0.0, 1.0, 1.0))
    commit(cluster, Loan("I1"), Loan("I2"))
    commit(cluster, Reclaim("I1", 5.0), Reclaim("I2", 5.0))
    commit(cluster, Return("I1"), Return("I2"))
    happen(cluster, ev.DemandReported(0.0, 2.5, 2.5))
    shown = answers.loans(cluster, CLOCK, ())
    assert (shown.inference_servers, shown.on_loan) == (3, 0)
    assert (shown.serving_servers, shown.restoring_servers, shown.shortfall_servers) == (1, 2, 1.5)
    assert [server.restoring for server in answers.servers(cluster, CLOCK)] == [False, True, True, False]
    happen(cluster, ev.ServerLost(0.0, "I2"))
    assert answers.gauges(cluster)["inference_restoring_servers"] == {(): 1.0}
    happen(cluster, ev.BackInService(0.0, "I1"))
    gauges = answers.gauges(cluster)
    assert gauges["inference_restoring_servers"] == {(): 0.0}
    assert gauges["inference_serving_servers"] == {(): 2.0}
    assert gauges["inference_shortfall_servers"] == {(): 0.5}


@pytest.mark.parametrize(
    ("rules", "calendar", "cap", "limit"),
    [
        ({}, None, 4, None),
        ({"most_lent_servers": 4}, 4, 4, None),
        ({}, 3, 3, "calendar"),
        ({}, 0, 0, "calendar"),
        ({"most_lent_servers": 2}, None, 2, "max_lent"),
        ({"least_kept_servers": 3}, None, 1, "min_servers"),
        ({"least_kept_servers": 9}, None, 0, "min_servers"),
        ({"most_lent_servers": 2, "least_kept_servers": 1}, 1, 1, "calendar"),
        ({"most_lent_servers": 2, "least_kept_servers": 1}, 3, 2, "max_lent"),
        ({"most_lent_servers": 3, "least_kept_servers": 2}, 3, 2, "min_servers"),
        ({"most_lent_servers": 2, "least_kept_servers": 2}, 2, 2, "calendar"),
        ({"most_lent_servers": 2, "least_kept_servers": 2}, None, 2, "max_lent"),
    ],
)
def test_the_most_that_may_be_lent_comes_with_who_says_so(
    rules: dict[str, int], calendar: int | None, cap: int, limit: str | None
) -> None:
    cluster = cluster_of(1, 4, **rules)
    happen(cluster, ev.LendingLimited(0.0, calendar))
    shown = answers.loans(cluster, CLOCK, ())
    assert (shown.lending_cap, shown.limit) == (cap, limit)
    assert answers.gauges(cluster)["lending_cap_servers"] == {(): float(cap)}


def test_gauges_count_everything_once() -> None:
    cluster = loaned()
    happen(cluster, ev.CancelRequested(cluster.now, "w"))
    gauges = answers.gauges(cluster)
    assert {key: value for key, value in gauges["jobs"].items() if value} == {
        (("state", "RUNNING"),): 1.0,
        (("state", "RESIZING"),): 1.0,
        (("state", "CANCELLED"),): 1.0,
    }
    assert len(gauges["jobs"]) == len(JobState)
    assert gauges["gpus"] == {
        (("pool", "training"), ("use", "used")): 2.0,
        (("pool", "training"), ("use", "leaving")): 2.0,
        (("pool", "training"), ("use", "free")): 12.0,
        (("pool", "inference"), ("use", "used")): 2.0,
        (("pool", "inference"), ("use", "leaving")): 0.0,
        (("pool", "inference"), ("use", "free")): 22.0,
    }
    assert gauges["servers"] == {
        (("health", "healthy"),): 6.0,
        (("health", "resting"),): 0.0,
        (("health", "quarantined"),): 0.0,
        (("health", "suspect"),): 0.0,
    }
    single = {name: values[()] for name, values in gauges.items() if () in values}
    assert single == {
        "servers_down": 1.0,
        "servers_draining": 0.0,
        "servers_on_loan": 1.0,
        "servers_reclaiming": 1.0,
        "inference_need_servers": 2.5,
        "inference_headroom_servers": 1.0,
        "inference_serving_servers": 1.0,
        "inference_restoring_servers": 0.0,
        "inference_shortfall_servers": 1.5,
        "inference_degraded": 0.0,
        "lending_cap_servers": 3.0,
        "claims": 0.0,
    }
