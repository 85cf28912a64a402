"""What inference keeps, and how much may be lent at most: reports, rules and calendars."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.helpers import cluster_of, declared, happen, job
from tests.core.live_cluster import Live
from tests.property.snapshot import snapshot

from aryl.core import events as ev
from aryl.core.model import Health, Hosting
from aryl.core.plan import Loan, Reclaim, Return, Step

LENDERS = ("aryl", "aryl:loaning", "opportunistic")


@pytest.mark.parametrize(
    ("rules", "calendar", "cap"),
    [
        ({}, None, 4),
        ({"least_kept_servers": 1}, None, 3),
        ({"least_kept_servers": 4}, None, 0),
        ({"least_kept_servers": 9}, None, 0),
        ({"most_lent_servers": 0}, None, 0),
        ({"most_lent_servers": 3}, None, 3),
        ({"most_lent_servers": 9}, None, 4),
        ({}, 0, 0),
        ({}, 2, 2),
        ({}, 9, 4),
        ({"least_kept_servers": 2, "most_lent_servers": 3}, None, 2),
        ({"least_kept_servers": 1, "most_lent_servers": 2}, 3, 2),
        ({"least_kept_servers": 1, "most_lent_servers": 3}, 2, 2),
        ({"least_kept_servers": 3, "most_lent_servers": 3}, 3, 1),
    ],
)
def test_of_all_limits_the_tightest_counts(rules: dict[str, Any], calendar: int | None, cap: int) -> None:
    cluster = cluster_of(1, 4, **rules)
    happen(cluster, ev.LendingLimited(0.0, calendar))
    assert cluster.lending_cap == cap


@pytest.mark.parametrize(
    "event", [ev.ServerLost(0.0, "I4"), ev.HealthChanged(0.0, "I4", Health.SUSPECT)], ids=["lost", "suspect"]
)
def test_a_server_that_inference_cant_count_on_is_none_that_it_keeps(event: ev.Event) -> None:
    cluster = cluster_of(1, 4, least_kept_servers=2)
    happen(cluster, event)
    assert (cluster.lending_cap, cluster.serving, cluster.kept_servers) == (1, 3, 3.0)


def test_a_limit_changes_nothing_else_and_holds_until_the_next_one() -> None:
    cluster = cluster_of(1, 4, most_lent_servers=3)
    happen(cluster, ev.DemandReported(0.0, 1.0, 1.0))
    without = frozenset({"lending_limit", "now"})
    before = snapshot(cluster, without=without)
    happen(cluster, ev.LendingLimited(1.0, 1))
    assert (cluster.lending_limit, cluster.lending_cap) == (1, 1)
    happen(cluster, ev.DemandReported(1.0, 1.0, 1.0), ev.TelemetryLost(2.0), ev.DemandReported(2.0, 1.0, 1.0))
    assert cluster.lending_cap == 1
    happen(cluster, ev.LendingLimited(3.0, None), ev.DemandReported(3.0, 1.0, 1.0))
    assert (cluster.lending_limit, cluster.lending_cap) == (None, 3)
    again = cluster_of(1, 4, most_lent_servers=3)
    happen(again, ev.DemandReported(0.0, 1.0, 1.0))
    assert snapshot(again, without=without) == before


def test_other_rules_replace_those_declared_before_and_leave_the_calendar() -> None:
    cluster = cluster_of(1, 4, least_kept_servers=3, most_lent_servers=0)
    happen(cluster, ev.LendingLimited(0.0, 2))
    assert cluster.lending_cap == 0
    happen(cluster, declared(1, 4, most_lent_servers=3))
    assert (cluster.least_kept_servers, cluster.most_lent_servers, cluster.lending_cap) == (0, 3, 2)
    happen(cluster, declared(1, 4, least_kept_servers=3))
    assert (cluster.least_kept_servers, cluster.most_lent_servers, cluster.lending_cap) == (3, None, 1)


@pytest.mark.parametrize(
    ("least", "said", "kept"),
    [
        (0, None, 4.0),
        (2, None, 4.0),
        (0, ev.DemandReported(0.0, 1.0, 1.5), 2.5),
        (0, ev.DemandReported(0.0, 1.0, 1.5, 0.0), 1.5),
        (0, ev.DemandReported(0.0, 1.0, 1.5, 0.25), 1.75),
        (0, ev.DemandReported(0.0, 9.0, 1.5, 0.25), 1.75),
        (2, ev.DemandReported(0.0, 0.0, 0.0), 2.0),
        (2, ev.DemandReported(0.0, 0.0, 1.5), 2.5),
        (9, ev.DemandReported(0.0, 0.0, 0.0), 9.0),
    ],
)
def test_inference_keeps_what_it_foresees_and_its_headroom_but_never_less_than_the_least(
    least: int, said: ev.DemandReported | None, kept: float
) -> None:
    cluster = cluster_of(1, 4, headroom_servers=1, least_kept_servers=least)
    if said is not None:
        happen(cluster, said)
    assert cluster.kept_servers == kept


def test_a_report_counts_with_the_headroom_that_was_declared_when_it_came() -> None:
    cluster = cluster_of(1, 4, headroom_servers=1)
    happen(cluster, ev.DemandReported(0.0, 1.0, 1.0), declared(1, 4, headroom_servers=2))
    assert cluster.kept_servers == 2.0
    happen(cluster, ev.DemandReported(0.0, 1.0, 1.0))
    assert cluster.kept_servers == 3.0


def test_the_last_report_alone_says_where_replicas_stand() -> None:
    cluster = cluster_of(1, 4)
    happen(cluster, ev.DemandReported(0.0, 1.0, 1.0, None, (Hosting("I1", (4, 2)), Hosting("I9", ()))))
    assert cluster.demand is not None
    assert cluster.demand.hosting == {"I1": (4, 2), "I9": ()}
    happen(cluster, ev.DemandReported(0.0, 1.0, 1.0))
    assert cluster.demand.hosting == {}


# --- under a policy ---


def _lent(live: Live) -> list[str]:
    return [name for name, tenure in live.where().items() if tenure == "on-loan"]


def _back(steps: list[Step]) -> int:
    """How many servers are home again; all that are asked back are idle."""
    asked = [step.server_id for step in steps if isinstance(step, Reclaim)]
    assert [step.server_id for step in steps if isinstance(step, Return)] == asked
    return len(asked)


@pytest.mark.parametrize("policy", LENDERS)
def test_a_limit_is_kept_at_once_and_used_again_when_it_is_lifted(policy: str) -> None:
    live = Live(policy, inference=4, most_lent_servers=3)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    assert len(_lent(live)) == 3
    assert _back(live.tell(ev.LendingLimited(1.0, 1))) == 2
    assert _back(live.tell(ev.LendingLimited(2.0, 0))) == 1
    assert live.tell(ev.DemandReported(3.0, 0.0, 0.0)) == []
    assert [type(step) for step in live.tell(ev.LendingLimited(4.0, None))] == [Loan] * 3


@pytest.mark.parametrize("policy", LENDERS)
def test_a_limit_is_kept_in_silence_and_lifting_it_is_no_ground_to_lend(policy: str) -> None:
    live = Live(policy, inference=4)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    live.tell(ev.TelemetryLost(1.0))
    assert _back(live.tell(ev.LendingLimited(2.0, 2))) == 2
    assert live.tell(ev.LendingLimited(3.0, None)) == []
    assert len(_lent(live)) == 2
    assert [type(step) for step in live.tell(ev.DemandReported(4.0, 0.0, 0.0))] == [Loan] * 2


@pytest.mark.parametrize("policy", LENDERS)
@pytest.mark.parametrize("silent", [False, True])
def test_a_server_that_is_lost_at_home_calls_one_back_where_a_least_number_stays(
    policy: str, silent: bool
) -> None:
    live = Live(policy, inference=4, least_kept_servers=2)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    assert len(_lent(live)) == 2
    if silent:
        live.tell(ev.TelemetryLost(1.0))
    at_home = next(name for name, tenure in live.where().items() if tenure == "owned")
    assert _back(live.tell(ev.ServerLost(2.0, at_home))) == 1
    steps = live.tell(ev.ServerReturned(3.0, at_home))
    assert [type(step) for step in steps] == ([] if silent else [Loan])


@pytest.mark.parametrize("policy", LENDERS)
def test_a_server_that_is_given_beyond_the_limit_sends_one_home(policy: str) -> None:
    live = Live(policy, inference=3, most_lent_servers=1)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    given = next(name for name, tenure in live.where().items() if tenure == "owned")
    steps = live.tell(ev.GiveRequested(1.0, given))
    assert steps[0] == Loan(given)
    assert _back(steps[1:]) == 1
    assert len(_lent(live)) == 1


def test_a_policy_that_doesnt_lend_leaves_a_server_where_an_operator_gave_it() -> None:
    live = Live("fifo", inference=2, most_lent_servers=0)
    assert live.tell(ev.GiveRequested(0.0, "I1")) == [Loan("I1")]
    assert live.tell(ev.LendingLimited(1.0, 0)) == []
    assert _lent(live) == ["I1"]


def test_a_limit_gives_jobs_the_time_that_any_reclaim_gives() -> None:
    live = Live("aryl", inference=1, reclaim_within_s=60.0)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    live.submit(job("B", 8, gpu_types=(("T4", 1.0),), fungible=True, estimate_s=20.0))
    assert live.server("I1").used == 8
    steps = live.tell(ev.LendingLimited(5.0, 0))
    assert [(step.server_id, step.deadline_s) for step in steps if isinstance(step, Reclaim)] == [
        ("I1", 65.0)
    ]
    assert len(steps) == 1
    assert live.cluster.on_loan == 0
    assert live.tell(ev.Finished(20.0, "B", 1)) == [Return("I1")]
