"""Foresees with a trained LSTM, which goes on learning once a day from what it is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aryl.errors import InputError
from aryl.forecast.history import DAY_S, WEEK_S, Floats, History
from aryl.forecast.lstm import WINDOW, Loss, LstmModel, Network, scale_of
from aryl.forecast.lstm_training import refresh, require_torch
from aryl.forecast.predictor import MEDIAN, Spread

SCALE_S = 4 * WEEK_S
LEARNED_S = 2 * WEEK_S


class LstmPredictor:
    """A `Predictor`. Its best guess is the mean (squared loss) or the median (quantile loss).

    Quantiles are the network's own, straight lines between its levels and the outermost level beyond them;
    with the squared loss the guess plus quantiles of its own past errors, as `Spread` does it. Until there
    are ten slots of history, all of them are the present need. More slots ahead than the model has
    horizons: its last horizon, which is then too low.

    Once a day the scale is taken anew, from the last four weeks (until there is a day of history, it is that
    of the training data), and with `refreshing` the network learns a little from the last two weeks. That
    takes about half a second, and is forgotten with this object: the model stays as it is. It makes much of a
    model that was trained on another curve, and next to no difference to one that knows its curve.
    """

    def __init__(self, model: LstmModel, *, refreshing: bool = True) -> None:
        """Raises InputError if it shall be refreshed and PyTorch isn't installed."""
        if refreshing:
            require_torch()
        self._model, self._network = model, Network(model)
        self._refreshing = refreshing
        self._scale_servers = model.facts.scale_servers
        self._due_slot: int | None = None
        self._spread = Spread(self) if model.facts.loss is Loss.SQUARED else None

    def predict(self, history: History, steps: int, levels: Sequence[float] = MEDIAN) -> Floats:
        """See `Predictor`. Raises InputError if the slots of history are not as long as the model's."""
        if self._spread is not None:
            return self._spread.predict(history, steps, levels)
        peaks = self._peaks(history, steps)
        if len(peaks) == 1:
            return np.full(len(levels), peaks[0])
        return np.interp(levels, self._model.facts.levels, peaks)

    def peak(self, history: History, steps: int) -> float:
        """The best guess of the highest need, in servers. Raises InputError as `predict` does."""
        peaks = self._peaks(history, steps)
        if len(peaks) == 1:
            return float(peaks[0])
        return float(np.interp(0.5, self._model.facts.levels, peaks))

    def _peaks(self, history: History, steps: int) -> Floats:
        """What the network says, by level; one value where it says one, or nothing yet."""
        facts = self._model.facts
        if not math.isclose(history.step_s, facts.step_s):
            raise InputError(
                "the model was trained with slots of another length",
                file=facts.curve or None,
                field="step_s",
                found=history.step_s,
                expected=f"{facts.step_s:.10g} s, or a model trained with these",
            )
        values = history.values
        if len(values) < WINDOW:
            return values[-1:]
        if len(values) >= history.slots(DAY_S) and (self._due_slot is None or history.slot >= self._due_slot):
            self._begin_day(history)
        peaks = self._network.peaks(values[-WINDOW:], self._scale_servers)
        by_level: Floats = peaks[min(steps, facts.horizons) - 1]
        return by_level

    def _begin_day(self, history: History) -> None:
        values, facts = history.values, self._model.facts
        self._due_slot = history.slot + history.slots(DAY_S)
        self._scale_servers = scale_of(values[-history.slots(SCALE_S) :]) or facts.scale_servers
        recent = values[-history.slots(LEARNED_S) :]
        if self._refreshing and len(recent) > WINDOW + facts.horizons:
            seed = facts.seed + abs(history.slot)
            self._model = refresh(self._model, recent, self._scale_servers, seed)
            self._network = Network(self._model)
