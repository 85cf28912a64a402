"""Ray Train's elastic mode, for `benchmarks.beside_ray_train`.

How it changes its size: it counts the servers of the cluster, every 20 s at the quickest, and asks itself
every `elastic_resize_monitor_interval_s` (1 s here, 60 s by itself) whether it could have more workers. A
server is taken from it by draining it at Ray with a deadline: a watcher sees that (each second here, 5 s by
itself), the program saves, and goes on until the deadline, when whoever drains has to end the server. Then,
and at each other change, all workers are ended and started again from the last checkpoint.

The job runs in processes of its own, so that what it costs can be told from what the measurement does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.live.cluster import ROOT
from tests.ray.raylets import RayServers

from benchmarks.beside_ray_train.measure import (
    FEWEST,
    GRACE_S,
    GUEST,
    MOST,
    STEP_S,
    Side,
    Step,
    all_of,
    command_of,
    first_with,
    idle_cpu_ms,
    memory_mib,
    pause_s,
    read_steps,
    repeated,
    settle,
    take_away_guest,
    wait_until,
)

# As quick as its settings allow.
SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "1",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "10",
}
WORKER = "ray::RayTrainWorker"
# What a job has besides its workers, wherever it is placed.
JOB = (
    "ray::TrainController",
    "ray::PreemptionWatcher",
    "ray::SynchronizationActor",
    "ray::PlacementGroupCleaner",
    "benchmarks.beside_ray_train.train_steps",
)
REST = ("ray::_AutoscalingCoordinator", "ray::TrainStateActor", "ray::DatasetManager")
ENDLESS = 10_000_000
END_WITHIN_S = 30.0
_DRAIN = """
import sys, time
from ray._raylet import GcsClient
from ray.core.generated.autoscaler_pb2 import DrainNodeReason
reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
print(time.time(), flush=True)
until_ms = int((time.time() + float(sys.argv[3])) * 1000)
accepted, why = GcsClient(address=sys.argv[1]).drain_node(sys.argv[2], reason, "it is wanted back", until_ms)
sys.exit(None if accepted else why)
"""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of Ray Train that runs."""

    folder: Path
    process: subprocess.Popen[bytes]

    def steps(self) -> list[Step]:
        """What it has done. Raises RuntimeError if it has ended."""
        self.said()
        return read_steps(self.record)

    @property
    def record(self) -> Path:
        """Its steps."""
        return self.folder / "steps.jsonl"

    def said(self) -> str:
        """What it printed. Raises RuntimeError if it has ended."""
        text = (self.folder / "log").read_text(errors="replace")
        if self.process.poll() is not None:
            raise RuntimeError(f"Ray Train has ended\n{text[-6000:]}")
        return text


@contextmanager
def job_of_ray_train(servers: RayServers, *, waits: bool = False) -> Iterator[Job]:
    """Start a job; it is ended afterwards, and all that it has started."""
    with tempfile.TemporaryDirectory(prefix="ray-train-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        settings: dict[str, Any] = {
            "address": servers.address,
            "folder": name,
            "workers": [FEWEST, MOST],
            "cpus_per_worker": servers.servers[GUEST].cpus,
            "steps": ENDLESS,
            "step_s": STEP_S,
            "waits": waits,
        }
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.beside_ray_train.train_steps", json.dumps(settings)],
                cwd=ROOT,
                env=os.environ | SETTINGS | {"RAY_USAGE_STATS_ENABLED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield Job(folder, process)
        finally:
            # One that is killed keeps the servers reserved for three minutes.
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_WITHIN_S)
            process.kill()
            process.wait()
            wait_until(lambda: not all_of(servers, WORKER, "ray::TrainController"), "end of it", str)


def measure_ray_train(servers: RayServers, bare_mib: float) -> Side:
    """All figures of Ray Train. The guest isn't there before nor afterwards."""
    side = Side("Ray Train", program_mib=bare_mib)
    with job_of_ray_train(servers) as job:
        side.first_step_s = _first_step_s(job)
    with job_of_ray_train(servers) as job:
        side.next_first_step_s = _first_step_s(job)
        settle(job.record, FEWEST, job.said)
        _grow(side, servers, job)
        _leave(side, servers, job)
        side.repeated = repeated(read_steps(job.record))
    take_away_guest(servers)
    _cost(side, servers, bare_mib)
    return side


def _first_step_s(job: Job) -> float:
    first = wait_until(job.steps, "first step", job.said)
    called = json.loads((job.folder / "fit.json").read_text())["at"]
    return first[0].at_unix_s - float(called)


def _grow(side: Side, servers: RayServers, job: Job) -> None:
    servers.start(GUEST)
    came_unix_s = time.time()
    settle(job.record, MOST, job.said)
    steps = read_steps(job.record)
    side.grow_s = first_with(steps, MOST, came_unix_s) - came_unix_s
    side.grow_pause_s = pause_s(steps, came_unix_s)


def _leave(side: Side, servers: RayServers, job: Job) -> None:
    """Order it to be left, and end it at the deadline if it is still there."""
    command = [sys.executable, "-c", _DRAIN, servers.address, servers.node_id(GUEST), str(GRACE_S)]
    told_unix_s = float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()[-1])

    assert _workers_on(servers), job.said()

    def is_left() -> bool:
        if time.time() >= told_unix_s + GRACE_S:
            servers.lose(GUEST)
        return not _workers_on(servers)

    wait_until(is_left, "end of the workers there", job.said, 0.02)
    side.leave_s = time.time() - told_unix_s
    settle(job.record, FEWEST, job.said)
    side.leave_pause_s = pause_s(read_steps(job.record), told_unix_s)


def _workers_on(servers: RayServers) -> list[int]:
    return [pid for pid in servers.processes(GUEST) if WORKER in command_of(pid)]


def _cost(side: Side, servers: RayServers, bare_mib: float) -> None:
    """A worker of Ray Train is the actor itself: the program without it is what isn't counted."""
    with job_of_ray_train(servers, waits=True) as job:
        wait_until(lambda: len(list(job.folder.glob("waits-*"))) == FEWEST, "waiting workers", job.said)
        time.sleep(5.0)
        workers, own, rest = all_of(servers, WORKER), all_of(servers, *JOB), all_of(servers, *REST)
        own.append(job.process.pid)
        side.worker_mib = memory_mib(workers) / len(workers) - bare_mib
        side.job_mib, side.cluster_mib = memory_mib(own), memory_mib(rest)
        worker_ms, rest_ms = idle_cpu_ms(workers, [*own, *rest])
        side.worker_cpu_ms, side.rest_cpu_ms = worker_ms / len(workers), rest_ms
