"""Desks of an inference side that only speaks when it is spoken for, and what the loop is told at them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.core.helpers import cluster_of, happen

from aryl.core.cluster import Cluster
from aryl.core.events import BackInService, Event, PlanCommitted
from aryl.core.plan import Loan, Plan, Reclaim, Return
from aryl.forecast.control import FixedHeadroom, HeadroomRule, LoanControl, LoanRules
from aryl.forecast.lead import GiveBack
from aryl.forecast.limits import LimitClock
from aryl.forecast.plain import Last, Seasonal
from aryl.forecast.predictor import Spread
from aryl.live.demand import InferenceDesk, Word

ENDLESS_S = float("inf")
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
ONE_MORE = FixedHeadroom(1.0)


def pushed_desk(
    stale_after_s: float = ENDLESS_S,
    interval_s: float = 300.0,
    *,
    give_back: GiveBack | None = None,
    limits: LimitClock | None = None,
) -> InferenceDesk:
    """Foresees that everything stays as it is; no headroom, no hysteresis."""
    give_back = give_back or GiveBack(0.0)
    rules = LoanRules(interval_s, give_back.longest_s, settle_s=0.0, headroom=FixedHeadroom(0.0))
    control = LoanControl(rules, Spread(Last()))
    return InferenceDesk(control, give_back, stale_after_s=stale_after_s, limits=limits)


def foreseeing(
    give_back: GiveBack | None = None,
    *,
    stale_after_s: float = DAY_S,
    headroom: HeadroomRule = ONE_MORE,
    limits: LimitClock | None = None,
) -> InferenceDesk:
    """Asks for the need of a day ago, an hour at a time; what is kept falls after two hours."""
    give_back = give_back or GiveBack(0.0)
    rules = LoanRules(HOUR_S, give_back.longest_s, settle_s=2 * HOUR_S, headroom=headroom)
    control = LoanControl(rules, Spread(Seasonal("day")))
    return InferenceDesk(control, give_back, stale_after_s=stale_after_s, limits=limits)


def after(events: Sequence[Event]) -> Cluster:
    """The state that a journal of these events gives."""
    cluster = cluster_of(1, 8)
    happen(cluster, *events)
    return cluster


def taken_over(desk: InferenceDesk, events: Sequence[Event]) -> InferenceDesk:
    """The desk of the next daemon, which has read this journal."""
    for event in events:
        desk.remember(event)
    assert not desk.take_over(after(events))
    return desk


def heard(desk: InferenceDesk, words: Sequence[tuple[float, Word]]) -> list[Event]:
    """What the loop is told when these words come at these times."""
    told: list[Event] = []
    for at_s, word in words:
        while desk.next_s() < at_s:
            told += desk.due(desk.next_s())
        told += [*desk.told(word, at_s), *desk.due(at_s)]
    return told


def took(give_back: GiveBack, took_s: float) -> list[Event]:
    """A server was called back, and it took so long; the journal of that."""
    cluster = cluster_of(1, 8, confirms_returns=True)
    plans = (Plan((Loan("I1"),)), Plan((Reclaim("I1", 0.0), Return("I1"))))
    events: list[Event] = [*(PlanCommitted(0.0, plan) for plan in plans), BackInService(took_s, "I1")]
    for event in events:
        happen(cluster, event)
        give_back.saw(event, cluster)
    return events
