"""Aryl on Ray beside Ray Train's own elastic mode, with the same small model on the same servers.

    python -m benchmarks.beside_ray_train [--write docs/explanation/ray-performance.md] [--only NAME ...]

Three servers of 4 declared GPUs, one worker a server, 2 to 3 workers; the third server comes and has to leave
again. Measured for Aryl's launchers `process` and `torchft` and for Ray Train: how long from the decision
(the history's instant; for Ray Train the call of `fit`) to the first step, how long the steps pause when the
job changes its size, how long until a server is left, and what control costs a worker while nothing happens.
A name for `--only` is `process`, `torchft` or `ray-train`. Prints a table and JSON. The figures hold for a
machine that does nothing else; it takes some minutes on two cores, and needs torch and torchft.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tests.live.cluster import ROOT, LiveCluster
from tests.live.elastic_jobs import EXAMPLES, steps_file, submit_example
from tests.ray.live import cluster_on_ray
from tests.ray.raylets import RayServers

from aryl.core.model import JobState
from benchmarks.beside_ray_train.measure import (
    FEWEST,
    GPUS_PER_WORKER,
    GRACE_S,
    GUEST,
    HEALTH,
    LEASE_S,
    MOST,
    STEP_S,
    TRAINING,
    Side,
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
from benchmarks.beside_ray_train.train_side import measure_ray_train

MARKER = "<!-- figures -->\n"
NAMES = ("process", "torchft", "ray-train")
ENDLESS = "10000000"
# The processes of Aryl's that a worker has.
CONTROL = ("ray::RayWorker", "aryl.backends.supervisor")
# What a worker of the cost figures is: it has loaded torch, and waits.
WAITING = "import pathlib, torch, time; pathlib.Path('waits').touch(); time.sleep(3600)"


def measure_aryl(launcher: str, servers: RayServers, bare_mib: float) -> Side:
    """Aryl with one of its launchers."""
    side = Side(f"Aryl, `{launcher}`", program_mib=bare_mib)
    with (
        tempfile.TemporaryDirectory(prefix="aryl-bench-") as folder,
        cluster_on_ray(
            Path(folder),
            servers,
            workdirs=[str(EXAMPLES), f"{folder}/work"],
            policy="aryl:cooldown=0,min_interval=0",
            ray={"lease": LEASE_S},
        ) as cluster,
    ):
        wait_until(lambda: _up(cluster) == FEWEST, "servers", cluster.said)
        job_id = _submit(cluster, launcher)
        side.first_step_s = _first_step_s(cluster, job_id)
        _end(cluster, job_id)
        job_id = _submit(cluster, launcher)
        side.next_first_step_s = _first_step_s(cluster, job_id)
        record = steps_file(cluster, job_id)
        settle(record, FEWEST, cluster.said)
        _grow(side, cluster, servers, job_id)
        _leave(side, cluster, servers, job_id)
        side.repeated = repeated(read_steps(record))
        _end(cluster, job_id)
        cluster.client.undrain(GUEST)
        _cost(side, cluster, servers, launcher)
    take_away_guest(servers)
    return side


def _grow(side: Side, cluster: LiveCluster, servers: RayServers, job_id: str) -> None:
    record = steps_file(cluster, job_id)
    servers.start(GUEST)
    came_unix_s = time.time()
    settle(record, MOST, cluster.said)
    steps = read_steps(record)
    side.grow_s = first_with(steps, MOST, came_unix_s) - came_unix_s
    side.grow_pause_s = pause_s(steps, came_unix_s)


def _leave(side: Side, cluster: LiveCluster, servers: RayServers, job_id: str) -> None:
    record = steps_file(cluster, job_id)
    assert _ours_on(servers, GUEST, job_id), cluster.said()
    told_unix_s = time.time()
    cluster.client.drain(GUEST, GRACE_S)
    wait_until(lambda: not _ours_on(servers, GUEST, job_id), "end of the workers there", cluster.said, 0.02)
    side.leave_s = time.time() - told_unix_s
    settle(record, FEWEST, cluster.said)
    side.leave_pause_s = pause_s(read_steps(record), told_unix_s)


def _cost(side: Side, cluster: LiveCluster, servers: RayServers, launcher: str) -> None:
    """A worker costs an actor and the supervisor below it; a torchft job has a lighthouse on the head."""
    keepers = all_of(servers, "ray::Keeper", "ray::Registry")
    run = [sys.executable, "-c", WAITING]
    job_id = cluster.submit("waits", MOST, run=run, gpus_per_worker=GPUS_PER_WORKER, launcher=launcher)
    wait_until(lambda: len(_programs(servers)) == MOST, "waiting workers", cluster.said)
    wait_until((cluster.work / "waits").exists, "torch", cluster.said)
    time.sleep(5.0)
    ours = set(all_of(servers, *CONTROL))
    on_head = [pid for pid in servers.processes("head") if pid in ours or "lighthouse" in command_of(pid)]
    workers = sorted(ours.difference(on_head))
    rest = [*keepers, cluster.daemons[-1].pid]
    side.worker_mib = memory_mib(workers) / MOST
    side.job_mib, side.cluster_mib = memory_mib(on_head), memory_mib(rest)
    own_ms, rest_ms = idle_cpu_ms(workers, [*on_head, *rest])
    side.worker_cpu_ms, side.rest_cpu_ms = own_ms / MOST, rest_ms
    _end(cluster, job_id)


def _up(cluster: LiveCluster) -> int:
    return sum(server.up for server in cluster.client.servers())


def _submit(cluster: LiveCluster, launcher: str) -> str:
    settings = {
        "workers": f"[{FEWEST}, {MOST}]",
        "gpus_per_worker": str(GPUS_PER_WORKER),
        "env.STEPS" if launcher == "process" else "env.BATCHES": ENDLESS,
        "env.STEP_S": str(STEP_S),
    }
    return submit_example(cluster, f"torch_{launcher}.yaml", settings)


def _first_step_s(cluster: LiveCluster, job_id: str) -> float:
    record = steps_file(cluster, job_id)
    first = wait_until(lambda: read_steps(record), "first step", cluster.said)[0]
    history = cluster.client.history(job_id).entries
    decided = next(entry.at for entry in history if entry.kind == "launched")
    return first.at_unix_s - decided


def _end(cluster: LiveCluster, job_id: str) -> None:
    cluster.client.cancel(job_id)
    cluster.wait_state(job_id, JobState.CANCELLED)


def _ours_on(servers: RayServers, name: str, job_id: str) -> list[int]:
    """What was started for the job there: its program, the supervisor, and the actor."""
    words = (*CONTROL, f"/{job_id}", "torch_process", "torch_torchft")
    return [pid for pid in servers.processes(name) if any(word in command_of(pid) for word in words)]


def _programs(servers: RayServers) -> list[int]:
    return all_of(servers, "import pathlib, torch, time")


def bare_program_mib() -> float:
    """A program that has loaded torch and waits, that nobody looks after."""
    with tempfile.TemporaryDirectory() as folder:
        program = subprocess.Popen([sys.executable, "-c", WAITING], cwd=folder)
        try:
            wait_until((Path(folder) / "waits").exists, "torch", str)
            return memory_mib([program.pid])
        finally:
            program.kill()
            program.wait()


def table(sides: Iterable[Side]) -> list[str]:
    """All figures, as Markdown."""
    sides = list(sides)
    rows: list[tuple[str, list[str]]] = [
        ("decision to first step, first job", [_s(side.first_step_s) for side in sides]),
        ("decision to first step, next job", [_s(side.next_first_step_s) for side in sides]),
        ("a server came: until a step with it", [_s(side.grow_s) for side in sides]),
        ("... in which the steps paused", [_s(side.grow_pause_s) for side in sides]),
        (f"a server is to be left within {GRACE_S:g} s: until it is", [_s(side.leave_s) for side in sides]),
        ("... in which the steps paused", [_s(side.leave_pause_s) for side in sides]),
        ("steps done again, at both", [str(side.repeated) for side in sides]),
        ("memory a worker, beyond its program", [_n(side.worker_mib, "MiB") for side in sides]),
        ("memory a job, beyond its workers", [_n(side.job_mib, "MiB") for side in sides]),
        ("memory of the rest", [_n(side.cluster_mib, "MiB") for side in sides]),
        ("processor time a worker, idle", [_n(side.worker_cpu_ms, "ms/s") for side in sides]),
        ("processor time of the rest, idle", [_n(side.rest_cpu_ms, "ms/s") for side in sides]),
    ]
    text = ["| | " + " | ".join(side.name for side in sides) + " |", "|---|" + "--:|" * len(sides)]
    text += [f"| {label} | {' | '.join(cells)} |" for label, cells in rows]
    return text


def _s(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _n(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.1f} {unit}"


def main() -> int:
    """Measure, print, and write if asked to."""
    parser = ArgumentParser(prog="benchmarks.beside_ray_train")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    asked = parser.parse_args()
    path = None if asked.write is None else ROOT / asked.write
    before = "" if path is None else path.read_text(encoding="utf-8").partition(MARKER)[0]
    began_s = time.monotonic()
    bare_mib = bare_program_mib()
    sides = []
    with RayServers(TRAINING[:FEWEST], settings=HEALTH) as servers:
        servers.servers[GUEST] = TRAINING[FEWEST]
        for name in asked.only:
            if name == "ray-train":
                sides.append(measure_ray_train(servers, bare_mib))
            else:
                sides.append(measure_aryl(name, servers, bare_mib))
            print(f"{name} measured at {time.monotonic() - began_s:.0f} s", file=sys.stderr)
    text = table(sides)
    print("\n".join([*text, "", json.dumps([asdict(side) for side in sides], indent=1)]))
    if path is not None:
        path.write_text(before + MARKER + "\n".join(text) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
