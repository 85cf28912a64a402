"""What a crew is told to start: the processes of a gang start, and the lighthouse of an elastic one."""

from __future__ import annotations

from collections.abc import Sequence

from aryl.backends.environment import Post, Start, lighthouse_command, worker_environment
from aryl.backends.gangs.folders import Folders
from aryl.backends.port import Launcher
from aryl.backends.supervisor.protocol import WorkerKey, WorkerSpec


def worker_specs(start: Start, posts: Sequence[Post], folders: Folders) -> list[WorkerSpec]:
    """One for each post. An agent has the limits of all the workers it stands for."""
    gang, program = start.gang, start.gang.program
    agents = program.launcher is Launcher.TORCHRUN
    return [
        WorkerSpec(
            WorkerKey(gang.job_id, gang.attempt, start.generation, post.rank),
            program.command,
            program.workdir,
            worker_environment(start, post),
            str(folders.log(gang, f"rank-{post.rank}")),
            post.server_id,
            post.gpus,
            program.memory_bytes * (post.local_size if agents else 1),
            program.cpus * (post.local_size if agents else 1),
            {
                "revision": str(gang.revision),
                "host": start.host,
                "port": str(start.port),
                "workers": str(post.local_size if agents else 1),
                "run_dir": str(start.run_dir),
                "launcher": program.launcher.value,
            },
        )
        for post in posts
    ]


def lighthouse_spec(key: WorkerKey, start: Start, folders: Folders) -> WorkerSpec:
    """A process that belongs to no server and holds no GPU."""
    return WorkerSpec(
        key,
        lighthouse_command(start.run_dir, start.host, start.port),
        str(start.run_dir),
        worker_environment(start, Post(key.rank, "", 0, 0, 1, (), ())),
        str(folders.log(start.gang, "lighthouse")),
        "",
        meta={"host": start.host, "port": str(start.port), "revision": "0", "workers": "0"},
    )
