"""Where everything that the loop has to hear of arrives: facts, submissions, commands and questions.

One thread, the loop's, owns the cluster. Whoever wants to change something or to know something leaves a
note here and waits for the answer. A command is answered once the events that it caused are in the journal;
a question as soon as the loop comes by, with the state between two passes.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aryl.backends.port import Fact
from aryl.core.cluster import Cluster
from aryl.core.events import Event
from aryl.core.model import JobSpec
from aryl.errors import UnreachableError

T = TypeVar("T")

ANSWER_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job was accepted; the store has it."""

    spec: JobSpec


@dataclass(frozen=True, slots=True)
class Command:
    """Something that somebody wants done. `events` says what happens, or raises; it gets the state and the
    time.

    It is called by the loop's thread. What is asked `alone` depends on the state: it never shares a turn with
    another command, whose effect it would not see.
    """

    events: Callable[[Cluster, float], Sequence[Event]]
    answer: Future[None] = field(default_factory=Future)
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """Something that somebody wants to know."""

    ask: Callable[[Cluster], Any]
    answer: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class Happened:
    """Events that the live side itself has found out, such as the end of a hook or of a rest."""

    events: Callable[[Cluster, float], Sequence[Event]]


@dataclass(frozen=True, slots=True)
class Halt:
    """Turn no further. `error` is why, if it isn't by request."""

    error: BaseException | None = None


Note = Fact | NewJob | Command | Question | Happened | Halt


class Inbox:
    """A queue that any thread may put notes into; after `close` nothing is answered any more."""

    def __init__(self) -> None:
        self._notes: queue.SimpleQueue[Note] = queue.SimpleQueue()
        self._closed = False

    def put(self, note: Note) -> None:
        """Leave a note."""
        self._notes.put(note)

    def wait(self, seconds: float) -> list[Note]:
        """All notes that are there, after waiting for the first for at most so long."""
        try:
            notes = [self._notes.get(timeout=max(seconds, 0.0)) if seconds > 0 else self._notes.get_nowait()]
        except queue.Empty:
            return []
        return notes + self._rest()

    def do(self, events: Callable[[Cluster, float], Sequence[Event]], *, alone: bool = False) -> None:
        """Have something done, and wait until it is in the journal. Raises what `events` raises, and
        UnreachableError if the loop doesn't answer.
        """
        command = Command(events, alone=alone)
        self._ask(command, command.answer)

    def ask(self, question: Callable[[Cluster], T], within_s: float = ANSWER_WITHIN_S) -> T:
        """Ask about the state. Raises UnreachableError if the loop doesn't answer in time."""
        note = Question(question)
        answer: T = self._ask(note, note.answer, within_s)
        return answer

    def close(self) -> None:
        """The loop is over: whoever waits is told so."""
        self._closed = True
        for note in self._rest():
            if isinstance(note, Command | Question):
                note.answer.set_exception(UnreachableError("the control plane has stopped"))

    def _ask(self, note: Note, answer: Future[Any], within_s: float = ANSWER_WITHIN_S) -> Any:
        if self._closed:
            raise UnreachableError("the control plane isn't running here")
        self.put(note)
        if self._closed:
            self.close()
        try:
            return answer.result(timeout=within_s)
        except FutureTimeoutError:
            raise UnreachableError(f"the control plane hasn't answered in {within_s:g} s") from None

    def _rest(self) -> list[Note]:
        notes: list[Note] = []
        while True:
            try:
                notes.append(self._notes.get_nowait())
            except queue.Empty:
                return notes
