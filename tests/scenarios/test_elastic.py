"""Elastic jobs (E1 to E3, E7 to E9): they grow into what is free, give way to gangs, and don't flutter."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from aryl.core.model import JobState
from aryl.core.plan import Cause
from aryl.policies.reasons import Wait
from aryl.testing import Record

Play = Callable[..., Record]
MINUTE = 60.0


def test_e1_a_job_grows_into_what_comes_free_and_gives_way_to_an_urgent_gang(play: Play) -> None:
    record = play("E1-grow")
    assert record.size_of("E", "29m") == 4
    grown_at = next(at for at, workers in record.sizes("E") if workers == 36)
    assert 30 * MINUTE <= grown_at <= 31 * MINUTE
    assert record.starts("H") == [40 * MINUTE]
    assert record.size_of("E", "40m") == 20
    assert record.stops() == []


def test_e2_flexible_workers_make_room_for_two_gangs_at_once(play: Play) -> None:
    record = play("E2-base-first")
    assert record.sizes("E")[:2] == [(0.0, 16), (5 * MINUTE, 8)]
    assert record.starts("B") == record.starts("C") == [5 * MINUTE]
    assert [resize.cause for _, resize in record.resizes("E")][:1] == [Cause.BASE_DEMAND]
    assert record.stops() == []


def test_e3_a_lower_limit_lets_the_waiting_job_start_in_the_next_pass(play: Play) -> None:
    record = play("E3-changed-limit")
    reason = record.reason("P", "29m")
    assert (reason.wait, reason.needed_gpus, reason.free_gpus) == (Wait.NOT_ENOUGH_FREE, 2, 0)
    assert reason.behind == ("E",)
    assert record.sizes("E")[:2] == [(0.0, 8), (30 * MINUTE, 6)]
    assert record.starts("P") == [30 * MINUTE]


def test_e7_only_allowed_sizes_are_ever_seen_and_the_rest_goes_to_somebody_else(play: Play) -> None:
    record = play("E7-allowed-sizes")
    assert record.sizes("E") == [(1 * MINUTE, 16), (30 * MINUTE, 8)]
    assert record.starts("Q") == [2 * MINUTE]
    assert record.stops() == []
    assert record.loop.cluster.jobs["E"].state is JobState.RUNNING


def test_e8_eight_gpus_that_come_and_go_make_six_resizes_an_hour_at_most(play: Play) -> None:
    record = play("E8-resize-storm")
    hour = [at for at, _ in record.resizes("E") if at < 60 * MINUTE]
    assert 2 <= len(hour) <= 6
    grown = [at for at, resize in record.resizes("E") if resize.add]
    assert all(later - earlier >= 10 * MINUTE for earlier, later in pairwise(grown))
    assert all(record.started_at(f"H{number}") == number * MINUTE for number in range(60))
    assert record.stops() == []


def test_e8_without_a_cool_down_the_job_follows_every_swing(play: Play) -> None:
    record = play("E8-resize-storm", "aryl:cooldown=0,min_interval=0")
    assert len([at for at, _ in record.resizes("E") if at < 60 * MINUTE]) > 100


def test_e9_an_elastic_job_that_loses_a_server_goes_on_with_the_others(play: Play) -> None:
    record = play("E9-part-dies")
    assert record.sizes("E")[:4] == [
        (1.0, 24),
        (18 * MINUTE, 32),
        (20 * MINUTE, 24),
        (28 * MINUTE, 32),
    ]
    assert record.starts("E") == [1.0]
    assert record.stops() == []


def test_e9_an_inelastic_gang_goes_back_to_the_head_of_the_queue(play: Play) -> None:
    record = play("E9-inelastic")
    (at, stop), *others = record.stops()
    assert (at, stop.job_id, stop.cause) == (20 * MINUTE, "F", Cause.SERVER_LOST)
    assert not others
    assert [entry.job_id for entry in record.state_at("30m").pending] == ["F", "S1", "S2"]
    assert record.starts("F") == [0.0, 50 * MINUTE]
    assert record.starts("S1")[0] == record.ended_at("F")
    assert record.outcome.summary()["preemptions"] == 0
