"""The queue (Q1, Q2, Q4): large gangs get their turn, order is submission's, GPU types count."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aryl.policies.reasons import Wait
from aryl.testing import Record

Play = Callable[..., Record]
MINUTE = 60.0

RESERVING = "aryl:reserve_after=0"
ORDER = ["zeta", "alpha", "kappa", "beta", "job10", "job9", "omega", "a2", "a1", "a0"]


def test_q1_a_large_gang_starts_in_time_and_short_jobs_fill_the_gaps(play: Play) -> None:
    record = play("Q1-large-job", RESERVING)
    assert record.started_at("L") <= (60 + 45) * MINUTE
    assert all(70 * MINUTE < record.started_at(f"S{number}") < record.started_at("L") for number in (1, 2, 3))
    assert record.used_share("60m", record.started_at("L")) > 0.9
    assert record.used_share("60m", "180m") > 0.9
    assert record.stops() == []


def test_q1_jobs_that_would_delay_the_gang_say_so(play: Play) -> None:
    reason = play("Q1-large-job", RESERVING).reason("J24", "97m")
    assert (reason.wait, reason.behind, reason.needed_gpus) == (Wait.RESERVED, ("L",), 8)


def test_q1_without_a_reservation_the_gang_waits_far_longer(play: Play) -> None:
    without = play("Q1-large-job", "aryl").started_at("L")
    assert without > (60 + 45) * MINUTE
    assert without > play("Q1-large-job", RESERVING).started_at("L") + 60 * MINUTE


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "sjf", "srtf", "opportunistic", "aryl", "aryl-las"])
def test_q2_equal_gangs_start_in_the_order_of_submission(play: Play, policy: str) -> None:
    record = play("Q2-order", policy)
    starts = [record.starts(name) for name in ORDER]
    assert starts == [[number * 10 * MINUTE] for number in range(10)]


def test_q4_a_job_that_is_not_heterogeneous_holds_one_gpu_type(play: Play) -> None:
    record = play("Q4-mixed")
    assert record.sizes("E") == [(0.0, 8), (60 * MINUTE, 0)]
    assert record.workers_of("E", "4m") == {"T1": 8}


def test_q4_a_heterogeneous_job_may_mix_and_runs_at_the_mean_speed(play: Play) -> None:
    record = play("Q4-mixed", None, "jobs.0.heterogeneous=true")
    assert record.workers_of("E", "4m") == {"T1": 8, "T2": 8}
    # Twice the workers at a mean speed of 0.75.
    assert record.state_at("4m").jobs["E"].progress.rate == pytest.approx(1.5)


def test_q4_speeds_decide_whether_to_start_on_slow_gpus_or_wait(play: Play) -> None:
    record = play("Q4-mixed")
    assert record.workers_of("S", "5m") == {"T2": 8}
    assert record.ended_at("S") == (5 + 40) * MINUTE
    reason = record.reason("W", "50m")
    assert (reason.wait, reason.starts_s) == (Wait.FASTER_LATER, 60 * MINUTE)
    assert record.starts("W") == [60 * MINUTE]
    assert record.workers_of("W", "61m") == {"T1": 8}


def test_q4_a_loaned_server_takes_only_jobs_that_accept_its_gpus(play: Play) -> None:
    record = play("Q4-loaned")
    assert record.workers_of("G", "6m") == {"I1": 8}
    assert record.ended_at("G") == (6 + 60) * MINUTE
    assert record.started_at("F") == 300 * MINUTE
    assert record.workers_of("F", "301m") == {"T1": 8}
    assert record.reason("F", "70m").wait is Wait.NOT_ENOUGH_FREE
