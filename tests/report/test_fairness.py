"""Who pays for a good mean: figures that can be worked out on paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.report.job_tables import Row, job_table

from aryl.report.fairness import fairness_of, jain


def test_jains_index_is_one_where_all_are_alike_and_one_nth_where_one_has_everything() -> None:
    assert jain(np.full(7, 0.3)) == pytest.approx(1.0)
    assert jain(np.array([5.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)
    assert math.isnan(jain(np.empty(0)))


def test_a_slow_job_shows_in_every_figure() -> None:
    """Three at full speed; one that takes ten times as long."""
    even = fairness_of(job_table([Row(0, 100)] * 4))
    assert (even.jain, even.slowdown_p99, even.slowdown_worst, even.longest_wait_s) == (1.0, 1.0, 1.0, 0.0)
    uneven = fairness_of(job_table([Row(0, 100)] * 3 + [Row(0, 1000, queuing_s=900)]))
    assert uneven.jain == pytest.approx((3.1 / 4) ** 2 / (3.01 / 4))
    assert uneven.slowdown_worst == 10.0
    assert uneven.slowdown_p99 == pytest.approx(1.0 + 9.0 * 0.97)
    assert uneven.longest_wait_s == 900.0


def test_moments_dont_make_a_slowdown() -> None:
    """A job of 1 s that takes 9 s isn't nine times as slow: both count as ten seconds."""
    assert fairness_of(job_table([Row(0, 9, duration_s=1)])).slowdown_worst == 1.0


def test_users_count_alike_however_many_jobs_they_have() -> None:
    fair = fairness_of(job_table([Row(0, 100, user="ada")] * 9 + [Row(0, 200, user="bob")]))
    assert fair.jain_users == pytest.approx(0.75**2 / ((1.0 + 0.25) / 2))
    assert math.isnan(fairness_of(job_table([Row(0, 100, user="ada")])).jain_users)


def test_large_gangs_are_watched_even_while_they_wait() -> None:
    rows = [Row(0, 100, gpus=31, queuing_s=70), Row(0, math.nan, gpus=32, queuing_s=50, state="PENDING")]
    fair = fairness_of(job_table(rows))
    assert (fair.longest_wait_s, fair.longest_wait_large_s) == (70.0, 50.0)
    assert fair.slowdown_worst == 1.0
    assert math.isnan(fairness_of(job_table(rows[:1])).longest_wait_large_s)
