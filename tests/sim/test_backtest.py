"""Back tests: on curves whose figures can be worked out by hand, and by the run of an experiment as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aryl.errors import InputError
from aryl.files.inference_fields import ForecastConfig, Headroom
from aryl.forecast.control import UPPER_LEVEL
from aryl.forecast.history import Floats, History
from aryl.forecast.predictor import MEDIAN
from aryl.report.judged import ACCURACY, Lending
from aryl.sim import backtest
from aryl.sim.backtest import (
    LEVELS,
    MOST_POINTS,
    POLICY,
    busy_pools,
    headroom_text,
    judge,
    sampled_need,
)
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import experiment_from_mapping
from aryl.sim.run import run
from aryl.traces.curves import load_curve

DAY_S = 86_400.0
HOUR_S = 3_600.0


def written(path: Path, servers: list[float], step_s: float = HOUR_S) -> str:
    rows = [f"{index * step_s:.0f},{value}" for index, value in enumerate(servers)]
    path.write_text("\n".join(["time_s,servers", *rows]) + "\n", encoding="utf-8")
    return str(path)


def experiment(
    curve: str, *, servers: int = 10, start_s: float = DAY_S, span_s: float = DAY_S, **inference: Any
) -> Experiment:
    """A back test of what stays as it is, an hour ahead, in which giving back takes no time."""
    pools = busy_pools(servers, 8, span_s)
    pools["simulation"] |= {"interval": HOUR_S, "restart_s": 0.0}
    said = {"curve": curve, "from": start_s, "forecast": "last", "headroom": 0, "settle": 0} | inference
    return experiment_from_mapping({**pools, "inference": said})


@pytest.fixture
def two_levels(tmp_path: Path) -> str:
    """Two days of twelve hours at 4 servers and twelve at 8."""
    return written(tmp_path / "levels.csv", ([4.0] * 12 + [8.0] * 12) * 2)


def test_what_is_lent_is_what_the_need_leaves(two_levels: str) -> None:
    trial = judge(experiment(two_levels))
    # At every change the report comes with it, so nothing is ever short: 12 h with 6 servers idle, 12 with 2.
    assert trial.lending == Lending(DAY_S, 0.0, 96 * HOUR_S, 96 * HOUR_S, 6, 4)


def test_what_jobs_still_hold_when_the_need_rises_is_missing(two_levels: str) -> None:
    slow = experiment(two_levels)
    slow = slow.model_copy(update={"simulation": slow.simulation.model_copy(update={"vacate_s": 120.0})})
    trial = judge(slow)
    # Four servers take two minutes each: as long they are lent, and as long inference is short of them.
    assert trial.lending.shortfall_server_s == 4 * 120.0
    assert trial.lending.lent_server_s == 96 * HOUR_S + 4 * 120.0
    assert trial.lending.lent_share > 1.0


def test_an_oracle_is_never_short_and_has_no_accuracy(two_levels: str) -> None:
    foreseen = experiment(two_levels, forecast="oracle", load=1800.0)
    trial = judge(foreseen)
    assert trial.accuracy is None
    assert (trial.lending.shortfall_server_s, trial.lending.reclaims) == (0.0, 4)
    erring = judge(experiment(two_levels, forecast="oracle", headroom={"risk": 0.1}))
    assert erring.course.kept_servers.tolist() == erring.course.forecast_servers.tolist()
    careful = judge(experiment(two_levels, forecast="oracle", headroom=2))
    assert (careful.course.kept_servers - careful.course.forecast_servers).tolist() == [2.0] * 25


def test_a_headroom_stays_at_home_and_is_drawn(two_levels: str) -> None:
    trial = judge(experiment(two_levels, headroom=1))
    assert trial.lending.lent_server_s == (12 * 5 + 12 * 1) * HOUR_S
    assert trial.course.time_s.tolist() == [DAY_S + hour * HOUR_S for hour in range(25)]
    assert (trial.course.kept_servers - trial.course.forecast_servers).tolist() == [1.0] * 25
    assert trial.course.home_servers.tolist() == [5.0] * 12 + [9.0] * 13


def test_errors_are_those_of_the_highest_need_ahead(two_levels: str) -> None:
    accuracy = judge(experiment(two_levels)).accuracy
    assert accuracy is not None
    # Of the 23 hours whose following hour is known, only the last of the 4s is followed by more.
    assert accuracy.mae_servers == pytest.approx(4 / 23)
    assert accuracy.bias_servers == pytest.approx(-4 / 23)
    assert accuracy.within_50 == pytest.approx(22 / 23)
    hours = accuracy.by_hour_servers
    assert hours[10].tolist() == [0.0] * 5
    assert hours[11].tolist() == [4.0] * 5
    assert np.isnan(hours[23]).all()


class Scripted:
    """A predictor whose quantiles are ten times their levels, and that notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, tuple[float, ...]]] = []

    def predict(self, history: History, steps: int, levels: Sequence[float] = MEDIAN) -> Floats:
        self.asked.append((steps, tuple(levels)))
        return 10.0 * np.array(levels)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[Scripted]:
    """Every predictor that a back test builds for itself, in order."""
    built: list[Scripted] = []

    def build(_config: ForecastConfig) -> Scripted:
        built.append(Scripted())
        return built[-1]

    monkeypatch.setattr(backtest, "build_predictor", build)
    return built


def test_quantiles_are_held_against_the_highest_need_of_the_whole_lead(
    tmp_path: Path, scripted: list[Scripted]
) -> None:
    needs = [2.0, 2.6, 9.2, 6.0, 1.9, 1.9, 1.9]
    curve = written(tmp_path / "needs.csv", needs)
    tested = experiment(curve, start_s=0.0, span_s=7 * HOUR_S, lead=3 * HOUR_S, headroom={"risk": 0.1})
    accuracy = judge(tested).accuracy
    assert accuracy is not None
    # Five hours are followed by two that are known. The median forecast is always 5.
    highest = [9.2, 9.2, 9.2, 6.0, 1.9]
    assert accuracy.mae_servers == pytest.approx((3 * 4.2 + 1.0 + 3.1) / 5)
    assert accuracy.bias_servers == pytest.approx((-3 * 4.2 - 1.0 + 3.1) / 5)
    # A quarter of a server outside of 2.5 to 7.5 would still be inside.
    assert (accuracy.within_50, accuracy.within_90) == (0.2, 1.0)
    loss = [
        level * (need - 10 * level) if need > 10 * level else (1 - level) * (10 * level - need)
        for need in highest
        for level in LEVELS
    ]
    assert accuracy.pinball_servers == pytest.approx(sum(loss) / len(loss))
    told, judged = scripted
    assert set(judged.asked) == {(2, LEVELS)}
    assert {levels for _, levels in told.asked} == {(UPPER_LEVEL,)}


def test_who_is_not_to_be_judged_is_not_asked_for_quantiles(
    two_levels: str, scripted: list[Scripted]
) -> None:
    assert judge(experiment(two_levels), accuracy=False).accuracy is None
    assert [set(one.asked) for one in scripted] == [{(1, MEDIAN)}]


def test_a_full_pool_has_nothing_idle_and_the_last_hours_count(tmp_path: Path) -> None:
    curve = written(tmp_path / "full.csv", [10.0, 9.5, 4.0, 4.0])
    trial = judge(experiment(curve, start_s=0.0, span_s=3.5 * HOUR_S))
    assert trial.lending == Lending(3.5 * HOUR_S, 0.0, 9.5 * HOUR_S, 9.0 * HOUR_S, 6, 0)


def test_the_hour_is_that_of_the_curve(two_levels: str) -> None:
    accuracy = judge(experiment(two_levels, start_s=DAY_S + 6 * HOUR_S, span_s=12 * HOUR_S)).accuracy
    assert accuracy is not None
    assert accuracy.by_hour_servers[11].tolist() == [4.0] * 5
    assert np.isnan(accuracy.by_hour_servers[5]).all()


def test_the_pinball_loss_is_the_mean_over_levels(tmp_path: Path) -> None:
    # Without any past all quantiles are the present need: 4 each time, of which 8 is 4 more.
    curve = written(tmp_path / "rise.csv", [4.0, 8.0, 8.0])
    accuracy = judge(experiment(curve, start_s=0.0, span_s=3 * HOUR_S)).accuracy
    assert accuracy is not None
    assert accuracy.pinball_servers == pytest.approx(sum(level * 4 for level in LEVELS) / len(LEVELS) / 2)
    assert (accuracy.within_50, accuracy.within_90) == (0.5, 0.5)


def test_a_curve_that_ends_before_the_lead_is_over_says_nothing_of_errors(two_levels: str) -> None:
    accuracy = judge(experiment(two_levels, start_s=47 * HOUR_S, span_s=HOUR_S)).accuracy
    assert accuracy is not None
    assert all(math.isnan(getattr(accuracy, name)) for name in ACCURACY)
    assert np.isnan(accuracy.by_hour_servers).all()


@pytest.mark.parametrize(
    "inference",
    [{"forecast": "day", "headroom": {"risk": 0.1}, "settle": 900}, {"forecast": "oracle", "headroom": 1}],
    ids=["day", "oracle"],
)
def test_it_comes_to_what_a_simulation_of_the_same_experiment_comes_to(
    tmp_path: Path, inference: dict[str, Any]
) -> None:
    wave = [5 + 4 * math.sin(index / 24 * 2 * math.pi) + index % 5 / 3 for index in range(24 * 10)]
    tested = experiment(
        written(tmp_path / "wave.csv", wave), start_s=8 * DAY_S, span_s=2 * DAY_S, load=600, **inference
    )
    lending, totals = judge(tested, accuracy=True).lending, run(tested, POLICY).outcome.totals
    assert (lending.loans, lending.reclaims) == (totals.loans, totals.reclaims)
    assert lending.lent_server_s == totals.loaned_server_s > 0.0
    assert lending.shortfall_server_s == totals.inference_shortfall_server_s


def test_asking_for_quantiles_changes_nothing_that_is_lent(tmp_path: Path) -> None:
    wave = [5 + 4 * math.sin(index / 24 * 2 * math.pi) + index % 7 / 3 for index in range(24 * 6)]
    tested = experiment(
        written(tmp_path / "wave.csv", wave),
        start_s=4 * DAY_S,
        span_s=2 * DAY_S,
        load=600,
        headroom={"quantile": 0.9},
    )
    with_quantiles, without = judge(tested), judge(tested, accuracy=False)
    assert without.accuracy is None
    assert with_quantiles.lending == without.lending


def test_a_long_time_is_drawn_as_means(tmp_path: Path) -> None:
    count = 2 * MOST_POINTS
    curve = written(tmp_path / "long.csv", [float(index % 2 * 2) for index in range(count)], 60.0)
    pools = busy_pools(2, 1, count * 60.0)
    pools["simulation"]["interval"] = 60.0
    said = {"curve": curve, "forecast": "last", "headroom": 0, "settle": 0}
    course = judge(experiment_from_mapping({**pools, "inference": said}), accuracy=False).course
    # One report more than minutes: it comes at the very end.
    assert len(course.time_s) == math.ceil((count + 1) / 3)
    assert course.time_s[:3].tolist() == [0.0, 180.0, 360.0]
    assert course.need_servers[:2].tolist() == pytest.approx([2 / 3, 4 / 3])


def test_progress_goes_up_to_the_end(two_levels: str) -> None:
    heard: list[tuple[float, str]] = []
    judge(experiment(two_levels), on_progress=lambda share, words: heard.append((share, words)))
    shares = [share for share, _ in heard]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert {words for _, words in heard} == {"forecasting", "simulating"}


def test_every_pool_is_busy_and_takes_whole_servers() -> None:
    built = experiment_from_mapping(busy_pools(3, 4, DAY_S))
    jobs = list(built.inline_jobs())
    assert [job.id for job in jobs] == ["J0", "J1", "J2", "J3"]
    assert {(job.base_gpus, job.fungible, job.checkpoint) for job in jobs} == {(4, True, "continuous")}
    outcome = run(built, POLICY).outcome
    assert (outcome.totals.loans, outcome.jobs.finished.sum()) == (0, 0)


def test_needs_are_sampled_in_servers_while_a_whole_interval_is_left(tmp_path: Path) -> None:
    path = tmp_path / "gpus.csv"
    path.write_text("time_s,gpus\n100,8\n200,16\n300,24\n", encoding="utf-8")
    needs = sampled_need(load_curve(str(path)), 4, 8, 350.0, 50.0)
    assert needs.tolist() == [1.0, 1.0, 2.0, 2.0, 3.0]
    assert sampled_need(load_curve(str(path)), 4, 8, 50.0, 50.0).tolist() == []


def test_without_an_inference_pool_or_an_end_there_is_nothing_to_judge() -> None:
    endless = experiment_from_mapping(
        {"cluster": {"training": {"servers": 1}}, "jobs": [{"id": "A", "workers": 1, "duration": 1}]}
    )
    with pytest.raises(InputError, match="needs an inference pool"):
        judge(endless)


@pytest.mark.parametrize(
    ("headroom", "text"),
    [
        (Headroom(servers=3), "3"),
        (Headroom(share=0.02), "2%"),
        (Headroom(quantile=0.99), "quantile=99%"),
        (Headroom(risk=0.07), "risk=7%"),
    ],
)
def test_a_headroom_reads_as_it_is_written_on_the_command_line(headroom: Headroom, text: str) -> None:
    assert headroom_text(headroom) == text
