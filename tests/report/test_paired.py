"""Two policies job by job: the differences, how sure they are, and by whom."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.report.conftest import Drive
from tests.report.job_tables import Row, with_jobs

from aryl.errors import InputError
from aryl.report.outcome import Outcome
from aryl.report.paired import DAY_S, MOST_USERS, NOBODY, OTHERS, pair_up

NewDrive = Callable[..., Drive]


@pytest.fixture
def blank(new_drive: NewDrive) -> Outcome:
    return new_drive(1).outcome()


def test_jobs_are_compared_with_themselves(blank: Outcome) -> None:
    first = with_jobs(blank, [Row(0, 100), Row(0, 1000), Row(10, 50)])
    second = with_jobs(blank, [Row(0, 90), Row(0, 1100), Row(10, 50.5)])
    ((everybody,), _, _) = pair_up([first], [second])
    assert (everybody.group, everybody.jobs) == ("all", 3)
    assert everybody.first_s == pytest.approx(1150 / 3)
    assert everybody.difference_s == pytest.approx(90.5 / 3)
    assert everybody.better == pytest.approx(1 / 3)
    assert everybody.worse == pytest.approx(1 / 3)


def test_only_what_finishes_under_both_counts(blank: Outcome) -> None:
    first = with_jobs(blank, [Row(0, 100), Row(0, 100, state="FAILED"), Row(0, 100)])
    second = with_jobs(blank, [Row(0, 80), Row(0, 10), Row(0, 10, state="PENDING")])
    ((everybody,), _, _) = pair_up([first], [second])
    assert (everybody.jobs, everybody.difference_s) == (1, -20.0)


def test_groups_are_by_size_and_by_user_with_most_gpu_time_first(blank: Outcome) -> None:
    users = [f"u{number:02d}" for number in range(12)]
    rows = [
        Row(number, 100, duration_s=10.0 * (number + 1), gpus=gpus, user=user)
        for number, user in enumerate(users)
        for gpus in (1, 8, 64)
    ]
    _, sizes, by_user = pair_up([with_jobs(blank, rows)], [with_jobs(blank, rows)])
    assert [(one.group, one.jobs) for one in sizes] == [
        ("1 GPU", 12),
        ("8 GPUs", 12),
        ("32 GPUs or more", 12),
    ]
    assert [one.group for one in by_user] == [*reversed(users[-MOST_USERS:]), OTHERS]
    assert by_user[-1].jobs == 6


def test_without_users_there_is_no_table_of_them(blank: Outcome) -> None:
    rows = [Row(0, 10), Row(5, 10)]
    assert pair_up([with_jobs(blank, rows)], [with_jobs(blank, rows)])[2] == []
    named = [Row(0, 10, user="ada"), Row(5, 10)]
    groups = pair_up([with_jobs(blank, named)], [with_jobs(blank, named)])[2]
    assert {one.group for one in groups} == {"ada", NOBODY}


def test_the_interval_is_about_days_and_not_about_jobs(blank: Outcome) -> None:
    """Half of the days gain 100 s, half lose 100 s, a thousand jobs each: single jobs drawn again would say
    that the difference is 0 within 5 s.
    """
    days = np.repeat(np.arange(30), 1000)
    sign = np.where(days % 2 == 0, 1.0, -1.0)
    first = with_jobs(blank, [Row(day * DAY_S + 60, 500.0) for day in days.tolist()])
    second = with_jobs(
        blank,
        [
            Row(day * DAY_S + 60, 500.0 + 100.0 * up)
            for day, up in zip(days.tolist(), sign.tolist(), strict=True)
        ],
    )
    ((everybody,), _, _) = pair_up([first], [second])
    assert everybody.difference_s == 0.0
    assert everybody.low_s == pytest.approx(-1.96 * 100 / np.sqrt(30), rel=0.15)
    assert everybody.high_s == pytest.approx(1.96 * 100 / np.sqrt(30), rel=0.15)


def test_an_interval_holds_the_truth_as_often_as_it_says(blank: Outcome) -> None:
    random = np.random.Generator(np.random.PCG64(3))
    held = 0
    for _ in range(60):
        effect = np.repeat(random.normal(10.0, 30.0, 40), 25)
        rows = [Row(place // 25 * DAY_S, 500.0) for place in range(1000)]
        moved = [
            row._replace(jct_s=row.jct_s + change) for row, change in zip(rows, effect.tolist(), strict=True)
        ]
        ((everybody,), _, _) = pair_up([with_jobs(blank, rows)], [with_jobs(blank, moved)])
        held += everybody.low_s <= 10.0 <= everybody.high_s
    assert 51 <= held <= 60


def test_several_runs_are_put_together(blank: Outcome) -> None:
    """A day of one run and the same day of another are two blocks."""
    one, other = with_jobs(blank, [Row(0, 100)] * 3), with_jobs(blank, [Row(0, 130)] * 3)
    ((everybody,), _, _) = pair_up([one, other], [other, one])
    assert (everybody.jobs, everybody.difference_s) == (6, 0.0)
    assert (everybody.low_s, everybody.high_s) == (-30.0, 30.0)


def test_other_jobs_are_refused(blank: Outcome) -> None:
    with pytest.raises(InputError, match="the same jobs"):
        pair_up([with_jobs(blank, [Row(0, 10)])], [with_jobs(blank, [Row(0, 10), Row(0, 10)])])
