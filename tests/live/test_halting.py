"""A loop that is told to halt does so, whatever else pours in."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.live.desks import pushed_desk

from aryl.backends.port import Gang, Program, Sink
from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.model import ServerSpec
from aryl.live.clock import WallClock
from aryl.live.driver import LiveDriver
from aryl.live.facts import Interpreter
from aryl.live.inbox import Happened
from aryl.live.learning import Learner
from aryl.live.troubles import Troubles, Watchdog
from aryl.policies.catalogue import parse_policy

PLENTY = 50


class Idle:
    """A backend that nobody asks for anything."""

    def open(self, fence: int, gangs: Sequence[Gang], sink: Sink, servers: Sequence[ServerSpec] = ()) -> None:
        """Take over."""

    def launch(self, gang: Gang) -> None:
        """Start a gang."""

    def resize(self, gang: Gang) -> None:
        """Resize a gang."""

    def stop(self, job_id: str, attempt: int, *, save: bool) -> None:
        """Stop a gang."""

    def forget(self, job_id: str, attempt: int) -> None:
        """Forget an attempt."""

    def close(self) -> None:
        """Let go."""


def program_of(_job_id: str) -> Program:
    return Program(("true",), "/")


def test_a_driver_that_is_never_left_alone_halts() -> None:
    parts = Interpreter(Troubles(), Watchdog(float("inf")), Learner())
    driver = LiveDriver(WallClock(time.time()), Idle(), program_of, pushed_desk(), parts)
    cluster = Cluster(parse_policy("fifo").order)

    def and_so_on(_cluster: Cluster, now_s: float) -> Sequence[ev.Event]:
        driver.inbox.put(Happened(and_so_on))
        return (ev.Tick(now_s),)

    driver.inbox.put(Happened(and_so_on))
    driver.take_over(cluster, 1)
    assert driver.poll(float("inf"))
    driver.halt()
    polls = [driver.poll(float("inf")) for _ in range(PLENTY)]
    assert polls[-1] is None
    driver.close()
