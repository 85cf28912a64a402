"""A supervisor without processes: workers start, end and report when the test says so. What it is told, and
what it lets a daemon see, is what the real one does; `tests/backends/supervisor` tests that one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aryl.backends.supervisor.protocol import (
    StopSchedule,
    SupervisorEvent,
    WorkerExited,
    WorkerKey,
    WorkerSpec,
    WorkerStarted,
    WorkerState,
    WorkerStatus,
)


@dataclass
class FakeSupervisor:
    """Outlives the daemons of a test. `specs` has everything that was ever started."""

    statuses: dict[WorkerKey, WorkerStatus] = field(default_factory=dict)
    specs: dict[WorkerKey, WorkerSpec] = field(default_factory=dict)
    listener: Callable[[SupervisorEvent], None] | None = None

    def connect(
        self, _directory: Path, _fence: int, on_event: Callable[[SupervisorEvent], None], **_more: object
    ) -> FakeClient:
        """A new daemon takes over."""
        self.listener = on_event
        return FakeClient(self)

    @property
    def alive(self) -> list[WorkerStatus]:
        """Workers that hold their GPUs, in the order of their start."""
        return [status for status in self.statuses.values() if not status.state.ended]

    def run(self, key: WorkerKey) -> None:
        """A worker that was to be started runs."""
        status = self.statuses[key]
        if status.state is WorkerState.STARTING:
            self._become(
                replace(status, state=WorkerState.RUNNING, pid=1, started_unix_s=time.time()), started=True
            )

    def end(self, key: WorkerKey, code: int | None, signal: int | None = None) -> None:
        """A worker is gone."""
        status = self.statuses[key]
        if not status.state.ended:
            ended = replace(
                status, state=WorkerState.EXITED, exit_code=code, signal=signal, ended_unix_s=time.time()
            )
            self._become(ended, started=False)

    def _become(self, status: WorkerStatus, *, started: bool) -> None:
        self.statuses[status.key] = status
        if self.listener is not None:
            kind = WorkerStarted if started else WorkerExited
            self.listener(kind(time.time(), status))


@dataclass
class FakeClient:
    """One daemon's connection."""

    supervisor: FakeSupervisor
    report_socket: str = "/nowhere"
    pid: int = 0
    connected: bool = True

    def start(self, specs: Sequence[WorkerSpec], *, wait: bool = True) -> None:
        """Take workers on."""
        for spec in specs:
            if spec.key not in self.supervisor.statuses:
                self.supervisor.specs[spec.key] = spec
                self.supervisor.statuses[spec.key] = WorkerStatus(
                    spec.key, spec.server_id, spec.gpus, spec.meta, spec.log_path, WorkerState.STARTING
                )

    def stop(self, keys: Sequence[WorkerKey], _schedule: StopSchedule) -> None:
        """Tell workers to leave."""
        for key in keys:
            status = self.supervisor.statuses.get(key)
            if status is not None and not status.state.ended:
                self.supervisor.statuses[key] = replace(status, told_to_stop=True)

    def list(self) -> list[WorkerStatus]:
        """All that is known."""
        return [self.supervisor.statuses[key] for key in sorted(self.supervisor.statuses)]

    def forget(self, job_id: str, attempt: int, *, wait: bool = True) -> tuple[WorkerKey, ...]:
        """Nobody will ask again."""
        gone = tuple(
            key
            for key, status in self.supervisor.statuses.items()
            if (key.job_id, key.attempt) == (job_id, attempt) and status.state.ended
        )
        for key in gone:
            del self.supervisor.statuses[key]
        return gone

    def close(self) -> None:
        """The daemon is gone."""
        self.connected = False
