"""From a job file to what the engine schedules and what the backend runs, and where a job may work.

The job file says what the user wants; what depends on the cluster is settled here: which types make a job
fungible, where its checkpoints go if it doesn't say, how long it has to end.
"""

from __future__ import annotations

import os.path
import stat
from collections.abc import Sequence
from pathlib import Path

from aryl.backends.port import Launcher, Program
from aryl.core.model import JobSpec
from aryl.core.speedup import LINEAR
from aryl.errors import InputError
from aryl.wire.job_file import JobFile, job_file_from_mapping, to_mapping
from aryl.wire.job_file_fields import is_inside

# What a job keeps of its speed on GPUs of several types, unless it says so itself; as in experiments.
MIXED_EFFICIENCY = 0.7


def to_spec(
    job: JobFile, job_id: str, sequence: int, submit_s: float, inference_types: frozenset[str]
) -> JobSpec:
    """What the engine knows of a job. `submit_s` is on the engine's clock, in seconds.

    `inference_types` are the GPU types of the inference pool: a job that accepts two or more types, one of
    them among these, may run on servers on loan.
    """
    gpu_types = tuple((job.gpu_types or {}).items())
    return JobSpec(
        job_id=job_id,
        sequence=sequence,
        submit_s=submit_s,
        min_workers=job.workers.min,
        max_workers=job.workers.max,
        gpus_per_worker=job.gpus_per_worker,
        sizes=job.workers.sizes or (),
        estimate_s=job.estimate,
        priority=job.priority,
        user=job.user or "",
        project=job.project or "",
        gpu_types=gpu_types,
        fungible=len(gpu_types) > 1 and any(kind in inference_types for kind, _ in gpu_types),
        heterogeneous=job.heterogeneous,
        mixed_efficiency=MIXED_EFFICIENCY if job.mixed_efficiency is None else job.mixed_efficiency,
        checkpoint_s=job.checkpoint.every if job.checkpoint else None,
        speedup=job.speedup.curve() if job.speedup else LINEAR,
        max_failures=job.max_failures,
    )


def to_program(job: JobFile, job_id: str, state: Path, kill_wait_s: float) -> Program:
    """What the backend runs. `state` is the absolute state folder.

    A program that can't save on notice is told to end (SIGTERM) `kill_wait_s` before it is made to, or as
    long before as its file says; nothing is gained by waiting longer.
    """
    saving = job.checkpoint
    if saving is not None and saving.signal is not None:
        grace_s, term_s = saving.grace_s, saving.term_s
    else:
        term_s = kill_wait_s if saving is None or saving.term is None else saving.term
        grace_s = term_s
    return Program(
        command=job.command,
        workdir=job.workdir,
        env=tuple(job.env.items()),
        launcher=Launcher(job.launcher),
        checkpoint_dir=job.checkpoint_dir or str(state / "jobs" / job_id / "checkpoint"),
        notice_signal=(saving.signal or "") if saving else "",
        grace_s=grace_s,
        term_s=term_s,
        memory_bytes=job.resources.memory or 0,
        cpus=job.resources.cpus or 0.0,
    )


def confined(job: JobFile, roots: Sequence[Path]) -> JobFile:
    """The job with its workdir as it really is, links followed.

    Raises `InputError` unless the workdir is a folder inside one of `roots`, and so is the folder for its
    checkpoints, or what exists of the way there.
    """
    workdir = str(confined_workdir(job.workdir, roots))
    moved = {**to_mapping(job), "workdir": workdir}
    if job.checkpoint is None or job.checkpoint.dir is None:
        return job_file_from_mapping(moved)
    # An absolute folder was written under the name that workdir had before.
    relative = os.path.relpath(job.checkpoint_dir or workdir, job.workdir)
    folder = _inside(os.path.join(workdir, relative), roots, "checkpoint.dir")
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InputError("not a folder", field="checkpoint.dir", found=job.checkpoint.dir)
    # Checked again: the real name of a folder may be one that no file could say.
    return job_file_from_mapping({**moved, "checkpoint": {**moved["checkpoint"], "dir": relative}})


def confined_workdir(workdir: str, roots: Sequence[Path]) -> Path:
    """The folder that an absolute path leads to, links followed.

    Raises `InputError` unless it is a folder inside one of `roots`. Of what lies outside, nothing is said,
    not even whether it is there.
    """
    real = _inside(workdir, roots, "workdir")
    try:
        mode = os.stat(real).st_mode
    except FileNotFoundError:
        raise InputError("no such folder", field="workdir", found=workdir) from None
    except OSError as error:
        raise InputError(f"can't be used: {error.strerror}", field="workdir", found=workdir) from None
    if not stat.S_ISDIR(mode):
        raise InputError("not a folder", field="workdir", found=workdir)
    return Path(real)


def _inside(path: str, roots: Sequence[Path], field: str) -> str:
    try:
        real = os.path.realpath(path)
        allowed = [os.path.realpath(root) for root in roots]
    except (OSError, ValueError):
        raise InputError("not a path", field=field, found=path) from None
    if not os.path.isabs(path) or not any(is_inside(real, root) for root in allowed):
        raise InputError(
            "not in a folder where jobs may work",
            field=field,
            found=path,
            expected="an absolute path inside " + (" or ".join(map(str, roots)) or "no folder"),
        )
    return real
