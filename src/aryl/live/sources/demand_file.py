"""The inference demand in a file that another program writes.

Either `{"need": 5.5, "forecast": 6.0, "at": 1700000000}`, of which only the need has to be there, or the bare
number. Whoever writes it should write beside it and rename: an object that is half there is noticed, and read
again later; half of a number is a number.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Annotated

from pydantic import PlainValidator

from aryl.errors import InputError
from aryl.files.faults import Place
from aryl.files.fields import MOST_WHOLE, Section, fault
from aryl.files.yaml_source import YamlSource
from aryl.live.sources.observation import Observation, Unit

MOST_BYTES = 64 * 2**10
# The year 5138. Beyond it are milliseconds that somebody took for seconds.
LATEST_UNIX_S = 1e11

_FORMS = 'a number, at least 0, or {"need": 5.5, "forecast": 6.0, "at": 1700000000}'


class FileSource:
    """Reads a file at `path`. The need is as old as its `at` says, and without one as the file is."""

    def __init__(self, path: str, unit: Unit = Unit.SERVERS) -> None:
        self._path, self._unit = path, unit

    @property
    def where(self) -> str:
        """The path."""
        return self._path

    def read(self) -> Observation:
        """What the file says now. Raises InputError."""
        content, modified_unix_s = self._content()
        said = self._parsed(content)
        return Observation(
            modified_unix_s if said.at is None else said.at, said.need, self._unit, said.forecast
        )

    def close(self) -> None:
        """Nothing is held open between two reads."""

    def _content(self) -> tuple[bytes, float]:
        """The content, and when it was written, of one and the same file."""
        try:
            with open(self._path, "rb", opener=_without_waiting) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise InputError("not a file", file=self._path)
                content = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            raise InputError("no such file", file=self._path) from None
        except IsADirectoryError:
            raise InputError("not a file", file=self._path) from None
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", file=self._path) from None
        if len(content) > MOST_BYTES:
            raise InputError("too large", file=self._path, expected=f"at most {MOST_BYTES} bytes")
        return content, status.st_mtime

    def _parsed(self, content: bytes) -> _Said:
        try:
            value = json.loads(content)
        except json.JSONDecodeError as error:
            raise InputError(f"not JSON: {error.msg}", file=self._path, line=error.lineno) from None
        except (ValueError, RecursionError):  # no text, a number of 5000 figures, nested beyond all reason
            raise InputError("not JSON", file=self._path, expected=_FORMS) from None
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = {"need": value}
        if not isinstance(value, dict):
            raise InputError("not a demand", file=self._path, expected=_FORMS)
        return YamlSource(value, {(): Place(self._path)}).validate(_Said)


def _without_waiting(path: str, flags: int) -> int:
    """A pipe would be waited for, until somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_WHOLE:
        raise fault("wrong value", expected="a number, at least 0")
    return float(value)


def _instant(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LATEST_UNIX_S:
        raise fault("wrong value", expected="seconds since 1970, such as 1700000000")
    return float(value)


class _Said(Section):
    """What a file says."""

    need: Annotated[float, PlainValidator(_amount)]
    forecast: Annotated[float, PlainValidator(_amount)] | None = None
    at: Annotated[float, PlainValidator(_instant)] | None = None
