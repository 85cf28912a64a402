"""What both sides of `benchmarks.beside_ray_train` are measured with: records of steps, and /proc.

A *pause* is the longest time between two steps that were written down, whoever did them. Memory is all
that a process has in memory (RSS), shared or not: it doesn't depend on what else runs on the machine.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from tests.ray.raylets import RayServer, RayServers

from aryl.backends.ray.connection import RayAddress, connect, disconnect

T = TypeVar("T")

TRAINING = tuple(RayServer(f"T{number}", gpus=4) for number in (1, 2, 3))
# The server that comes and goes; the job has at least a worker on each of the others.
GUEST = "T3"
FEWEST, MOST, GPUS_PER_WORKER = 2, 3, 4
STEP_S = 0.1
SETTLED_STEPS = 20
IDLE_S = 10.0
LEASE_S = 15.0
# A lost server is found lost after some seconds, and a slow one isn't taken for one.
HEALTH = {
    "health_check_initial_delay_ms": "2000",
    "health_check_period_ms": "1000",
    "health_check_timeout_ms": "5000",
    "health_check_failure_threshold": "5",
}
GRACE_S = 10.0
PATIENCE_S = 150.0
MIB = 1024 * 1024
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Side:
    """The figures of one system; None where one wasn't taken."""

    name: str
    first_step_s: float | None = None  # from the decision, on a cluster where nothing ran yet
    next_first_step_s: float | None = None  # from the decision, of a second job
    grow_s: float | None = None  # from the server's coming to the first step with it
    grow_pause_s: float | None = None
    leave_s: float | None = None  # from the order to the last process of the job there
    leave_pause_s: float | None = None
    repeated: int = 0
    program_mib: float | None = None  # a program that has loaded torch, by itself
    worker_mib: float | None = None  # beyond it, a worker
    job_mib: float | None = None  # beyond it, a job, whatever its workers
    cluster_mib: float | None = None
    worker_cpu_ms: float | None = None  # a second, while nothing happens
    rest_cpu_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was done: when, which, and by how many."""

    at_unix_s: float
    number: int
    workers: int


def read_steps(path: Path) -> list[Step]:
    """The record of a job, by time: a line a step, or, with torchft, a line a step and worker. A line that
    isn't whole yet is left out.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    said = [json.loads(line) for line in lines if line.endswith("\n")]
    steps = [Step(one["at"], one["step"], one["size"] if "size" in one else one["workers"]) for one in said]
    if said and "size" in said[0]:
        first: dict[int, Step] = {}
        for step in sorted(steps, key=lambda step: step.at_unix_s):
            first.setdefault(step.number, step)
        steps = list(first.values())
    return sorted(steps, key=lambda step: step.at_unix_s)


def pause_s(steps: Sequence[Step], from_unix_s: float) -> float:
    """The longest time between two steps after the instant, in seconds."""
    after = [step.at_unix_s for step in steps if step.at_unix_s >= from_unix_s - 1.0]
    return max((later - earlier for earlier, later in pairwise(after)), default=0.0)


def repeated(steps: Iterable[Step]) -> int:
    """How many steps were done again."""
    numbers = [step.number for step in steps]
    return len(numbers) - len(set(numbers))


def first_with(steps: Sequence[Step], workers: int, from_unix_s: float) -> float:
    """When the first step with so many workers was done after an instant."""
    return next(step.at_unix_s for step in steps if step.workers == workers and step.at_unix_s >= from_unix_s)


def settle(path: Path, workers: int, said: Callable[[], str]) -> None:
    """Wait until the last steps were all done by so many workers."""

    def settled() -> bool:
        last = read_steps(path)[-SETTLED_STEPS:]
        return len(last) == SETTLED_STEPS and all(step.workers == workers for step in last)

    wait_until(settled, f"steady steps with {workers} workers", said)


def wait_until(look: Callable[[], T | None], what: str, said: Callable[[], str], every_s: float = 0.1) -> T:
    """Look again until there is something. Raises TimeoutError."""
    end_s = time.monotonic() + PATIENCE_S
    while not (found := look()):
        if time.monotonic() > end_s:
            raise TimeoutError(f"no {what} after {PATIENCE_S:g} s\n{said()[-6000:]}")
        time.sleep(every_s)
    return found


def command_of(pid: int) -> str:
    """The command line of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def all_of(servers: RayServers, *words: str) -> list[int]:
    """The processes on any server, or on the head, with one of these words in their command line."""
    pids: set[int] = set()
    for name in (*servers.servers, "head"):
        with suppress(KeyError):  # it was never there
            pids.update(servers.processes(name))
    return sorted(pid for pid in pids if any(word in command_of(pid) for word in words))


def take_away_guest(servers: RayServers) -> None:
    """End the server that comes and goes, and wait until Ray knows."""
    servers.lose(GUEST)
    ray = connect(RayAddress(servers.address, "figures"))
    try:
        node_id = servers.node_id(GUEST)
        wait_until(
            lambda: not any(node["Alive"] and node["NodeID"] == node_id for node in ray.nodes()),
            f"end of {GUEST}",
            str,
        )
    finally:
        disconnect()


def memory_mib(pids: Iterable[int]) -> float:
    """The memory of these processes together."""
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))
    return total * 1024 / MIB


def cpu_s(pids: Iterable[int]) -> float:
    """The processor time that these processes have used so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_A_SECOND


def idle_cpu_ms(*groups: Sequence[int]) -> list[float]:
    """What groups of processes use while nothing happens: milliseconds a second, each group together."""
    before, began_s = [cpu_s(group) for group in groups], time.monotonic()
    time.sleep(IDLE_S)
    span_s = time.monotonic() - began_s
    return [(cpu_s(group) - was_s) * 1000 / span_s for group, was_s in zip(groups, before, strict=True)]
