"""Who runs the processes of gangs: the supervisor of this machine, or actors on many.

A crew takes orders that may come twice, keeps what it knows of a worker until it is told to forget it, and
says what happens through the function that it was made with, from a thread of its own, one event after the
other. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aryl.backends.supervisor.protocol import (
    StopSchedule,
    SupervisorEvent,
    WorkerKey,
    WorkerSpec,
    WorkerStatus,
)
from aryl.core.model import ServerSpec


@dataclass(frozen=True, slots=True)
class ServerCame:
    """A server is there, or there again, and nothing of what was there before runs on it."""

    at_unix_s: float
    server: ServerSpec


@dataclass(frozen=True, slots=True)
class ServerWent:
    """A server is gone, and whatever ran there has ended by now. The ends of its workers follow."""

    at_unix_s: float
    server_id: str


CrewEvent = SupervisorEvent | ServerCame | ServerWent
OnEvent = Callable[[CrewEvent], None]


class Crew(Protocol):
    """Runs processes on servers. All methods raise ArylError if it can't be reached, FencedError if somebody
    else has taken over.
    """

    @property
    def connected(self) -> bool:
        """Whether orders can get through, as far as is known."""

    @property
    def report_socket(self) -> str:
        """Where workers report to; empty if each finds it in its own environment."""

    def start(self, specs: Sequence[WorkerSpec], *, wait: bool = True) -> None:
        """Start workers, all of one gang start. A key that is known already changes nothing. Without `wait`
        a refusal comes as an event.
        """

    def stop(self, keys: Sequence[WorkerKey], schedule: StopSchedule) -> None:
        """Let workers leave. Unknown and ended keys are passed over."""

    def list(self) -> Sequence[WorkerStatus]:
        """All workers that live, and those that have ended and aren't forgotten."""

    def forget(self, job_id: str, attempt: int, *, wait: bool = True) -> object:
        """Drop what has ended of an attempt."""

    def close(self) -> None:
        """Let go. Nothing that runs is touched."""
