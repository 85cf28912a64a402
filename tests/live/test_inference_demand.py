"""What the inference side needs: what it says itself, and a curve that is replayed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aryl.core.events import DemandReported, TelemetryLost
from aryl.live.demand import PushedDemand, ReplayedDemand
from aryl.traces.need import Need

ENDLESS = float("inf")


def replayed(*, line: bool = False, lead_s: float = 0.0, from_s: float = 0.0) -> ReplayedDemand:
    """Two servers, four from 100 s on, one from 200 s on; told every 60 s."""
    need = Need(np.array([0.0, 100.0, 200.0]), np.array([2.0, 4.0, 1.0]), line=line)
    return ReplayedDemand(need, interval_s=60.0, lead_s=lead_s, from_s=from_s)


def test_a_side_that_never_said_a_word_is_not_missed() -> None:
    source = PushedDemand(10.0)
    assert source.next_s() == ENDLESS
    assert source.due(1e9) is None


def test_a_side_that_falls_silent_is_lost_from_sight_once_and_found_when_it_speaks() -> None:
    source = PushedDemand(10.0)
    source.heard(5.0)
    assert source.next_s() == 15.0
    assert source.due(14.999) is None
    assert source.due(15.0) == TelemetryLost(15.0)
    assert source.next_s() == ENDLESS
    assert source.due(1000.0) is None
    source.heard(1000.0)
    assert source.due(1009.0) is None
    assert source.due(1011.0) == TelemetryLost(1011.0)


@given(st.lists(st.floats(0.1, 9.9), min_size=1))
def test_whoever_speaks_often_enough_is_never_lost(gaps: list[float]) -> None:
    source, now_s = PushedDemand(10.0), 0.0
    source.heard(now_s)
    for gap in gaps:
        now_s += gap
        assert source.due(now_s) is None
        source.heard(now_s)
    assert source.next_s() == now_s + 10.0


def test_a_curve_speaks_once_a_tick() -> None:
    source = replayed()
    assert source.next_s() == 0.0
    assert source.due(0.0) == DemandReported(0.0, 2.0, 2.0)
    assert source.next_s() == 60.0
    assert source.due(59.0) is None
    assert source.due(120.0) == DemandReported(120.0, 4.0, 4.0)
    # What was slept through isn't made up for.
    assert source.next_s() == 180.0


def test_its_forecast_is_the_highest_need_that_comes_in_time() -> None:
    source = replayed(lead_s=50.0)
    assert source.due(0.0) == DemandReported(0.0, 2.0, 2.0)
    assert source.due(60.0) == DemandReported(60.0, 2.0, 4.0)
    assert source.due(180.0) == DemandReported(180.0, 4.0, 4.0)
    assert source.due(240.0) == DemandReported(240.0, 1.0, 1.0)


def test_between_points_there_may_be_straight_lines() -> None:
    source = replayed(line=True)
    assert source.due(50.0) == DemandReported(50.0, 3.0, 3.0)
    assert source.due(1e6) == DemandReported(1e6, 1.0, 1.0)


def test_what_is_said_meanwhile_does_not_move_the_curve() -> None:
    source = replayed(from_s=30.0)
    assert source.due(10.0) is None
    source.heard(10.0)
    assert source.next_s() == 30.0
    assert source.due(30.0) == DemandReported(30.0, 2.0, 2.0)
