"""How long giving back takes: from the order to come back until the server is in service again."""

from __future__ import annotations

import pytest
from tests.core.helpers import cluster_of, commit, happen

from aryl.core.cluster import Cluster
from aryl.core.events import BackInService, DemandReported, Event, PlanCommitted, ServerLost
from aryl.core.plan import Loan, Plan, Reclaim, Return, Step
from aryl.forecast.lead import KEPT, MOST_OVER_S, GiveBack

WITHIN_S = 20.0


class Watched:
    """Three inference servers on loan, to be vacated within 20 s, and what `GiveBack` makes of it."""

    def __init__(self, configured_s: float = 30.0, *, confirms_returns: bool = True) -> None:
        self.cluster: Cluster = cluster_of(1, 3, reclaim_within_s=WITHIN_S, confirms_returns=confirms_returns)
        self.give_back = GiveBack(configured_s)
        self.decide(0.0, *(Loan(f"I{number}") for number in (1, 2, 3)))

    def decide(self, at_s: float, *steps: Step) -> None:
        commit(self.cluster, *steps, at=at_s)
        self.give_back.saw(PlanCommitted(at_s, Plan(steps)), self.cluster)

    def see(self, *events: Event) -> None:
        for event in events:
            happen(self.cluster, event)
            self.give_back.saw(event, self.cluster)

    def recall(self, at_s: float, server_id: str = "I1", deadline_s: float | None = None) -> None:
        self.decide(at_s, Reclaim(server_id, at_s + WITHIN_S if deadline_s is None else deadline_s))

    def once(self, at_s: float, took_s: float) -> None:
        """I1 comes back in so many seconds, and is lent again."""
        self.recall(at_s)
        self.decide(at_s, Return("I1"))
        self.see(BackInService(at_s + took_s, "I1"))
        self.decide(at_s + took_s, Loan("I1"))

    @property
    def longest_s(self) -> float:
        return self.give_back.longest_s


def test_what_was_configured_counts_until_something_else_was_seen_and_if_it_is_longer() -> None:
    watched = Watched(30.0)
    assert watched.longest_s == 30.0
    watched.once(100.0, 29.0)
    assert watched.longest_s == 30.0
    watched.once(200.0, 31.0)
    assert watched.longest_s == 31.0


def test_a_server_is_back_when_it_serves_and_not_when_it_is_empty() -> None:
    watched = Watched()
    watched.recall(100.0)
    watched.decide(150.0, Return("I1"))
    assert watched.longest_s == 30.0
    watched.see(BackInService(510.0, "I1"))
    assert watched.longest_s == 410.0
    watched.see(BackInService(900.0, "I1"))  # said twice
    assert watched.longest_s == 410.0


def test_where_nobody_says_when_it_serves_a_server_that_is_home_is_back() -> None:
    watched = Watched(confirms_returns=False)
    watched.recall(100.0)
    watched.decide(150.0, Return("I1"))
    assert watched.longest_s == 50.0


def test_one_that_goes_home_at_once_is_back_at_once() -> None:
    watched = Watched(0.0, confirms_returns=False)
    watched.decide(100.0, Reclaim("I1", 120.0), Return("I1"))
    assert watched.longest_s == 0.0


def test_the_servers_are_measured_each_by_itself() -> None:
    watched = Watched()
    watched.recall(100.0, "I1")
    watched.recall(200.0, "I2")
    watched.decide(210.0, Return("I1"), Return("I2"))
    watched.see(BackInService(240.0, "I2"))
    assert watched.longest_s == 40.0
    watched.see(BackInService(260.0, "I1"))
    assert watched.longest_s == 160.0


def test_one_with_more_time_to_become_empty_is_measured_from_the_last_moment_at_which_it_must_be_asked() -> (
    None
):
    watched = Watched(0.0)
    watched.recall(100.0, deadline_s=700.0)
    watched.decide(705.0, Return("I1"))
    watched.see(BackInService(710.0, "I1"))
    assert watched.longest_s == 30.0


def test_one_with_less_time_is_measured_from_when_it_was_asked() -> None:
    watched = Watched(0.0)
    watched.recall(100.0, deadline_s=105.0)
    watched.decide(105.0, Return("I1"))
    watched.see(BackInService(110.0, "I1"))
    assert watched.longest_s == 10.0


def test_one_that_comes_home_long_before_it_must_is_measured_by_what_it_had_to_load() -> None:
    watched = Watched(0.0)
    watched.recall(100.0, deadline_s=7000.0)
    watched.decide(200.0, Return("I1"))
    watched.see(BackInService(560.0, "I1"))
    assert watched.longest_s == 360.0


def test_a_recall_that_is_withdrawn_measures_nothing() -> None:
    watched = Watched()
    watched.recall(100.0)
    watched.decide(110.0, Loan("I1"))
    watched.decide(1000.0, Reclaim("I1", 1020.0), Return("I1"))
    watched.see(BackInService(1031.0, "I1"))
    assert watched.longest_s == 31.0


def test_one_that_is_lent_again_before_it_serves_measures_nothing() -> None:
    watched = Watched()
    watched.recall(100.0)
    watched.decide(110.0, Return("I1"))
    watched.decide(120.0, Loan("I1"))
    watched.see(BackInService(900.0, "I1"))
    assert watched.longest_s == 30.0


def test_one_that_is_lost_on_its_way_home_measures_nothing() -> None:
    watched = Watched()
    watched.recall(100.0)
    watched.see(ServerLost(110.0, "I1"))
    watched.decide(120.0, Return("I1"))
    watched.see(BackInService(5000.0, "I1"))
    assert watched.longest_s == 30.0


def test_one_that_comes_home_unasked_measures_nothing() -> None:
    watched = Watched(0.0)
    watched.decide(100.0, Reclaim("I1", 120.0), Return("I1"))
    watched.see(BackInService(100.0, "I1"), BackInService(400.0, "I2"), DemandReported(500.0, 1.0, 1.0))
    assert watched.longest_s == 0.0


def test_a_server_that_nobody_brings_back_for_days_counts_as_an_hour_more_than_was_configured() -> None:
    watched = Watched(30.0)
    watched.once(100.0, 2 * 86_400.0)
    assert watched.longest_s == 30.0 + MOST_OVER_S
    other = Watched(30.0)
    other.once(100.0, 30.0 + MOST_OVER_S - 1.0)
    assert other.longest_s == 30.0 + MOST_OVER_S - 1.0


@pytest.mark.parametrize(("more", "longest_s"), [(KEPT - 1, 500.0), (KEPT, 41.0)])
def test_what_took_long_is_forgotten_after_so_many_others(more: int, longest_s: float) -> None:
    watched = Watched(30.0)
    watched.once(0.0, 500.0)
    for number in range(more):
        watched.once(1000.0 + 100.0 * number, 41.0)
    assert watched.longest_s == longest_s
