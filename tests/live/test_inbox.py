"""Where the loop's notes arrive: in order, from any thread, and nobody waits for an answer for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.core.helpers import cluster_of
from tests.live.cluster import eventually

from aryl.backends.port import GangUp
from aryl.core.cluster import Cluster
from aryl.core.events import Event
from aryl.errors import ConflictError, UnreachableError
from aryl.live.inbox import Command, Halt, Happened, Inbox, Note, Question

LONG_S = 60.0


def nothing(_cluster: Cluster, _now_s: float) -> Sequence[Event]:
    return ()


def later(inbox: Inbox, answer: Callable[[Note], None]) -> threading.Thread:
    """A loop that answers one note."""

    def turn() -> None:
        for note in inbox.wait(LONG_S):
            answer(note)

    thread = threading.Thread(target=turn)
    thread.start()
    return thread


def test_notes_come_all_together_in_the_order_in_which_they_were_left() -> None:
    inbox = Inbox()
    notes: list[Note] = [GangUp(float(number), "a", number) for number in range(5)]
    notes += [Halt(), Happened(nothing)]
    for note in notes:
        inbox.put(note)
    assert inbox.wait(LONG_S) == notes
    assert inbox.wait(0.0) == []
    assert inbox.wait(-1.0) == []


def test_a_waiting_loop_is_woken_by_the_first_note_of_another_thread() -> None:
    inbox = Inbox()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(inbox.wait, LONG_S)
        inbox.put(Halt())
        assert waiting.result(LONG_S) == [Halt()]


def test_notes_of_many_threads_are_all_there_and_each_threads_in_order() -> None:
    inbox = Inbox()

    def put_all(who: int) -> None:
        for number in range(200):
            inbox.put(GangUp(0.0, str(who), number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put_all, range(8)))
    notes = [note for note in inbox.wait(0.0) if isinstance(note, GangUp)]
    for who in range(8):
        assert [note.attempt for note in notes if note.job_id == str(who)] == list(range(200))


def test_a_command_is_over_when_it_is_answered_and_not_when_it_is_taken() -> None:
    inbox = Inbox()
    with ThreadPoolExecutor() as pool:
        doing = pool.submit(inbox.do, nothing)
        (command,) = inbox.wait(LONG_S)
        assert isinstance(command, Command)
        assert command.events is nothing
        assert not doing.done()
        command.answer.set_result(None)
        assert doing.result(LONG_S) is None


def test_whoever_commands_gets_the_refusal() -> None:
    inbox = Inbox()

    def refuse(note: Note) -> None:
        assert isinstance(note, Command)
        note.answer.set_exception(ConflictError("not now"))

    loop = later(inbox, refuse)
    with pytest.raises(ConflictError, match=r"^not now$"):
        inbox.do(nothing)
    loop.join()


def test_a_question_is_answered_from_the_state() -> None:
    inbox = Inbox()
    cluster = cluster_of(3)

    def answer(note: Note) -> None:
        assert isinstance(note, Question)
        note.answer.set_result(note.ask(cluster))

    loop = later(inbox, answer)
    assert inbox.ask(lambda state: len(state.servers)) == 3
    loop.join()


def test_a_loop_that_does_not_answer_is_given_up_and_its_late_answer_does_no_harm() -> None:
    inbox = Inbox()
    with pytest.raises(UnreachableError, match=r"^the control plane hasn't answered in 0\.05 s$"):
        inbox.ask(lambda _: 1, within_s=0.05)
    (question,) = inbox.wait(0.0)
    assert isinstance(question, Question)
    question.answer.set_result(1)


def test_whoever_waits_when_the_loop_ends_is_told_so_at_once() -> None:
    inbox = Inbox()
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(inbox.ask, lambda _: 1)
        doing = pool.submit(inbox.do, nothing)
        eventually(lambda: inbox._notes.qsize() == 2, "they don't ask")
        inbox.put(Halt())
        inbox.close()
        for waiting in (asking, doing):
            with pytest.raises(UnreachableError, match=r"^the control plane has stopped$"):
                waiting.result(LONG_S)


def test_after_the_end_nobody_waits() -> None:
    inbox = Inbox()
    inbox.close()
    inbox.close()
    for ask in (lambda: inbox.do(nothing), lambda: inbox.ask(lambda _: 1)):
        with pytest.raises(UnreachableError, match=r"^the control plane isn't running here$"):
            ask()


class ClosesInBetween(Inbox):
    """Is closed in the moment between the look whether it is open and the note."""

    def put(self, note: Note) -> None:
        self.close()
        super().put(note)


def test_whoever_asks_while_the_loop_ends_is_told_so() -> None:
    with pytest.raises(UnreachableError, match=r"^the control plane has stopped$"):
        ClosesInBetween().ask(lambda _: 1, within_s=5.0)
