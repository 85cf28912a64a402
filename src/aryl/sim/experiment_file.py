"""Reading experiments: from a file, from values, and with settings from the command line on top.

An `ExperimentSource` is what was written, with the place of every value; flags and sweeps change values in
it, and only then is it validated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aryl.errors import InputError
from aryl.files.faults import KeyPath, Place, dotted, place_of
from aryl.files.yaml_source import YamlSource, plain_values, read_yaml
from aryl.sim.experiment import Experiment

__all__ = [
    "ExperimentSource",
    "apply_setting",
    "experiment_from_mapping",
    "load_experiment",
    "read_source",
    "source_of",
    "to_mapping",
    "with_overrides",
]


class ExperimentSource(YamlSource):
    """An experiment as written, before validation."""

    def build(self) -> Experiment:
        """The validated experiment.

        Raises `InputError`; every combination of one sweep key's values is tried too.
        """
        experiment = self.validate(Experiment)
        for key, values in experiment.sweep.items():
            if not values:
                raise InputError(
                    "nothing to sweep over", **_where(self, ("sweep", key)), expected="a list of values"
                )
            if key.partition(".")[0] in {"sweep", "name"}:
                raise InputError("this can't be swept", **_where(self, ("sweep", key)))
            for index, value in enumerate(values):
                place = place_of(self.places, ("sweep", key, index))
                self.without("sweep").set(key, value, place).validate(Experiment)
        return experiment


def load_experiment(path: Path | str) -> Experiment:
    """Read and check an experiment file. Its name is the file's, unless the file has a `name`.

    Raises `InputError`.
    """
    return read_source(path).build()


def experiment_from_mapping(data: Mapping[str, Any], *, source: str | None = None) -> Experiment:
    """Check an experiment given as nested mappings and lists. `source` is named in errors.

    Raises `InputError`.
    """
    return ExperimentSource(dict(data), {(): Place(source)}).build()


def with_overrides(base: Experiment | ExperimentSource, settings: Sequence[str]) -> Experiment:
    """`base` with settings such as `simulation.restart_s=0` on top.

    Raises `InputError` that names `--set`.
    """
    source = source_of(base) if isinstance(base, Experiment) else base
    for setting in settings:
        source = apply_setting(source, setting)
    return source.build()


def apply_setting(source: ExperimentSource, setting: str) -> ExperimentSource:
    """`source` with one `KEY=VALUE` on top; the value is read as YAML.

    Raises `InputError` that names `--set`.
    """
    return source.apply(setting, "simulation.interval=60")


def to_mapping(experiment: Experiment) -> dict[str, Any]:
    """The experiment as plain values, which `experiment_from_mapping` turns into an equal experiment."""
    return plain_values(experiment)


def source_of(experiment: Experiment) -> ExperimentSource:
    """An experiment taken apart again, so that settings can be laid on top."""
    return ExperimentSource(to_mapping(experiment), {(): Place()})


def read_source(path: Path | str) -> ExperimentSource:
    """Read a file without checking more than that it is YAML with unique keys. Raises `InputError`."""
    data, places = read_yaml(path, what="an experiment", keys="cluster, jobs and so on")
    data.setdefault("name", Path(path).stem)
    return ExperimentSource(data, places)


def _where(source: ExperimentSource, path: KeyPath) -> dict[str, Any]:
    place = place_of(source.places, path)
    return {"file": place.file, "line": place.line, "field": dotted(path)}
