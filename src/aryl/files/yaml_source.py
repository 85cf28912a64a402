"""Reading YAML so that an error can name the line, and laying settings of the command line on top.

YAML is read node by node, because an error should name the line where the wrong value stands, and because a
key that is given twice should be an error where plain loading keeps the last one. A `YamlSource` is what was
written, with the place of every value; flags change values in it, and only then is it validated. So a flag
may supply what the file leaves out, and an error names the flag or the line that is to blame, whichever set
the value.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from pydantic import ValidationError

from aryl.errors import InputError
from aryl.files.faults import KeyPath, Place, dotted, input_error, shortened
from aryl.files.fields import MOST_NUMBER_AS_TEXT, Strict, in_one_line

Model = TypeVar("Model", bound=Strict)

# More than any file that people write. A few lines of aliases can stand for more values than there is memory.
MOST_VALUES = 1_000_000


@dataclass(frozen=True)
class YamlSource:
    """What was written, before validation: nested `data`, and the `places` of its values by path."""

    data: dict[str, Any]
    places: dict[KeyPath, Place] = field(default_factory=dict)

    def set(self, key: str, value: Any, place: Place) -> Self:
        """A copy in which the dotted `key` has `value`.

        Raises `InputError` where the key leads through a value.
        """
        path = _resolve(self.data, key, place)
        data = _replaced(self.data, path, value, place, path)
        places = {old: at for old, at in self.places.items() if old[: len(path)] != path}
        return type(self)(data, {**places, path: place})

    def without(self, key: str) -> Self:
        """A copy without a top-level key or, dotted once, without a key of a section."""
        section, _, inner = key.partition(".")
        if section not in self.data:
            return self
        data = dict(self.data)
        if not inner:
            del data[section]
        elif isinstance(data[section], dict):
            data[section] = {name: value for name, value in data[section].items() if name != inner}
        return type(self)(data, self.places)

    def apply(self, setting: str, example: str) -> Self:
        """A copy with one `KEY=VALUE` on top; the value is read as YAML. `example` shows how it is done.

        Raises `InputError` that names `--set`.
        """
        place = Place(f"--set {setting}")
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise InputError("not a setting", file=place.file, expected=f"KEY=VALUE, such as {example}")
        return self.set(key.strip(), _value_of(text, place), place)

    def validate(self, model: type[Model]) -> Model:
        """The data as a `model`. Raises `InputError` for the first thing that is wrong."""
        try:
            return model.model_validate(self.data)
        except ValidationError as error:
            raise input_error(error, self.data, self.places, model) from None


def read_yaml(
    path: Path | str, *, what: str, keys: str, most_bytes: int = 64 * 2**20
) -> tuple[dict[str, Any], dict[KeyPath, Place]]:
    """The values of a file and their places, without checking more than that it is YAML with unique keys.

    `what` is what it should be ("an experiment"), `keys` some of its keys, for the errors.

    Raises `InputError`.
    """
    file = str(path)
    try:
        with Path(path).open("rb") as opened:
            content = opened.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise InputError("too large", file=file, expected=f"at most {most_bytes} bytes")
        text = content.decode("utf-8")
    except FileNotFoundError:
        raise InputError("no such file", file=file) from None
    except UnicodeDecodeError:
        raise InputError("not a text file", file=file, expected=f"{what} in YAML") from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", file=file) from None
    except ValueError:
        raise InputError("not the name of a file", found=file) from None
    places: dict[KeyPath, Place] = {(): Place(file)}
    data = _parse(text, file, places)
    if data is None:
        raise InputError("the file is empty", file=file, expected=f"{what} in YAML")
    if not isinstance(data, dict):
        raise InputError(f"not {what}", file=file, expected=f"a mapping with {keys}")
    return data, places


def plain_values(model: Strict) -> dict[str, Any]:
    """A model as plain values, which validate to an equal model again."""
    plain: dict[str, Any] = _plain(model.model_dump(by_alias=True, exclude_none=True))
    return plain


def _value_of(text: str, place: Place) -> Any:
    try:
        return _parse(text, place.file or "", {})
    except InputError:
        raise InputError("the value can't be read", file=place.file, expected="a value in YAML") from None


def _parse(text: str, file: str, places: dict[KeyPath, Place]) -> Any:
    try:
        # Making the loader reads the start already, and refuses what can't be printed.
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            return None if node is None else _Reader(loader, file, places).read(node, ())
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        problem = shortened(in_one_line(str(error.problem or error.context)))
        raise InputError(f"not YAML: {problem}", file=file, line=line) from None
    except yaml.YAMLError as error:
        problem = shortened(in_one_line(" ".join(str(error).split())))
        raise InputError(f"not YAML: {problem}", file=file) from None
    except RecursionError:
        raise InputError("nested too deeply", file=file) from None


class _Reader:
    """Turns a tree of YAML nodes into plain values, noting where each one stands."""

    def __init__(self, loader: yaml.SafeLoader, file: str, places: dict[KeyPath, Place]) -> None:
        self._loader, self._file, self._places = loader, file, places
        self._open: set[int] = set()
        self._values = 0

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        """The value of `node`, which stands at `path`."""
        self._places.setdefault(path, Place(self._file, node.start_mark.line + 1))
        self._values += 1
        if self._values > MOST_VALUES:
            raise self._error("too many values", node, path)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            raise self._error("contains itself", node, path)
        self._open.add(id(node))
        value = (
            self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._sequence(node, path)
        )
        self._open.discard(id(node))
        return value

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        try:
            return self._loader.construct_object(node)
        except yaml.YAMLError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            # A date such as 2001-13-45, a number of 5000 digits, a word after !!int.
            kind = node.tag.rpartition(":")[2]
            raise self._error(f"not a {kind} that can be read", node, path) from None

    def _error(self, message: str, node: yaml.Node, path: KeyPath) -> InputError:
        return InputError(message, file=self._file, line=node.start_mark.line + 1, field=dotted(path))

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[Any, Any]:
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self._key(key_node, path)
            if key in lines:
                message = f"the key is given twice, first on line {lines[key]}"
                raise self._error(message, key_node, (*path, str(key)))
            lines[key] = key_node.start_mark.line + 1
        self._loader.flatten_mapping(node)
        values: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            inner = (*path, str(key))
            # A block that starts on the next line is best pointed at by its key.
            node_to_show = value_node if isinstance(value_node, yaml.ScalarNode) else key_node
            self._places[inner] = Place(self._file, node_to_show.start_mark.line + 1)
            values[key] = self.read(value_node, inner)
        return values

    def _key(self, node: yaml.Node, path: KeyPath) -> Hashable:
        if isinstance(node, yaml.ScalarNode):
            key = self._scalar(node, path)
            beyond_use = isinstance(key, int) and abs(key) > MOST_NUMBER_AS_TEXT
            if isinstance(key, Hashable) and not beyond_use:
                return key
        raise self._error("a key must be a word", node, path)

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
