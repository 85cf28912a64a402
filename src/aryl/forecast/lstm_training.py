"""Trains the LSTM with PyTorch, on one thread of the CPU: the same data and seed give the same model.

Windows are learned from in a random order, all but those of the last 15 % of the time. After each pass these
are judged; when that no longer gets better, learning slows down, and then ends. The best pass is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, assert_never

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from aryl.errors import InputError
from aryl.forecast.history import Floats
from aryl.forecast.lstm import (
    HIDDEN,
    HORIZONS,
    INPUTS,
    LAYERS,
    LEVELS,
    WINDOW,
    Loss,
    LstmFacts,
    LstmModel,
    Weights,
    inputs_of,
    scale_of,
)

EPOCHS = 40
BATCH = 512
SMALLEST_BATCH = 32
FEWEST_BATCHES = 40  # in a pass, or a short curve would be learned from in too few steps
LEARNING_RATE = 4e-3
TAIL = 0.15
PATIENCE = 2  # passes without getting better before learning slows down
SLOWER = 0.3
SLOWEST = 1e-4
FEWEST_WINDOWS = 200
SMALLEST_UNIT = 1e-3  # a curve that hardly ever rises would make numbers without bounds of its differences

REFRESH_STEPS = 40
REFRESH_RATE = 3e-4

OnProgress = Callable[[float, str], None]


def train(
    values: Floats,
    step_s: float,
    *,
    loss: Loss = Loss.QUANTILE,
    levels: tuple[float, ...] = LEVELS,
    horizons: int = HORIZONS,
    hidden: int = HIDDEN,
    seed: int = 1,
    epochs: int = EPOCHS,
    curve: str = "",
    from_s: float = 0.0,
    on_progress: OnProgress | None = None,
) -> LstmModel:
    """Train a model on a curve.

    Args:
        values: the need by slot, servers. step_s: the length of a slot.
        loss: `squared` foresees the mean, `quantile` these levels (ascending, above 0 and below 1).
        horizons: slots ahead. hidden: the width of each of the two layers.
        epochs: passes over the data, at most.
        curve: its name, and `from_s` the time of its first slot: only to be remembered with the model.
        on_progress: called after every pass with the share done, 0..1, and a few words.

    Raises:
        InputError: PyTorch isn't installed; too few values; one is negative or not finite; all are 0; a
            number out of its range.
    """
    _check_numbers(step_s, loss, levels, horizons, hidden, epochs)
    windows, highest, scale_servers = _samples(values, horizons, curve)
    torch = require_torch()
    increases = highest - windows[:, -1:]
    tail = len(windows) - max(round(TAIL * len(windows)), 1)
    # What follows the last windows that are learned from would otherwise be known from the tail.
    learned = max(tail - horizons, 1)
    unit = max(float(np.sqrt(np.mean(increases[:learned] ** 2))), SMALLEST_UNIT)
    last_error_servers = float(increases[tail:].mean()) * scale_servers
    with _quiet(torch, seed):
        network = _Net(torch, loss, levels, horizons, hidden)
        x = torch.from_numpy(inputs_of(windows, unit))
        y = torch.from_numpy((increases / unit).astype(np.float32))
        optimiser = torch.optim.Adam(network.parameters, lr=LEARNING_RATE)
        best, best_loss, best_error, passes, poor = network.weights(), np.inf, np.inf, 0, 0
        rate = LEARNING_RATE
        batch = min(max(learned // FEWEST_BATCHES, SMALLEST_BATCH), BATCH)
        for epoch in range(epochs):
            order = torch.randperm(learned)
            for first in range(0, learned, batch):
                network.step(optimiser, x, y, order[first : first + batch])
            tail_loss, tail_error = network.judge(x[tail:], y[tail:])
            passes, poor = passes + 1, poor + 1
            if tail_loss < best_loss:
                best, best_loss, best_error, poor = network.weights(), tail_loss, tail_error, 0
            elif poor > PATIENCE:
                rate, poor = rate * SLOWER, 0
                network.take(best)
                optimiser = torch.optim.Adam(network.parameters, lr=rate)
            error_servers = best_error * unit * scale_servers
            if on_progress is not None:
                words = f"pass {epoch + 1}, error {error_servers:.3g} (as it is: {last_error_servers:.3g})"
                on_progress((epoch + 1) / epochs, words)
            if rate < SLOWEST:
                break
    if on_progress is not None:
        on_progress(1.0, f"{passes} passes, error {error_servers:.3g} (as it is: {last_error_servers:.3g})")
    facts = LstmFacts(
        step_s=float(step_s),
        loss=loss,
        levels=tuple(levels) if loss is Loss.QUANTILE else (),
        horizons=horizons,
        hidden=hidden,
        seed=seed,
        scale_servers=scale_servers,
        unit=unit,
        curve=curve,
        from_s=float(from_s),
        until_s=float(from_s + len(values) * step_s),
        epochs=passes,
        tail_loss=best_loss,
        tail_error_servers=error_servers,
        last_error_servers=last_error_servers,
        torch_version=str(torch.__version__),
    )
    return LstmModel(facts, best)


def refresh(model: LstmModel, values: Floats, scale_servers: float, seed: int) -> LstmModel:
    """Another model: this one, trained a little further on recent values. A fraction of a second.

    Args:
        model: stays as it is. values: servers, more than a window and the horizons. scale_servers: above 0.

    Raises:
        InputError: PyTorch isn't installed.
    """
    torch = require_torch()
    facts = model.facts
    windows, highest = _cut(values / scale_servers, facts.horizons)
    with _quiet(torch, seed):
        network = _Net(torch, facts.loss, facts.levels, facts.horizons, facts.hidden)
        network.take(model.weights)
        x = torch.from_numpy(inputs_of(windows, facts.unit))
        y = torch.from_numpy(((highest - windows[:, -1:]) / facts.unit).astype(np.float32))
        optimiser = torch.optim.Adam(network.parameters, lr=REFRESH_RATE)
        for _ in range(REFRESH_STEPS):
            network.step(optimiser, x, y, torch.randint(len(x), (min(BATCH, len(x)),)))
        return replace(model, weights=network.weights())


def require_torch() -> Any:
    """PyTorch, imported where it is used, since it is an optional engine. Raises InputError without it."""
    try:
        import torch
    except ImportError:
        raise InputError(
            "training an LSTM needs PyTorch",
            field="predictor",
            found="lstm",
            expected="an installation with the extra: pip install 'aryl[forecast]'",
        ) from None
    return torch


class _Net:
    """The network in PyTorch, and its loss."""

    def __init__(self, torch: Any, loss: Loss, levels: tuple[float, ...], horizons: int, hidden: int) -> None:
        self._torch, self._loss, self._horizons = torch, loss, horizons
        self._levels = torch.tensor(levels if loss is Loss.QUANTILE else (0.5,))
        self._middle = int(np.argmin(np.abs(np.array(levels) - 0.5))) if loss is Loss.QUANTILE else 0
        self._parts = torch.nn.ModuleDict(
            {
                "lstm": torch.nn.LSTM(INPUTS, hidden, num_layers=LAYERS, batch_first=True),
                "head": torch.nn.Linear(hidden, horizons * len(self._levels)),
            }
        )
        self.parameters = [*self._parts.parameters()]

    def weights(self) -> dict[str, Weights]:
        """A copy, not to be written to."""
        copied = {name: part.detach().numpy().copy() for name, part in self._parts.state_dict().items()}
        for weight in copied.values():
            weight.flags.writeable = False
        return copied

    def take(self, weights: Mapping[str, Weights]) -> None:
        """Go on from these weights."""
        self._parts.load_state_dict(
            {name: self._torch.from_numpy(weight.copy()) for name, weight in weights.items()}
        )

    def step(self, optimiser: Any, x: Any, y: Any, rows: Any) -> None:
        """Learn from these rows once."""
        optimiser.zero_grad()
        self._loss_of(self._outputs(x[rows]), y[rows]).backward()
        optimiser.step()

    def judge(self, x: Any, y: Any) -> tuple[float, float]:
        """The loss and the mean absolute error of the best guess, both in units of `LstmFacts.unit`."""
        with self._torch.inference_mode():
            outputs = self._outputs(x)
            best = outputs[:, :, self._middle].clamp(min=0.0)
            return float(self._loss_of(outputs, y)), float((best - y).abs().mean())

    def _outputs(self, x: Any) -> Any:
        said, _ = self._parts["lstm"](x)
        raw = self._parts["head"](said[:, -1]).reshape(len(x), self._horizons, len(self._levels))
        match self._loss:
            case Loss.QUANTILE:
                return self._torch.nn.functional.softplus(raw).cumsum(dim=2)
            case Loss.SQUARED:
                return raw
            case _:
                assert_never(self._loss)

    def _loss_of(self, outputs: Any, y: Any) -> Any:
        above = y[:, :, None] - outputs
        match self._loss:
            case Loss.QUANTILE:
                return self._torch.maximum(self._levels * above, (self._levels - 1.0) * above).mean()
            case Loss.SQUARED:
                return above.square().mean()
            case _:
                assert_never(self._loss)


@contextmanager
def _quiet(torch: Any, seed: int) -> Iterator[None]:
    """Random numbers and threads of its own. One thread: the network is small, and sums stay in one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def _cut(values: Floats, horizons: int) -> tuple[Floats, Floats]:
    """Windows, shape (n, WINDOW), and the highest from the last slot of each until 1..horizons slots later,
    shape (n, horizons).
    """
    windows = sliding_window_view(values, WINDOW)[: len(values) - WINDOW + 1 - horizons]
    following = sliding_window_view(values[WINDOW - 1 :], horizons + 1)
    return windows, np.maximum.accumulate(following, axis=1)[:, 1:]


def _samples(values: Floats, horizons: int, curve: str) -> tuple[Floats, Floats, float]:
    fewest = FEWEST_WINDOWS + WINDOW + horizons - 1
    source = curve or None
    if len(values) < fewest:
        raise InputError(
            "too short to learn from", file=source, found=len(values), expected=f"at least {fewest} slots"
        )
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0.0)))
    if len(bad):
        raise InputError(
            f"the need in slot {bad[0]} is no need",
            file=source,
            found=float(values[bad[0]]),
            expected="a number of servers >= 0",
        )
    scale_servers = scale_of(values)
    if scale_servers == 0.0:
        raise InputError("nothing to learn: the need is always 0", file=source)
    windows, highest = _cut(values / scale_servers, horizons)
    return windows, highest, scale_servers


def _check_numbers(
    step_s: float, loss: Loss, levels: tuple[float, ...], horizons: int, hidden: int, epochs: int
) -> None:
    whole = (("horizons", horizons), ("hidden", hidden), ("epochs", epochs))
    for field, number in whole:
        if number < 1:
            raise InputError("out of range", field=field, found=number, expected="at least 1")
    if not 0.0 < step_s < np.inf:
        raise InputError("out of range", field="step_s", found=step_s, expected="a time above 0 s")
    if loss is Loss.SQUARED:
        return
    ascend = all(below < above for below, above in pairwise(levels))
    if not levels or not ascend or levels[0] <= 0.0 or levels[-1] >= 1.0:
        raise InputError(
            "not the levels of quantiles",
            field="levels",
            found=", ".join(map(str, levels)),
            expected="ascending numbers above 0 and below 1",
        )
