"""What the inference side reports, against brute force over the curve."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.core.events import DemandReported
from aryl.sim.demand import reports
from aryl.traces.need import Need


def _need(points: list[tuple[float, float]], *, line: bool) -> Need:
    times, servers = np.array(points, dtype=np.float64).T
    return Need(times, servers, line=line)


def _at(points: list[tuple[float, float]], when_s: float, *, line: bool) -> float:
    """The need at one time, read off the points one by one; before the first point the first value holds."""
    before = [point for point in points if point[0] <= when_s]
    after = [point for point in points if point[0] > when_s]
    if not before or not after or not line:
        return (before or points)[-1 if before else 0][1]
    (low_s, low), (high_s, high) = before[-1], after[0]
    return low + (high - low) * (when_s - low_s) / (high_s - low_s)


def test_a_step_function_holds_its_value_until_the_next_point() -> None:
    need = _need([(0.0, 4.0), (10.0, 8.0), (20.0, 2.0)], line=False)
    assert need.at(np.array([0.0, 9.9, 10.0, 19.0, 20.0, 99.0])).tolist() == [4, 4, 8, 8, 2, 2]


def test_a_line_goes_straight_from_point_to_point() -> None:
    need = _need([(0.0, 4.0), (10.0, 8.0)], line=True)
    assert need.at(np.array([0.0, 2.5, 10.0, 99.0])).tolist() == [4, 5, 8, 8]


def test_a_forecast_sees_a_peak_between_two_ticks() -> None:
    need = _need([(0.0, 1.0), (12.0, 9.0), (13.0, 1.0)], line=False)
    seen = list(reports(need, interval_s=10.0, lead_s=5.0, oracle=True, end_s=20.0))
    assert seen == [
        DemandReported(0.0, 1.0, 1.0),
        DemandReported(10.0, 1.0, 9.0),
        DemandReported(20.0, 1.0, 1.0),
    ]


def test_without_an_oracle_the_future_is_the_present() -> None:
    need = _need([(0.0, 1.0), (10.0, 9.0)], line=False)
    seen = list(reports(need, interval_s=5.0, lead_s=60.0, oracle=False, end_s=10.0))
    assert seen == [
        DemandReported(0.0, 1.0, 1.0),
        DemandReported(5.0, 1.0, 1.0),
        DemandReported(10.0, 9.0, 9.0),
    ]


def test_a_curve_that_ends_before_the_first_tick_is_reported_once() -> None:
    need = _need([(0.0, 3.0)], line=False)
    assert list(reports(need, interval_s=300.0, lead_s=0.0, oracle=True, end_s=0.0)) == [
        DemandReported(0.0, 3.0, 3.0)
    ]


def test_reports_go_on_beyond_one_block() -> None:
    need = _need([(0.0, 1.0), (5000.0, 2.0)], line=False)
    seen = list(reports(need, interval_s=1.0, lead_s=0.0, oracle=True, end_s=9000.0))
    assert [report.at for report in seen] == [float(second) for second in range(9001)]
    assert [report.need_servers for report in seen] == [1.0] * 5000 + [2.0] * 4001


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), min_size=1, max_size=12),
    first=st.integers(0, 9),
    interval_s=st.sampled_from((5.0, 7.0, 30.0)),
    lead_s=st.sampled_from((0.0, 4.0, 33.0, 100.0)),
    line=st.booleans(),
)
def test_need_and_forecast_are_those_of_brute_force(
    steps: list[tuple[int, int]], first: int, interval_s: float, lead_s: float, line: bool
) -> None:
    points = [(0.0, float(first))]
    for gap_s, servers in steps:
        points.append((points[-1][0] + gap_s, float(servers)))
    end_s = points[-1][0] + 20.0
    for report in reports(
        _need(points, line=line), interval_s=interval_s, lead_s=lead_s, oracle=True, end_s=end_s
    ):
        assert report.need_servers == pytest.approx(_at(points, report.at, line=line))
        moments = [report.at, report.at + lead_s]
        moments += [when_s for when_s, _ in points if report.at <= when_s <= report.at + lead_s]
        assert report.forecast_servers == pytest.approx(
            max(_at(points, when_s, line=line) for when_s in moments)
        )
