"""A sweep: one experiment for each combination of the values to try, in the order of the file."""

from __future__ import annotations

import itertools
from typing import Any

from aryl.files.faults import Place
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import source_of

SweepPoint = tuple[dict[str, Any], Experiment]


def expand_sweep(experiment: Experiment) -> list[SweepPoint]:
    """The cartesian product of `experiment.sweep`; the last key varies fastest.

    Each result is a label, the swept keys with their values, and the experiment with those values and no
    sweep. Without a sweep there is one result with an empty label. Raises `InputError` where a combination is
    not valid.
    """
    if not experiment.sweep:
        return [({}, experiment)]
    base = source_of(experiment).without("sweep")
    points: list[SweepPoint] = []
    for values in itertools.product(*experiment.sweep.values()):
        label = dict(zip(experiment.sweep, values, strict=True))
        place = Place("sweep " + label_text(label))
        source = base
        for key, value in label.items():
            source = source.set(key, value, place)
        points.append((label, source.build()))
    return points


def label_text(label: dict[str, Any]) -> str:
    """A label on one line, such as `simulation.interval=60 jobs.seed=1`."""
    return " ".join(f"{key}={value}" for key, value in label.items())
