"""Reclaiming and preempting (R1 to R7, R13): as few jobs as possible, for a place that is used, and never
round in circles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aryl.core.plan import Cause
from aryl.policies.reasons import Wait
from aryl.testing import Record

Play = Callable[..., Record]
MINUTE = 60.0


def test_r1_a_share_is_taken_back_once_and_the_victim_waits_with_a_reason(play: Play) -> None:
    record = play("R1-loop")
    (at, stop), *others = record.stops()
    assert (at, stop.job_id, stop.cause, stop.beneficiary) == (10 * MINUTE, "a1", Cause.QUOTA, "b2")
    assert not others
    assert record.starts("b2") == [10 * MINUTE]
    reason = record.reason("a1", "200m")
    assert (reason.wait, reason.needed_gpus, reason.free_gpus) == (Wait.NOT_ENOUGH_FREE, 4, 3)
    assert reason.behind == ("b1",)
    assert reason.starts_s == pytest.approx(10 * 3600)


def test_r1_two_hundred_passes_over_time_and_two_hundred_more_at_the_end_do_nothing(play: Play) -> None:
    record = play("R1-loop")
    later = [event for event in record.events if event.at > 10 * MINUTE]
    assert len(later) >= 200
    assert {type(event).__name__ for event in later} == {"DemandReported"}
    assert record.passes_without_action(200) == 200


def test_r2_nothing_is_preempted_for_a_job_that_no_preemption_can_help(play: Play) -> None:
    record = play("R2-wrong-type")
    assert record.stops() == []
    for minute in (10, 60, 179):
        reason = record.reason("P", f"{minute}m")
        assert (reason.wait, reason.needed_gpus, reason.behind) == (Wait.NO_MATCHING_GPU, 1, ())
    assert record.starts("P") == [180 * MINUTE]
    assert record.workers_of("P", "181m") == {"T5": 1}


def test_r2_while_one_victim_is_leaving_no_other_is_stopped(play: Play) -> None:
    record = play("R2-one-victim")
    assert [(at, stop.job_id) for at, stop in record.stops()] == [(10 * MINUTE, "v11")]
    reports = [
        event
        for event in record.events
        if type(event).__name__ == "DemandReported" and 10 * MINUTE < event.at <= 15 * MINUTE
    ]
    assert len(reports) == 20
    reason = record.reason("P", "12m")
    assert (reason.wait, reason.behind) == (Wait.VACATING, ("v11",))
    assert record.starts("P") == [15 * MINUTE]


def test_r3_one_of_the_striped_jobs_is_stopped_not_eight(play: Play) -> None:
    record = play("R3-striped")
    names = {f"T{number}" for number in range(1, 9)}
    for number in range(1, 9):
        assert record.workers_of(f"J{number}", "9m") == dict.fromkeys(names, 1)
    assert [(at, stop.job_id, stop.beneficiary) for at, stop in record.stops()] == [(600.0, "J8", "P")]
    assert record.workers_of("P", "10m") == dict.fromkeys(names, 1)


def test_r3_the_same_jobs_on_empty_servers_get_one_each(play: Play) -> None:
    record = play("R3-packed")
    places = [record.workers_of(f"J{number}", 0) for number in range(1, 9)]
    assert places == [{f"T{number}": 8} for number in range(1, 9)]


def test_r4_an_elastic_job_gives_up_both_servers_in_one_step(play: Play) -> None:
    record = play("R4-shrink-before-kill")
    assert record.workers_of("E", "59m") == {"T1": 8, "T2": 8, "I1": 8, "I2": 8}
    assert record.sizes("E")[:2] == [(0.0, 32), (60 * MINUTE, 16)]
    assert record.workers_of("E", "61m") == {"T1": 8, "T2": 8}
    assert [(at, resize.cause) for at, resize in record.resizes("E")] == [(60 * MINUTE, Cause.RECLAIM)]
    assert record.stops() == []
    assert record.returned() == {"I1": 60 * MINUTE, "I2": 60 * MINUTE}


@pytest.mark.parametrize(
    ("asked_at", "server", "victim", "lost_gpu_s"),
    [("182m", "I1", "A", 2 * MINUTE * 8), ("194m", "I2", "B", 2 * MINUTE * 8)],
)
def test_r5_the_job_that_saved_last_is_the_one_to_stop(
    play: Play, asked_at: str, server: str, victim: str, lost_gpu_s: float
) -> None:
    record = play("R5-least-lost-work", None, f"inference.points=[[0, 0], [{asked_at}, 1], [5h, 0]]")
    assert record.workers_of("A", "2h") == {"I1": 8}
    assert record.workers_of("B", "2h") == {"I2": 8}
    assert list(record.recalled()) == [server]
    (_, stop), *others = record.stops()
    assert (stop.job_id, stop.cause, stop.beneficiary) == (victim, Cause.RECLAIM, server)
    assert not others
    assert record.outcome.summary()["lost_gpu_s"] == pytest.approx(lost_gpu_s)
    # The record keeps what was weighed: both servers at the same cost, so the lost work decided.
    assert sorted((other.what, other.cost) for other in stop.weighed) == [("I1", 1.0), ("I2", 1.0)]


def test_r6_a_job_rests_between_preemptions_and_finishes(play: Play) -> None:
    record = play("R6-rest")
    starts, stops = record.starts("B"), [at for at, _ in record.stops("B")]
    assert all(stop - start >= 20 * MINUTE for start, stop in zip(starts, stops, strict=False))
    assert 1 <= len(stops) <= 15
    assert record.ended_at("B") < 300 * MINUTE
    assert {stop.job_id for _, stop in record.stops()} == {"B"}
    waits = [record.started_at(f"H{number}") - number * 10 * MINUTE for number in range(1, 31)]
    assert max(waits) <= 20 * MINUTE
    assert record.reason("H1", "15m").wait is Wait.VICTIMS_REST
    assert record.reason("H1", "15m").starts_s == 20 * MINUTE


def test_r6_without_the_rest_the_urgent_jobs_never_wait_and_b_loses_more(play: Play) -> None:
    record, rested = play("R6-rest", "aryl:min_runtime=0"), play("R6-rest")
    assert all(record.started_at(f"H{number}") == number * 10 * MINUTE for number in range(1, 31))
    assert record.ended_at("B") > rested.ended_at("B")


def test_r7_a_gang_takes_the_idle_server_and_one_victims(play: Play) -> None:
    record = play("R7-one-free")
    assert record.workers_of("L", "9m") == {"T2": 8}
    assert [(at, stop.job_id, stop.beneficiary) for at, stop in record.stops()] == [(600.0, "L", "H")]
    assert record.workers_of("H", "10m") == {"T1": 8, "T2": 8}


def test_r13_a_job_that_ends_before_the_deadline_is_waited_for(play: Play) -> None:
    record = play("R13-near-the-end")
    assert record.workers_of("A", "59m") == {"I1": 8}
    assert record.stops() == []
    assert record.recalled() == {"I1": 60 * MINUTE}
    assert record.returned() == {"I1": 62 * MINUTE}


def test_r13_if_that_would_be_too_late_the_job_that_loses_less_work_is_stopped(play: Play) -> None:
    record = play("R13-near-the-end", None, "inference.deadline=1m")
    assert [(at, stop.job_id, stop.beneficiary) for at, stop in record.stops()] == [(3600.0, "B", "I2")]
    assert record.returned() == {"I2": 60 * MINUTE}
    assert record.outcome.summary()["lost_gpu_s"] == pytest.approx(50 * MINUTE * 8)
