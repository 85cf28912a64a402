"""Reading experiments: from a file, from values, and with settings from the command line on top.

YAML is read node by node, because an error should name the line where the wrong value stands, and because a
key that is given twice should be an error where plain loading keeps the last one. An `ExperimentSource` is
what was written, with the place of every value; flags and sweeps change values in it, and only then is it
validated. So a flag may supply what the file leaves out, and an error names the flag or the line that is to
blame, whichever set the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from aryl.errors import InputError
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_errors import KeyPath, Place, dotted, input_error, place_of

__all__ = [
    "ExperimentSource",
    "experiment_from_mapping",
    "load_experiment",
    "read_source",
    "source_of",
    "to_mapping",
    "with_overrides",
]


@dataclass(frozen=True)
class ExperimentSource:
    """What was written, before validation: nested `data`, and the `places` of its values by path."""

    data: dict[str, Any]
    places: dict[KeyPath, Place] = field(default_factory=dict)

    def build(self) -> Experiment:
        """The validated experiment.

        Raises `InputError`; every combination of one sweep key's values is tried too.
        """
        experiment = self._validate()
        for key, values in experiment.sweep.items():
            if not values:
                raise InputError(
                    "nothing to sweep over", **_where(self, ("sweep", key)), expected="a list of values"
                )
            if key.partition(".")[0] in {"sweep", "name"}:
                raise InputError("this can't be swept", **_where(self, ("sweep", key)))
            for index, value in enumerate(values):
                place = place_of(self.places, ("sweep", key, index))
                self.without("sweep").set(key, value, place)._validate()
        return experiment

    def set(self, key: str, value: Any, place: Place) -> ExperimentSource:
        """A copy in which the dotted `key` has `value`.

        Raises `InputError` where the key leads through a value.
        """
        path = _resolve(self.data, key, place)
        data = _replaced(self.data, path, value, place, path)
        places = {old: at for old, at in self.places.items() if old[: len(path)] != path}
        return ExperimentSource(data, {**places, path: place})

    def without(self, key: str) -> ExperimentSource:
        """A copy without a top-level key or, dotted once, without a key of a section."""
        section, _, inner = key.partition(".")
        if section not in self.data:
            return self
        data = dict(self.data)
        if not inner:
            del data[section]
        elif isinstance(data[section], dict):
            data[section] = {name: value for name, value in data[section].items() if name != inner}
        return ExperimentSource(data, self.places)

    def _validate(self) -> Experiment:
        try:
            return Experiment.model_validate(self.data)
        except ValidationError as error:
            raise input_error(error, self.data, self.places) from None


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
    place = Place(f"--set {setting}")
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise InputError(
            "not a setting", file=place.file, expected="KEY=VALUE, such as simulation.interval=60"
        )
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise InputError("the value can't be read", file=place.file, expected="a value in YAML") from None
    return source.set(key.strip(), value, place)


def to_mapping(experiment: Experiment) -> dict[str, Any]:
    """The experiment as plain values, which `experiment_from_mapping` turns into an equal experiment."""
    plain: dict[str, Any] = _plain(experiment.model_dump(by_alias=True, exclude_none=True))
    return plain


def source_of(experiment: Experiment) -> ExperimentSource:
    """An experiment taken apart again, so that settings can be laid on top."""
    return ExperimentSource(to_mapping(experiment), {(): Place()})


def read_source(path: Path | str) -> ExperimentSource:
    """Read a file without checking more than that it is YAML with unique keys. Raises `InputError`."""
    file = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError("no such file", file=file) from None
    except UnicodeDecodeError:
        raise InputError("not a text file", file=file, expected="an experiment in YAML") from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", file=file) from None
    places: dict[KeyPath, Place] = {(): Place(file)}
    try:
        data = _parse(text, file, places)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise InputError(f"not YAML: {error.problem or error.context}", file=file, line=line) from None
    except yaml.YAMLError as error:
        raise InputError(f"not YAML: {' '.join(str(error).split())}", file=file) from None
    except RecursionError:
        raise InputError("nested too deeply", file=file) from None
    if data is None:
        raise InputError("the file is empty", file=file, expected="an experiment in YAML")
    if not isinstance(data, dict):
        raise InputError("not an experiment", file=file, expected="a mapping with cluster, jobs and so on")
    data.setdefault("name", Path(path).stem)
    return ExperimentSource(data, places)


def _parse(text: str, file: str, places: dict[KeyPath, Place]) -> Any:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        return None if node is None else _Reader(loader, file, places).read(node, ())
    finally:
        loader.dispose()


class _Reader:
    """Turns a tree of YAML nodes into plain values, noting where each one stands."""

    def __init__(self, loader: yaml.SafeLoader, file: str, places: dict[KeyPath, Place]) -> None:
        self._loader, self._file, self._places = loader, file, places
        self._open: set[int] = set()

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        """The value of `node`, which stands at `path`."""
        self._places.setdefault(path, Place(self._file, node.start_mark.line + 1))
        if isinstance(node, yaml.ScalarNode):
            return self._loader.construct_object(node)
        if id(node) in self._open:
            raise InputError(
                "contains itself", file=self._file, line=node.start_mark.line + 1, field=dotted(path)
            )
        self._open.add(id(node))
        value = (
            self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._sequence(node, path)
        )
        self._open.discard(id(node))
        return value

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[Any, Any]:
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise InputError("a key must be a word", file=self._file, line=line, field=dotted(path))
            key = self._loader.construct_object(key_node)
            if key in lines:
                raise InputError(
                    f"the key is given twice, first on line {lines[key]}",
                    file=self._file,
                    line=line,
                    field=dotted((*path, str(key))),
                )
            lines[key] = line
        self._loader.flatten_mapping(node)
        values: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self._loader.construct_object(key_node)
            inner = (*path, str(key))
            # A block that starts on the next line is best pointed at by its key.
            node_to_show = value_node if isinstance(value_node, yaml.ScalarNode) else key_node
            self._places[inner] = Place(self._file, node_to_show.start_mark.line + 1)
            values[key] = self.read(value_node, inner)
        return values

    def _sequence(self, node: yaml.Node, path: KeyPath) -> list[Any]:
        return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]


def _resolve(data: Mapping[str, Any], key: str, place: Place) -> KeyPath:
    path: list[str | int] = []
    here: Any = data
    for step in key.split("."):
        if isinstance(here, list):
            if not step.isdecimal() or int(step) >= len(here):
                name = dotted(tuple(path))
                raise InputError(
                    f"{name} is a list here", file=place.file, expected=f"{name}.0 to {len(here) - 1}"
                )
            path.append(int(step))
            here = here[int(step)]
        else:
            path.append(step)
            here = here.get(step) if isinstance(here, dict) else None
    return tuple(path)


def _replaced(here: Any, path: KeyPath, value: Any, place: Place, whole: KeyPath) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if here is None:
        here = {}
    if isinstance(here, list) and isinstance(step, int):
        return [
            _replaced(item, rest, value, place, whole) if at == step else item for at, item in enumerate(here)
        ]
    if isinstance(here, dict):
        return {**here, step: _replaced(here.get(step), rest, value, place, whole)}
    above = dotted(whole[: len(whole) - len(path)])
    raise InputError(f"{above} is a value, not a section", file=place.file, found=here)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _where(source: ExperimentSource, path: KeyPath) -> dict[str, Any]:
    place = place_of(source.places, path)
    return {"file": place.file, "line": place.line, "field": dotted(path)}
