"""What a worker finds in its environment, by launcher (contracts: what torchrun would set, and `ARYL_*`).

A worker inherits a short list of variables from the daemon and no more: whoever runs the daemon may have
secrets in its environment. What the job file sets wins over that list, and what the scheduler sets over both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from aryl.backends.port import Gang, Launcher, Program

INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
)
# What people would set themselves: output that can be followed, and threads that don't fight each other.
DEFAULTS = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Post:
    """One process to start: a worker, or for `torchrun` the agent of all workers of a server.

    `rank` is unique over the life of the attempt. `gpus` are the indices that it holds, `visible` those that
    the job holds on the server, in the order of the local ranks.
    """

    rank: int
    server_id: str
    server_rank: int
    local_rank: int
    local_size: int
    gpus: tuple[int, ...]
    visible: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """What the processes of one gang start have in common."""

    gang: Gang
    generation: int
    world_size: int
    servers: int
    host: str  # where rank 0 is reached; for `torchft` where the lighthouse is
    port: int  # where rank 0 listens; for `torchft` where the lighthouse does
    run_dir: Path
    checkpoint_dir: Path
    report_socket: str


def worker_environment(start: Start, post: Post, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The complete environment of one process."""
    program = start.gang.program
    env = {name: inherited[name] for name in INHERITED if name in inherited}
    env.setdefault("PATH", os.defpath)
    env |= DEFAULTS
    if start.host == LOOPBACK:
        env["GLOO_SOCKET_IFNAME"] = "lo"
    env |= dict(program.env)
    env |= {
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in post.visible),
        "ARYL_JOB_ID": start.gang.job_id,
        "ARYL_ATTEMPT": str(start.gang.attempt),
        "ARYL_GENERATION": str(start.generation),
        "ARYL_RANK": str(post.rank),
        "ARYL_SERVER_ID": post.server_id,
        "ARYL_RUN_DIR": str(start.run_dir),
        "ARYL_CHECKPOINT_DIR": str(start.checkpoint_dir),
        "ARYL_REPORT": start.report_socket,
        "ARYL_GRACE_S": f"{program.grace_s:g}",
    }
    if program.notice_signal:
        env["ARYL_NOTICE_SIGNAL"] = program.notice_signal
    return env | dict(_launcher_environment(start, post))


def _launcher_environment(start: Start, post: Post) -> Iterator[tuple[str, str]]:
    port = str(start.port)
    match start.gang.program.launcher:
        case Launcher.PROCESS:
            yield "RANK", str(post.rank)
            yield "LOCAL_RANK", str(post.local_rank)
            yield "WORLD_SIZE", str(start.world_size)
            yield "LOCAL_WORLD_SIZE", str(post.local_size)
            yield "NODE_RANK", str(post.server_rank)
            yield "MASTER_ADDR", start.host
            yield "MASTER_PORT", port
        case Launcher.TORCHRUN:
            yield "PET_NNODES", str(start.servers)
            yield "PET_NPROC_PER_NODE", str(post.local_size)
            yield "PET_NODE_RANK", str(post.server_rank)
            yield "PET_MASTER_ADDR", start.host
            yield "PET_MASTER_PORT", port
            yield "PET_MAX_RESTARTS", "0"
            yield "PET_RDZV_BACKEND", "static"
        case Launcher.TORCHFT:
            # A replica group of one: its own world, found by the others through the lighthouse.
            yield "RANK", "0"
            yield "WORLD_SIZE", "1"
            yield "LOCAL_RANK", "0"
            yield "LOCAL_WORLD_SIZE", "1"
            yield "NODE_RANK", "0"
            yield "REPLICA_GROUP_ID", str(post.rank)
            yield "TORCHFT_LIGHTHOUSE", f"http://{start.host}:{port}"
        case _:
            assert_never(start.gang.program.launcher)


def lighthouse_command(run_dir: Path, host: str, port: int) -> tuple[str, ...]:
    """What lets the workers of a `torchft` job find each other; one runs beside every attempt."""
    return (
        sys.executable,
        "-m",
        "aryl.train.lighthouse",
        "--host",
        host,
        "--port",
        str(port),
        "--port-file",
        str(run_dir / "lighthouse"),
    )


def processes_of(program: Program, workers_by_server: Sequence[tuple[str, int]]) -> int:
    """How many processes start a gang: one a worker, or one a server under `torchrun`."""
    if program.launcher is Launcher.TORCHRUN:
        return sum(1 for _, workers in workers_by_server if workers)
    return sum(workers for _, workers in workers_by_server)
