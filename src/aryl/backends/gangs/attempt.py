"""One attempt of one job: which processes it has, and what their ends mean.

Two ways of resizing. Under `process` and `torchrun` the whole gang is given notice, and once all are gone it
is started again at the new size, as the next *generation* of the same attempt. Under `torchft` workers come
and go one by one while the others go on (`elastic.py`). What is common is here: the stages of an
attempt,

    UP --resize--> RESTARTING --all gone--> UP        (not under torchft)
    UP, RESTARTING --stop--> STOPPING --all gone--> OVER
    UP --a worker ends badly--> FAILING --all gone--> OVER
    UP --all workers end well--> OVER

and the rule that GPUs are reported free only when the crew has seen every process on them gone. A
worker that ended well by itself is reported a moment later, because usually all of them end together.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from aryl.backends.environment import Post, Start
from aryl.backends.port import (
    Fact,
    Gang,
    GangFailed,
    GangResized,
    GangStopped,
    GangSucceeded,
    GangUp,
    Launcher,
    WorkersDone,
    WorkersGone,
)
from aryl.backends.supervisor.protocol import StopSchedule, WorkerKey, WorkerStatus
from aryl.core.model import Slot

SAVED = 75
# Workers of one job that end well within this time are taken to have ended together.
TOGETHER_S = 1.0


class Stage(Enum):
    """Where an attempt stands."""

    UP = "up"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    FAILING = "failing"
    OVER = "over"


@dataclass(slots=True)
class Worker:
    """A process of a gang. `workers` is how many workers it stands for: more than one for an agent."""

    key: WorkerKey
    server_id: str
    workers: int = 1
    started: bool = False
    leaving: bool = False
    ended: bool = False
    told_to_stop: bool = False
    code: int | None = None
    reason: str = ""
    reported: bool = False  # that it is done
    started_unix_s: float = field(default_factory=time.time)

    @property
    def done(self) -> bool:
        """Whether it ended well by itself."""
        return self.ended and self.code == 0 and not self.told_to_stop


class Hands(Protocol):
    """What an attempt can do to the world. The backend implements it."""

    def run_dir(self, gang: Gang, generation: int) -> Path:
        """The folder that the ranks of a gang start share; it exists."""

    def start(self, start: Start, posts: Sequence[Post]) -> None:
        """Start processes."""

    def start_lighthouse(self, key: WorkerKey, gang: Gang, host: str, port: int) -> None:
        """Start what lets the workers of an elastic gang find each other."""

    def stop_keys(self, keys: Sequence[WorkerKey], schedule: StopSchedule) -> None:
        """Let processes leave."""

    def take(self, server_id: str, count: int) -> tuple[int, ...]:
        """Hold GPU indices of a server. Raises ArylError."""

    def address(self, server_id: str | None) -> str:
        """Where workers reach a worker on a server; None: where what belongs to no server runs."""

    def free_port(self, server_id: str | None) -> int:
        """A port that nobody listens on there. Raises ArylError."""

    def begin(self, gang: Gang, generation: int, host: str, port: int) -> Start:
        """What the processes of a gang start have in common."""

    def exit_code(self, status: WorkerStatus) -> int | None:
        """What a process that is gone says by its exit; None if a signal ended it, or nobody knows."""

    def emit(self, fact: Fact) -> None:
        """Tell the driver."""


class Attempt:
    """The state of an attempt; see the module. Not thread-safe: its owner has a lock."""

    def __init__(self, gang: Gang, hands: Hands) -> None:
        self.gang = gang
        self.hands = hands
        self.stage = Stage.UP
        self.generation = 0
        self.host, self.port = "", 0
        self.started_unix_s = time.time()
        self.workers: dict[WorkerKey, Worker] = {}
        self.up = False  # the launch has been reported
        self.lost = False  # nobody will ever know how some of its processes ended
        self.resizing = False
        self.owed: dict[str, int] = {}  # workers by server whose leaving is still to be reported
        self._per_worker = {slot.server_id: slot.gpus_per_worker for slot in (*gang.slots, *gang.leaving)}
        self._done_since_s: float | None = None  # monotonic; when the first unreported worker ended well
        self._blamed: tuple[str, ...] = ()
        self._reason = ""

    @property
    def alive(self) -> list[Worker]:
        """The processes that haven't ended."""
        return [worker for worker in self.workers.values() if not worker.ended]

    def launch(self) -> None:
        """Start the gang for the first time."""
        self.start_all()

    def resize(self, gang: Gang) -> None:
        """Go over to a later revision."""
        if not self.accept(gang):
            return
        if self.stage is Stage.UP:
            self.stage = Stage.RESTARTING
            self.tell_to_leave(self.alive, notice=True)
        self.all_gone()

    def stop(self, *, save: bool) -> None:
        """End the attempt for now."""
        if self.stage in (Stage.FAILING, Stage.OVER):
            return
        self.stage = Stage.STOPPING
        self.tell_to_leave(self.alive, notice=save)
        self.all_gone()

    def on_started(self, key: WorkerKey) -> None:
        """A process runs."""
        if key in self.workers:
            self.workers[key].started = True
            self.settle()

    def on_exited(self, status: WorkerStatus, code: int | None) -> None:
        """A process and all that it started are gone. `code` None: a signal ended it, or nobody knows."""
        worker = self.workers.get(status.key)
        if worker is None or worker.ended:
            return
        worker.ended = worker.started = True
        worker.code, worker.reason = code, _how_it_ended(status)
        worker.told_to_stop = status.told_to_stop
        if self.stage is Stage.UP:
            self.ended_while_up(worker)
        else:
            self.all_gone()

    def on_lost(self, key: WorkerKey) -> None:
        """A process whose supervisor died is gone. That its server was lost is told by others, and nobody is
        to blame.
        """
        self.workers.pop(key, None)
        self.lost = True
        if self.stage is not Stage.UP:
            self.all_gone()

    def tick(self) -> None:
        """Time has passed: report workers that ended well and whose gang goes on without them."""
        if self._done_since_s is not None and time.monotonic() - self._done_since_s >= TOGETHER_S:
            self.report_done()

    def accept(self, gang: Gang) -> bool:
        """Take over a later revision, and owe word of the workers that it has no place for."""
        if self.stage in (Stage.STOPPING, Stage.FAILING, Stage.OVER) or gang.revision <= self.gang.revision:
            return False
        self.note_leaving(workers_by_server(self.gang), workers_by_server(gang))
        self._per_worker |= {slot.server_id: slot.gpus_per_worker for slot in gang.slots}
        self.gang = gang
        self.resizing = True
        return True

    def note_leaving(self, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """Owe word of the workers by which servers lose."""
        for server_id, workers in before.items():
            if workers > after.get(server_id, 0):
                self.owed[server_id] = self.owed.get(server_id, 0) + workers - after.get(server_id, 0)

    def ended_while_up(self, worker: Worker) -> None:
        """A process ended, and nobody had told it to."""
        if worker.code != 0:
            self.fail(worker)
        elif not self.alive:
            self.finish()
        elif self._done_since_s is None:
            self._done_since_s = time.monotonic()

    def report_done(self) -> None:
        """Workers that ended well hold their GPUs no longer."""
        self._done_since_s = None
        counts: dict[str, int] = {}
        for worker in self.workers.values():
            if worker.done and not worker.reported:
                worker.reported = True
                counts[worker.server_id] = counts.get(worker.server_id, 0) + worker.workers
        self.tell_done(counts)

    def tell_done(self, counts: Mapping[str, int]) -> None:
        """So many workers have ended well, and the others go on without them."""
        if counts and self.stage is Stage.UP:
            slots = self.slots_of(counts)
            self.hands.emit(WorkersDone(time.time(), self.gang.job_id, self.gang.attempt, slots))

    def finish(self) -> None:
        """Every worker has ended well."""
        self.over(GangSucceeded(time.time(), self.gang.job_id, self.gang.attempt))

    def fail(self, worker: Worker) -> None:
        """The attempt can't go on after this worker's end."""
        self._blamed = (worker.server_id,)
        self.started_unix_s = worker.started_unix_s  # where workers join later, the one that failed counts
        self.fail_because(f"worker {worker.key.rank} on {worker.server_id} {worker.reason}")

    def fail_because(self, reason: str) -> None:
        """The attempt can't go on, whoever is to blame."""
        if self.stage is Stage.OVER:
            return
        self.stage = Stage.FAILING
        self._reason = reason
        self.tell_to_leave(self.alive, notice=False)
        self.all_gone()

    def all_gone(self) -> None:
        """Go on to what comes when no process is left, if none is."""
        if self.alive:
            return
        now_s, job_id, attempt = time.time(), self.gang.job_id, self.gang.attempt
        ended = self.workers.values()
        finished = bool(ended) and not self.lost and all(worker.code == 0 for worker in ended)
        match self.stage:
            case Stage.RESTARTING | Stage.STOPPING if finished:
                self.finish()
            case Stage.RESTARTING:
                self.report_gone(self.owed)
                self.stage = Stage.UP
                self.generation += 1
                self.start_all()
            case Stage.STOPPING:
                saved = bool(ended) and not self.lost and all(worker.code in (0, SAVED) for worker in ended)
                self.over(GangStopped(now_s, job_id, attempt, saved))
            case Stage.FAILING:
                ran_s = now_s - self.started_unix_s
                self.over(GangFailed(now_s, job_id, attempt, self._blamed, ran_s, self._reason))
            case Stage.UP | Stage.OVER:
                pass

    def report_gone(self, counts: Mapping[str, int]) -> None:
        """So many workers that were told to leave have left."""
        if counts:
            slots = self.slots_of(counts)
            self.hands.emit(WorkersGone(time.time(), self.gang.job_id, self.gang.attempt, slots))
        for server_id, count in tuple(counts.items()):
            left = self.owed.get(server_id, 0) - count
            if left > 0:
                self.owed[server_id] = left
            else:
                self.owed.pop(server_id, None)

    def start_all(self) -> None:
        """Start every worker of the gang, as a new generation."""
        self.workers.clear()
        self.lost = False
        first = self.gang.slots[0].server_id
        self.host, self.port = self.hands.address(first), self.hands.free_port(first)
        # Something may be left of a start of this generation that nobody ever heard of.
        for left in self.hands.run_dir(self.gang, self.generation).iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()
        self.start_posts(self.posts())

    def start_posts(self, posts: Sequence[Post]) -> None:
        """Start processes of the present generation."""
        gang = self.gang
        self.started_unix_s = time.time()
        run_dir = self.hands.run_dir(gang, self.generation)
        for post in posts:
            (run_dir / f"notice-{post.rank}").unlink(missing_ok=True)
        self.hands.start(self.hands.begin(gang, self.generation, self.host, self.port), posts)
        # Not before: one that can't be started would never be gone.
        agents = gang.program.launcher is Launcher.TORCHRUN
        for post in posts:
            key = WorkerKey(gang.job_id, gang.attempt, self.generation, post.rank)
            self.workers[key] = Worker(key, post.server_id, post.local_size if agents else 1)

    def posts(self) -> list[Post]:
        """Where every process of the gang stands: ranks count through the servers in the gang's order."""
        posts: list[Post] = []
        agents = self.gang.program.launcher is Launcher.TORCHRUN
        for server_rank, slot in enumerate(self.gang.slots):
            gpus = self.hands.take(slot.server_id, slot.gpus)
            if agents:
                posts.append(Post(len(posts), slot.server_id, server_rank, 0, slot.workers, gpus, gpus))
                continue
            for local in range(slot.workers):
                own = gpus[local * slot.gpus_per_worker : (local + 1) * slot.gpus_per_worker]
                posts.append(Post(len(posts), slot.server_id, server_rank, local, slot.workers, own, gpus))
        return posts

    def settle(self) -> None:
        """Report the launch or the resize once every process runs."""
        gang = self.gang
        if self.stage is not Stage.UP or not all(worker.started for worker in self.workers.values()):
            return
        if not self.up:
            self.up = True
            self.hands.emit(GangUp(time.time(), gang.job_id, gang.attempt))
        if self.resizing and not self.owed:
            self.resizing = False
            self.hands.emit(GangResized(time.time(), gang.job_id, gang.attempt, gang.revision))

    def tell_to_leave(self, workers: Iterable[Worker], *, notice: bool) -> None:
        """Notice, SIGTERM and SIGKILL, at the times that the program asks for. The supervisor sees to
        them.
        """
        leaving = [worker for worker in workers if not worker.ended]
        for worker in leaving:
            worker.leaving = True
        if not leaving:
            return
        program, now_s = self.gang.program, time.time()
        if notice and program.notice_signal:
            run_dir = self.hands.run_dir(self.gang, self.generation)
            for worker in leaving:
                # For a program that isn't ready to hear the signal yet.
                (run_dir / f"notice-{worker.key.rank}").touch()
            end_s = now_s + program.grace_s
            schedule = StopSchedule(program.notice_signal, now_s, end_s - program.term_s, end_s)
        else:
            schedule = StopSchedule("", now_s, now_s, now_s + program.term_s)
        self.hands.stop_keys([worker.key for worker in leaving], schedule)

    def slots_of(self, counts: Mapping[str, int]) -> tuple[Slot, ...]:
        """So many workers by server, as the core counts them."""
        return tuple(
            Slot(server_id, 0, count, self._per_worker[server_id])
            for server_id, count in counts.items()
            if count
        )

    def over(self, fact: Fact) -> None:
        """The attempt is over."""
        self.stage = Stage.OVER
        self._done_since_s = None
        self.hands.emit(fact)


def workers_by_server(gang: Gang) -> dict[str, int]:
    """How many workers are to stand where."""
    return {slot.server_id: slot.workers for slot in gang.slots}


def _how_it_ended(status: WorkerStatus) -> str:
    if status.reason:
        return status.reason
    if status.signal is not None:
        return f"was ended by signal {status.signal}"
    return "was lost" if status.exit_code is None else f"exited with {status.exit_code}"
