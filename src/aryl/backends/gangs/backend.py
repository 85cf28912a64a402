"""Gangs on servers, whoever runs their processes: orders and reports meet here, under one lock.

How attempts go is in `attempt.py` and `elastic.py`; a *crew* (`crew.py`) starts and stops processes and says
what became of them; here GPU indices are given out, and what was found running is put beside the journal. A
report of an exit is held back until the GPUs of that worker are seen to be idle.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import assert_never

from aryl.backends.devices import Devices, Nvml
from aryl.backends.environment import Post, Start
from aryl.backends.gangs.adopt import adopt, new_attempt
from aryl.backends.gangs.attempt import SAVED, Attempt, Stage
from aryl.backends.gangs.crew import Crew, CrewEvent, OnEvent, ServerCame, ServerWent
from aryl.backends.gangs.folders import Folders
from aryl.backends.gangs.losses import Losses
from aryl.backends.gangs.presence import Presence, say_who_is_there
from aryl.backends.gangs.specs import lighthouse_spec, worker_specs
from aryl.backends.gangs.stuck import StuckWorkers
from aryl.backends.port import (
    BackendLost,
    Fact,
    Gang,
    Reported,
    ServerDown,
    ServerJoined,
    ServerStuck,
    ServerUp,
    Sink,
)
from aryl.backends.supervisor.protocol import (
    StartRefused,
    StopSchedule,
    SupervisorGone,
    WorkerExited,
    WorkerKey,
    WorkerReported,
    WorkerStarted,
    WorkerState,
    WorkerStatus,
    WorkerStuck,
)
from aryl.core.model import ServerSpec
from aryl.errors import ArylError, FencedError

_log = logging.getLogger(__name__)

TICK_S = 0.25
# How often GPUs are asked whether they still answer.
LOOK_EVERY_S = 15.0
# What nobody asked for is ended without ado.
STRANGERS_END_WITHIN_S = 5.0


class GangBackend(ABC):
    """Implements `Backend` and `Hands` over a crew. `indices` are the GPUs of each server that is known
    beforehand; `state` is the folder of all that is kept; `roots` are the folders where jobs may work.
    """

    def __init__(
        self,
        state: Path,
        indices: Mapping[str, Sequence[int]],
        *,
        nvml: Nvml | None = None,
        stuck_after_s: float = 60.0,
        roots: Sequence[str] | None = None,
    ) -> None:
        self._state, self._folders = state, Folders(state, roots)
        self._devices = Devices(indices, nvml)
        self._taken: list[tuple[str, tuple[int, ...]]] = []  # by an order that nothing was started for yet
        self._stuck_after_s = stuck_after_s
        self._lock = threading.RLock()
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._unfree: list[WorkerStatus] = []
        self._stuck = StuckWorkers()
        self._losses = Losses()
        self._away: dict[str, None] = {}  # servers that are known and not there
        self._came: dict[str, ServerSpec] = {}  # what those that came say of themselves
        self._crew: Crew | None = None
        self._sink: Sink = _nobody
        self._closing = threading.Event()
        self._ticker: threading.Thread | None = None

    @property
    def supervisor_pid(self) -> int | None:
        """The process of this machine that runs the workers, if there is one."""
        return None

    @abstractmethod
    def connect(self, fence: int, on_event: OnEvent) -> Crew:
        """Take over the crew. Raises FencedError, or ArylError if none can be had."""

    @abstractmethod
    def present(self, crew: Crew) -> Presence | None:
        """The servers that are there; None: all that are known."""

    @abstractmethod
    def address(self, server_id: str | None) -> str:
        """Where other workers reach a worker on a server; None: where what belongs to no server runs."""

    @abstractmethod
    def free_port(self, server_id: str | None) -> int:
        """A port that nobody listens on there. Raises ArylError."""

    def open(self, fence: int, gangs: Sequence[Gang], sink: Sink, servers: Sequence[ServerSpec] = ()) -> None:
        """Take over; see `Backend`. Raises FencedError, or ArylError if no crew can be had."""
        with self._lock:
            crew, self._crew = self._crew, None
        if crew is not None:
            crew.close()  # without the lock, which it may need to hand on its last event
        with self._lock:
            self._sink = sink
            self._attempts.clear()
            self._unfree.clear()
            self._stuck.clear()
            self._away.clear()
            self._devices.forget_all()
            for server in servers:
                self._devices.add(server.server_id, server.gpus)
            self._crew = crew = self.connect(fence, self._on_event)
            present = self.present(crew)
            self._came = {server.server_id: server for server in present.here} if present else {}
            self._take_over(gangs, crew.list(), present)
        if self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, name="backend-ticker", daemon=True)
            self._ticker.start()

    def launch(self, gang: Gang) -> None:
        """Start a gang, unless it has been started."""
        with self._lock:
            key = gang.job_id, gang.attempt
            if key not in self._attempts:
                self._attempts[key] = attempt = new_attempt(gang, self)
                self._carry_out(attempt, attempt.launch)

    def resize(self, gang: Gang) -> None:
        """Let the gang stand as its later revision says."""
        with self._lock:
            attempt = self._attempts.get((gang.job_id, gang.attempt))
            if attempt is not None:
                self._carry_out(attempt, lambda: attempt.resize(gang))
                self._come_back()

    def stop(self, job_id: str, attempt: int, *, save: bool) -> None:
        """Stop a gang."""
        with self._lock:
            running = self._attempts.get((job_id, attempt))
            if running is not None:
                self._carry_out(running, lambda: running.stop(save=save))
                self._come_back()

    def forget(self, job_id: str, attempt: int) -> None:
        """The attempt's end is in the journal."""
        with self._lock:
            self._attempts.pop((job_id, attempt), None)
            if self._crew is not None:
                try:
                    self._crew.forget(job_id, attempt, wait=False)
                except ArylError as error:
                    _log.warning("attempt %s of %s can't be forgotten: %s", attempt, job_id, error)

    def close(self) -> None:
        """Let go without touching what runs."""
        self._closing.set()
        with self._lock:
            crew, self._crew, self._sink = self._crew, None, _nobody
        if crew is not None:
            crew.close()
        if self._ticker is not None and self._ticker is not threading.current_thread():
            self._ticker.join()

    # What attempts can do (`Hands`).

    def run_dir(self, gang: Gang, generation: int) -> Path:
        """The folder that the ranks of a gang start share."""
        return self._folders.run(gang, generation)

    def begin(self, gang: Gang, generation: int, host: str, port: int) -> Start:
        """What the processes of a gang start have in common."""
        return Start(
            gang,
            generation,
            sum(slot.workers for slot in gang.slots),
            len(gang.slots),
            host,
            port,
            self.run_dir(gang, generation),
            self._folders.checkpoints(gang),
            self._connected().report_socket,
        )

    def start(self, start: Start, posts: Sequence[Post]) -> None:
        """Start processes."""
        self._connected().start(worker_specs(start, posts, self._folders), wait=False)
        self._taken.clear()  # its end will free them

    def start_lighthouse(self, key: WorkerKey, gang: Gang, host: str, port: int) -> None:
        """Start what lets the workers of an elastic gang find each other."""
        run_dir = self.run_dir(gang, 0)
        start = Start(gang, 0, 1, 1, host, port, run_dir, run_dir, "")
        self._connected().start([lighthouse_spec(key, start, self._folders)], wait=False)

    def take(self, server_id: str, count: int) -> tuple[int, ...]:
        """Hold GPU indices of a server. Raises ArylError."""
        taken = self._devices.take(server_id, count)
        self._taken.append((server_id, taken))
        return taken

    def exit_code(self, status: WorkerStatus) -> int | None:
        """The exit code as contracts have it: an agent whose workers have saved ends with 0 and a mark."""
        mark = Path(status.meta.get("run_dir", "")) / f"saved-{status.key.attempt}-{status.key.generation}"
        if status.exit_code == 0 and status.meta.get("launcher") == "torchrun" and os.path.exists(mark):
            return SAVED
        return status.exit_code

    def emit(self, fact: Fact) -> None:
        """Tell the driver."""
        self._sink(fact)

    def stop_keys(self, keys: Sequence[WorkerKey], schedule: StopSchedule) -> None:
        """Let processes leave."""
        stuck_after = StopSchedule(
            schedule.notice_signal,
            schedule.notice_at_unix_s,
            schedule.term_at_unix_s,
            schedule.kill_at_unix_s,
            self._stuck_after_s,
        )
        self._connected().stop(keys, stuck_after)

    # Taking over.

    def _take_over(
        self,
        gangs: Sequence[Gang],
        statuses: Sequence[WorkerStatus],
        present: Presence | None,
    ) -> None:
        known: dict[tuple[str, int], list[WorkerStatus]] = {}
        for status in statuses:
            known.setdefault((status.key.job_id, status.key.attempt), []).append(status)
            if not status.state.ended:
                self._devices.hold(status.server_id, status.gpus)
        away = say_who_is_there(present, self._devices, self._losses, gangs, known, self.emit)
        self._away = dict.fromkeys(away)
        for gang in gangs:
            key = gang.job_id, gang.attempt
            self._attempts[key] = attempt = new_attempt(gang, self)
            self._carry_out(
                attempt, partial(adopt, attempt, known.get(key, ()), lost=self._losses.concern(gang))
            )
        now_s = time.time()
        for (job_id, number), some in known.items():
            if (job_id, number) in self._attempts:
                continue
            alive = [status.key for status in some if not status.state.ended]
            if alive:
                _log.warning("attempt %s of %s is in no journal: it is ended", number, job_id)
                self.stop_keys(alive, StopSchedule("", now_s, now_s, now_s + STRANGERS_END_WITHIN_S))
            else:
                self.forget(job_id, number)
        for status in statuses:
            if status.stuck:
                self._note_stuck(now_s, status.server_id, status.key, stuck=True)

    # What the crew says.

    def _on_event(self, event: CrewEvent) -> None:
        with self._lock:
            if self._closing.is_set():
                return
            match event:
                case WorkerStarted():
                    attempt = self._attempt_of(event.status.key)
                    if attempt is not None:
                        attempt.on_started(event.status.key)
                case WorkerExited():
                    self._exited(event.status)
                case WorkerStuck():
                    self._note_stuck(event.at_unix_s, event.server_id, event.key, stuck=event.stuck)
                case WorkerReported():
                    key = event.key
                    self.emit(Reported(event.at_unix_s, key.job_id, key.attempt, event.report))
                case StartRefused():
                    for key in event.keys:
                        attempt = self._attempt_of(key)
                        if attempt is not None:
                            attempt.workers.pop(key, None)
                            self._fail(attempt, ArylError(event.reason))
                case SupervisorGone():
                    reason = "somebody else has taken over" if event.fenced else "its crew is gone"
                    self.emit(BackendLost(event.at_unix_s, event.fenced, reason))
                case ServerCame():
                    self._has_come(event)
                case ServerWent():
                    self._went(event)
                case _:
                    assert_never(event)

    def _has_come(self, event: ServerCame) -> None:
        server = self._came[event.server.server_id] = event.server
        self._away.pop(server.server_id, None)
        self._devices.add(server.server_id, server.gpus)
        if not self._losses.waits(server.server_id):
            self.emit(ServerJoined(event.at_unix_s, server))

    def _went(self, event: ServerWent) -> None:
        self._away[event.server_id] = None
        self._losses.lose(event.server_id, self._attempts)
        self.emit(ServerDown(event.at_unix_s, event.server_id))

    def _note_stuck(self, at_unix_s: float, server_id: str, key: WorkerKey, *, stuck: bool) -> None:
        if not server_id:
            return  # a lighthouse, which holds no GPU
        suspect = self._stuck.note(server_id, key, stuck=stuck)
        self.emit(ServerStuck(at_unix_s, server_id, suspect))

    def _exited(self, status: WorkerStatus) -> None:
        if not self._devices.idle(status.gpus):
            self._unfree.append(status)
            return
        self._devices.release(status.server_id, status.gpus)
        attempt = self._attempt_of(status.key)
        if status.state is WorkerState.LOST:
            if attempt is not None:
                self._carry_out(attempt, lambda: attempt.on_lost(status.key))
            self._losses.gone(status.key)
            self._come_back()
            return
        if attempt is None:
            return
        self._carry_out(attempt, lambda: attempt.on_exited(status, self.exit_code(status)))

    def _come_back(self) -> None:
        for server_id in self._losses.back(self._attempts):
            if server_id not in self._away:
                spec, now_s = self._came.get(server_id), time.time()
                self.emit(ServerUp(now_s, server_id) if spec is None else ServerJoined(now_s, spec))

    def _tick(self) -> None:
        look_s = time.monotonic()
        while not self._closing.wait(TICK_S):
            with self._lock:
                if time.monotonic() >= look_s:
                    look_s = time.monotonic() + LOOK_EVERY_S
                    for server_id, up in self._devices.changes():
                        self.emit((ServerUp if up else ServerDown)(time.time(), server_id))
                waiting, self._unfree = self._unfree, []
                for status in waiting:
                    self._exited(status)
                self._come_back()
                for attempt in tuple(self._attempts.values()):
                    if attempt.stage is Stage.UP:
                        attempt.tick()

    def _carry_out(self, attempt: Attempt, order: Callable[[], None]) -> None:
        """An order that can't be carried out because the crew is out of reach is repeated by `open`."""
        try:
            order()
        except FencedError as error:
            self.emit(BackendLost(time.time(), True, str(error)))
        except (ArylError, OSError) as error:
            self._fail(attempt, error)
        finally:
            for server_id, indices in self._taken:
                self._devices.release(server_id, indices)
            self._taken.clear()

    def _fail(self, attempt: Attempt, error: ArylError | OSError) -> None:
        if self._crew is None or not self._crew.connected:
            return
        gang = attempt.gang
        _log.error("attempt %s of %s can't go on: %s", gang.attempt, gang.job_id, error)
        try:
            attempt.fail_because(str(error))
        except ArylError as again:
            _log.error("nor can it be ended: %s", again)

    def _attempt_of(self, key: WorkerKey) -> Attempt | None:
        return self._attempts.get((key.job_id, key.attempt))

    def _connected(self) -> Crew:
        if self._crew is None:
            raise ArylError("the backend isn't open")
        return self._crew


def _nobody(_fact: Fact) -> None:
    """Nobody listens."""
