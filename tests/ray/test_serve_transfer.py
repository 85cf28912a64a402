"""Servers that are handed over in this process: the rules of the hooks, without commands."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator

import pytest

from aryl.live.hooks import Handover, HookRunner, LoanHooks, OnLimit

LONG_S = 60.0


class Hands:
    """Takes as long as it is told, and writes down what it does."""

    def __init__(self) -> None:
        self.log: queue.Queue[str] = queue.Queue()
        self.go_on = threading.Event()
        self.wrong = ""
        self.taken: Collection[str] = ()

    def release(self, server_id: str, cancelled: threading.Event) -> str:
        return self._do("release", server_id, cancelled)

    def restore(self, server_id: str, cancelled: threading.Event) -> str:
        return self._do("restore", server_id, cancelled)

    def take_over(self, lent: Collection[str]) -> None:
        self.taken = lent

    def _do(self, what: str, server_id: str, cancelled: threading.Event) -> str:
        self.log.put(f"{what} {server_id}")
        while not self.go_on.is_set():
            if cancelled.wait(0.01):
                self.log.put(f"{what} {server_id} is called off")
                return "was called off"
        if self.wrong == "a defect":
            raise ZeroDivisionError
        return self.wrong


class Desk:
    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self.released: queue.Queue[tuple[str, int, Handover, str]] = queue.Queue()
        self.restored: queue.Queue[tuple[str, int, str]] = queue.Queue()
        self.runners: list[HookRunner] = []

    def runner(self, drain_limit_s: float = LONG_S, on_limit: OnLimit = OnLimit.CALL_OFF) -> HookRunner:
        hooks = LoanHooks(drain_limit_s=drain_limit_s, on_limit=on_limit, transfer=self.hands)
        runner = HookRunner(
            hooks, lambda *told: self.released.put(told), lambda *told: self.restored.put(told)
        )
        self.runners.append(runner)
        return runner

    def next(self) -> str:
        return self.hands.log.get(timeout=LONG_S)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk(Hands())
    yield desk
    for runner in desk.runners:
        runner.close()


def test_a_release_that_ends_well_hands_the_server_over(desk: Desk) -> None:
    runner = desk.runner()
    desk.hands.go_on.set()
    runner.release("I1", 3)
    assert desk.released.get(timeout=LONG_S) == ("I1", 3, Handover.DONE, "")
    runner.restore("I1", 1)
    assert desk.restored.get(timeout=LONG_S) == ("I1", 1, "")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("left a GPU in use", "left a GPU in use"), ("a defect", "failed with an unforeseen ZeroDivisionError")],
)
def test_a_release_that_fails_calls_the_loan_off(desk: Desk, wrong: str, said: str) -> None:
    desk.hands.wrong = wrong
    desk.hands.go_on.set()
    desk.runner().release("I1", 1)
    assert desk.released.get(timeout=LONG_S) == ("I1", 1, Handover.CALLED_OFF, f"its release {said}")


def test_a_release_over_the_limit_is_called_off_and_says_why(desk: Desk) -> None:
    desk.runner(drain_limit_s=0.05).release("I1", 1)
    assert desk.released.get(timeout=LONG_S) == (
        *("I1", 1, Handover.CALLED_OFF),
        "its release took longer than 0.05 s, and was called off",
    )


def test_a_release_over_the_limit_is_forced_where_that_is_configured(desk: Desk) -> None:
    desk.runner(drain_limit_s=0.05, on_limit=OnLimit.FORCE).release("I1", 1)
    assert desk.released.get(timeout=LONG_S)[2] is Handover.FORCED


def test_a_server_that_is_wanted_back_is_restored_at_once_and_never_beside_its_release(desk: Desk) -> None:
    runner = desk.runner()
    runner.release("I1", 1)
    assert desk.next() == "release I1"
    runner.restore("I1", 1)
    assert desk.next() == "release I1 is called off"
    assert desk.next() == "restore I1"
    desk.hands.go_on.set()
    assert desk.restored.get(timeout=LONG_S) == ("I1", 1, "")
    assert desk.released.empty()


def test_a_daemon_that_ends_calls_off_what_runs_and_tells_nothing(desk: Desk) -> None:
    runner = desk.runner()
    runner.release("I1", 1)
    runner.restore("I2", 1)
    assert {desk.next(), desk.next()} == {"release I1", "restore I2"}
    runner.close()
    assert {desk.next(), desk.next()} == {"release I1 is called off", "restore I2 is called off"}
    assert desk.released.empty()
    assert desk.restored.empty()


def test_a_restore_that_fails_is_counted(desk: Desk) -> None:
    runner = desk.runner()
    desk.hands.wrong = "failed"
    desk.hands.go_on.set()
    runner.restore("I1", 7)
    assert desk.restored.get(timeout=LONG_S) == ("I1", 7, "failed")
    assert runner.failures == 1


def test_a_daemon_that_begins_says_which_servers_are_lent(desk: Desk) -> None:
    desk.runner().take_over(["I1"])
    assert desk.hands.taken == ["I1"]


def test_without_a_transfer_nothing_is_taken_over() -> None:
    done: Callable[..., None] = lambda *_: None  # noqa: E731
    runner = HookRunner(LoanHooks(), done, done)
    runner.take_over(["I1"])
    runner.close()
