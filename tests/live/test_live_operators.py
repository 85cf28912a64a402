"""What operators ask of servers: events, or a refusal that says why."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.helpers import cluster_of, commit, happen, job, run

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.model import Health, Slot
from aryl.core.plan import Loan, Reclaim, Return
from aryl.errors import ConflictError, NotFoundError
from aryl.live import operators
from aryl.policies.catalogue import parse_policy

NOW_S = 10.0
ENDLESS = float("inf")
POLICY = parse_policy("aryl")


def asked(need: float = 1.0, **rules: Any) -> Cluster:
    """Two training servers and three of inference, which needs so many."""
    cluster = cluster_of(2, 3, **rules)
    happen(cluster, ev.DemandReported(0.0, need, need))
    return cluster


def test_a_drain_has_a_deadline_if_it_is_given_one() -> None:
    cluster = asked()
    assert operators.drain(cluster, NOW_S, "T1", None) == (ev.ServerDrained(NOW_S, "T1", True, ENDLESS),)
    assert operators.drain(cluster, NOW_S, "I2", 30.0) == (ev.ServerDrained(NOW_S, "I2", True, 40.0),)
    assert operators.drain(cluster, NOW_S, "I2", 0.0) == (ev.ServerDrained(NOW_S, "I2", True, NOW_S),)


@pytest.mark.parametrize("health", Health)
def test_an_undrain_also_makes_well_what_was_set_apart(health: Health) -> None:
    cluster = asked()
    happen(cluster, ev.HealthChanged(0.0, "T1", health))
    drained = ev.ServerDrained(NOW_S, "T1", False)
    events = operators.undrain(cluster, NOW_S, "T1")
    well = ev.HealthChanged(NOW_S, "T1", Health.HEALTHY)
    assert events == ((drained,) if health is Health.HEALTHY else (drained, well))
    happen(cluster, *events)
    assert cluster.server_by_id["T1"].placeable


@pytest.mark.parametrize(
    "ask",
    [
        lambda cluster, name: operators.drain(cluster, NOW_S, name, None),
        lambda cluster, name: operators.undrain(cluster, NOW_S, name),
        lambda cluster, name: operators.give(cluster, NOW_S, name),
        lambda cluster, name: operators.ready(cluster, NOW_S, name),
        lambda cluster, name: operators.reclaim(cluster, NOW_S, name, None, POLICY),
    ],
)
def test_a_server_that_there_is_none_of_names_the_nearest(ask: Any) -> None:
    with pytest.raises(NotFoundError, match=r"^there is no server I11; did you mean 'I1'\?$"):
        ask(asked(), "I11")
    with pytest.raises(NotFoundError, match=r"^there is no server zzz$"):
        ask(asked(), "zzz")


def test_a_server_that_inference_can_do_without_is_given() -> None:
    assert operators.give(asked(2.0), NOW_S, "I3") == (ev.GiveRequested(NOW_S, "I3"),)
    # A little over a whole number is rounding, not need.
    assert operators.give(asked(2.0 + 1e-12), NOW_S, "I3") == (ev.GiveRequested(NOW_S, "I3"),)


@pytest.mark.parametrize(
    ("need", "headroom", "why"),
    [
        (2.1, 0, r"2 inference servers would be left, and 3 are needed \(2\.1 and a headroom of 0\)"),
        (2.0, 1, r"2 inference servers would be left, and 3 are needed \(2 and a headroom of 1\)"),
        (3.0, 0, r"2 inference servers would be left, and 3 are needed \(3 and a headroom of 0\)"),
    ],
)
def test_a_server_that_inference_needs_is_not_given(need: float, headroom: int, why: str) -> None:
    with pytest.raises(ConflictError, match=f"^{why}$"):
        operators.give(asked(need, headroom_servers=headroom), NOW_S, "I3")


def test_what_is_lent_already_counts_as_gone() -> None:
    cluster = asked(1.0)
    commit(cluster, Loan("I1"))
    assert operators.give(cluster, NOW_S, "I2")
    commit(cluster, Loan("I2"))
    with pytest.raises(ConflictError, match=r"^0 inference servers would be left, and 1 are needed"):
        operators.give(cluster, NOW_S, "I3")


def test_what_cannot_be_given_is_refused() -> None:
    cluster = asked(0.0)

    def refused(server_id: str, why: str) -> None:
        with pytest.raises(ConflictError, match=f"^{why}$"):
            operators.give(cluster, NOW_S, server_id)

    refused("T1", "server T1 belongs to the training pool")
    commit(cluster, Loan("I1"))
    refused("I1", "server I1 is on-loan already")
    commit(cluster, Reclaim("I1", 5.0))
    refused("I1", "server I1 is reclaiming already")
    commit(cluster, Return("I1"))
    assert operators.give(cluster, NOW_S, "I1")
    for event in (
        ev.ServerDrained(0.0, "I1", True),
        ev.HealthChanged(0.0, "I2", Health.RESTING),
        ev.ServerLost(0.0, "I3"),
    ):
        happen(cluster, event)
        refused(event.server_id, f"server {event.server_id} takes nothing new")


def test_nothing_is_given_on_a_guess() -> None:
    cluster = cluster_of(1, 2)
    with pytest.raises(ConflictError, match=r"^the inference side has not said yet what it needs$"):
        operators.give(cluster, NOW_S, "I1")
    happen(cluster, ev.DemandReported(0.0, 0.0, 0.0), ev.TelemetryLost(1.0))
    with pytest.raises(ConflictError, match=r"^the inference side has fallen silent"):
        operators.give(cluster, NOW_S, "I1")
    happen(cluster, ev.DemandReported(2.0, 0.0, 0.0))
    assert operators.give(cluster, NOW_S, "I1")


@pytest.mark.parametrize(
    ("rules", "calendar", "why"),
    [
        ({}, 1, "the calendar allows at most 1 on loan, and 1 are"),
        ({}, 0, "the calendar allows at most 0 on loan, and 1 are"),
        ({"most_lent_servers": 1}, None, "max_lent allows at most 1 on loan, and 1 are"),
        ({"least_kept_servers": 2}, None, "min_servers leaves at most 1 on loan, and 1 are"),
    ],
)
def test_what_a_limit_forbids_is_not_given(rules: dict[str, int], calendar: int | None, why: str) -> None:
    cluster = asked(0.0, **rules)
    commit(cluster, Loan("I1"))
    happen(cluster, ev.LendingLimited(0.0, calendar))
    with pytest.raises(ConflictError, match=f"^{why}$"):
        operators.give(cluster, NOW_S, "I2")


def test_what_a_limit_still_allows_is_given() -> None:
    cluster = asked(0.0, most_lent_servers=2)
    commit(cluster, Loan("I1"))
    assert operators.give(cluster, NOW_S, "I2") == (ev.GiveRequested(NOW_S, "I2"),)
    # Where all may be lent it is the need that decides.
    happen(cluster, ev.DemandReported(0.0, 3.0, 3.0), ev.LendingLimited(0.0, 3))
    with pytest.raises(ConflictError, match=r"^1 inference servers would be left, and 3 are needed"):
        operators.give(cluster, NOW_S, "I2")


def test_the_headroom_that_was_reported_counts_when_one_is_given() -> None:
    cluster = asked(1.0, headroom_servers=2)
    happen(cluster, ev.DemandReported(0.0, 1.0, 1.0, 1.5))
    why = r"^2 inference servers would be left, and 3 are needed \(1 and a headroom of 1\.5\)$"
    with pytest.raises(ConflictError, match=why):
        operators.give(cluster, NOW_S, "I3")
    happen(cluster, ev.DemandReported(0.0, 1.5, 1.5, 0.5))
    assert operators.give(cluster, NOW_S, "I3")


def test_only_a_server_that_is_being_restored_can_be_said_to_serve_again() -> None:
    cluster = asked(0.0, confirms_returns=True)

    def refused(server_id: str, why: str) -> None:
        with pytest.raises(ConflictError, match=f"^server {server_id} {why}$"):
            operators.ready(cluster, NOW_S, server_id)

    refused("T1", "belongs to the training pool")
    refused("I1", "isn't being restored: it is in service")
    commit(cluster, Loan("I1"))
    refused("I1", "isn't being restored: it is on-loan")
    commit(cluster, Reclaim("I1", 5.0))
    refused("I1", "isn't being restored: it is reclaiming")
    commit(cluster, Return("I1"))
    events = operators.ready(cluster, NOW_S, "I1")
    assert events == (ev.BackInService(NOW_S, "I1"),)
    happen(cluster, *events)
    refused("I1", "isn't being restored: it is in service")


def lent() -> Cluster:
    """I1 and I2 are on loan; a job that never saves has run on I1 for a while."""
    cluster = asked(0.0, reclaim_within_s=20.0)
    commit(cluster, Loan("I1"), Loan("I2"))
    types = (("V100", 1.0), ("T4", 1.0))
    run(cluster, job("a", 4, fungible=True, gpu_types=types), Slot("I1", 4, 0, 1))
    happen(cluster, ev.Tick(5.0))
    return cluster


def test_a_named_server_is_taken_back_within_the_time_that_was_said_or_the_usual_one() -> None:
    cluster = lent()
    assert operators.reclaim(cluster, NOW_S, "I1", 3.0, POLICY) == (ev.ReclaimRequested(NOW_S, "I1", 13.0),)
    assert operators.reclaim(cluster, NOW_S, "I1", None, POLICY) == (ev.ReclaimRequested(NOW_S, "I1", 30.0),)
    with pytest.raises(ConflictError, match=r"^server I3 isn't on loan$"):
        operators.reclaim(cluster, NOW_S, "I3", None, POLICY)
    with pytest.raises(ConflictError, match=r"^server T1 isn't on loan$"):
        operators.reclaim(cluster, NOW_S, "T1", None, POLICY)


@pytest.mark.parametrize("policy", ["aryl", "fifo"])
def test_without_a_name_the_one_that_costs_least_is_taken_back(policy: str) -> None:
    """Also by a policy that doesn't lend by itself."""
    events = operators.reclaim(lent(), NOW_S, None, None, parse_policy(policy))
    assert events == (ev.ReclaimRequested(NOW_S, "I2", 30.0),)


def test_where_nothing_is_on_loan_nothing_can_be_taken_back() -> None:
    with pytest.raises(ConflictError, match=r"^no server is on loan$"):
        operators.reclaim(asked(), NOW_S, None, None, POLICY)
