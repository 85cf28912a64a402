"""How far a job has come and what a stop would lose, worked out by hand."""

from __future__ import annotations

import pytest

from aryl.core.progress import Progress


def test_a_job_that_never_saves_loses_everything() -> None:
    progress = Progress(None)
    progress.set_rate(100.0, 1.0)
    assert progress.done_at(160.0) == 60.0
    assert progress.saved_at(160.0) == 0.0
    assert progress.lost_at(160.0) == 60.0


def test_a_job_that_saves_continuously_loses_nothing() -> None:
    progress = Progress(0.0)
    progress.set_rate(0.0, 2.0)
    progress.set_rate(10.0, 0.5)
    assert progress.done_at(20.0) == 25.0
    assert progress.saved_at(20.0) == 25.0
    assert progress.lost_at(20.0) == 0.0


def test_a_job_that_saves_every_15_s_loses_what_it_did_since() -> None:
    progress = Progress(15.0)
    progress.set_rate(0.0, 1.0)
    assert progress.saved_at(14.9) == 0.0
    assert progress.saved_at(15.0) == 15.0
    assert progress.saved_at(44.0) == 30.0
    assert progress.lost_at(44.0) == pytest.approx(14.0)


def test_saving_counts_running_time_through_changing_rates() -> None:
    progress = Progress(10.0)
    progress.set_rate(0.0, 1.0)  # 0..6: 6 s done
    progress.set_rate(6.0, 2.0)  # 6..: saves at 10 s of running time, when 6 + 8 = 14 s are done
    assert progress.saved_at(9.0) == 0.0
    assert progress.saved_at(10.0) == 14.0
    assert progress.done_at(12.0) == 18.0
    assert progress.lost_at(12.0) == 4.0


def test_time_spent_standing_still_brings_no_save_nearer() -> None:
    progress = Progress(10.0)
    progress.set_rate(0.0, 1.0)
    progress.set_rate(8.0, 0.0)
    assert progress.saved_at(100.0) == 0.0
    progress.set_rate(100.0, 3.0)
    assert progress.saved_at(101.0) == 0.0
    assert progress.saved_at(102.0) == 14.0  # 8 s at rate 1, then 2 s at rate 3
    assert progress.done_at(102.0) == 14.0


def test_a_save_at_the_very_moment_of_a_change_counts_once() -> None:
    progress = Progress(10.0)
    progress.set_rate(0.0, 1.0)
    progress.set_rate(10.0, 4.0)
    assert progress.saved_s == 10.0
    assert progress.saved_at(19.0) == 10.0
    assert progress.saved_at(20.0) == 50.0


def test_a_restart_begins_with_what_was_kept_and_a_fresh_clock() -> None:
    progress = Progress(10.0)
    progress.set_rate(0.0, 1.0)
    progress.restart(18.0, 10.0)
    assert progress.done_at(40.0) == 10.0
    assert progress.lost_at(40.0) == 0.0
    progress.set_rate(40.0, 1.0)
    assert progress.saved_at(49.0) == 10.0
    assert progress.saved_at(50.0) == 20.0


def test_a_job_that_never_saves_keeps_what_it_was_asked_to_save() -> None:
    progress = Progress(None)
    progress.restart(5.0, 33.0)
    progress.set_rate(5.0, 1.0)
    assert progress.saved_at(50.0) == 33.0
    assert progress.lost_at(50.0) == 45.0


def test_rounding_never_puts_the_last_save_into_the_future() -> None:
    progress = Progress(0.1)
    progress.set_rate(0.0, 1.0)
    for tenths in range(1, 400):
        now_s = tenths * 0.1
        assert progress.lost_at(now_s) >= 0.0
        assert progress.lost_at(now_s) < 0.1 + 1e-9
