"""One worker as the supervisor keeps it, and what its stop schedule asks for next. Nothing here acts.

Times are in seconds of `time.monotonic`, so that a clock that is set doesn't change a schedule that runs.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from aryl.backends.supervisor.limits import Group
from aryl.backends.supervisor.protocol import (
    StopSchedule,
    WorkerKey,
    WorkerSpec,
    WorkerState,
    WorkerStatus,
    signal_number,
)
from aryl.backends.supervisor.records import Record
from aryl.backends.supervisor.spawn import Child
from aryl.backends.supervisor.tree import Ear, Process, ticks_now

KILL_AGAIN_S = 2.0
_POLL_S, _MAX_POLL_S = 0.05, 1.0
# How often it is looked for processes that hear the notice by now.
_NOTICE_POLL_S, _MAX_NOTICE_POLL_S = 0.05, 0.5


class Step(Enum):
    """What a worker that is to leave gets now."""

    NOTICE = "notice"
    TERM = "term"
    KILL = "kill"


@dataclass(slots=True)
class Leave:
    """When a worker gets what. A second schedule can only make it earlier."""

    notice: signal.Signals | None
    notice_at: float
    term_at: float
    kill_at: float
    stuck_at: float

    @staticmethod
    def of(schedule: StopSchedule, now: float, now_unix_s: float) -> Leave:
        """A schedule on this process's own clock."""
        ahead = now - now_unix_s
        kill_at = schedule.kill_at_unix_s + ahead
        return Leave(
            notice=signal_number(schedule.notice_signal) if schedule.notice_signal else None,
            notice_at=schedule.notice_at_unix_s + ahead,
            term_at=min(schedule.term_at_unix_s + ahead, kill_at),
            kill_at=kill_at,
            stuck_at=max(kill_at, now) + schedule.stuck_after_s,
        )

    def hurry(self, other: Leave) -> None:
        """Take the earlier of each time."""
        if self.notice is None:
            self.notice, self.notice_at = other.notice, other.notice_at
        elif other.notice is not None:
            self.notice_at = min(self.notice_at, other.notice_at)
        self.term_at = min(self.term_at, other.term_at)
        self.kill_at = min(self.kill_at, other.kill_at)
        self.stuck_at = min(self.stuck_at, other.stuck_at)


@dataclass(slots=True)
class Worker:
    """A worker that hasn't ended. `due` is when it has to be looked at next."""

    key: WorkerKey
    server_id: str
    gpus: tuple[int, ...]
    meta: dict[str, str]
    log_path: str
    spec: WorkerSpec | None = None  # until its program runs: environments are large
    child: Child | None = None  # while it is being started
    pid: int | None = None
    start_ticks: int = 0
    started_unix_s: float | None = None
    state: WorkerState = WorkerState.STARTING
    own: bool = True  # False: an earlier supervisor started it
    wait_status: int | None = None  # of the leader, once it is reaped
    failure: tuple[int, str] | None = None  # why its program can't be started
    told_to_stop: bool = False
    stuck: bool = False
    leave: Leave | None = None
    told: dict[tuple[int, int], int] = field(default_factory=dict)  # by process, when, in ticks
    ears: dict[tuple[int, int], Ear] = field(default_factory=dict)  # as they were at the last look
    notice_poll_s: float = _NOTICE_POLL_S
    termed: bool = False
    killed_at: float = -math.inf
    group: Group | None = None
    memory_bytes: int = 0
    report: dict[str, float] = field(default_factory=dict)
    due: float = math.inf
    poll_s: float = _POLL_S

    @staticmethod
    def of(spec: WorkerSpec) -> Worker:
        """A worker that is to be started."""
        return Worker(
            spec.key,
            spec.server_id,
            spec.gpus,
            dict(spec.meta),
            spec.log_path,
            spec=spec,
            memory_bytes=spec.memory_bytes,
        )

    @staticmethod
    def inherited(record: Record) -> Worker:
        """A worker that an earlier supervisor left alive, or may have."""
        was = record.status
        return Worker(
            was.key,
            was.server_id,
            was.gpus,
            dict(was.meta),
            was.log_path,
            pid=was.pid,
            start_ticks=record.start_ticks,
            started_unix_s=was.started_unix_s,
            state=WorkerState.RUNNING,
            own=False,
            told_to_stop=was.told_to_stop,
            group=Group(record.cgroups) if record.cgroups else None,
            report=dict(was.last_report),
            due=-math.inf,
        )

    @property
    def leaderless(self) -> bool:
        """Its first process is gone, or was never ours; what is left of it is to go too."""
        return self.wait_status is not None or not self.own

    def step(self, now: float) -> Step | None:
        """What it gets now, and remember that it got it."""
        if self.leave is None:
            return None
        if now >= self.leave.kill_at:
            if now < self.killed_at + KILL_AGAIN_S:
                return None
            self.killed_at = now
            return Step.KILL
        if now >= self.leave.term_at:
            if self.termed:
                return None
            self.termed = True
            return Step.TERM
        if self.leave.notice is not None and now >= self.leave.notice_at:
            return Step.NOTICE
        return None

    def to_tell(self, process: Process, ear: Callable[[Process], Ear]) -> bool:
        """Whether one of its processes gets the notice now.

        Each gets it as soon as it would hear it, and then no more: a helper that made no arrangement isn't to
        die of it, and a program may still be loading. One that was started by a process that had been told
        gets none: what was forked in order to save has its parent's handler, but isn't to leave.
        """
        who = process.pid, process.start_ticks
        if who in self.told or self.child is not None:
            return False
        for (pid, _), told_ticks in self.told.items():
            if pid == process.parent and process.start_ticks >= told_ticks:
                self.told[who] = told_ticks
                return False
        heard = ear(process)
        before, self.ears[who] = self.ears.get(who), heard
        if heard is Ear.OPEN or (heard is Ear.BLOCKED and before is Ear.BLOCKED):
            self.told[who] = ticks_now()
            return True
        return heard is Ear.DEAF

    def plan_next(self, now: float) -> None:
        """Set `due`. What is left without a leader tells nobody when it goes, so it is looked at now and
        then.
        """
        times = []
        if self.leave is not None:
            if self.leave.notice is not None and not self.termed:
                # A process that doesn't hear the notice yet may do so soon.
                times.append(max(self.leave.notice_at, now + self.notice_poll_s))
                if now >= self.leave.notice_at:
                    self.notice_poll_s = min(2 * self.notice_poll_s, _MAX_NOTICE_POLL_S)
            if not self.termed:
                times.append(self.leave.term_at)
            times.append(max(self.leave.kill_at, self.killed_at + KILL_AGAIN_S))
            if not self.stuck:
                times.append(self.leave.stuck_at)
        if self.leaderless:
            times.append(now + self.poll_s)
            self.poll_s = min(2 * self.poll_s, _MAX_POLL_S)
        self.due = max(min((at for at in times if at > now), default=math.inf), now)

    def status(self) -> WorkerStatus:
        """It as others see it, while it lives."""
        return WorkerStatus(
            self.key,
            self.server_id,
            self.gpus,
            self.meta,
            self.log_path,
            self.state,
            pid=self.pid,
            started_unix_s=self.started_unix_s,
            told_to_stop=self.told_to_stop,
            stuck=self.stuck,
            last_report=dict(self.report),
            orphan=not self.own,
        )

    def ended(self, at_unix_s: float) -> WorkerStatus:
        """It as others see it, now that nothing of it is left."""
        code = number = None
        reason = ""
        if self.failure is not None:
            code, reason = self.failure
        elif not self.own:
            reason = "its supervisor died, and all that was left of it was killed"
        elif self.wait_status is not None:
            if os.WIFSIGNALED(self.wait_status):
                number = os.WTERMSIG(self.wait_status)
            else:
                code = os.waitstatus_to_exitcode(self.wait_status)
            if code != 0 and self.group is not None and self.group.memory_kills():
                reason = f"a process of it was killed by its memory limit of {self.memory_bytes} bytes"
        else:
            number, reason = int(signal.SIGTERM), "stopped before it was started"
        return WorkerStatus(
            self.key,
            self.server_id,
            self.gpus,
            self.meta,
            self.log_path,
            WorkerState.EXITED if self.own else WorkerState.LOST,
            pid=self.pid,
            started_unix_s=self.started_unix_s,
            exit_code=code,
            signal=number,
            ended_unix_s=at_unix_s,
            told_to_stop=self.told_to_stop,
            reason=reason,
            last_report=dict(self.report),
        )
