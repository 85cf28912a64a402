"""The inference side (I1, I2, I4, R11, R12): servers are back before they are needed; none is moved in vain.

I3, an inference side that falls silent, can't be said in an experiment: see the tests of the live control
plane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.core.events import BackInService, DemandReported, HandedOver, NeedChanged
from aryl.core.plan import Cause, Launch, Loan, Reclaim
from aryl.sim.experiment_file import experiment_from_mapping
from aryl.sim.run import run
from aryl.testing import Record, run_scenario

Play = Callable[..., Record]
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
# Those that need no extra.
PLAIN = ("last", "day", "week", "regression")
V100 = {"gpu_type": "V100", "speed": 1.0}
NIGHTS = {
    "an ordinary night": ("2026-01-14T18:00+01:00", 12.5),
    "clocks go forward": ("2026-03-28T18:00+01:00", 11.5),
    "clocks go back": ("2026-10-24T18:00+02:00", 13.5),
}


def short_s(record: Record, begin_s: float, end_s: float) -> float:
    """For how long within [begin_s, end_s) the need exceeded the servers in service, by its own account."""
    table = record.outcome.demand
    times: list[float] = table.time_s.tolist()
    short: list[bool] = (table.shortfall_servers > 1e-9).tolist()
    return sum(
        max(min(until_s, end_s) - max(at_s, begin_s), 0.0)
        for at_s, until_s, missing in zip(times, [*times[1:], end_s], short, strict=True)
        if missing
    )


def late_s(record: Record, begin_s: float, end_s: float) -> list[float]:
    """By how much each further server serves later (below 0: earlier) than the need, which rises within
    [begin_s, end_s), first exceeded those before it.
    """
    told = [event for event in record.events if isinstance(event, DemandReported | NeedChanged)]
    rising = [(event.at, event.need_servers) for event in told if begin_s <= event.at < end_s]
    back = [event.at for event in record.events if isinstance(event, BackInService) and event.at >= begin_s]
    first = record.state_at(begin_s).serving
    most = math.ceil(max(need for _, need in rising))
    needed = [next(at_s for at_s, need in rising if need > count) for count in range(first, most)]
    return [at_s - needed_s for at_s, needed_s in zip(back, needed, strict=False)]


def moves(record: Record, begin_s: float, end_s: float) -> list[tuple[float, str]]:
    """Every loan and reclaim with begin_s <= t < end_s, withdrawn reclaims included."""
    steps = [(at, step.server_id) for at, step in record.steps(Loan)]
    steps += [(at, step.server_id) for at, step in record.steps(Reclaim)]
    return sorted(step for step in steps if begin_s <= step[0] < end_s)


@pytest.mark.parametrize("day", [1, 2, 3])
@pytest.mark.parametrize("interval", ["1m", "5m"])
@pytest.mark.parametrize("predictor", ["regression", "day"])
def test_i1_from_the_second_day_on_servers_are_back_before_they_are_needed(
    play: Play, predictor: str, interval: str, day: int
) -> None:
    record = play("I1-cold-start", None, f"inference.forecast={predictor}", f"simulation.interval={interval}")
    begin_s, end_s = day * DAY, (day + 1) * DAY
    assert short_s(record, begin_s, end_s) <= MINUTE
    assert max(late_s(record, begin_s + 6 * HOUR, begin_s + 12 * HOUR)) <= MINUTE
    # Whatever isn't needed is lent, and every server that comes back was busy until then.
    at_eight = record.state_at(begin_s + 8 * HOUR)
    assert [(server.spec.server_id, server.used) for server in at_eight.servers[4:]] == [
        ("I5", 8),
        ("I6", 8),
        ("I7", 8),
        ("I8", 8),
    ]
    assert len([at for at, stop in record.stops() if begin_s <= at < end_s]) == 4


@pytest.mark.parametrize(("begin_s", "end_s"), [(day * DAY, (day + 1) * DAY) for day in range(4)])
def test_i1_a_reactive_rule_is_seven_minutes_late_every_day(play: Play, begin_s: float, end_s: float) -> None:
    record = play("I1-cold-start", None, "inference.forecast=last")
    assert late_s(record, begin_s + 6 * HOUR, begin_s + 12 * HOUR) == [7 * MINUTE] * 4
    assert short_s(record, begin_s, end_s) == 14 * MINUTE


def test_i1_on_the_first_day_nobody_knows_what_comes(play: Play) -> None:
    by_forecast, reactive = play("I1-cold-start"), play("I1-cold-start", None, "inference.forecast=last")
    assert short_s(by_forecast, 0.0, DAY) == short_s(reactive, 0.0, DAY) == 14 * MINUTE


@pytest.mark.parametrize("predictor", PLAIN)
@pytest.mark.parametrize("interval", ["1m", "5m"])
def test_i2_a_need_that_flickers_moves_one_server_at_most(play: Play, predictor: str, interval: str) -> None:
    record = play("I2-flicker", None, f"inference.forecast={predictor}", f"simulation.interval={interval}")
    assert moves(record, 0.0, 1.0) == [(0.0, "I7"), (0.0, "I8")]
    assert len(moves(record, 1.0, 70 * MINUTE)) == 1
    # Once it has been quiet for `settle`, the server is lent again.
    assert len(moves(record, 70 * MINUTE, 2 * HOUR)) == 1


def test_i2_without_settling_every_flicker_moves_a_server(play: Play) -> None:
    record = play("I2-flicker", None, "inference.settle=0")
    assert len(moves(record, 1.0, 70 * MINUTE)) == 60


def simulated(
    jobs: Sequence[dict[str, Any]], *, servers: int, inference: dict[str, Any], **simulation: Any
) -> Record:
    """Inference servers only, and jobs that may run on them."""
    return run_scenario(
        {
            "cluster": {"training": {"servers": 0}, "inference": {"servers": servers, **V100}},
            "jobs": [{"workers": 8, "checkpoint": "continuous", "fungible": True, **job} for job in jobs],
            "inference": inference,
            "policies": ["aryl"],
            "simulation": {"restart_s": 0, "check": True, **simulation},
        }
    )


def flicker(
    low: float, high: float, *, predictor: str, interval_s: float, hours: int, headroom: object
) -> Record:
    """A pool of 8 of which, turn and turn about, `low` and `high` are needed."""
    count = int(hours * HOUR / interval_s)
    points = [(number * interval_s, high if number % 2 else low) for number in range(count)]
    return simulated(
        [{"id": "A", "duration": "30d"}],
        servers=8,
        inference={"points": points, "forecast": predictor, "headroom": headroom},
        interval=interval_s,
        until=hours * HOUR,
    )


@settings(deadline=None, max_examples=30)
@given(
    low=st.floats(0.0, 7.0),
    amplitude=st.floats(0.01, 0.99),
    interval_s=st.sampled_from((60.0, 150.0, 300.0)),
    predictor=st.sampled_from(PLAIN),
    headroom=st.sampled_from((0, 1, "20%")),
)
def test_i2_no_flicker_below_one_server_moves_more_than_one(
    low: float, amplitude: float, interval_s: float, predictor: str, headroom: object
) -> None:
    record = flicker(
        low, low + amplitude, predictor=predictor, interval_s=interval_s, hours=1, headroom=headroom
    )
    assert len(moves(record, 1.0, HOUR)) <= 1


@settings(deadline=None, max_examples=8)
@given(
    low=st.floats(0.0, 7.0),
    amplitude=st.floats(0.01, 0.99),
    predictor=st.sampled_from(PLAIN),
    headroom=st.sampled_from((0, {"risk": "9%"}, {"quantile": "99%"})),
)
def test_i2_nor_does_it_once_the_forecast_has_learned_it_and_its_errors(
    low: float, amplitude: float, predictor: str, headroom: object
) -> None:
    record = flicker(low, low + amplitude, predictor=predictor, interval_s=300.0, hours=75, headroom=headroom)
    for hour in range(49, 75):
        assert len(moves(record, hour * HOUR, (hour + 1) * HOUR)) <= 1


@pytest.mark.parametrize("night", NIGHTS)
def test_i4_six_are_lent_in_the_night_and_at_half_past_six_all_are_in_service(play: Play, night: str) -> None:
    start, hours = NIGHTS[night]
    record = play("I4-calendar", None, f"simulation.start={start}")
    opens_s, closes_s = 4 * HOUR, hours * HOUR
    assert [at for at, _ in moves(record, 0.0, DAY)] == [opens_s] * 6 + [closes_s - 7 * MINUTE] * 6
    for at_s in (opens_s, opens_s + 6 * HOUR, closes_s - 7 * MINUTE - 1):
        cluster = record.state_at(at_s)
        assert (cluster.serving, cluster.on_loan, len(cluster.live)) == (2, 6, 6)
        assert [server.used for server in cluster.servers] == [0, 0, *[8] * 6]
    assert [cluster_at.serving for cluster_at in map(record.state_at, (closes_s - 1, closes_s))] == [2, 8]
    assert record.outcome.totals.inference_shortfall_server_s == 0.0


def test_i4_where_giving_back_takes_longer_servers_are_called_back_earlier(play: Play) -> None:
    record = play("I4-calendar", None, "inference.load=20m", "inference.deadline=10m")
    closes_s = 11.5 * HOUR
    assert {at for at, _ in record.steps(Reclaim)} == {closes_s - 31 * MINUTE}
    assert record.state_at(closes_s).serving == 8


def test_r11_nothing_is_placed_on_a_server_that_inference_has_not_let_go_of(play: Play) -> None:
    record = play("R11-drain")
    assert [(at, loan.server_id) for at, loan in record.steps(Loan)] == [(10 * MINUTE, "I2")]
    given_up = [(event.at, event.server_id) for event in record.events if isinstance(event, HandedOver)]
    assert given_up == [(10 * MINUTE + 40, "I2")]
    # It stops serving at once, and is nobody's until it is handed over.
    draining = record.state_at(10 * MINUTE + 39)
    assert (draining.serving, draining.servers[1].placeable, draining.servers[1].used) == (1, False, 0)
    launches = record.steps(Launch)
    assert [(at, launch.slots[0].server_id) for at, launch in launches] == [(10 * MINUTE + 40, "I2")]


def test_r11_a_server_that_is_let_go_of_at_once_is_used_at_once(play: Play) -> None:
    assert play("R11-drain", None, "inference.drain=0").starts("A") == [10 * MINUTE]


def test_r12_two_of_three_are_given_in_time_and_the_third_is_missed_until_the_need_falls(
    play: Play,
) -> None:
    record = play("R12-more-than-there-is")
    recalled, returned = record.recalled(), record.returned()
    assert recalled == dict.fromkeys(("I2", "I3", "I4"), 60 * MINUTE)
    assert sorted(returned.values()) == [61 * MINUTE, 62 * MINUTE]
    table = record.outcome.demand
    missing = zip(table.time_s.tolist(), table.shortfall_servers.tolist(), strict=True)
    assert [(at, servers) for at, servers in missing if at >= 60 * MINUTE][:4] == [
        (60 * MINUTE, 3.0),
        (61 * MINUTE, 2.0),
        (62 * MINUTE, 1.0),
        (64 * MINUTE, 0.0),
    ]
    # The third is lent again as soon as it isn't asked for, and its job never hears of it.
    third = (set(recalled) - set(returned)).pop()
    assert moves(record, 60 * MINUTE + 1, DAY) == [(64 * MINUTE, third)]
    assert record.workers_of("C", "99m") == {third: 8}
    assert record.stops() == []
    assert record.ended_at("C") == 100 * MINUTE


def test_r12_if_the_need_stays_the_third_job_is_stopped_at_the_deadline(play: Play) -> None:
    points = "inference.points=[[0, 1], [1h, 4], [70m, 3], [3h, 3]]"
    record = play("R12-more-than-there-is", None, points)
    assert [(at, stop.job_id, stop.cause) for at, stop in record.stops()] == [
        (65 * MINUTE, "C", Cause.RECLAIM)
    ]
    assert sorted(record.returned().values()) == [61 * MINUTE, 62 * MINUTE, 65 * MINUTE]


def test_a_server_that_loads_its_models_is_missed_until_it_serves() -> None:
    points = [[0, 1], ["1h", 2], ["3h", 1]]
    record = simulated(
        [{"id": "A", "duration": "5h"}],
        servers=2,
        inference={"points": points, "forecast": "last", "headroom": 0, "settle": 0, "load": "6m"},
        interval="1m",
        vacate_s=60,
        until="2h",
    )
    assert record.recalled() == {"I2": HOUR}
    assert record.returned() == {"I2": HOUR + MINUTE}
    assert [record.state_at(HOUR + 7 * MINUTE + after_s).serving for after_s in (-1, 0)] == [1, 2]
    assert record.outcome.totals.inference_shortfall_server_s == 7 * MINUTE
    assert short_s(record, 0.0, 2 * HOUR) == 7 * MINUTE


@pytest.mark.parametrize("predictor", [*PLAIN, "oracle"])
def test_results_with_an_oracle_and_no_others_say_so(predictor: str) -> None:
    inference = {"points": [[0, 1]], "forecast": predictor}
    scenario = {
        "cluster": {"training": {"servers": 1}, "inference": {"servers": 2}},
        "jobs": [{"id": "A", "workers": 1, "duration": 60}],
        "inference": inference,
        "policies": ["aryl"],
    }
    notes = run(experiment_from_mapping(scenario), "aryl").outcome.notes
    assert any("oracle" in note for note in notes) == (predictor == "oracle")
