"""Errors of a forecast and the headroom that follows from them, against brute force."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.forecast.account import Account, excess_margin

SERVERS = st.integers(0, 40).map(lambda quarters: quarters / 4)
SLOTS = st.lists(st.tuples(SERVERS, SERVERS), min_size=1, max_size=40)
SHARES = st.sampled_from((0.0, 0.01, 0.09, 0.5, 1.0))


def account(slots: Sequence[tuple[float, float]], delay: int, *, window: int = 1000) -> Account:
    """An account of slots, each with what it needed and what was kept."""
    kept = Account(60.0, window * 60.0)
    for need, servers in slots:
        kept.close_slot(need, servers, delay)
    return kept


def errors(slots: Sequence[tuple[float, float]], delay: int) -> tuple[list[float], list[float]]:
    """By how much the forecast and the present need as a forecast were too low, slot by slot."""
    forecast, reactive = [], []
    for slot, (need, _) in enumerate(slots):
        since = slots[max(slot - delay, 0) : slot + 1]
        forecast.append(need - min(kept for _, kept in since))
        reactive.append(need - min(before for before, _ in since))
    return forecast, reactive


def excess(short: Sequence[float], margin: float) -> float:
    return sum(max(error - margin, 0.0) for error in short)


def test_nothing_is_known_at_first() -> None:
    empty = Account(60.0)
    assert (len(empty), empty.quantile(0.99), empty.for_risk(0.1)) == (0, 0.0, 0.0)


def test_a_server_that_is_called_back_serves_a_delay_later() -> None:
    # The forecast rises in time for the need, but a slot too late for servers that take two to come back.
    slots = [(1.0, 1.0), (1.0, 4.0), (1.0, 4.0), (4.0, 4.0), (4.0, 4.0)]
    assert [account(slots, delay).quantile(1.0) for delay in (0, 2, 3)] == [0.0, 0.0, 3.0]


def test_half_the_shortfall_of_the_reactive_rule_is_left_with_half_the_jump() -> None:
    slots = [(1.0, 1.0), (4.0, 4.0)] * 20
    assert account(slots, 1).for_risk(0.5) == pytest.approx(1.5)
    assert account(slots, 1).for_risk(0.0) == pytest.approx(3.0)


def test_only_the_window_counts() -> None:
    wild, calm = [(1.0, 1.0), (9.0, 9.0)] * 10, [(5.0, 5.0)] * 12
    assert account([*wild, *calm], 1, window=10).quantile(1.0) == 0.0
    assert account([*wild, *calm[:10]], 1, window=11).quantile(1.0) == 8.0
    assert len(account([*wild, *calm], 1, window=10)) == 10


@settings(max_examples=200)
@given(
    slots=SLOTS,
    delay=st.integers(0, 5),
    level=st.sampled_from((0.05, 0.5, 0.9, 0.99)),
    window=st.integers(1, 50),
)
def test_a_quantile_is_the_headroom_that_was_enough_in_that_share_of_the_slots(
    slots: list[tuple[float, float]], delay: int, level: float, window: int
) -> None:
    short, _ = errors(slots, delay)
    margin = account(slots, delay, window=window).quantile(level)
    assert margin == pytest.approx(float(np.quantile(short[-window:], level)))


@settings(max_examples=200)
@given(slots=SLOTS, delay=st.integers(0, 5), share=SHARES, window=st.integers(1, 50))
def test_a_risk_is_the_smallest_headroom_that_keeps_the_shortfall_at_its_share(
    slots: list[tuple[float, float]], delay: int, share: float, window: int
) -> None:
    short, reactive = errors(slots, delay)
    short, reactive = short[-window:], reactive[-window:]
    allowed = share * excess(reactive, 0.0)
    margin = account(slots, delay, window=window).for_risk(share)
    assert excess(short, margin) <= allowed + 1e-9
    assert excess(short, margin - 1e-6) > allowed


@settings(max_examples=300)
@given(
    short=st.lists(st.integers(-40, 40).map(lambda quarters: quarters / 4), min_size=1, max_size=30),
    budget=st.one_of(st.just(0.0), st.floats(0.0, 200.0)),
)
def test_the_margin_is_the_smallest_that_stays_within_the_budget(short: list[float], budget: float) -> None:
    margin = excess_margin(np.array(short), budget)
    assert excess(short, margin) <= budget + 1e-9
    assert excess(short, margin - 1e-6) > budget


def test_the_order_of_the_errors_makes_no_difference() -> None:
    short = np.array([3.0, -1.0, 2.0, 2.0, 0.5])
    assert {excess_margin(np.roll(short, shift), 1.5) for shift in range(5)} == {excess_margin(short, 1.5)}
    # Of 2 there sticks out the 1 that one error has more.
    assert excess_margin(short, 1.0) == pytest.approx(2.0)
