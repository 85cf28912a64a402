"""A supervisor in a temporary folder with what tests ask of it: workers, events, patience, and its end."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from aryl.backends.supervisor import tree
from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor.protocol import (
    StopSchedule,
    SupervisorEvent,
    WorkerExited,
    WorkerKey,
    WorkerSpec,
    WorkerStatus,
)

PATIENCE_S = 60.0
_Event = TypeVar("_Event")


def wait_for(what: Callable[[], bool], text: str = "what the test waits for") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, f"{text} didn't happen"
        time.sleep(0.01)


def key(rank: int = 0, *, job: str = "job-1", attempt: int = 1, generation: int = 0) -> WorkerKey:
    return WorkerKey(job, attempt, generation, rank)


def soon(
    notice: str = "", *, term_in_s: float = 0.0, kill_in_s: float = 3600.0, stuck_after_s: float = 3600.0
) -> StopSchedule:
    now = time.time()
    return StopSchedule(notice, now, now + term_in_s, now + kill_in_s, stuck_after_s)


def lives(pid: int) -> bool:
    process = tree.read(pid)
    return process is not None and not process.gone


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "supervisor"
        self.events: list[SupervisorEvent] = []
        self._clients: list[SupervisorClient] = []
        self._changed = threading.Condition()

    def connect(
        self, fence: int = 1, *, linger_s: float = 60.0, start_within_s: float = PATIENCE_S
    ) -> SupervisorClient:
        client = SupervisorClient.connect(
            self.state, fence, self._note, linger_s=linger_s, start_within_s=start_within_s
        )
        self._clients.append(client)
        return client

    def _note(self, event: SupervisorEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def event(self, kind: type[_Event], where: Callable[[_Event], bool] = lambda _: True) -> _Event:
        """The first event of a kind, which is waited for."""
        with self._changed:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                for event in self.events:
                    if isinstance(event, kind) and where(event):
                        return event
                assert self._changed.wait(deadline - time.monotonic()), f"no {kind.__name__}: {self.events}"

    def exited(self, which: WorkerKey) -> WorkerStatus:
        return self.event(WorkerExited, lambda event: event.status.key == which).status

    def spec(
        self,
        *argv: str,
        which: WorkerKey | None = None,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        memory_bytes: int = 0,
        cpus: float = 0.0,
    ) -> WorkerSpec:
        which = which or key()
        return WorkerSpec(
            which,
            argv,
            str(self.folder) if cwd is None else cwd,
            {"PATH": os.environ["PATH"]} if env is None else env,
            str(self.log(which)),
            "T1",
            (which.rank,),
            memory_bytes=memory_bytes,
            cpus=cpus,
            meta={"role": "test"},
        )

    def python(self, code: str, which: WorkerKey | None = None, *, memory_bytes: int = 0) -> WorkerSpec:
        """A worker that runs Python code."""
        return self.spec(sys.executable, "-I", "-S", "-c", code, which=which, memory_bytes=memory_bytes)

    def log(self, which: WorkerKey | None = None) -> Path:
        which = which or key()
        return self.folder / "logs" / which.job_id / f"rank-{which.rank}.log"

    def said(self, which: WorkerKey | None = None) -> str:
        path = self.log(which)
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def wait_until_said(self, text: str, which: WorkerKey | None = None) -> None:
        wait_for(lambda: text in self.said(which), f"'{text}' in the log")

    def number(self, name: str) -> int:
        """A number that a worker has written into a file of the folder, such as a pid."""
        path = self.folder / name
        wait_for(lambda: path.exists() and path.read_text(encoding="ascii").endswith("\n"), name)
        return int(path.read_text(encoding="ascii"))

    def end(self) -> None:
        """Kill all workers, also those of a supervisor that was killed, and the supervisor."""
        for client in self._clients:
            client.close()
        last = SupervisorClient.connect(self.state, 10**9, lambda event: None)
        last.shutdown(force=True)
        last.close()
        wait_for(lambda: not lives(last.pid), "the end of the supervisor")
