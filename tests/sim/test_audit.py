"""The audit lets a sound run pass and stops at the first event that leaves the state wrong."""

from __future__ import annotations

import pytest
from tests.core.helpers import cluster_of, commit, happen

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.plan import Loan, Plan
from aryl.errors import InvariantError
from aryl.sim.audit import Audit


def _lent(need: float | None, forecast: float, *servers: str) -> tuple[Cluster, ev.Event]:
    """Four inference servers, one of them headroom; some of them are lent."""
    cluster = cluster_of(1, 4, headroom_servers=1)
    if need is not None:
        happen(cluster, ev.DemandReported(0.0, need, forecast))
    steps = tuple(Loan(server_id) for server_id in servers)
    commit(cluster, *steps)
    return cluster, ev.PlanCommitted(0.0, Plan(steps))


@pytest.mark.parametrize("foresight", [False, True])
def test_a_loan_that_leaves_what_is_needed_and_the_headroom_passes(foresight: bool) -> None:
    cluster, event = _lent(0.5, 1.0, "I1", "I2")
    Audit(foresight=foresight).saw(event, cluster)


def test_a_loan_below_the_present_need_is_found_out() -> None:
    cluster, event = _lent(2.5, 2.5, "I1", "I2")
    with pytest.raises(InvariantError, match=r"2 inference servers are left, 2.5 have to stay"):
        Audit().saw(event, cluster)


def test_a_loan_below_forecast_and_headroom_is_found_out_where_that_was_promised() -> None:
    cluster, event = _lent(0.0, 1.5, "I1", "I2")
    Audit().saw(event, cluster)
    with pytest.raises(InvariantError, match=r"2 inference servers are left, 2.5 have to stay"):
        Audit(foresight=True).saw(event, cluster)


def test_a_loan_before_the_inference_side_has_spoken_is_found_out() -> None:
    cluster, event = _lent(None, 0.0, "I1")
    with pytest.raises(InvariantError, match="has said nothing"):
        Audit().saw(event, cluster)


@pytest.mark.parametrize("need", [None, 4.0])
def test_what_an_operator_gives_is_not_the_policy_s_doing(need: float | None) -> None:
    cluster, audit = cluster_of(1, 4), Audit(foresight=True)
    if need is not None:
        happen(cluster, ev.DemandReported(0.0, need, need))
    given, lent = ev.GiveRequested(0.0, "I1"), ev.PlanCommitted(0.0, Plan((Loan("I1"),)))
    happen(cluster, given)
    audit.saw(given, cluster)
    happen(cluster, lent)
    audit.saw(lent, cluster)
    event = ev.PlanCommitted(0.0, Plan((Loan("I2"),)))
    happen(cluster, event)
    with pytest.raises(InvariantError, match=r"has said nothing|2 inference servers are left"):
        audit.saw(event, cluster)


def test_a_corrupted_state_is_found_out_at_any_event() -> None:
    cluster = cluster_of()
    Audit().saw(ev.Tick(0.0), cluster)
    cluster.server_by_id["T1"].used = 3
    with pytest.raises(InvariantError, match="T1 counts 3"):
        Audit().saw(ev.Tick(0.0), cluster)
