"""What is kept of the need: one value a slot, the highest that was heard of."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aryl.forecast.history import DAY_S, KEPT_S, WEEK_S, History


def observed(
    heard: Sequence[tuple[float, float]], *, step_s: float = 10.0, kept_s: float = KEPT_S
) -> History:
    history = History(step_s, kept_s)
    for at_s, need in heard:
        history.observe(at_s, need)
    return history


def by_hand(heard: Sequence[tuple[float, float]], step_s: float, most: int) -> list[float]:
    """The same, slot by slot from a table."""
    highest: dict[int, float] = {}
    for at_s, need in heard:
        slot = int(at_s // step_s)
        highest[slot] = max(highest.get(slot, need), need)
    values: list[float] = []
    for slot in range(min(highest), max(highest) + 1):
        values.append(highest.get(slot, values[-1] if values else 0.0))
    return values[-most:]


def test_a_slot_has_the_highest_need_that_was_heard_in_it() -> None:
    history = observed([(0.0, 3.0), (4.0, 5.0), (9.9, 4.0), (10.0, 1.0)])
    assert (history.values.tolist(), history.slot, len(history)) == ([5.0, 1.0], 1, 2)


def test_slots_in_which_nothing_was_heard_have_the_value_of_the_one_before() -> None:
    history = observed([(0.0, 3.0), (5.0, 4.0), (45.0, 2.0)])
    assert (history.values.tolist(), history.slot) == ([4.0, 4.0, 4.0, 4.0, 2.0], 4)


def test_how_many_slots_have_begun_is_told() -> None:
    history = History(10.0)
    begun = [history.observe(at_s, 1.0) for at_s in (-25.0, -21.0, -20.0, 0.0, 9.0, 10.0, 50.0)]
    assert begun == [1, 0, 1, 2, 0, 1, 4]


def test_times_before_the_beginning_are_slots_like_all_others() -> None:
    history = observed([(-20.0, 1.0), (-10.5, 2.0), (-10.0, 3.0), (-0.5, 4.0), (0.0, 5.0)])
    assert (history.values.tolist(), history.slot) == ([2.0, 4.0, 5.0], 0)


def test_a_time_that_falls_short_of_a_slot_by_rounding_alone_belongs_to_it() -> None:
    # 0.1 * 3 is 0.30000000000000004, and 0.7 / 0.1 is 6.999999999999999.
    history = observed([(number * 0.1, float(number)) for number in range(8)], step_s=0.1)
    assert history.values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert observed([(0.6, 6.0), (0.7, 7.0)], step_s=0.1).slot == 7


def test_a_word_about_a_time_that_is_over_counts_for_the_present_slot() -> None:
    history = observed([(0.0, 1.0), (10.0, 2.0), (9.0, 7.0)])
    assert (history.values.tolist(), history.slot) == ([1.0, 7.0], 1)


def test_only_so_much_is_kept() -> None:
    history = observed([(slot * 10.0, float(slot)) for slot in range(5000)], kept_s=200.0)
    assert history.values.tolist() == [float(slot) for slot in range(4980, 5000)]


def test_a_gap_of_years_takes_no_more_room_than_what_is_kept() -> None:
    history = observed([(0.0, 1.0), (1e12, 2.0)], step_s=1.0, kept_s=100.0)
    assert history.values.tolist() == [*[1.0] * 99, 2.0]
    assert history.slot == 10**12
    history.observe(2e12, 3.0)
    assert history.values.tolist() == [*[2.0] * 99, 3.0]


def test_room_does_not_grow_with_time() -> None:
    history = History(300.0, WEEK_S)
    room = set[int]()
    for slot in range(100_000):
        history.observe(slot * 300.0, 1.0)
        base = history.values.base
        assert base is not None
        room.add(base.shape[1])
    assert max(room) <= 4 * 2016


@pytest.mark.parametrize(
    ("step_s", "period_s", "slots"),
    [(300.0, DAY_S, 288), (60.0, DAY_S, 1440), (7.0, 3.0, 1), (40.0, 100.0, 2)],
)
def test_a_period_has_at_least_one_slot(step_s: float, period_s: float, slots: int) -> None:
    assert History(step_s).slots(period_s) == slots


@given(
    gaps=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), min_size=1, max_size=60),
    first_s=st.integers(-500, 500),
    most=st.integers(1, 30),
)
def test_the_values_are_those_of_a_table(gaps: list[tuple[int, int]], first_s: int, most: int) -> None:
    heard = []
    at_s = first_s
    for gap_s, need in gaps:
        at_s += gap_s
        heard.append((float(at_s), float(need)))
    history = observed(heard, step_s=8.0, kept_s=most * 8.0)
    assert history.values.tolist() == by_hand(heard, 8.0, most)
    assert history.slot == heard[-1][0] // 8.0
