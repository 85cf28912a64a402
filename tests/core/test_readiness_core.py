"""Servers that are home again and don't serve yet: what makes them so, and what ends it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.helpers import cluster_of, commit, declared, happen, job, refused, run
from tests.core.live_cluster import Live
from tests.property.snapshot import snapshot

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.invariants import verify
from aryl.core.model import Health, Slot, Tenure
from aryl.core.plan import Loan, Plan, Reclaim, Return, Step
from aryl.errors import IllegalTransitionError, InvariantError

# All that a word about readiness may change.
READINESS = frozenset({"restoring", "restoring_mask", "now"})


def _cluster(inference: int = 2, *, confirms_loans: bool = False, confirms_returns: bool = True) -> Cluster:
    """One training server, and I1.. at home and in service."""
    return cluster_of(1, inference, confirms_loans=confirms_loans, confirms_returns=confirms_returns)


def _comes_home(cluster: Cluster, server_id: str) -> None:
    """A loan that ends at once."""
    commit(cluster, Loan(server_id))
    commit(cluster, Reclaim(server_id, 0.0), Return(server_id))


def _restoring(cluster: Cluster) -> list[str]:
    """By the servers themselves; `verify` compares the mask with them."""
    verify(cluster)
    return [server.spec.server_id for server in cluster.servers if server.restoring]


def test_a_server_that_comes_home_serves_once_the_world_has_said_so() -> None:
    cluster = _cluster()
    assert (_restoring(cluster), cluster.serving) == ([], 2)
    commit(cluster, Loan("I2"))
    assert (_restoring(cluster), cluster.serving) == ([], 1)
    commit(cluster, Reclaim("I2", 9.0))
    assert (_restoring(cluster), cluster.serving) == ([], 1)
    commit(cluster, Return("I2"))
    assert (_restoring(cluster), cluster.serving) == (["I2"], 1)
    happen(cluster, ev.BackInService(40.0, "I2"))
    assert (_restoring(cluster), cluster.serving) == ([], 2)


def test_where_returns_arent_confirmed_a_server_serves_as_soon_as_it_is_home() -> None:
    cluster = _cluster(confirms_returns=False)
    _comes_home(cluster, "I2")
    assert (_restoring(cluster), cluster.serving) == ([], 2)


def test_a_server_that_does_not_serve_yet_is_at_home_and_no_place_for_workers() -> None:
    cluster = _cluster(1)
    _comes_home(cluster, "I1")
    server = cluster.server_by_id["I1"]
    assert (server.tenure, server.placeable, server.lendable(0.0)) == (Tenure.OWNED, False, True)
    assert (cluster.on_loan, cluster.inference_mask) == (0, 1 << server.place)


def test_word_that_a_server_serves_changes_that_alone() -> None:
    cluster = _cluster()
    _comes_home(cluster, "I2")
    before = snapshot(cluster, without=READINESS)
    happen(cluster, ev.BackInService(7.0, "I2"))
    assert snapshot(cluster, without=READINESS) == before
    once = snapshot(cluster)
    happen(cluster, ev.BackInService(7.0, "I2"))
    assert snapshot(cluster) == once


@pytest.mark.parametrize("server_id", ["T1", "I1", "I2"])
def test_word_of_a_server_that_serves_trains_or_is_lent_changes_nothing(server_id: str) -> None:
    cluster = _cluster()
    commit(cluster, Loan("I2"))
    before = snapshot(cluster)
    happen(cluster, ev.BackInService(0.0, server_id))
    assert snapshot(cluster) == before


def test_word_of_a_server_that_nobody_knows_is_refused() -> None:
    cluster = _cluster()
    event = ev.BackInService(1.0, "I9")
    refused(IllegalTransitionError, cluster, "there is no server I9", lambda: evolve(cluster, event))


@pytest.mark.parametrize("confirms_loans", [False, True])
def test_a_server_that_is_lent_before_it_serves_has_nothing_left_to_load(confirms_loans: bool) -> None:
    cluster = _cluster(1, confirms_loans=confirms_loans)
    _comes_home(cluster, "I1")
    commit(cluster, Loan("I1"))
    server = cluster.server_by_id["I1"]
    assert (_restoring(cluster), server.handing_over) == ([], confirms_loans)
    before = snapshot(cluster)
    happen(cluster, ev.BackInService(0.0, "I1"))
    assert snapshot(cluster) == before
    commit(cluster, Reclaim("I1", 0.0), Return("I1"))
    assert (_restoring(cluster), server.handing_over) == (["I1"], False)


def test_a_reclaim_that_is_withdrawn_leaves_a_server_as_it_was_lent() -> None:
    cluster = _cluster(1, confirms_loans=True)
    commit(cluster, Loan("I1"))
    happen(cluster, ev.HandedOver(0.0, "I1"))
    before = snapshot(cluster)
    commit(cluster, Reclaim("I1", 50.0))
    commit(cluster, Loan("I1"))
    assert snapshot(cluster) == before
    assert cluster.server_by_id["I1"].placeable


def test_a_server_that_is_lost_while_it_loads_still_has_to_load_when_it_is_back() -> None:
    cluster = _cluster()
    _comes_home(cluster, "I2")
    happen(cluster, ev.ServerLost(1.0, "I2"))
    assert (_restoring(cluster), cluster.serving) == (["I2"], 1)
    happen(cluster, ev.ServerReturned(2.0, "I2"))
    assert (_restoring(cluster), cluster.serving) == (["I2"], 1)
    happen(cluster, ev.BackInService(3.0, "I2"))
    assert (_restoring(cluster), cluster.serving) == ([], 2)


def test_a_lost_server_doesnt_serve_whatever_is_said_of_it() -> None:
    cluster = _cluster()
    _comes_home(cluster, "I2")
    happen(cluster, ev.ServerLost(1.0, "I2"), ev.BackInService(2.0, "I2"))
    assert (_restoring(cluster), cluster.serving) == ([], 1)
    happen(cluster, ev.ServerReturned(3.0, "I2"))
    assert cluster.serving == 2


@pytest.mark.parametrize(
    "event",
    [
        ev.ServerDrained(1.0, "I2", True, 1.0),
        ev.HealthChanged(1.0, "I2", Health.SUSPECT),
        ev.HandedOver(1.0, "I2"),
        ev.LoanCalledOff(1.0, "I2"),
        ev.GiveRequested(1.0, "I2"),
        ev.ReclaimRequested(1.0, "I2", 5.0),
        ev.DemandReported(1.0, 2.0, 2.0),
        ev.NeedChanged(1.0, 2.0),
        ev.LendingLimited(1.0, 0),
        ev.TelemetryLost(1.0),
        declared(1, 2, confirms_returns=False),
    ],
    ids=lambda event: type(event).__name__,
)
def test_nothing_else_that_is_said_puts_a_server_into_service(event: ev.Event) -> None:
    cluster = _cluster()
    _comes_home(cluster, "I2")
    happen(cluster, event)
    assert _restoring(cluster) == ["I2"]


@pytest.mark.parametrize("confirms_returns", [False, True])
def test_a_server_whose_loan_is_called_off_serves_again_as_after_any_loan(confirms_returns: bool) -> None:
    cluster = _cluster(1, confirms_loans=True, confirms_returns=confirms_returns)
    commit(cluster, Loan("I1"))
    happen(cluster, ev.LoanCalledOff(5.0, "I1", "a stream is open"))
    assert _restoring(cluster) == (["I1"] if confirms_returns else [])


def test_other_rules_hold_for_the_next_return_and_not_for_the_last_one() -> None:
    cluster = _cluster()
    _comes_home(cluster, "I1")
    happen(cluster, declared(1, 2, confirms_returns=False))
    _comes_home(cluster, "I2")
    assert _restoring(cluster) == ["I1"]
    happen(cluster, declared(1, 2, confirms_returns=True, load_s=30.0))
    _comes_home(cluster, "I2")
    assert (_restoring(cluster), cluster.load_s) == (["I1", "I2"], 30.0)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((Return("I2"),), "server I2 can't go from owned to owned"),
        ((Reclaim("I2", 9.0),), "server I2 can't go from owned to reclaiming"),
        ((Loan("I2"), Return("I2")), "server I2 can't go from on-loan to owned"),
        ((Loan("I1"), Loan("I1")), "server I1 can't go from on-loan to on-loan"),
        ((Loan("T1"),), "server T1 belongs to the training pool"),
        ((Loan("I2"), Reclaim("I3", 0.0), Return("I3")), "server I3 can't go back: it isn't empty"),
    ],
)
def test_a_server_that_loads_changes_hands_along_the_edges_of_its_table_alone(
    steps: tuple[Step, ...], words: str
) -> None:
    """I2 loads, I3 is lent and has workers; a plan with a wrong step is refused as a whole."""
    cluster = _cluster(3)
    _comes_home(cluster, "I2")
    commit(cluster, Loan("I3"))
    run(cluster, job("A", 1, fungible=True), Slot("I3", 1, 0, 2))
    event = ev.PlanCommitted(0.0, Plan(steps))
    refused(IllegalTransitionError, cluster, words, lambda: evolve(cluster, event))


def _forget_the_mask(cluster: Cluster) -> None:
    cluster.restoring_mask = 0


def _forget_the_server(cluster: Cluster) -> None:
    cluster.server_by_id["I2"].restoring = False


def _mark_a_lent_server(cluster: Cluster) -> None:
    cluster.server_by_id["I1"].restoring = True
    cluster.restoring_mask |= 1 << cluster.server_by_id["I1"].place


@pytest.mark.parametrize(
    ("corrupt", "words"),
    [
        (_forget_the_mask, "the restoring_mask is stale"),
        (_forget_the_server, "the restoring_mask is stale"),
        (_mark_a_lent_server, "I1 is being restored, but isn't at home"),
    ],
)
def test_an_account_of_what_loads_that_is_wrong_is_found_out(
    corrupt: Callable[[Cluster], None], words: str
) -> None:
    cluster = _cluster()
    _comes_home(cluster, "I2")
    commit(cluster, Loan("I1"))
    verify(cluster)
    corrupt(cluster)
    with pytest.raises(InvariantError, match=words):
        verify(cluster)


# --- under a policy ---


@pytest.mark.parametrize("event", [ev.BackInService(7.0, "I1"), ev.NeedChanged(7.0, 0.0)])
def test_what_the_scheduler_isnt_told_or_cant_use_is_no_reason_to_decide(event: ev.Event) -> None:
    live = Live("aryl", inference=1, confirms_returns=True)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    live.tell(ev.DemandReported(5.0, 1.0, 1.0))
    assert live.server("I1").restoring
    passes = live.loop.passes
    assert live.tell(event) == []
    assert live.loop.passes == passes
    live.tell(ev.DemandReported(8.0, 1.0, 1.0))
    assert live.loop.passes == passes + 1


def test_a_need_that_nobody_reports_changes_nothing_but_the_time() -> None:
    cluster = _cluster()
    happen(cluster, ev.DemandReported(0.0, 1.0, 1.5))
    before = snapshot(cluster, without=frozenset({"now"}))
    happen(cluster, ev.NeedChanged(9.0, 2.0))
    assert (snapshot(cluster, without=frozenset({"now"})), cluster.now) == (before, 9.0)


def test_a_server_on_its_way_home_that_is_needed_no_more_goes_on_without_loading() -> None:
    live = Live("aryl", inference=1, confirms_returns=True, reclaim_within_s=60.0)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    live.submit(job("B", 8, gpu_types=(("T4", 1.0),), fungible=True, estimate_s=20.0))
    assert live.server("I1").used == 8
    live.tell(ev.DemandReported(5.0, 1.0, 1.0))
    assert live.where() == {"I1": "reclaiming"}
    assert live.tell(ev.DemandReported(6.0, 0.0, 0.0)) == [Loan("I1")]
    assert _restoring(live.cluster) == []
    live.tell(ev.DemandReported(7.0, 1.0, 1.0))
    assert live.tell(ev.Finished(8.0, "B", 1)) == [Return("I1")]
    assert _restoring(live.cluster) == ["I1"]
