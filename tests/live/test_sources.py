"""Polling the inference demand: what is told, when it isn't, and what is said of failures."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.live.cluster import eventually

from aryl.errors import ArylError
from aryl.live.sources.observation import Observation, Unit, in_servers
from aryl.live.sources.poller import Poller

LONG_S = 60.0
NEVER_S = 1e12


def seen(at_s: float, need: float = 1.0, forecast: float | None = None) -> Observation:
    return Observation(at_s, need, Unit.SERVERS, forecast)


class Script:
    """A source that gives what it is told to, one thing a time; the last for ever. Implements `Source`."""

    def __init__(self, *answers: Observation | Exception) -> None:
        self.answers = list(answers)
        self.reads = 0
        self.closed = threading.Event()
        self.asked = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    @property
    def where(self) -> str:
        return "the script"

    def read(self) -> Observation:
        self.reads += 1
        self.asked.set()
        assert self.gate.wait(LONG_S)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed.set()


class Polled:
    """A poller by hand, on a clock that tests set."""

    def __init__(self, *answers: Observation | Exception, now_s: float = 1000.0) -> None:
        self.told: list[Observation] = []
        self.now_s = now_s
        self.script = Script(*answers)
        self.poller = Poller(self.script, LONG_S, self.told.append, now=lambda: self.now_s)

    def poll(self, at_s: float | None = None) -> list[Observation]:
        """What one poll tells."""
        self.now_s = self.now_s if at_s is None else at_s
        before = len(self.told)
        self.poller.poll()
        return self.told[before:]


@contextmanager
def running(
    script: Script, told: Callable[[Observation], None], every_s: float = NEVER_S
) -> Iterator[Poller]:
    poller = Poller(script, every_s, told, now=lambda: 1000.0)
    poller.start()
    try:
        yield poller
    finally:
        script.gate.set()
        poller.close()
        assert script.closed.wait(LONG_S)


@pytest.mark.parametrize(
    ("unit", "need", "forecast"),
    [(Unit.SERVERS, 4.0, 6.0), (Unit.GPUS, 0.5, 0.75), (Unit.SHARE, 40.0, 60.0)],
)
def test_a_need_is_turned_into_servers_of_the_pool(unit: Unit, need: float, forecast: float) -> None:
    assert in_servers(Observation(7.0, 4.0, unit, 6.0), 10, 8) == seen(7.0, need, forecast)
    assert in_servers(Observation(7.0, 4.0, unit), 10, 8) == seen(7.0, need)


def test_each_newer_measurement_is_told_with_its_own_time() -> None:
    polled = Polled(seen(990.0, 5.0, 6.0), seen(995.0, 5.0))
    assert polled.poller.last_unix_s is None
    assert polled.poll(1000.0) == [seen(990.0, 5.0, 6.0)]
    assert polled.poller.last_unix_s == 990.0
    assert polled.poll(1005.0) == [seen(995.0, 5.0)]
    assert polled.poller.last_unix_s == 995.0


def test_what_is_no_newer_is_not_told_again_and_is_no_failure() -> None:
    polled = Polled(seen(990.0, 5.0), seen(990.0, 6.0), seen(989.0, 7.0), seen(990.5, 8.0))
    assert [polled.poll() for _ in range(4)] == [[seen(990.0, 5.0)], [], [], [seen(990.5, 8.0)]]
    assert (polled.poller.failures, polled.poller.last_error, polled.poller.last_unix_s) == (0, "", 990.5)


def test_a_measurement_from_the_future_counts_from_now_on_and_that_is_noted_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    polled = Polled(seen(4600.0), seen(4605.0), now_s=1000.0)
    assert polled.poll(1000.0) == [seen(1000.0)]
    assert polled.poll(1005.0) == [seen(1005.0)]
    assert [record.getMessage() for record in caplog.records] == [
        "the clock of the script is 3600 s ahead of ours: what it says counts as measured when it is read"
    ]
    assert polled.poller.failures == 0


def test_clocks_a_few_seconds_apart_are_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    polled = Polled(seen(1005.0))
    assert polled.poll(1000.0) == [seen(1000.0)]
    assert not caplog.records


def test_one_and_the_same_measurement_from_the_future_grows_old_as_any_other() -> None:
    polled = Polled(seen(4600.0))
    assert polled.poll(1000.0) == [seen(1000.0)]
    assert polled.poll(1300.0) == []
    assert polled.poll(5000.0) == []
    assert polled.poller.last_unix_s == 1000.0


def test_two_measurements_from_the_future_that_are_read_at_once_are_one() -> None:
    polled = Polled(seen(4600.0), seen(4601.0))
    assert [polled.poll(1000.0), polled.poll(1000.0)] == [[seen(1000.0)], []]


def test_once_the_clock_of_the_source_is_set_right_its_word_counts_at_once() -> None:
    polled = Polled(seen(4600.0), seen(1004.0))
    assert polled.poll(1000.0) == [seen(1000.0)]
    assert polled.poll(1005.0) == [seen(1004.0)]


def test_once_our_clock_was_set_back_the_next_word_counts_at_once() -> None:
    polled = Polled(seen(4600.0), seen(1004.0), seen(1003.0), now_s=4600.0)
    assert polled.poll(4600.0) == [seen(4600.0)]
    assert polled.poll(1005.0) == [seen(1004.0)]
    assert polled.poll(1006.0) == []


def test_failures_are_counted_and_logged_when_they_begin_and_when_they_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    broken, worse = ArylError("it is broken"), ArylError("it is worse")
    polled = Polled(broken, worse, seen(1.0), seen(2.0), broken, seen(3.0))
    poller = polled.poller
    states = []
    for _ in range(6):
        polled.poll()
        states.append((poller.failures, poller.last_error))
    assert states == [(1, "it is broken"), (2, "it is worse"), (2, ""), (2, ""), (3, "it is broken"), (3, "")]
    assert polled.told == [seen(1.0), seen(2.0), seen(3.0)]
    begins = "the inference demand can't be read from the script: it is broken"
    ends = "the inference demand can be read from the script again, after {} failed polls"
    assert [record.getMessage() for record in caplog.records] == [
        begins,
        ends.format(2),
        begins,
        ends.format(1),
    ]


def test_an_unforeseen_error_is_a_failure_that_shows_its_place_and_not_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    polled = Polled(KeyError("secret"), seen(1.0))
    assert polled.poll() == []
    assert polled.poller.last_error.startswith("an unforeseen KeyError (")
    assert "test_sources.py, line" in polled.poller.last_error
    assert "secret" not in caplog.text
    assert polled.poll() == [seen(1.0)]


def test_what_could_not_be_told_is_told_the_next_time() -> None:
    told: list[Observation] = []

    def tell(observation: Observation) -> None:
        if not told:
            told.append(observation)
            raise ValueError
        told.append(observation)

    poller = Poller(Script(seen(1.0)), LONG_S, tell)
    poller.poll()
    assert (poller.failures, poller.last_unix_s) == (1, None)
    poller.poll()
    assert (told, poller.last_unix_s) == ([seen(1.0)] * 2, 1.0)


def test_the_first_poll_comes_at_once_and_the_next_when_it_is_time() -> None:
    told: queue.Queue[Observation] = queue.Queue()
    script = Script(seen(1.0))
    with running(script, told.put):
        assert told.get(timeout=LONG_S) == seen(1.0)
    assert script.reads == 1


def test_a_source_that_fails_is_not_asked_more_often() -> None:
    script = Script(ArylError("it is broken"))
    with running(script, lambda _: None) as poller:
        eventually(lambda: poller.last_error == "it is broken", "the failure isn't noted")
    assert (script.reads, poller.failures) == (1, 1)


def test_polls_go_on_after_failures_and_after_old_news() -> None:
    told: queue.Queue[Observation] = queue.Queue()
    script = Script(ArylError("a"), KeyError("b"), seen(1.0), seen(1.0), ArylError("c"), seen(2.0))
    with running(script, told.put, every_s=0.001) as poller:
        assert [told.get(timeout=LONG_S) for _ in range(2)] == [seen(1.0), seen(2.0)]
    assert poller.failures == 3


def test_a_poller_that_waits_ends_at_once_and_lets_go_of_its_source() -> None:
    told: queue.Queue[Observation] = queue.Queue()
    script = Script(seen(1.0))
    poller = Poller(script, NEVER_S, told.put)
    poller.start()
    told.get(timeout=LONG_S)
    poller.close()
    assert script.closed.wait(LONG_S)
    poller.close()


def test_a_poller_that_never_began_lets_go_of_its_source() -> None:
    script = Script(seen(1.0))
    Poller(script, LONG_S, lambda _: None).close()
    assert script.closed.is_set()
    assert script.reads == 0


def test_nothing_is_told_once_a_poller_is_closed_even_if_it_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aryl.live.sources.poller.CLOSE_WITHIN_S", 0.01)
    for answer in (seen(1.0), ArylError("it was cut off")):
        told: list[Observation] = []
        script = Script(answer)
        script.gate.clear()
        with running(script, told.append) as poller:
            assert script.asked.wait(LONG_S)
            poller.close()
            assert not script.closed.is_set()  # the request is still under way
        assert (told, poller.last_unix_s, script.reads) == ([], None, 1)
    assert not caplog.records
