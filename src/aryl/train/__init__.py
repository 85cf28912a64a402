"""What a training script imports: its place in the job, when to save and leave, checkpoints, progress.

    from aryl import train

Import it first, before torch: from then on a notice from Aryl is remembered. Everything works outside of Aryl
too, as a single worker. `aryl.train.session` shows the usual loop, `aryl.train.replicas` that of PyTorch jobs
whose workers join and leave while the others go on. Nothing here imports anything else of Aryl, or torch
before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from aryl.train.checkpoints import Checkpoint, Checkpoints
from aryl.train.environment import Environment, read_environment
from aryl.train.session import EXIT_SAVED, Session

if TYPE_CHECKING:
    from aryl.train.replicas import Replica

__all__ = [
    "EXIT_SAVED",
    "Checkpoint",
    "Checkpoints",
    "Environment",
    "Replica",
    "Session",
    "attempt",
    "checkpoint_dir",
    "exchange",
    "exit_saved",
    "finish",
    "job_id",
    "latest",
    "leaving",
    "load_latest",
    "local_rank",
    "noticed",
    "rank",
    "read_environment",
    "report",
    "save",
    "session",
    "should_save",
    "size",
    "worker",
]

T = TypeVar("T")

# Made on import, so that the notice has somebody to come to as early as can be. Where Aryl didn't start the
# process there is no signal to listen to, and nothing happens.
_session = Session()


def session() -> Session:
    """This process's session; the functions below are its methods."""
    return _session


def job_id() -> str:
    """The job's id; empty outside of Aryl."""
    return _session.environment.job_id


def attempt() -> int:
    """Which attempt of the job this is, from 1; 0 outside of Aryl."""
    return _session.environment.attempt


def rank() -> int:
    """This worker's rank, from 0."""
    return _session.environment.rank


def local_rank() -> int:
    """This worker's rank among those on its server."""
    return _session.environment.local_rank


def size() -> int:
    """How many workers the gang has; 1 where workers come and go, see `Replica.size`."""
    return _session.environment.size


def worker() -> int:
    """A number that no other worker of the attempt has."""
    return _session.environment.worker


def checkpoint_dir() -> Path:
    """Where checkpoints go."""
    return _session.checkpoints.folder


def noticed() -> bool:
    """Whether this worker itself has been told to leave; workers of a gang ask `should_save` instead."""
    return _session.noticed


def should_save(step: int, *, every_s: float | None = None, every_steps: int | None = None) -> bool:
    """Whether to save the state after `step`; see `Session.should_save`."""
    return _session.should_save(step, every_s=every_s, every_steps=every_steps)


def leaving() -> bool:
    """Whether to end after the save that `should_save` asked for."""
    return _session.leaving


def save(step: int, write: Callable[[Path], object] | bytes) -> Checkpoint:
    """Save the state after `step`, whole or not at all; see `Checkpoints.save`."""
    return _session.save(step, write)


def latest() -> Checkpoint | None:
    """The newest checkpoint; None if there is none."""
    return _session.checkpoints.latest()


def load_latest(read: Callable[[Path], T]) -> tuple[int, T] | None:
    """The newest checkpoint's step and what `read` makes of it; None if there is none."""
    return _session.load_latest(read)


def report(
    step: int,
    total_steps: int | None = None,
    saved_step: int | None = None,
    *,
    workers: int | None = None,
    rank: int | None = None,
) -> bool:
    """Tell Aryl that `step` is done; never raises, never blocks. See `Session.report`."""
    return _session.report(step, total_steps, saved_step, workers=workers, rank=rank)


def exchange(value: Any, timeout_s: float | None = None) -> list[Any]:
    """Everybody's `value`, in order of rank; see `Session.exchange`."""
    return _session.exchange(value, timeout_s)


def finish() -> NoReturn:
    """End this worker, whose work is done; see `Session.finish`."""
    _session.finish()


def exit_saved() -> NoReturn:
    """End this worker, which has saved and wants to go on later; see `Session.exit_saved`."""
    _session.exit_saved()


def __getattr__(name: str) -> Any:
    # `train.Replica` without importing its module, and with it torchft, for those who don't use it.
    if name == "Replica":
        from aryl.train.replicas import Replica

        return Replica
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
