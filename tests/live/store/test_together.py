"""Writes that come at the same moment: one batch, and each its own answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from tests.live.cluster import eventually

from aryl.errors import ConflictError, UnreachableError
from aryl.live.store.together import Together


class Writer:
    """Writes numbers, the first batch only when it may. Refuses negative ones, and any batch with 13."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.may = threading.Event(), threading.Event()
        self.gone = False
        self.together: Together[int, str] = Together(self.write)
        self.answers: dict[int, str | Exception] = {}

    def write(self, numbers: Sequence[int]) -> list[str | Exception]:
        self.batches.append(list(numbers))
        self.begun.set()
        assert self.may.wait(60)
        if self.gone and len(numbers) > 1:
            raise UnreachableError("away")
        if 13 in numbers:
            raise ValueError("thirteen")
        return [ConflictError("negative") if number < 0 else str(number) for number in numbers]

    def ask(self, number: int) -> None:
        try:
            self.answers[number] = self.together.do(number)
        except (ValueError, ConflictError, UnreachableError) as error:
            self.answers[number] = error

    def run(self, first: int, others: Sequence[int]) -> None:
        """Ask for one, and for the others while that is being written."""
        threads = [threading.Thread(target=self.ask, args=(number,)) for number in (first, *others)]
        threads[0].start()
        assert self.begun.wait(60)
        for thread in threads[1:]:
            thread.start()
        eventually(lambda: self.together.waiting == len(others), "they don't wait")
        self.may.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def writer() -> Writer:
    return Writer()


def test_those_that_come_while_one_is_written_are_one_batch(writer: Writer) -> None:
    writer.run(1, [2, 3, -4])
    assert writer.batches[0] == [1]
    assert sorted(writer.batches[1]) == [-4, 2, 3]
    assert len(writer.batches) == 2
    assert {number: writer.answers[number] for number in (1, 2, 3)} == {1: "1", 2: "2", 3: "3"}
    assert isinstance(writer.answers[-4], ConflictError)


def test_what_is_wrong_with_one_is_no_concern_of_the_others(writer: Writer) -> None:
    writer.run(1, [2, 13, 3])
    assert isinstance(writer.answers[13], ValueError)
    assert [writer.answers[number] for number in (1, 2, 3)] == ["1", "2", "3"]


def test_nothing_is_tried_again_when_it_is_unknown_what_was_written(writer: Writer) -> None:
    writer.gone = True
    writer.run(1, [2, 3])
    assert writer.answers[1] == "1"
    assert all(isinstance(writer.answers[number], UnreachableError) for number in (2, 3))
    assert len(writer.batches) == 2
