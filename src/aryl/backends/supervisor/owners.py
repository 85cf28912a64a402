"""Which process belongs to which worker.

The supervisor is made the parent of every process whose own parent dies, so all that workers of its own
started, however they hid it, is below it. What is below the first process of a worker is that worker's. A
process that came to us because its parent died is known from an earlier look, or by its control group, or by
the mark in its environment, or by the log that it prints into, or by its session or process group; and if all
that fails it belongs to the last of the workers that were there before it: it mustn't outlive them all.

Of workers that an earlier supervisor started only the mark, the control group and the first process can tell.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

from aryl.backends.supervisor import tree
from aryl.backends.supervisor.protocol import WorkerKey
from aryl.backends.supervisor.tree import Process
from aryl.backends.supervisor.worker import Worker

_Id = tuple[int, int]  # the number and the start of a process


class Owners:
    """Remembers who was whose, for the supervisor `me` of the folder that `identity` names."""

    def __init__(self, me: int, identity: str) -> None:
        self._me, self._identity = me, identity
        self._known: dict[_Id, WorkerKey] = {}
        self._by_pid: dict[int, WorkerKey] = {}

    def mark(self, key: WorkerKey) -> str:
        """The value of `ARYL_WORKER` for a worker."""
        return f"{self._identity}/{key.text}"

    def owner(self, pid: int) -> WorkerKey | None:
        """Whose a process was when it was last seen."""
        return self._by_pid.get(pid)

    def look(
        self, processes: Mapping[int, Process], workers: Collection[Worker]
    ) -> dict[WorkerKey | None, list[Process]]:
        """The living processes of each worker; under None those of workers that are no more."""
        children: dict[int, list[Process]] = defaultdict(list)
        for process in processes.values():
            children[process.parent].append(process)
        found: dict[WorkerKey | None, list[Process]] = defaultdict(list)
        seen: dict[_Id, WorkerKey] = {}
        finder = _Finder(workers, self._known, self._identity, processes)
        inside = set(_below(self._me, children))

        taken: set[int] = {self._me}

        def claim(process: Process, key: WorkerKey | None, certain: bool) -> None:
            for pid in (process.pid, *_below(process.pid, children)):
                if pid not in taken:
                    taken.add(pid)
                    one = processes[pid]
                    found[key].append(one)
                    if key is not None and certain:  # the next look may know better than a guess
                        seen[one.pid, one.start_ticks] = key

        for process in children[self._me]:
            claim(process, *finder.owner(process))
        if any(not worker.own for worker in workers):
            for process in processes.values():
                if process.pid not in inside and (key := finder.inherited(process)) is not None:
                    claim(process, key, True)
        self._known = seen
        self._by_pid = {pid: key for (pid, _), key in seen.items()}
        return found


class _Finder:
    """Answers for one look."""

    def __init__(
        self,
        workers: Collection[Worker],
        known: Mapping[_Id, WorkerKey],
        identity: str,
        processes: Mapping[int, Process],
    ) -> None:
        self._prefix = f"{identity}/"
        self._own = [worker for worker in workers if worker.own and worker.pid is not None]
        self._leaders = {(worker.pid, worker.start_ticks): worker.key for worker in workers if worker.pid}
        self._numbers = {worker.pid: worker.key for worker in self._own}
        self._texts = {worker.key.text: worker.key for worker in workers}
        self._known = known
        self._limited = [(worker.key, worker.group) for worker in workers if worker.group is not None]
        # A session whose leader lives is certainly that leader's.
        self._sessions = {
            worker.pid: worker.key
            for worker in workers
            if not worker.own
            and worker.pid is not None
            and worker.pid in processes
            and processes[worker.pid].start_ticks == worker.start_ticks
        }

    @cached_property
    def _grouped(self) -> dict[int, WorkerKey]:
        return {pid: key for key, group in self._limited for pid in group.members()}

    @cached_property
    def _logs(self) -> dict[str, WorkerKey]:
        return {os.path.realpath(worker.log_path): worker.key for worker in self._own}

    def owner(self, process: Process) -> tuple[WorkerKey | None, bool]:
        """Of a child of the supervisor, and whether that is certain."""
        key = self._certain(process)
        if key is None and tree.marker(process.pid).startswith(self._prefix):
            return None, True  # of a worker that has ended
        key = key or self._printing(process)
        key = key or self._numbers.get(process.session) or self._numbers.get(process.group)
        if key is not None:
            return key, True
        earlier = [one.key for one in self._own if one.start_ticks <= process.start_ticks]
        match earlier:
            case []:
                return None, False
            case [only]:
                return only, False
            case _:  # whoever of them is the last will have it
                return UNDECIDED, False

    def _printing(self, process: Process) -> WorkerKey | None:
        """The worker whose log it prints into."""
        for path in tree.outputs(process.pid):
            if path in self._logs:
                return self._logs[path]
        return None

    def inherited(self, process: Process) -> WorkerKey | None:
        """Of a process that isn't below the supervisor."""
        return self._certain(process) or self._sessions.get(process.session)

    def _certain(self, process: Process) -> WorkerKey | None:
        one = (process.pid, process.start_ticks)
        key = self._leaders.get(one) or self._known.get(one) or self._grouped.get(process.pid)
        if key is None:
            mark = tree.marker(process.pid)
            if mark.startswith(self._prefix):
                key = self._texts.get(mark.removeprefix(self._prefix))
        return key


# Stands for "one of several workers"; no real job has an empty name.
UNDECIDED = WorkerKey("", 0, 0, 0)


def _below(pid: int, children: Mapping[int, list[Process]]) -> Iterator[int]:
    """The numbers of all descendants."""
    todo = [pid]
    while todo:
        for child in children.get(todo.pop(), ()):
            yield child.pid
            todo.append(child.pid)
