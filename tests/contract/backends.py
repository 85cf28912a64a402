"""Backends made ready for one suite. The program is described by what it does, so that a simulated backend
can do it as well as a real one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from tests.backends.fake_supervisor import FakeSupervisor
from tests.ray.raylets import RayServers

from aryl.backends.local import LocalBackend
from aryl.backends.port import Backend, Fact, Gang, Phase, Program
from aryl.backends.ray.backend import RayBackend
from aryl.backends.ray.clear import clear
from aryl.backends.ray.connection import RayAddress, disconnect
from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor.protocol import WorkerState
from aryl.core.model import Slot

F = TypeVar("F", bound=Fact)

PATIENCE_S = 60.0
SERVERS = {"T1": (0, 1, 2, 3), "T2": (0, 1, 2, 3)}

# What a program does: waits to be told, and saves on notice; ends well at once; ends badly at once.
WAITS, ENDS_WELL, ENDS_BADLY = "waits", "ends well", "ends badly"
SCRIPTS = {
    WAITS: 'trap "exit 75" USR1; while :; do sleep 0.05; done',
    ENDS_WELL: "exit 0",
    ENDS_BADLY: "exit 3",
}


def gang(does: str, *slots: Slot, revision: int = 0, attempt: int = 1, phase: Phase = Phase.UP) -> Gang:
    """A gang of the job `a`."""
    program = Program(("/bin/sh", "-c", SCRIPTS[does]), "/", notice_signal="USR1", grace_s=20.0, term_s=5.0)
    return Gang("a", attempt, revision, slots, program, phase, launched=phase is Phase.STOPPING)


@dataclass
class Stand:
    """A way to make backends that follow each other, and what they said."""

    make: Callable[[], Backend]
    pids: Callable[[], Sequence[object]]
    facts: list[Fact] = field(default_factory=list)
    fence: int = 0
    backend: Backend | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def open(self, *gangs: Gang) -> Backend:
        """A new daemon takes over."""
        if self.backend is not None:
            self.backend.close()
        self.fence += 1
        self.backend = self.make()
        self.backend.open(self.fence, gangs, self._hear)
        return self.backend

    def hear(self, kind: type[F], where: Callable[[F], bool] = lambda _fact: True) -> F:
        """Wait for a fact."""
        end_s = time.monotonic() + PATIENCE_S
        with self._changed:
            while True:
                for fact in self.facts:
                    if isinstance(fact, kind) and where(fact):
                        return fact
                assert self._changed.wait(end_s - time.monotonic()), f"no {kind.__name__} in {self.facts}"

    def count(self, kind: type[Fact]) -> int:
        """How often something was said."""
        return sum(isinstance(fact, kind) for fact in self.facts)

    def _hear(self, fact: Fact) -> None:
        with self._changed:
            self.facts.append(fact)
            self._changed.notify_all()


@contextmanager
def real(folder: Path, _patch: pytest.MonkeyPatch) -> Iterator[Stand]:
    """Processes of this machine."""
    state = folder / "state"

    def statuses() -> list[object]:
        client = SupervisorClient.connect(state / "supervisor", stand.fence, lambda _event: None)
        try:
            return [one.pid for one in client.list() if one.state is WorkerState.RUNNING]
        finally:
            client.close()

    stand = Stand(lambda: LocalBackend(state, SERVERS), statuses)
    try:
        yield stand
    finally:
        if stand.backend is not None:
            stand.backend.close()
        client = SupervisorClient.connect(state / "supervisor", 2**40, lambda _event: None)
        client.shutdown(force=True)
        client.close()


@contextmanager
def on_ray(folder: Path, cluster: RayServers) -> Iterator[Stand]:
    """Actors of a Ray cluster, whose servers have 8 declared GPUs each."""
    state, where = folder / "state", RayAddress(cluster.address, f"contract-{os.getpid()}")
    stand = Stand(
        lambda: RayBackend(state, {}, where, lease_s=5.0),
        lambda: leaders(str(state)),
    )
    try:
        yield stand
    finally:
        if stand.backend is not None:
            stand.backend.close()
        clear(where)
        disconnect()


def leaders(state: str) -> list[int]:
    """The first processes of all workers that were started for a state folder, as the machine shows them."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            mine = f"ARYL_RUN_DIR={state}/".encode() in (folder / "environ").read_bytes()
            if mine and os.getsid(int(folder.name)) == int(folder.name):
                found.append(int(folder.name))
    return sorted(found)


@contextmanager
def simulated(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Stand]:
    """The same backend on a supervisor that only plays: workers run at once and do what their script says."""
    supervisor = FakeSupervisor()
    patch.setattr(SupervisorClient, "connect", supervisor.connect)
    over = threading.Event()

    def play() -> None:
        while not over.wait(0.01):
            for status in supervisor.alive:
                does = supervisor.specs[status.key].argv[-1]
                supervisor.run(status.key)
                if status.told_to_stop:
                    supervisor.end(status.key, 75 if does == SCRIPTS[WAITS] else None, 15)
                elif does != SCRIPTS[WAITS]:
                    supervisor.end(status.key, 0 if does == SCRIPTS[ENDS_WELL] else 3)

    player = threading.Thread(target=play)
    stand = Stand(
        lambda: LocalBackend(folder / "state", SERVERS),
        lambda: [one.key for one in supervisor.alive if one.state is WorkerState.RUNNING],
    )
    player.start()
    try:
        yield stand
    finally:
        over.set()
        player.join()
        if stand.backend is not None:
            stand.backend.close()
