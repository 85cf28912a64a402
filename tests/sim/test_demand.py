"""What the inference side reports: an oracle against brute force, a forecast from what was and no more."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.core.events import DemandReported, Event, LendingLimited, NeedChanged
from aryl.files.inference_fields import ForecastConfig
from aryl.forecast.calendar import Calendar, Window
from aryl.forecast.catalogue import build_predictor
from aryl.forecast.control import FixedHeadroom, HeadroomRule, LoanControl, LoanRules, RiskHeadroom
from aryl.forecast.limits import LimitClock
from aryl.sim.demand import InferenceSide
from aryl.traces.need import Need

# Those that need no extra.
PLAIN = ("last", "day", "week", "regression")
HOUR_S, DAY_S = 3600.0, 86_400.0
NONE = FixedHeadroom(0.0)
# A need of 7 within a slot of 300 s, at whose beginning and end it is 1.
PEAK = ((90.0, 1.0), (100.0, 7.0), (149.0, 7.0), (150.0, 1.0))
Points = Sequence[tuple[float, float]]


def need_of(points: Points, *, line: bool = False) -> Need:
    times, servers = np.array(points, dtype=np.float64).T
    return Need(times, servers, line=line)


def oracle(
    points: Points, *, interval_s: float, lead_s: float, end_s: float, line: bool = False
) -> list[Event]:
    return [*InferenceSide(need_of(points, line=line), interval_s, lead_s, None, None, end_s).events()]


def forecast(
    points: Points,
    predictor: str = "last",
    *,
    interval_s: float,
    end_s: float,
    lead_s: float | None = None,
    headroom: HeadroomRule = NONE,
    line: bool = False,
) -> list[Event]:
    """Everything that an inference side with this predictor says."""
    rules = LoanRules(interval_s, 0.0, lead_s, 0.0, headroom)
    control = LoanControl(rules, build_predictor(ForecastConfig(predictor=predictor)))
    side = InferenceSide(
        need_of(points, line=line), interval_s, rules.lead_or_default_s, control, None, end_s
    )
    return [*side.events()]


def reports(events: Sequence[Event]) -> list[DemandReported]:
    return [event for event in events if isinstance(event, DemandReported)]


def at(points: Points, when_s: float, *, line: bool) -> float:
    """The need at one time, read off the points one by one; before the first point the first value holds."""
    before = [point for point in points if point[0] <= when_s]
    after = [point for point in points if point[0] > when_s]
    if not before or not after or not line:
        return (before or points)[-1 if before else 0][1]
    (low_s, low), (high_s, high) = before[-1], after[0]
    return low + (high - low) * (when_s - low_s) / (high_s - low_s)


def test_a_step_function_holds_its_value_until_the_next_point() -> None:
    need = need_of([(0.0, 4.0), (10.0, 8.0), (20.0, 2.0)])
    assert need.at(np.array([0.0, 9.9, 10.0, 19.0, 20.0, 99.0])).tolist() == [4, 4, 8, 8, 2, 2]


def test_a_line_goes_straight_from_point_to_point() -> None:
    need = need_of([(0.0, 4.0), (10.0, 8.0)], line=True)
    assert need.at(np.array([0.0, 2.5, 10.0, 99.0])).tolist() == [4, 5, 8, 8]


def test_an_oracle_sees_a_peak_between_two_ticks() -> None:
    points = [(0.0, 1.0), (12.0, 9.0), (13.0, 1.0)]
    assert oracle(points, interval_s=10.0, lead_s=5.0, end_s=20.0) == [
        DemandReported(0.0, 1.0, 1.0),
        DemandReported(10.0, 1.0, 9.0),
        NeedChanged(12.0, 9.0),
        NeedChanged(13.0, 1.0),
        DemandReported(20.0, 1.0, 1.0),
    ]


def test_without_an_oracle_only_the_accounts_see_a_peak_between_two_ticks() -> None:
    points = [(0.0, 1.0), (12.0, 9.0), (13.0, 1.0)]
    assert forecast(points, interval_s=10.0, end_s=20.0) == [
        DemandReported(0.0, 1.0, 1.0, 0.0),
        DemandReported(10.0, 1.0, 1.0, 0.0),
        NeedChanged(12.0, 9.0),
        NeedChanged(13.0, 1.0),
        DemandReported(20.0, 1.0, 1.0, 0.0),
    ]


def test_a_forecast_follows_a_need_that_changes_between_the_ticks() -> None:
    events = forecast([(0.0, 5.0), (12.0, 3.0), (22.0, 1.0), (28.0, 2.0)], interval_s=10.0, end_s=30.0)
    assert reports(events) == [
        DemandReported(0.0, 5.0, 5.0, 0.0),
        DemandReported(10.0, 5.0, 5.0, 0.0),
        DemandReported(20.0, 3.0, 3.0, 0.0),
        DemandReported(30.0, 2.0, 2.0, 0.0),
    ]


def test_a_line_is_told_once_a_minute_between_the_ticks_and_at_its_corners() -> None:
    points = [(0.0, 0.0), (90.0, 9.0), (600.0, 9.0)]
    changes = [
        (event.at, event.need_servers)
        for event in forecast(points, interval_s=120.0, end_s=240.0, line=True)
        if isinstance(event, NeedChanged)
    ]
    assert changes == [(60.0, 6.0), (90.0, 9.0), (180.0, 9.0)]


def test_a_point_at_a_tick_is_a_report_and_no_further_change() -> None:
    points = [(0.0, 1.0), (10.0, 9.0)]
    assert forecast(points, interval_s=5.0, end_s=10.0) == [
        DemandReported(0.0, 1.0, 1.0, 0.0),
        DemandReported(5.0, 1.0, 1.0, 0.0),
        DemandReported(10.0, 9.0, 9.0, 0.0),
    ]


def test_a_curve_that_ends_before_the_first_tick_is_reported_once() -> None:
    assert oracle([(0.0, 3.0)], interval_s=300.0, lead_s=0.0, end_s=0.0) == [DemandReported(0.0, 3.0, 3.0)]


def test_nothing_is_said_after_the_end() -> None:
    events = forecast([(0.0, 1.0), (95.0, 2.0), (105.0, 3.0), (150.0, 4.0)], interval_s=30.0, end_s=100.0)
    assert [event.at for event in events] == [0.0, 30.0, 60.0, 90.0, 95.0]


def test_what_was_before_the_beginning_is_known() -> None:
    # A peak of an hour, yesterday; it is due again half an hour after the simulation begins.
    points = [(-DAY_S - 9e3, 1.0), (-DAY_S + 1800.0, 7.0), (-DAY_S + 5400.0, 1.0)]
    events = forecast(points, "day", interval_s=600.0, lead_s=1800.0, end_s=1200.0)
    assert [(event.at, event.forecast_servers) for event in reports(events)] == [
        (0.0, 1.0),
        (600.0, 7.0),
        (1200.0, 7.0),
    ]
    unaware = forecast([(0.0, 1.0)], "day", interval_s=600.0, lead_s=1800.0, end_s=1200.0)
    assert [event.forecast_servers for event in reports(unaware)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("line", [False, True])
@pytest.mark.parametrize("first_day", [-1, 0])
def test_a_peak_between_two_ticks_is_known_the_next_day(first_day: int, line: bool) -> None:
    peak = [(first_day * DAY_S + after_s, servers) for after_s, servers in PEAK]
    end_s = (first_day + 1) * DAY_S + 300.0
    said = reports(forecast([(-DAY_S - 300.0, 1.0), *peak], "day", interval_s=300.0, end_s=end_s, line=line))
    assert {report.need_servers for report in said} == {1.0}
    assert [(report.at, report.forecast_servers) for report in said[-2:]] == [
        (end_s - 300.0, 7.0),
        (end_s, 1.0),
    ]


@pytest.mark.parametrize(("first_day", "headroom_servers"), [(-7, 0.0), (-2, 0.0), (0, 2.0)])
def test_the_errors_of_the_time_before_are_known_at_the_first_report(
    first_day: int, headroom_servers: float
) -> None:
    # A need that never changes: no forecast errs. Two servers are kept on top until a day's errors are known.
    events = forecast(
        [(first_day * DAY_S, 3.0)], interval_s=600.0, end_s=0.0, headroom=RiskHeadroom(0.09, 2.0)
    )
    assert events == [DemandReported(0.0, 3.0, 3.0, headroom_servers)]


def test_a_limit_is_told_at_the_start_and_at_each_change_before_the_report_of_the_instant() -> None:
    # The cluster's clock begins at 1970-01-01 21:00; giving back takes half an hour.
    begin_s = 21 * HOUR_S
    clock = LimitClock(
        Calendar("UTC", (Window(22 * 60, 6 * 60, tuple(range(7)), 6),), 0),
        1800.0,
        lambda at_s: at_s + begin_s,
        lambda unix_s: unix_s - begin_s,
    )
    side = InferenceSide(need_of([(0.0, 1.0)]), HOUR_S, 0.0, None, clock, 9 * HOUR_S)
    events = []
    for event in side.events():
        if event.at > 9 * HOUR_S:
            break
        events.append(event)
    assert [event for event in events if isinstance(event, LendingLimited)] == [
        LendingLimited(0.0, 0),
        LendingLimited(HOUR_S, 6),
        LendingLimited(8.5 * HOUR_S, 0),
    ]
    assert [type(event) for event in events if event.at == HOUR_S] == [LendingLimited, DemandReported]


def test_reports_go_on_for_thousands_of_ticks() -> None:
    seen = reports(oracle([(0.0, 1.0), (5000.0, 2.0)], interval_s=1.0, lead_s=0.0, end_s=9000.0))
    assert [report.at for report in seen] == [float(second) for second in range(9001)]
    assert [report.need_servers for report in seen] == [1.0] * 5000 + [2.0] * 4001


STEPS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), min_size=1, max_size=12)


def curve(first: int, steps: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    points = [(0.0, float(first))]
    for gap_s, servers in steps:
        points.append((points[-1][0] + gap_s, float(servers)))
    return points


@settings(deadline=None, max_examples=60)
@given(
    steps=STEPS,
    first=st.integers(0, 9),
    interval_s=st.sampled_from((5.0, 7.0, 30.0)),
    lead_s=st.sampled_from((0.0, 4.0, 33.0, 100.0)),
    line=st.booleans(),
)
def test_the_need_and_an_oracle_s_forecast_are_those_of_brute_force(
    steps: list[tuple[int, int]], first: int, interval_s: float, lead_s: float, line: bool
) -> None:
    points = curve(first, steps)
    end_s = points[-1][0] + 20.0
    for event in oracle(points, interval_s=interval_s, lead_s=lead_s, end_s=end_s, line=line):
        assert isinstance(event, DemandReported | NeedChanged)
        assert event.need_servers == pytest.approx(at(points, event.at, line=line))
        if isinstance(event, DemandReported):
            moments = [event.at, event.at + lead_s]
            moments += [when_s for when_s, _ in points if event.at <= when_s <= event.at + lead_s]
            assert event.forecast_servers == pytest.approx(
                max(at(points, when_s, line=line) for when_s in moments)
            )


@settings(deadline=None, max_examples=60)
@given(steps=STEPS, first=st.integers(0, 9), interval_s=st.sampled_from((5.0, 7.0, 30.0)))
def test_reports_and_changes_together_are_the_whole_need(
    steps: list[tuple[int, int]], first: int, interval_s: float
) -> None:
    points = curve(first, steps)
    events = forecast(points, interval_s=interval_s, end_s=points[-1][0] + 1.0)
    assert [event.at for event in events] == sorted(event.at for event in events)
    told = [
        (event.at, event.need_servers) for event in events if isinstance(event, DemandReported | NeedChanged)
    ]
    for moment_s in np.arange(0.0, points[-1][0] + 0.5, 0.5):
        said = [servers for at_s, servers in told if at_s <= moment_s]
        assert said[-1] == at(points, float(moment_s), line=False)


def noisy(seed: int, *, days: float, step_s: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A daily curve with noise and some bursts, one value a step."""
    chance = np.random.default_rng(seed)
    count = int(days * DAY_S / step_s)
    clock = np.arange(count) * step_s / DAY_S
    level = 20.0 + 10.0 * np.sin(2 * math.pi * clock) + chance.normal(0.0, 1.0, count)
    values: np.ndarray[tuple[int], np.dtype[np.float64]] = np.maximum(
        level + 15.0 * (chance.random(count) < 0.02), 0.0
    )
    return values


@pytest.mark.parametrize("predictor", PLAIN)
@settings(deadline=None, max_examples=8)
@given(
    seed=st.integers(0, 99),
    share=st.floats(0.05, 0.95),
    late_s=st.sampled_from((0.0, 700.0)),
    line=st.booleans(),
    rule=st.sampled_from((FixedHeadroom(1.0), RiskHeadroom(0.09, 1.0))),
)
def test_what_comes_after_an_instant_changes_no_report_until_then(
    predictor: str, seed: int, share: float, late_s: float, line: bool, rule: HeadroomRule
) -> None:
    step_s, before_days, days = 1800.0, 16, 4
    values = noisy(seed, days=before_days + days, step_s=step_s)
    times = np.arange(len(values)) * step_s - before_days * DAY_S + late_s
    # The first value that differs. A line goes towards it from the point before.
    changed = int(before_days * DAY_S / step_s) + 1 + int(share * (days * DAY_S / step_s - 2))
    other = values.copy()
    other[changed:] = np.random.default_rng(seed + 1000).uniform(0.0, 50.0, len(values) - changed)
    until_s = times[changed - 1] if line else times[changed] - 1.0

    def said(servers: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[DemandReported]:
        return reports(
            forecast(
                [*zip(times.tolist(), servers.tolist(), strict=True)],
                predictor,
                interval_s=step_s,
                lead_s=3 * step_s,
                end_s=days * DAY_S,
                headroom=rule,
                line=line,
            )
        )

    one, two = said(values), said(other)
    assert [report for report in one if report.at <= until_s] == [
        report for report in two if report.at <= until_s
    ]
    assert one != two


def test_an_oracle_s_reports_change_with_what_comes_after_them() -> None:
    rising, falling = (
        reports(oracle([(0.0, 3.0), (100.0, then)], interval_s=60.0, lead_s=60.0, end_s=60.0))
        for then in (9.0, 1.0)
    )
    assert [report.forecast_servers for report in rising] == [3.0, 9.0]
    assert [report.forecast_servers for report in falling] == [3.0, 3.0]
