"""Quantiles of a best guess: its own past errors on top, as soon as they are known and no sooner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.forecast.history import History
from aryl.forecast.plain import Last
from aryl.forecast.predictor import MEDIAN, PointPredictor, Spread

LEVELS = (0.1, 0.5, 0.9)


@dataclass
class Scripted:
    """Guesses what it is told to, by slot."""

    guesses: Sequence[float]
    asked: list[int] = field(default_factory=list)

    def peak(self, history: History, steps: int) -> float:
        self.asked.append(history.slot)
        return self.guesses[history.slot]


def asked(
    point: PointPredictor,
    needs: Sequence[float],
    steps: int = 1,
    levels: Sequence[float] = LEVELS,
    window_s: float = 600.0,
) -> list[list[float]]:
    """What is answered in each slot of 1 s."""
    history, spread, answers = History(1.0), Spread(point, window_s), []
    for slot, need in enumerate(needs):
        history.observe(float(slot), need)
        answers.append(spread.predict(history, steps, levels).tolist())
    return answers


def test_the_median_is_the_guess() -> None:
    assert [answer[0] for answer in asked(Scripted([3.0, 1.0, 4.0]), [9.0, 0.0, 2.0], levels=MEDIAN)] == [
        3,
        1,
        4,
    ]
    assert [answer[1] for answer in asked(Scripted([3.0, 1.0, 4.0, 9.0]), [1.0] * 4)] == [3, 1, 4, 9]


def test_until_errors_are_known_all_quantiles_are_the_guess() -> None:
    # A guess over two steps, made in slot 0, is judged when slots 0 to 2 are over: in slot 3.
    answers = asked(Scripted([5.0] * 5), [5.0, 9.0, 5.0, 5.0, 5.0], steps=2, levels=(0.1, 0.9))
    assert answers[:3] == [[5.0, 5.0]] * 3
    assert answers[3] == [9.0, 9.0]


def test_a_guess_is_judged_by_the_highest_need_of_its_slots_the_present_one_included() -> None:
    for peak_at, error in ((0, 4.0), (1, 4.0), (2, 4.0), (3, 0.0)):
        needs = [9.0 if slot == peak_at else 5.0 for slot in range(4)]
        (low,) = asked(Scripted([5.0] * 4), needs, steps=2, levels=(0.9,))[3]
        assert low == 5.0 + error


def test_quantiles_are_those_of_the_errors() -> None:
    chance = np.random.default_rng(7)
    needs = chance.uniform(0.0, 9.0, 60)
    answers = asked(Scripted([20.0] * 60), needs.tolist(), steps=3)
    errors = [max(needs[slot : slot + 4]) - 20.0 for slot in range(56)]
    expected = 20.0 + np.quantile(errors, (0.1, 0.9))
    assert answers[-1] == pytest.approx([expected[0], 20.0, max(expected[1], 20.0)])


def test_no_quantile_is_below_zero() -> None:
    # The guess was 9 too high, and is now 1.
    answers = asked(Scripted([9.0, 9.0, 9.0, 1.0]), [0.0] * 4, levels=(0.1, 0.2))
    assert answers[-1] == [0.0, 0.0]


def test_old_errors_are_forgotten() -> None:
    needs = [*[9.0] * 5, *[5.0] * 10]
    kept = asked(Scripted([5.0] * 15), needs, levels=(0.9,), window_s=20.0)
    forgotten = asked(Scripted([5.0] * 15), needs, levels=(0.9,), window_s=4.0)
    assert (kept[-1], forgotten[-1]) == ([9.0], [5.0])


def test_errors_over_another_horizon_say_nothing() -> None:
    history, spread = History(1.0), Spread(Scripted([5.0] * 20))
    for slot in range(10):
        history.observe(float(slot), 7.0)
        spread.predict(history, 1, LEVELS)
    assert spread.predict(history, 1, (0.9,)).tolist() == [7.0]
    assert spread.predict(history, 2, (0.9,)).tolist() == [5.0]


def test_quantiles_do_not_descend_where_the_errors_lie_on_one_side() -> None:
    # All guesses were 2 too low, so even the quantile of 10 % is above the guess.
    (answer,) = asked(Scripted([5.0] * 9), [7.0] * 9)[-1:]
    assert answer == [7.0, 7.0, 7.0]


@settings(max_examples=60)
@given(
    needs=st.lists(st.integers(0, 30).map(float), min_size=1, max_size=50),
    steps=st.integers(1, 5),
    levels=st.lists(st.sampled_from((0.01, 0.25, 0.5, 0.75, 0.99)), min_size=1, unique=True).map(sorted),
)
def test_quantiles_ascend_and_are_the_same_for_the_same_history(
    needs: list[float], steps: int, levels: list[float]
) -> None:
    answers = asked(Last(), needs, steps, levels)
    assert answers == asked(Last(), needs, steps, levels)
    for answer in answers:
        assert len(answer) == len(levels)
        assert answer == sorted(answer)
        assert min(answer) >= 0.0
