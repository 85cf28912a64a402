"""Several runs at once, in processes of their own, with progress.

Results come back in the order of the tasks and don't depend on the number of processes. Processes are
started afresh instead of forked, because the libraries that read the traces keep threads and a forked copy
of those may hang. They leave Ctrl-C to the parent, which ends them; a worker that dies, for want of memory
say, is an error with a name and not a wait without end.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aryl.errors import ArylError

if TYPE_CHECKING:
    from aryl.sim.experiment import Experiment
    from aryl.sim.run import RunResult

Progress = Callable[[float, str], None]
_SECONDS_BETWEEN_REPORTS = 0.1


@dataclass(frozen=True)
class Task:
    """One run: an experiment under one policy. `schedule` asks to keep who held which GPUs when."""

    label: str
    experiment: Experiment
    policy: str
    journal: Path | None = None
    schedule: bool = False


def simulate(task: Task, report: Progress) -> RunResult:
    """Run one task in this process."""
    from aryl.sim.run import run

    return run(task.experiment, task.policy, journal=task.journal, schedule=task.schedule, on_progress=report)


def run_all(
    tasks: Sequence[Task],
    processes: int,
    report: Callable[[int, float, str], None],
    execute: Callable[[Task, Progress], Any] = simulate,
) -> list[Any]:
    """The results of `tasks`, in order. `report(index, share, text)` is called in this process as they get
    on.

    Raises whatever `ArylError` a run raises; the others are then ended.
    """
    if processes <= 1 or len(tasks) <= 1:
        return [
            execute(task, lambda share, text, index=index: report(index, share, text))  # type: ignore[misc]
            for index, task in enumerate(tasks)
        ]
    pool = _Pool(min(processes, len(tasks)), execute)
    try:
        return pool.run(tasks, report)
    finally:
        pool.end()


class _Pool:
    """Worker processes that each have one task at a time."""

    def __init__(self, processes: int, execute: Callable[[Task, Progress], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._workers: dict[Connection, BaseProcess] = {}
        with _deaf_to_ctrl_c():
            for _ in range(processes):
                ours, theirs = context.Pipe()
                worker = context.Process(target=_serve, args=(theirs, execute), daemon=True)
                worker.start()
                theirs.close()
                self._workers[ours] = worker

    def run(self, tasks: Sequence[Task], report: Callable[[int, float, str], None]) -> list[Any]:
        """Hand out the tasks and collect the results."""
        results: dict[int, Any] = {}
        waiting = deque(range(len(tasks)))
        busy: dict[Connection, int] = {}
        for idle in self._workers:
            self._hand_out(idle, tasks, waiting, busy)
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)  # nothing else was waited for
                connection: Connection = ready
                index = busy[connection]
                try:
                    kind, value = connection.recv()
                except EOFError:
                    raise self._death(connection, tasks[index]) from None
                if kind == "progress":
                    report(index, *value)
                elif kind == "done":
                    results[index] = value
                    del busy[connection]
                    self._hand_out(connection, tasks, waiting, busy)
                else:
                    raise value
        return [results[index] for index in range(len(tasks))]

    def end(self) -> None:
        """Stop all workers, finished or not."""
        for connection, worker in self._workers.items():
            connection.close()
            worker.terminate()
        for worker in self._workers.values():
            worker.join(5)
            if worker.is_alive():
                worker.kill()
                worker.join()

    def _hand_out(
        self, connection: Connection, tasks: Sequence[Task], waiting: deque[int], busy: dict[Connection, int]
    ) -> None:
        if waiting:
            index = waiting.popleft()
            busy[connection] = index
            try:
                connection.send(tasks[index])
            except BrokenPipeError:
                raise self._death(connection, tasks[index]) from None

    def _death(self, connection: Connection, task: Task) -> ArylError:
        worker = self._workers[connection]
        worker.join(5)
        code = worker.exitcode
        how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
        hint = "; perhaps memory ran out, try fewer --jobs-in-parallel" if code == -signal.SIGKILL else ""
        return ArylError(f"the process of {task.label} ended before its run did ({how}){hint}")


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """What is started meanwhile ignores Ctrl-C from its first moment on, long before its own code runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(connection: Connection, execute: Callable[[Task, Progress], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    last = 0.0

    def report(share: float, text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_REPORTS:
            last = now
            connection.send(("progress", (share, text)))

    try:
        while True:
            task, last = connection.recv(), 0.0
            try:
                answer: tuple[str, Any] = ("done", execute(task, report))
            except ArylError as error:
                answer = ("failed", error)
            except Exception as error:
                error.add_note(f"in the process of {task.label}:\n{traceback.format_exc()}")
                answer = ("failed", error)
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is gone, and with it whoever wanted the answer
