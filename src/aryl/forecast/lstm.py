"""The forecast of the Aryl paper (arXiv 2202.07896), reconstructed: an LSTM, two layers over ten samples.

    the last 10 slots -> LSTM, 2 layers -> one linear layer -> for k = 1..12 slots ahead:
    the highest need from the present slot until k slots later = present need + scale * unit * increase

The paper foresees the usage of the next interval; here every horizon has an output of its own, since a lease
may be longer than a slot. Outputs are increases over the present need, never negative, since the present slot
counts: a network that knows nothing yet says "it stays as it is". A sample goes in as two numbers: its share
of `scale`, and its difference from the present in units of `unit`, the typical increase in the data trained
on. Without the second, what matters would be a few hundredths, and training finds it late or never. Both are
free of the size of the pool, so that a model of 200 servers serves one of 520.

A trained model is plain numbers. It is asked with numpy, which needs no PyTorch and takes a fifth of a
millisecond; only training needs PyTorch (`lstm_training`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from aryl.forecast.history import Floats

Weights = npt.NDArray[np.float32]

WINDOW = 10  # samples that the network sees, as the paper is reconstructed
LAYERS = 2
HORIZONS = 12
HIDDEN = 32
INPUTS = 2
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
# The scale is a high percentile, not the maximum: one burst would make all other days look idle.
SCALE_PERCENTILE = 99.5

_GATES = 4


class Loss(StrEnum):
    """What training makes small."""

    SQUARED = "squared"  # the paper's: one output a horizon, the mean
    QUANTILE = "quantile"  # the pinball loss: one output a horizon and level


@dataclass(frozen=True, slots=True)
class LstmFacts:
    """What is known of a model beside its weights.

    `levels`: those of its outputs, ascending; empty for the squared loss. `scale_servers`: what values were
    divided by in training. `unit`: what increases were, as a share of the scale. `curve`: the name of what
    it was trained on, from `from_s` until `until_s`. Errors are those on the held-back tail, which training
    didn't see: `tail_loss` in units of `unit`, `tail_error_servers` the mean absolute error of the best
    guess over all horizons; `last_error_servers` the same for "it stays as it is".
    """

    step_s: float
    loss: Loss
    levels: tuple[float, ...]
    horizons: int
    hidden: int
    seed: int
    scale_servers: float
    unit: float
    curve: str
    from_s: float
    until_s: float
    epochs: int
    tail_loss: float
    tail_error_servers: float
    last_error_servers: float
    torch_version: str

    @property
    def outputs(self) -> int:
        """Outputs a horizon."""
        return max(len(self.levels), 1)


@dataclass(frozen=True, slots=True)
class LstmModel:
    """A trained network; `weights` by PyTorch's names, of the shapes of `shapes_of`."""

    facts: LstmFacts
    weights: Mapping[str, Weights]


def shapes_of(hidden: int, outputs: int) -> dict[str, tuple[int, ...]]:
    """The weights of a network: `lstm.*` as in `torch.nn.LSTM`, `head.*` as in `torch.nn.Linear`.

    Args:
        hidden: the width of each layer. outputs: of all horizons together.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(LAYERS):
        shapes[f"lstm.weight_ih_l{layer}"] = (_GATES * hidden, hidden if layer else INPUTS)
        shapes[f"lstm.weight_hh_l{layer}"] = (_GATES * hidden, hidden)
        shapes[f"lstm.bias_ih_l{layer}"] = shapes[f"lstm.bias_hh_l{layer}"] = (_GATES * hidden,)
    shapes["head.weight"], shapes["head.bias"] = (outputs, hidden), (outputs,)
    return shapes


def scale_of(values: Floats) -> float:
    """What a history is divided by, in servers: its 99.5th percentile, or its maximum if that is 0.

    Args:
        values: servers, not empty. 0 comes back only if they are all 0.
    """
    return float(np.percentile(values, SCALE_PERCENTILE)) or float(values.max())


def inputs_of(windows: Floats, unit: float) -> Weights:
    """What the network sees of windows.

    Args:
        windows: shares of the scale, the present one last; shape (n, WINDOW). unit: see `LstmFacts`.

    Returns:
        Shape (n, WINDOW, INPUTS).
    """
    differences = (windows - windows[:, -1:]) / unit
    return np.stack((windows, differences), axis=2).astype(np.float32)


class Network:
    """A model made ready to be asked: weights arranged so that a question is few products."""

    def __init__(self, model: LstmModel) -> None:
        facts, weights = model.facts, model.weights
        hidden = facts.hidden
        # sigmoid(x) = (1 + tanh(x / 2)) / 2: with the halves in the weights, one tanh does for all gates,
        # which are in, forget, candidate, out; the candidate is a tanh already.
        halves = np.full(_GATES * hidden, 0.5, dtype=np.float32)
        halves[2 * hidden : 3 * hidden] = 1.0
        self._layers = [
            (
                np.ascontiguousarray((weights[f"lstm.weight_ih_l{layer}"] * halves[:, None]).T),
                weights[f"lstm.weight_hh_l{layer}"] * halves[:, None],
                (weights[f"lstm.bias_ih_l{layer}"] + weights[f"lstm.bias_hh_l{layer}"]) * halves,
            )
            for layer in range(LAYERS)
        ]
        self._head, self._bias = weights["head.weight"], weights["head.bias"]
        self._facts = facts

    def peaks(self, window: Floats, scale_servers: float) -> Floats:
        """The highest need until each horizon.

        Args:
            window: the last `WINDOW` slots, the present one last; servers. scale_servers: above 0.

        Returns:
            Servers, shape (horizons, outputs): by level, not descending; or the best guess alone.
        """
        facts, hidden = self._facts, self._facts.hidden
        below = inputs_of(window[None, :] / scale_servers, facts.unit)[0]
        for weight_in, weight_back, bias in self._layers:
            gates = below @ weight_in + bias
            said = np.zeros(hidden, dtype=np.float32)
            cell = np.zeros(hidden, dtype=np.float32)
            above = np.empty((len(window), hidden), dtype=np.float32)
            for slot in range(len(window)):
                opened = np.tanh(gates[slot] + weight_back @ said)
                doors = 0.5 * opened + 0.5
                cell = doors[hidden : 2 * hidden] * cell + doors[:hidden] * opened[2 * hidden : 3 * hidden]
                said = doors[3 * hidden :] * np.tanh(cell)
                above[slot] = said
            below = above
        raw = (self._head @ below[-1] + self._bias).reshape(facts.horizons, facts.outputs)
        if facts.loss is Loss.QUANTILE:
            # Steps from level to level are softplus, so that levels can't cross.
            increases = np.cumsum(np.logaddexp(raw, np.float32(0.0)), axis=1)
        else:
            increases = np.maximum(raw, 0.0)
        peaks: Floats = window[-1] + scale_servers * facts.unit * increases.astype(np.float64)
        return peaks
