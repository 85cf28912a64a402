"""Writes that several threads want at the same moment become one transaction.

A transaction costs a wait for the disk, whether it writes one row or fifty. Whoever comes while another one
is writing leaves what it wants, and the next to get its turn writes all that is there. Nobody waits for
company: alone, a thread writes at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from aryl.errors import UnreachableError

Wanted = TypeVar("Wanted")
Answer = TypeVar("Answer")

MOST_AT_ONCE = 64


@dataclass(slots=True)
class _Turn(Generic[Wanted, Answer]):
    wanted: Wanted
    answer: Answer | Exception | None = None


class Together(Generic[Wanted, Answer]):
    """`write` writes a batch in one transaction and gives an answer, or an error to be raised, for each part.

    If it raises, nothing of the batch was written, and each part is tried by itself, so that nobody pays for
    what is wrong with another's. An UnreachableError goes to all: what was written is unknown then.
    """

    def __init__(self, write: Callable[[Sequence[Wanted]], Sequence[Answer | Exception]]) -> None:
        self._write = write
        self._turn = threading.Lock()
        self._waiting: list[_Turn[Wanted, Answer]] = []
        self._list = threading.Lock()

    def do(self, wanted: Wanted) -> Answer:
        """Write something, alone or with others. Raises what `write` answers or raises."""
        mine: _Turn[Wanted, Answer] = _Turn(wanted)
        with self._list:
            self._waiting.append(mine)
        with self._turn:
            while mine.answer is None:
                with self._list:
                    batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                self._carry_out(batch)
        if isinstance(mine.answer, Exception):
            raise mine.answer
        return mine.answer

    @property
    def waiting(self) -> int:
        """How many are left for the next turn."""
        return len(self._waiting)

    def _carry_out(self, batch: Sequence[_Turn[Wanted, Answer]]) -> None:
        try:
            answers = self._write([turn.wanted for turn in batch])
        except UnreachableError as error:
            for turn in batch:
                turn.answer = UnreachableError(str(error))
        except Exception as error:
            if len(batch) == 1:
                batch[0].answer = error
                return
            for turn in batch:
                self._carry_out([turn])
        else:
            for turn, answer in zip(batch, answers, strict=True):
                turn.answer = answer
