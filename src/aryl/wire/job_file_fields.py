"""The kinds of values that a job file is made of: names, commands, environments, paths.

All of it ends up in a process, in a path or in a database, so each kind is narrow and bounded here, at the
door: no NUL and no half surrogate gets past, and nothing is larger than an operating system would take.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator, WithJsonSchema

from aryl.errors import nearest_word
from aryl.files import units
from aryl.files.fields import UNFIT, fault, number_as_text, whole_number

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
EXPECTED_NAME = "1 to 63 letters, digits, '.', '_' and '-', with a letter or digit at both ends"
SIGNALS = ("USR1", "USR2", "HUP", "INT", "TERM")

MOST_COMMAND_BYTES = 64 * 2**10
MOST_ARGUMENTS = 4096
MOST_ENV_ENTRIES = 1000
MOST_ENV_BYTES = 128 * 2**10
MOST_PATH_BYTES = 4000
MOST_MEMORY_BYTES = 2**50
LEAST_MEMORY_BYTES = 2**20

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED_ENV = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "NODE_RANK",
        "RANK",
        "REPLICA_GROUP_ID",
        "WORLD_SIZE",
    }
)
RESERVED_PREFIXES = ("ARYL_", "PET_", "TORCHFT_")

# What the operating system can't take in an argument or a variable. Line breaks are fine there.
_IMPOSSIBLE = re.compile("[\x00\ud800-\udfff]")


def is_name(value: str) -> bool:
    """Whether `value` may be the name of a job, a project or a user."""
    return NAME.fullmatch(value) is not None


def _name(value: object) -> str:
    text = value if isinstance(value, str) else number_as_text(value)
    if text is None or not is_name(text):
        hint = ", in quotes" if isinstance(value, bool) or value is None else ""
        raise fault("wrong value", expected=EXPECTED_NAME + hint)
    return text


def _argument(value: object, *path: str | int) -> str:
    """A text for a process. Numbers are taken as people wrote them, truth values are not: YAML makes one of
    `yes`, and nobody can tell any more what was written.
    """
    text = value if isinstance(value, str) else number_as_text(value)
    if text is None:
        hint = ", in quotes" if value is None or isinstance(value, bool) or not _is_a_group(value) else ""
        raise fault("wrong value", *path, expected="a text" + hint, found=value)
    if _IMPOSSIBLE.search(text):
        raise fault("wrong value", *path, expected="a text without NUL and half characters", found=text)
    return text


def _is_a_group(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple)


def _command(value: object) -> str | tuple[str, ...]:
    """A text for /bin/sh, or an argument vector that no shell sees."""
    forms = "a command, such as python train.py, or a list of the program and its arguments"
    if isinstance(value, str):
        command: str | tuple[str, ...] = _argument(value)
        if not value.strip():
            raise fault("wrong value", expected=forms)
    elif isinstance(value, list | tuple):
        if not value or value[0] in ("", None):
            raise fault("wrong value", expected=forms)
        if len(value) > MOST_ARGUMENTS:
            raise fault(f"more than {MOST_ARGUMENTS} arguments")
        command = tuple(_argument(argument, index) for index, argument in enumerate(value))
    else:
        raise fault("wrong value", expected=forms)
    if _bytes_of((command,) if isinstance(command, str) else command) > MOST_COMMAND_BYTES:
        raise fault("the command is too long", expected=f"at most {MOST_COMMAND_BYTES} bytes")
    return command


def argument_vector(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """What is executed: the vector itself, or the shell with the text."""
    return ("/bin/sh", "-c", command) if isinstance(command, str) else command


def _env(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise fault("wrong value", expected='variables and their values, such as {EPOCHS: "3"}')
    if len(value) > MOST_ENV_ENTRIES:
        raise fault(f"more than {MOST_ENV_ENTRIES} variables")
    env: dict[str, str] = {}
    for key, setting in value.items():
        name = str(key)
        if not isinstance(key, str) or not _ENV_NAME.fullmatch(name):
            raise fault(
                "not the name of a variable",
                name,
                expected="letters, digits and '_', with no digit at the start",
                found=name,
            )
        if name in RESERVED_ENV or name.startswith(RESERVED_PREFIXES):
            raise fault("Aryl sets this variable itself", name, expected="another name")
        env[name] = _argument(setting, name)
    if _bytes_of((*env, *env.values())) > MOST_ENV_BYTES:
        raise fault("the environment is too large", expected=f"at most {MOST_ENV_BYTES} bytes")
    return env


def _bytes_of(texts: tuple[str, ...]) -> int:
    return sum(len(text.encode()) + 1 for text in texts)


def path_text(value: object) -> str:
    """A text that can be a path. Raises a fault."""
    if not isinstance(value, str) or not value.strip():
        raise fault("wrong value", expected="a path")
    if UNFIT.search(value):
        raise fault("wrong value", expected="a path without control characters")
    if len(value.encode()) > MOST_PATH_BYTES:
        raise fault("the path is too long", expected=f"at most {MOST_PATH_BYTES} bytes")
    return value


def clean_path(path: str) -> str:
    """An absolute path without `.`, `..` and doubled slashes; links are left alone."""
    return "/" + os.path.normpath(path).lstrip("/")


def is_inside(path: str, folder: str) -> bool:
    """Whether a clean path is `folder` or below it, by its text alone."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _absolute_path(value: object) -> str:
    path = path_text(value)
    if not path.startswith("/"):
        raise fault("wrong value", expected="an absolute path")
    return clean_path(path)


def _signal(value: object) -> str:
    word = value.removeprefix("SIG") if isinstance(value, str) else ""
    if word not in SIGNALS:
        near = nearest_word(word[:20].upper(), SIGNALS)
        raise fault("wrong value", expected="one of " + ", ".join(SIGNALS), nearest=near)
    return word


def _memory(value: object) -> int:
    try:
        size = units.size_bytes(value)
    except units.UnitError as error:
        raise fault("wrong value", expected=error.expected) from None
    if not LEAST_MEMORY_BYTES <= size <= MOST_MEMORY_BYTES:
        raise fault("wrong value", expected="a size from 1MiB to 1024TiB, such as 4GiB")
    return size


def whole(least: int, most: int) -> tuple[PlainValidator, WithJsonSchema]:
    """What makes an annotated int a whole number from `least` to `most`."""
    schema: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    return PlainValidator(lambda value: whole_number(value, least, most)), WithJsonSchema(schema)


_ARGUMENT_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "number"}]}
_NAME_SCHEMA = {"type": "string", "pattern": f"^{NAME.pattern}$"}

Name = Annotated[str, PlainValidator(_name), WithJsonSchema(_NAME_SCHEMA)]
Command = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_command),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": MOST_COMMAND_BYTES},
                {"type": "array", "minItems": 1, "maxItems": MOST_ARGUMENTS, "items": _ARGUMENT_SCHEMA},
            ],
            "description": "A command for /bin/sh, or a program and its arguments.",
        }
    ),
]
Env = Annotated[
    dict[str, str],
    PlainValidator(_env),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MOST_ENV_ENTRIES,
            "propertyNames": {"pattern": f"^{_ENV_NAME.pattern}$"},
            "additionalProperties": _ARGUMENT_SCHEMA,
        }
    ),
]
AbsolutePath = Annotated[
    str,
    PlainValidator(_absolute_path),
    WithJsonSchema({"type": "string", "pattern": "^/", "maxLength": MOST_PATH_BYTES}),
]
PathText = Annotated[
    str,
    PlainValidator(path_text),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MOST_PATH_BYTES}),
]
Signal = Annotated[
    str,
    PlainValidator(_signal),
    WithJsonSchema({"enum": [prefix + name for prefix in ("", "SIG") for name in SIGNALS]}),
]
Memory = Annotated[
    int,
    PlainValidator(_memory),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": LEAST_MEMORY_BYTES, "maximum": MOST_MEMORY_BYTES},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?[KMGT](i|B|iB)$"},
            ]
        }
    ),
]
