"""The workers of a supervisor: starting, stopping, reaping, and saying what happened.

Everything here is called from one thread, by the loop in `server.py`: requests first, then `step`, and after
the records are on disk `release`. Nothing waits.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import assert_never

from aryl.backends.supervisor import tree
from aryl.backends.supervisor.limits import Group, Limits
from aryl.backends.supervisor.owners import UNDECIDED, Owners
from aryl.backends.supervisor.protocol import (
    MARKER,
    MAX_REPORT_BYTES,
    MAX_REPORT_KEYS,
    ProtocolError,
    StopSchedule,
    WorkerEvent,
    WorkerExited,
    WorkerKey,
    WorkerReported,
    WorkerSpec,
    WorkerStarted,
    WorkerState,
    WorkerStatus,
    WorkerStuck,
    as_int,
    as_numbers,
    as_text,
    decode_line,
)
from aryl.backends.supervisor.records import Record, Records
from aryl.backends.supervisor.saying import say, say_defect
from aryl.backends.supervisor.spawn import NOT_STARTED, read_failure, spawn
from aryl.backends.supervisor.tree import Process
from aryl.backends.supervisor.worker import Leave, Step, Worker

_STARTS_A_STEP = 16
_STARTING_AT_ONCE = 64
_LOOK_EVERY_S = 0.05
_REPORT_EVERY_S = 0.2
_STUCK_AFTER_S = 60.0
_REMOVE_AGAIN_S = 1.0


class Workers:
    """All of them. `emit` takes events; `watch` is called with a descriptor that a start fails through, and a
    function to call when it is readable; `unwatch` undoes that.
    """

    def __init__(
        self,
        records: Records,
        limits: Limits,
        identity: str,
        leftover_grace_s: float,
        files: tuple[int, int],
        emit: Callable[[WorkerEvent], None],
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], None],
    ) -> None:
        self._records, self._limits, self._files = records, limits, files
        self._leftover_grace_s = leftover_grace_s
        self._emit, self._watch, self._unwatch = emit, watch, unwatch
        self._boot = tree.boot_id()
        self._owners = Owners(os.getpid(), identity)
        self._living: dict[WorkerKey, Worker] = {}
        self._queue: deque[Worker] = deque()
        self._gated: list[Worker] = []
        self._starting = 0
        self._by_pid: dict[int, Worker] = {}
        self._reporters: dict[tuple[str, int, int], WorkerKey] = {}
        self._reported: dict[WorkerKey, Worker] = {}
        self._report_at = math.inf
        self._look_at = -math.inf  # not before
        self._strays = False
        self._groups: list[Group] = []  # of workers that have ended, and couldn't be removed yet
        self._remove_at = math.inf
        self._inherit()

    @property
    def living(self) -> int:
        """How many haven't ended."""
        return len(self._living)

    def statuses(self) -> list[WorkerStatus]:
        """All that aren't forgotten, by key."""
        found = {key: record.status for key, record in self._records.kept.items()}
        found.update((key, worker.status()) for key, worker in self._living.items())
        return [found[key] for key in sorted(found)]

    def start(self, specs: Iterable[WorkerSpec]) -> None:
        """Take workers on. Those that are known already are passed over."""
        for spec in specs:
            if spec.key not in self._records.kept:
                worker = Worker.of(spec)
                self._living[spec.key] = worker
                self._queue.append(worker)
                self._records.put(Record(worker.status()))

    def stop(self, keys: Iterable[WorkerKey], schedule: StopSchedule) -> None:
        """Let workers leave."""
        leave = Leave.of(schedule, time.monotonic(), time.time())
        for key in keys:
            if (worker := self._living.get(key)) is not None:
                self._leave(worker, leave)
                # Whoever had ended before it was told ended by itself.
                if not worker.told_to_stop and worker.wait_status is None:
                    worker.told_to_stop = True
                    self._record(worker)

    def kill_all(self) -> None:
        """Let all leave at once."""
        self.stop(list(self._living), StopSchedule("", 0.0, 0.0, 0.0, _STUCK_AFTER_S))

    def forget(self, job_id: str, attempt: int) -> list[WorkerKey]:
        """Drop what has ended of an attempt; what lives is returned."""
        keys = [key for key in self._records.kept if (key.job_id, key.attempt) == (job_id, attempt)]
        alive = [key for key in keys if key in self._living]
        for key in keys:
            if key not in self._living:
                self._records.drop(key)
        return alive

    def report(self, data: bytes) -> None:
        """Take a datagram. What isn't a report of a living worker is dropped."""
        if len(data) > MAX_REPORT_BYTES:
            return
        try:
            got = decode_line(data)
            who = (as_text(got.get("job"), "job"), as_int(got.get("attempt"), "attempt"))
            key = self._reporters.get((*who, as_int(got.get("rank"), "rank")))
            report = as_numbers(got.get("report"), "report")
        except ProtocolError:
            return
        worker = self._living.get(key) if key is not None else None
        if worker is None or not 0 < len(report) <= MAX_REPORT_KEYS:
            return
        merged = {**worker.report, **report}
        worker.report = merged if len(merged) <= MAX_REPORT_KEYS else report
        self._reported[worker.key] = worker
        self._report_at = min(self._report_at, time.monotonic() + _REPORT_EVERY_S)

    def reap(self) -> None:
        """Take note of all children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = self._by_pid.pop(pid, None)
            if worker is None:  # an orphan
                key = self._owners.owner(pid)
                worker = self._living.get(key) if key is not None else None
                if worker is not None and worker.leaderless:
                    worker.due = -math.inf
                continue
            if worker.child is not None:
                self._started(worker)
            worker.wait_status = status
            if worker.failure is None:
                self._leave(worker, self._leftover())
                worker.due = -math.inf
            else:
                self._end(worker)

    def step(self) -> float:
        """Do what is due. Returns when there is more to do, in seconds of `time.monotonic`."""
        self._spawn()
        now = time.monotonic()
        if now >= self._report_at:
            self._flush_reports()
        if now >= self._remove_at:
            self._remove_groups(now)
        due = [worker for worker in self._living.values() if worker.due <= now and worker.pid is not None]
        if (due or self._strays) and now >= self._look_at:
            self._look(due, now)
        if self._queue and self._starting < _STARTING_AT_ONCE:
            return now
        times = [worker.due for worker in self._living.values() if worker.pid is not None]
        if self._strays:
            times.append(now)
        look_at = max(min(times, default=math.inf), self._look_at)
        return min(look_at, self._report_at, self._remove_at)

    def release(self, recorded: bool) -> None:
        """Open the gates of those that were started, if it is `recorded` on disk who they are."""
        for worker in self._gated:
            if worker.child is None:
                continue
            if recorded:
                with contextlib.suppress(OSError):  # it was killed already
                    os.write(worker.child.gate, b"+")
            else:
                worker.failure = NOT_STARTED, "the supervisor can't write its records; is the disk full?"
            os.close(worker.child.gate)
        self._gated.clear()

    # Starting.

    def _spawn(self) -> None:
        for _ in range(_STARTS_A_STEP):
            if not self._queue or self._starting >= _STARTING_AT_ONCE:
                return
            worker = self._queue.popleft()
            spec = worker.spec
            if worker.told_to_stop or spec is None:
                self._end(worker)
                continue
            environment = {**spec.env, MARKER: self._owners.mark(spec.key)}
            try:
                child = spawn(spec, environment, self._files)
            except OSError as error:
                worker.failure = NOT_STARTED, f"no process can be started: {error.strerror or error}"
                self._end(worker)
                continue
            worker.child, worker.pid, worker.start_ticks = child, child.pid, child.start_ticks
            self._by_pid[child.pid] = worker
            self._starting += 1
            try:
                worker.group = self._limits.make(spec.key.text, spec.memory_bytes, spec.cpus)
                if worker.group is not None:
                    worker.group.join(child.pid)
            except OSError as error:
                say(f"{spec.key.text} runs without limits: {error}")
            who = (spec.key.job_id, spec.key.attempt, spec.key.rank)
            self._reporters[who] = max(spec.key, self._reporters.get(who, spec.key))
            self._watch(child.failure, partial(self._started, worker))
            self._gated.append(worker)
            self._record(worker)

    def _started(self, worker: Worker) -> None:
        """The pipe of a start says something, or has ended."""
        child = worker.child
        if child is None:
            return
        try:
            data = os.read(child.failure, 8192)
        except BlockingIOError:
            return
        self._unwatch(child.failure)
        os.close(child.failure)
        worker.child = worker.spec = None
        self._starting -= 1
        if data:
            worker.failure = read_failure(data)
        if worker.failure is not None:
            return  # its end is near
        worker.state = WorkerState.RUNNING
        worker.started_unix_s = time.time()
        self._record(worker)
        self._emit(WorkerStarted(worker.started_unix_s, worker.status()))

    # Ending.

    def _leave(self, worker: Worker, leave: Leave) -> None:
        if worker.leave is None:
            worker.leave = replace(leave)
        else:
            worker.leave.hurry(leave)
        worker.due = -math.inf

    def _leftover(self) -> Leave:
        """The schedule of what a worker leaves behind."""
        now = time.monotonic()
        kill_at = now + self._leftover_grace_s
        return Leave(None, math.inf, now, kill_at, kill_at + _STUCK_AFTER_S)

    def _look(self, due: list[Worker], now: float) -> None:
        """Look at all processes, and do what is due for some workers."""
        found = self._owners.look(tree.snapshot(), self._living.values())
        for process in found.get(None, ()):
            say(f"process {process.pid} is left of a worker that has ended: it is killed")
            tree.deliver(process, signal.SIGKILL)
        self._strays = None in found
        for worker in due:
            try:
                self._advance(worker, found, now)
            except Exception:
                say_defect(f"{worker.key.text} could not be looked after")
                worker.due = now + 1.0
        # A look costs something for each process of the machine.
        after = time.monotonic()
        self._look_at = after + max(_LOOK_EVERY_S, 3 * (after - now))

    def _advance(self, worker: Worker, found: Mapping[WorkerKey | None, list[Process]], now: float) -> None:
        members = list(found.get(worker.key, ()))
        if UNDECIDED in found and worker.leaderless and all(one.leaderless for one in self._living.values()):
            members += found[UNDECIDED]  # they are to go now, whoever they belong to
        if worker.leaderless and not members:
            self._end(worker)
            return
        step = worker.step(now)
        if step is not None:
            self._give(worker, step, members)
        leave = worker.leave
        if leave is not None and now >= leave.stuck_at and not worker.stuck:
            self._set_stuck(worker, True)
        worker.plan_next(now)

    def _give(self, worker: Worker, step: Step, members: list[Process]) -> None:
        leave = worker.leave
        for process in members:
            match step:
                case Step.NOTICE:
                    notice = leave.notice if leave is not None else None
                    if notice is not None and worker.to_tell(process, partial(tree.ear, number=notice)):
                        tree.deliver(process, notice)
                case Step.TERM:
                    tree.deliver(process, signal.SIGTERM)
                    tree.deliver(process, signal.SIGCONT)
                case Step.KILL:
                    tree.deliver(process, signal.SIGKILL)
                case _:
                    assert_never(step)

    def _end(self, worker: Worker) -> None:
        """Nothing of it is left."""
        if worker.stuck:
            self._set_stuck(worker, False)
        del self._living[worker.key]
        who = (worker.key.job_id, worker.key.attempt, worker.key.rank)
        if self._reporters.get(who) == worker.key:
            del self._reporters[who]
        if self._reported.pop(worker.key, None) is not None:
            self._emit(WorkerReported(time.time(), worker.key, dict(worker.report)))
        at_unix_s = time.time()
        status = worker.ended(at_unix_s)
        if worker.group is not None and not worker.group.remove():
            self._groups.append(worker.group)
            self._remove_at = time.monotonic() + _REMOVE_AGAIN_S
        self._records.put(Record(status, worker.start_ticks, self._boot))
        self._emit(WorkerExited(at_unix_s, status))

    def _set_stuck(self, worker: Worker, stuck: bool) -> None:
        worker.stuck = stuck
        say(f"{worker.key.text} {'does not die' if stuck else 'is gone at last'}")
        self._record(worker)
        self._emit(WorkerStuck(time.time(), worker.key, worker.server_id, stuck))

    def _record(self, worker: Worker) -> None:
        cgroups = worker.group.folders if worker.group is not None else ()
        self._records.put(Record(worker.status(), worker.start_ticks, self._boot, cgroups))

    def _flush_reports(self) -> None:
        reported, self._reported, self._report_at = self._reported, {}, math.inf
        for worker in reported.values():
            self._emit(WorkerReported(time.time(), worker.key, dict(worker.report)))

    def _remove_groups(self, now: float) -> None:
        self._groups = [group for group in self._groups if not group.remove()]
        self._remove_at = now + _REMOVE_AGAIN_S if self._groups else math.inf

    def _inherit(self) -> None:
        """Take on what an earlier supervisor left behind: all of it is to go."""
        for record in list(self._records.kept.values()):
            if record.status.state.ended:
                continue
            worker = Worker.inherited(record)
            if record.boot != self._boot:
                worker.pid, worker.group = None, None  # another boot: nothing of it can be left
            self._living[worker.key] = worker
            if worker.pid is None:
                self._end(worker)
                continue
            say(f"{worker.key.text} was left by an earlier supervisor: it is killed and counts as lost")
            now = time.monotonic()
            self._leave(worker, Leave(None, math.inf, now, now, now + _STUCK_AFTER_S))
