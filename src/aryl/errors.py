"""One tree of errors. Each leaf says whose fault it is, and the command line turns that into an exit code.

`InputError` is the user's: it names the file, the line, the field, what was found, what was expected and the
nearest right word, all in one sentence. Everything else is ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ArylError(Exception):
    """Any error that Aryl raises on purpose. `exit_code` is what the command line exits with."""

    exit_code = 1


class InputError(ArylError):
    """The input is wrong: a file, a flag, a name. Nothing has been written when it is raised.

    `str()` gives the one line that the user sees, such as
    `jobs.csv, line 7, duration_s: found -3, expected a number of seconds >= 0`.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        found: object = None,
        expected: str | None = None,
        nearest: str | None = None,
    ) -> None:
        self.message, self.file, self.line, self.field = message, file, line, field
        self.found, self.expected, self.nearest = found, expected, nearest
        super().__init__(self._text())

    def _text(self) -> str:
        where = [part for part in (self.file, f"line {self.line}" if self.line else None, self.field) if part]
        text = (", ".join(where) + ": " if where else "") + self.message
        if self.found is not None:
            text += f" (found {self.found!r})" if isinstance(self.found, str) else f" (found {self.found})"
        if self.expected:
            text += f"; expected {self.expected}"
        if self.nearest:
            text += f"; did you mean '{self.nearest}'?"
        return text


class FencedError(ArylError):
    """Somebody else leads this cluster now; whoever gets this must stop acting at once."""

    exit_code = 4


class ConflictError(ArylError):
    """The request contradicts what is there."""

    exit_code = 4


class NotAllowedError(ArylError):
    """Whoever asks may not do this."""

    exit_code = 5


class UnreachableError(ArylError):
    """The server can't be reached."""

    exit_code = 6


class NotFoundError(ArylError):
    """A named thing does not exist."""

    exit_code = 3


class IllegalTransitionError(ArylError):
    """An event asked a job or a server for an edge that its transition table doesn't have; nothing
    changed.
    """


class DecisionError(ArylError):
    """A policy's decision would overbook a GPU, break a gang or leave min..max. A defect in the policy."""


class InvariantError(ArylError):
    """The state contradicts itself. A defect in the engine."""


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """The known word most like `word`, or None if nothing is near."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None
