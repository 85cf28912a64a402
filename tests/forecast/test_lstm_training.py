"""What the LSTM learns, on curves small enough to be learned in a second."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from aryl.errors import InputError
from aryl.forecast import lstm_training
from aryl.forecast.history import Floats
from aryl.forecast.lstm import (
    LEVELS,
    WINDOW,
    Loss,
    LstmModel,
    Network,
    inputs_of,
    scale_of,
    shapes_of,
)
from aryl.forecast.lstm_training import FEWEST_WINDOWS, SLOWEST, TAIL, refresh, train

HOUR_S = 3600.0
BOTH = pytest.mark.parametrize("loss", list(Loss))


def teeth(slots: int, period: int = 8, top: float = 70.0) -> Floats:
    """A need that climbs in even steps and falls at once."""
    return top * (np.arange(slots) % period) / (period - 1)


def learn(values: Floats, **changes: Any) -> LstmModel:
    settings: dict[str, Any] = {"horizons": 3, "hidden": 8, "epochs": 12, "seed": 3}
    return train(values, HOUR_S, **{**settings, **changes})


def same_weights(one: LstmModel, other: LstmModel) -> bool:
    return all((one.weights[name] == other.weights[name]).all() for name in one.weights)


def foreseen(model: LstmModel, values: Floats) -> Floats:
    """By window of `values`, horizon and output."""
    network, horizons = Network(model), model.facts.horizons
    ends = range(WINDOW, len(values) - horizons + 1)
    return np.array([network.peaks(values[end - WINDOW : end], model.facts.scale_servers) for end in ends])


def outcomes(values: Floats, horizons: int) -> Floats:
    ends = range(WINDOW, len(values) - horizons + 1)
    return np.array(
        [[values[end - 1 : end + ahead].max() for ahead in range(1, horizons + 1)] for end in ends]
    )


@BOTH
def test_a_curve_that_repeats_is_foreseen_far_better_than_by_its_last_value(loss: Loss) -> None:
    facts = learn(teeth(1200), loss=loss, epochs=15).facts
    assert facts.tail_error_servers < facts.last_error_servers / 5


@BOTH
def test_the_same_seed_gives_the_same_model_and_another_seed_another(loss: Loss) -> None:
    values = teeth(300)
    first = learn(values, loss=loss, epochs=2)
    again = learn(values, loss=loss, epochs=2)
    assert first.facts == again.facts
    assert same_weights(first, again)
    assert not same_weights(first, learn(values, loss=loss, epochs=2, seed=4))


def test_training_leaves_random_numbers_and_threads_of_others_alone() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        before = torch.get_rng_state()
        model = learn(teeth(300), epochs=1)
        refresh(model, teeth(100), 70.0, seed=1)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


@BOTH
def test_numpy_says_what_pytorch_says(loss: Loss) -> None:
    model = learn(teeth(300), loss=loss, epochs=1)
    facts = model.facts
    window = np.random.default_rng(1).uniform(0.0, 90.0, WINDOW)
    parts = torch.nn.ModuleDict(
        {
            "lstm": torch.nn.LSTM(2, facts.hidden, num_layers=2, batch_first=True),
            "head": torch.nn.Linear(facts.hidden, facts.horizons * facts.outputs),
        }
    )
    parts.load_state_dict({name: torch.from_numpy(weight.copy()) for name, weight in model.weights.items()})
    with torch.inference_mode():
        seen = torch.from_numpy(inputs_of(window[None, :] / facts.scale_servers, facts.unit))
        raw = parts["head"](parts["lstm"](seen)[0][:, -1]).reshape(facts.horizons, facts.outputs)
        if loss is Loss.QUANTILE:
            raw = torch.nn.functional.softplus(raw).cumsum(dim=1)
        increases = raw.clamp(min=0.0).numpy().astype(np.float64)
    expected = window[-1] + increases * facts.unit * facts.scale_servers
    np.testing.assert_allclose(Network(model).peaks(window, facts.scale_servers), expected, rtol=1e-4)


def test_an_untrained_network_has_levels_that_never_cross_nor_fall_below_the_present_need() -> None:
    model = learn(teeth(300), epochs=1)
    draws = np.random.default_rng(2)
    wild = {name: draws.normal(0.0, 3.0, part.shape) for name, part in model.weights.items()}
    network = Network(LstmModel(model.facts, {name: part.astype(np.float32) for name, part in wild.items()}))
    for _ in range(50):
        window = draws.uniform(0.0, 100.0, WINDOW)
        peaks = network.peaks(window, 70.0)
        assert peaks.shape == (3, len(LEVELS))
        assert (np.diff(peaks, axis=1) >= 0.0).all()
        assert (peaks >= window[-1]).all()


def test_a_level_is_exceeded_as_seldom_as_it_says() -> None:
    draws = np.random.default_rng(5)
    model = learn(draws.gamma(4.0, 5.0, 3000), levels=(0.25, 0.5, 0.9), epochs=8)
    fresh = draws.gamma(4.0, 5.0, 2000)
    below = (outcomes(fresh, 3)[:, :, None] <= foreseen(model, fresh) + 1e-9).mean(axis=0)
    # Draws are independent: the present need, of rank u, stays the highest for k slots in u^k of all cases,
    # and where that is more than the level, the need itself is the quantile and too low in fewer cases.
    level, slots = np.array([0.25, 0.5, 0.9]), np.array([[1], [2], [3]])
    rank = level ** (1 / slots)
    expected = level * rank + (1.0 - rank ** (slots + 1)) / (slots + 1)
    np.testing.assert_allclose(below, expected, atol=0.05)


def test_the_network_of_the_best_pass_is_kept_and_its_error_is_the_one_told() -> None:
    draws = np.random.default_rng(7)
    values = draws.gamma(4.0, 5.0, 400)  # so little that what is learned by heart soon makes it worse
    told: list[str] = []
    model = learn(
        values, loss=Loss.SQUARED, hidden=24, epochs=60, on_progress=lambda share, words: told.append(words)
    )
    guessed, happened = foreseen(model, values)[:, :, 0], outcomes(values, 3)
    tail = len(happened) - round(TAIL * len(happened))
    facts = model.facts
    assert np.abs(guessed - happened)[tail:].mean() == pytest.approx(facts.tail_error_servers, rel=1e-4)
    as_it_is = happened[tail:] - values[WINDOW - 1 : -3][tail:, None]
    assert as_it_is.mean() == pytest.approx(facts.last_error_servers)
    assert facts.epochs < 60
    assert told[-1] == (
        f"{facts.epochs} passes, error {facts.tail_error_servers:.3g}"
        f" (as it is: {facts.last_error_servers:.3g})"
    )


def test_nothing_is_learned_from_the_tail() -> None:
    values = teeth(400)
    changed = values.copy()
    # All of the tail's windows: their slots, and what follows them.
    windows = len(values) - WINDOW + 1 - 3
    first = windows - round(TAIL * windows)
    changed[first + WINDOW - 1 :] = np.random.default_rng(1).permutation(changed[first + WINDOW - 1 :])
    one, other = learn(values, epochs=1), learn(changed, epochs=1)
    assert one.facts.tail_loss != other.facts.tail_loss
    assert same_weights(one, other)


@BOTH
def test_progress_goes_up_to_one_and_says_how_good_it_is(loss: Loss) -> None:
    told: list[tuple[float, str]] = []
    model = learn(teeth(300), loss=loss, epochs=3, on_progress=lambda *said: told.append(said))
    assert [share for share, _ in told] == [1 / 3, 2 / 3, 1.0, 1.0]
    last = f"(as it is: {model.facts.last_error_servers:.3g})"
    assert [words.startswith(f"pass {number}, error ") for number, (_, words) in enumerate(told[:3], 1)] == [
        True,
        True,
        True,
    ]
    assert {words[-len(last) :] for _, words in told} == {last}


def test_facts_say_what_was_trained_and_on_what() -> None:
    facts = learn(teeth(300), curve="teeth", from_s=7200.0, epochs=2).facts
    assert (facts.step_s, facts.loss, facts.levels, facts.horizons, facts.hidden, facts.seed) == (
        HOUR_S,
        Loss.QUANTILE,
        LEVELS,
        3,
        8,
        3,
    )
    assert (facts.curve, facts.from_s, facts.until_s) == ("teeth", 7200.0, 7200.0 + 300 * HOUR_S)
    assert (facts.scale_servers, facts.epochs, facts.torch_version) == (70.0, 2, str(torch.__version__))
    assert learn(teeth(300), loss=Loss.SQUARED, epochs=1).facts.levels == ()


def test_a_curve_that_never_rises_is_foreseen_to_stay() -> None:
    model = learn(np.full(300, 40.0), loss=Loss.SQUARED, epochs=40)
    np.testing.assert_allclose(foreseen(model, np.full(20, 40.0)), 40.0, rtol=0.001)


def test_learning_ends_before_the_last_pass_when_nothing_is_left_to_learn() -> None:
    draws = np.random.default_rng(11)
    assert learn(draws.uniform(0.0, 10.0, 300), epochs=500).facts.epochs < 200
    assert SLOWEST < lstm_training.LEARNING_RATE


def test_the_scale_is_a_high_percentile_and_the_maximum_only_where_that_is_zero() -> None:
    burst = np.ones(1000)
    burst[0] = 500.0
    assert scale_of(burst) == 1.0
    assert scale_of(burst - 1.0) == 499.0
    assert scale_of(np.zeros(5)) == 0.0


@BOTH
def test_a_refresh_makes_a_model_better_on_what_it_is_shown_and_leaves_the_old_one_alone(loss: Loss) -> None:
    model = learn(teeth(600), loss=loss, epochs=12)
    before = {name: weight.copy() for name, weight in model.weights.items()}
    other = teeth(300)[::-1].copy()
    newer = model
    for day in range(3):
        newer = refresh(newer, other, 70.0, seed=day)
    middle = LEVELS.index(0.5) if loss is Loss.QUANTILE else 0
    errors = [
        float(np.square(foreseen(one, other)[:, :, middle] - outcomes(other, 3)).mean())
        for one in (model, newer)
    ]
    assert errors[1] < errors[0]
    assert all((model.weights[name] == weight).all() for name, weight in before.items())
    assert newer.facts == model.facts
    once = refresh(model, other, 70.0, seed=5)
    assert same_weights(once, refresh(model, other, 70.0, seed=5))
    assert not same_weights(once, refresh(model, other, 70.0, seed=6))


def test_weights_cannot_be_written_to() -> None:
    model = learn(teeth(300), epochs=1)
    assert {name: part.shape for name, part in model.weights.items()} == shapes_of(8, 3 * len(LEVELS))
    with pytest.raises(ValueError, match="read-only"):
        model.weights["head.bias"][0] = 1.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            teeth(FEWEST_WINDOWS + WINDOW + 1),
            "c.csv: too short to learn from (found 211); expected at least 212 slots",
        ),
        (
            np.append(teeth(300), -1.0),
            "c.csv: the need in slot 300 is no need (found -1.0); expected a number of servers >= 0",
        ),
        (
            np.append(teeth(300), np.nan),
            "c.csv: the need in slot 300 is no need (found nan); expected a number of servers >= 0",
        ),
        (np.zeros(300), "c.csv: nothing to learn: the need is always 0"),
    ],
)
def test_a_curve_that_nothing_can_be_learned_from_is_refused(values: Floats, message: str) -> None:
    with pytest.raises(InputError) as refused:
        learn(values, curve="c.csv")
    assert str(refused.value) == message


def test_the_shortest_curve_will_do() -> None:
    assert learn(teeth(FEWEST_WINDOWS + WINDOW + 2), epochs=1).facts.epochs == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizons": 0}, "horizons: out of range (found 0); expected at least 1"),
        ({"hidden": 0}, "hidden: out of range (found 0); expected at least 1"),
        ({"epochs": 0}, "epochs: out of range (found 0); expected at least 1"),
        (
            {"levels": (0.5, 0.5)},
            "levels: not the levels of quantiles (found '0.5, 0.5'); "
            "expected ascending numbers above 0 and below 1",
        ),
        (
            {"levels": (0.5, 1.0)},
            "levels: not the levels of quantiles (found '0.5, 1.0'); "
            "expected ascending numbers above 0 and below 1",
        ),
        (
            {"levels": (0.0, 0.5)},
            "levels: not the levels of quantiles (found '0.0, 0.5'); "
            "expected ascending numbers above 0 and below 1",
        ),
        (
            {"levels": ()},
            "levels: not the levels of quantiles (found ''); expected ascending numbers above 0 and below 1",
        ),
    ],
)
def test_a_number_out_of_its_range_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        learn(teeth(300), **changes)
    assert str(refused.value) == message


@pytest.mark.parametrize("step_s", [0.0, -1.0, np.inf, np.nan])
def test_slots_have_a_length(step_s: float) -> None:
    with pytest.raises(InputError, match="step_s: out of range"):
        train(teeth(300), step_s)


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"needs PyTorch .* pip install 'aryl\[forecast\]'"):
        learn(teeth(300))
