"""How a trained LSTM answers, with slots of an hour, so that a day is 24 of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aryl.errors import InputError
from aryl.forecast import lstm_predictor
from aryl.forecast.history import Floats, History
from aryl.forecast.lstm import WINDOW, Loss, LstmModel, Network
from aryl.forecast.lstm_predictor import LstmPredictor
from aryl.forecast.lstm_training import train

HOUR_S = 3600.0
LEVELS = (0.25, 0.5, 0.9)
MODELS: dict[Loss, LstmModel] = {}


def need(slots: int, seed: int = 1) -> Floats:
    """A day's wave with something on it, about 70 servers at most."""
    wave = 40.0 - 25.0 * np.cos(np.arange(slots) * 2 * np.pi / 24)
    return wave + np.random.default_rng(seed).uniform(0.0, 5.0, slots)


def model(loss: Loss = Loss.QUANTILE) -> LstmModel:
    if loss not in MODELS:
        MODELS[loss] = train(
            need(24 * 40), HOUR_S, loss=loss, levels=LEVELS, horizons=4, hidden=8, epochs=10, curve="wave"
        )
    return MODELS[loss]


def history(values: Floats, step_s: float = HOUR_S) -> History:
    told = History(step_s)
    for slot, servers in enumerate(values):
        told.observe(slot * step_s, float(servers))
    return told


def answers(predictor: LstmPredictor, values: Floats, steps: int = 3) -> list[list[float]]:
    """What it says after each slot."""
    told, said = History(HOUR_S), []
    for slot, servers in enumerate(values):
        told.observe(slot * HOUR_S, float(servers))
        said.append(predictor.predict(told, steps, (0.5, 0.9)).tolist())
    return said


@pytest.mark.parametrize("loss", list(Loss))
def test_before_ten_slots_are_known_it_stays_as_it_is(loss: Loss) -> None:
    predictor = LstmPredictor(model(loss))
    values = need(WINDOW)
    assert predictor.predict(history(values[:9]), 3, (0.5, 0.9)).tolist() == [values[8], values[8]]
    assert predictor.peak(history(values[:9]), 3) == values[8]
    assert predictor.peak(history(values), 3) > values[9]


@pytest.mark.parametrize("loss", list(Loss))
def test_slots_of_another_length_are_refused(loss: Loss) -> None:
    with pytest.raises(InputError) as refused:
        LstmPredictor(model(loss)).predict(history(need(30), step_s=300.0), 3)
    assert str(refused.value) == (
        "wave, step_s: the model was trained with slots of another length (found 300.0); "
        "expected 3600 s, or a model trained with these"
    )


@pytest.mark.parametrize("loss", list(Loss))
def test_the_best_guess_is_the_median(loss: Loss) -> None:
    told = history(need(40, seed=2))
    predictor = LstmPredictor(model(loss), refreshing=False)
    assert predictor.predict(told, 3).tolist() == [predictor.peak(told, 3)]


def test_levels_between_those_of_the_model_lie_between_and_those_beyond_are_the_outermost() -> None:
    told = history(need(20, seed=2))
    low, middle, high = Network(model()).peaks(told.values[-WINDOW:], model().facts.scale_servers)[2]
    said = LstmPredictor(model()).predict(told, 3, (0.01, 0.25, 0.5, 0.7, 0.9, 0.999))
    assert low < middle < high
    np.testing.assert_allclose(said, [low, low, middle, (middle + high) / 2, high, high], rtol=1e-12)


def test_each_horizon_has_its_output_and_beyond_the_last_it_is_the_last() -> None:
    told = history(need(20, seed=2))
    peaks = Network(model()).peaks(told.values[-WINDOW:], model().facts.scale_servers)
    predictor = LstmPredictor(model())
    said = [predictor.peak(told, steps) for steps in (1, 2, 3, 4, 5, 100)]
    assert said == [peaks[row, 1] for row in (0, 1, 2, 3, 3, 3)]


def test_after_a_day_a_pool_twice_as_large_gets_an_answer_twice_as_large() -> None:
    values = need(24, seed=2)
    one = LstmPredictor(model(), refreshing=False).predict(history(values), 3, LEVELS)
    two = LstmPredictor(model(), refreshing=False).predict(history(2.0 * values), 3, LEVELS)
    np.testing.assert_allclose(two, 2.0 * one, rtol=1e-6)
    young = LstmPredictor(model(), refreshing=False).predict(history(2.0 * values[1:]), 3, LEVELS)
    scale_servers = model().facts.scale_servers
    assert young.tolist() == Network(model()).peaks(2.0 * values[-WINDOW:], scale_servers)[2].tolist()


def test_the_scale_is_of_the_last_four_weeks_and_is_taken_once_a_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Floats] = []

    def scale_of(values: Floats) -> float:
        seen.append(values.copy())
        return 70.0

    monkeypatch.setattr(lstm_predictor, "scale_of", scale_of)
    values = need(24 * 33)
    answers(LstmPredictor(model(), refreshing=False), values)
    assert len(seen) == 33
    assert [len(part) for part in seen[:2]] == [24, 48]
    assert seen[30].tolist() == values[24 * 31 - 28 * 24 : 24 * 31].tolist()


def test_a_day_without_any_need_makes_no_trouble() -> None:
    said = answers(LstmPredictor(model()), np.zeros(60))
    assert np.isfinite(said).all()
    assert min(map(min, said)) >= 0.0


@pytest.mark.parametrize("loss", list(Loss))
def test_it_learns_once_a_day_from_the_last_two_weeks_and_goes_on_from_what_it_had_learned(
    loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[LstmModel, Floats, float, int]] = []

    def refresh(old: LstmModel, values: Floats, scale_servers: float, seed: int) -> LstmModel:
        calls.append((old, values.copy(), scale_servers, seed))
        return replace(old, facts=replace(old.facts, epochs=100 + len(calls)))

    monkeypatch.setattr(lstm_predictor, "refresh", refresh)
    values = need(24 * 17)
    answers(LstmPredictor(model(loss)), values)
    assert [len(call[1]) for call in calls] == [24 * min(day, 14) for day in range(1, 18)]
    assert calls[16][1].tolist() == values[24 * 3 : 24 * 17].tolist()
    assert [call[0].facts.epochs for call in calls[1:]] == [100 + day for day in range(1, 17)]
    assert calls[0][0] is model(loss)
    assert len({call[3] for call in calls}) == 17


def test_a_history_that_is_long_from_the_start_is_learned_from_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths: list[int] = []

    def refresh(old: LstmModel, values: Floats, scale_servers: float, seed: int) -> LstmModel:
        lengths.append(len(values))
        return old

    monkeypatch.setattr(lstm_predictor, "refresh", refresh)
    told, predictor = history(need(24 * 10)), LstmPredictor(model())
    for _ in range(3):
        predictor.predict(told, 3)
    assert lengths == [240]


@pytest.mark.parametrize("loss", list(Loss))
def test_the_same_questions_get_the_same_answers_and_the_model_stays_as_it_is(loss: Loss) -> None:
    before = {name: weight.copy() for name, weight in model(loss).weights.items()}
    values = need(24 * 4, seed=3)
    first = answers(LstmPredictor(model(loss)), values)
    assert first == answers(LstmPredictor(model(loss)), values)
    still = answers(LstmPredictor(model(loss), refreshing=False), values)
    assert first[:23] == still[:23]
    assert first[23:] != still[23:]
    assert all((model(loss).weights[name] == weight).all() for name, weight in before.items())


def test_without_refreshing_no_pytorch_is_needed_and_with_it_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained = model()
    monkeypatch.setitem(sys.modules, "torch", None)
    assert np.isfinite(answers(LstmPredictor(trained, refreshing=False), need(50))).all()
    with pytest.raises(InputError, match=r"pip install 'aryl\[forecast\]'"):
        LstmPredictor(trained)


def test_with_the_squared_loss_quantiles_come_from_its_own_errors_so_far() -> None:
    values = need(60, seed=4)
    said = answers(LstmPredictor(model(Loss.SQUARED), refreshing=False), values)
    told, point = History(HOUR_S), LstmPredictor(model(Loss.SQUARED), refreshing=False)
    guesses: list[float] = []
    for slot, servers in enumerate(values):
        told.observe(slot * HOUR_S, float(servers))
        guesses.append(point.peak(told, 3))
    errors = [float(values[slot : slot + 4].max()) - guesses[slot] for slot in range(56)]
    assert [middle for middle, _ in said] == guesses
    assert said[59][1] == pytest.approx(guesses[59] + np.quantile(errors, 0.9))


@pytest.mark.parametrize("loss", list(Loss))
def test_it_foresees_a_wave_better_than_by_its_last_value(loss: Loss) -> None:
    values = need(24 * 8, seed=5)
    happened = np.array([values[slot : slot + 4].max() for slot in range(24, len(values) - 3)])
    said = np.array(answers(LstmPredictor(model(loss)), values))[24:-3, 0]
    assert np.abs(said - happened).mean() < 0.6 * np.abs(values[24:-3] - happened).mean()


def any_model(**changes: Any) -> LstmModel:
    return replace(model(), facts=replace(model().facts, **changes))


def test_a_length_of_slots_that_differs_by_rounding_only_is_the_same() -> None:
    told = history(need(12))
    rounded = LstmPredictor(any_model(step_s=HOUR_S * (1 + 1e-12)))
    assert rounded.peak(told, 1) == LstmPredictor(model()).peak(told, 1)
