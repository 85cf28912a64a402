"""Servers between the pools in a simulation: letting go of them and loading their models take time."""

from __future__ import annotations

from collections.abc import Sequence

from tests.core.helpers import declared
from tests.property.snapshot import snapshot as picture

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.invariants import verify
from aryl.core.plan import Loan, Plan, Reclaim, Return, Step
from aryl.policies.catalogue import parse_policy
from aryl.sim.driver import Overheads, SimDriver
from aryl.sim.snapshot import restore, snapshot

SLOW = Overheads(hand_over_s=30.0, load_s=100.0)


class Bench:
    """Two inference servers that are moved by hand."""

    def __init__(self, overheads: Overheads = SLOW, *, confirms: bool = True) -> None:
        self.driver = SimDriver((), {}, overheads=overheads)
        self.cluster = Cluster(parse_policy("fifo").order)
        evolve(self.cluster, declared(1, 2, confirms_loans=confirms, confirms_returns=confirms))

    def at(self, at_s: float) -> Bench:
        """Let time pass in which nothing happens."""
        assert self.driver.poll(at_s) == ()
        evolve(self.cluster, ev.Tick(at_s))
        return self

    def do(self, *steps: Step) -> None:
        evolve(self.cluster, ev.PlanCommitted(self.cluster.now, Plan(steps)))
        self.driver.apply(Plan(steps), self.cluster)
        verify(self.cluster)

    def comes_home(self, server_id: str) -> None:
        self.do(Reclaim(server_id, 0.0))
        self.do(Return(server_id))

    def rest(self) -> list[ev.Event]:
        """Everything that still happens."""
        return [event for polled in iter(self._poll, None) for event in polled]

    def _poll(self) -> Sequence[ev.Event] | None:
        polled = self.driver.poll(float("inf"))
        for event in polled or ():
            evolve(self.cluster, event)
            verify(self.cluster)
        return polled


def test_a_server_is_handed_over_and_serves_again_after_its_time() -> None:
    bench = Bench()
    bench.do(Loan("I1"))
    assert bench.rest() == [ev.HandedOver(30.0, "I1")]
    assert bench.cluster.server_by_id["I1"].placeable
    bench.comes_home("I1")
    assert bench.rest() == [ev.BackInService(130.0, "I1")]
    assert bench.cluster.serving == 2


def test_where_nothing_takes_time_it_is_said_at_the_same_instant() -> None:
    bench = Bench(Overheads())
    bench.do(Loan("I1"))
    assert bench.rest() == [ev.HandedOver(0.0, "I1")]
    bench.comes_home("I1")
    assert bench.rest() == [ev.BackInService(0.0, "I1")]


def test_where_nothing_is_confirmed_nothing_is_said() -> None:
    bench = Bench(confirms=False)
    bench.do(Loan("I1"))
    bench.comes_home("I1")
    assert bench.rest() == []


def test_a_withdrawn_reclaim_is_no_second_handover() -> None:
    bench = Bench()
    bench.do(Loan("I1"))
    bench.rest()
    bench.do(Reclaim("I1", 90.0))
    bench.do(Loan("I1"))
    assert bench.rest() == []


def test_a_handover_that_a_return_has_overtaken_is_never_said() -> None:
    """At 20 s the server is lent again: that it was let go of at first means nothing then."""
    bench = Bench()
    bench.do(Loan("I1"))
    bench.at(10.0).comes_home("I1")
    bench.at(20.0).do(Loan("I1"))
    assert bench.rest() == [ev.HandedOver(50.0, "I1")]
    assert not bench.cluster.server_by_id["I1"].restoring


def test_a_handover_of_a_server_that_stays_at_home_is_never_said() -> None:
    bench = Bench()
    bench.do(Loan("I1"))
    bench.at(10.0).comes_home("I1")
    assert bench.rest() == [ev.BackInService(110.0, "I1")]
    assert bench.driver.quiet


def test_word_of_an_earlier_return_doesnt_put_a_server_into_service_too_soon() -> None:
    bench = Bench(Overheads(load_s=100.0))
    bench.do(Loan("I1"))
    bench.rest()
    bench.comes_home("I1")
    bench.at(40.0).do(Loan("I1"))
    assert bench.driver.poll(41.0) == [ev.HandedOver(40.0, "I1")]
    bench.at(60.0).comes_home("I1")
    assert bench.rest() == [ev.BackInService(160.0, "I1")]


def test_word_of_an_earlier_return_isnt_heard_while_the_server_is_lent() -> None:
    bench = Bench()
    bench.do(Loan("I1"))
    bench.rest()
    bench.comes_home("I1")
    bench.at(60.0).do(Loan("I1"))
    assert bench.rest() == [ev.HandedOver(90.0, "I1")]


def test_each_server_has_a_time_of_its_own() -> None:
    bench = Bench()
    bench.do(Loan("I1"), Loan("I2"))
    bench.rest()
    bench.comes_home("I2")
    bench.at(50.0).comes_home("I1")
    assert bench.rest() == [ev.BackInService(130.0, "I2"), ev.BackInService(150.0, "I1")]


def test_a_server_that_loads_keeps_nothing_going_and_one_that_is_handed_over_does() -> None:
    bench = Bench()
    assert bench.driver.quiet
    bench.do(Loan("I1"))
    assert not bench.driver.quiet
    bench.rest()
    assert bench.driver.quiet
    bench.comes_home("I1")
    assert bench.driver.quiet


def test_a_lost_server_loads_in_the_same_time() -> None:
    bench = Bench()
    bench.do(Loan("I1"))
    bench.rest()
    bench.comes_home("I1")
    evolve(bench.cluster, ev.ServerLost(30.0, "I1"))
    assert bench.rest() == [ev.BackInService(130.0, "I1")]
    assert bench.cluster.serving == 1


def test_what_loads_and_what_is_handed_over_survives_a_snapshot_and_begins_anew() -> None:
    bench = Bench()
    bench.do(Loan("I1"), Loan("I2"))
    bench.rest()
    bench.comes_home("I1")
    bench.comes_home("I2")
    bench.at(50.0).do(Loan("I2"))
    copy = restore(snapshot(bench.cluster))
    verify(copy)
    assert picture(copy) == picture(bench.cluster)
    assert [server.spec.server_id for server in copy.servers if server.restoring] == ["I1"]
    driver = SimDriver((), {}, overheads=SLOW)
    driver.take_over(copy)
    said = [driver.poll(float("inf")) for _ in range(3)]
    assert said == [[ev.HandedOver(80.0, "I2")], [ev.BackInService(150.0, "I1")], None]
    evolve(copy, ev.BackInService(150.0, "I1"))
    assert bench.cluster.server_by_id["I1"].restoring


def test_what_was_taken_over_is_overtaken_by_what_is_done_next() -> None:
    bench = Bench()
    bench.do(Loan("I1"))
    bench.rest()
    bench.comes_home("I1")
    bench.driver = SimDriver((), {}, overheads=SLOW)
    bench.driver.take_over(bench.cluster)
    bench.at(40.0).do(Loan("I1"))
    assert bench.rest() == [ev.HandedOver(70.0, "I1")]
