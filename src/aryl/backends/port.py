"""What a backend is: it starts, resizes and stops gangs, and tells what happened. It decides nothing.

The driver hands out orders, each idempotent: an order that has been carried out, or is being carried out,
changes nothing when it comes again, so that a daemon that died between journaling a plan and applying it can
simply repeat the orders that follow from its state. Facts come back through the sink that `open` was given,
from any thread, each with the wall-clock time at which it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from aryl.core.model import ServerSpec, Slot


class Launcher(Enum):
    """How a program is started and resized."""

    PROCESS = "process"  # one process a worker; it saves on notice, exits 75 and starts again at the new size
    TORCHRUN = "torchrun"  # one elastic agent a server; resized as `process` is
    TORCHFT = "torchft"  # workers join and leave while the others go on


@dataclass(frozen=True, slots=True)
class Program:
    """What a job runs. Paths are absolute. `command` is an argument vector; nothing of it meets a shell that
    the user didn't ask for.

    A worker that is told to leave gets `notice_signal` (if it has one) `grace_s` before the end, SIGTERM
    `term_s` before it, and SIGKILL at the end.
    """

    command: tuple[str, ...]
    workdir: str
    env: tuple[tuple[str, str], ...] = ()
    launcher: Launcher = Launcher.PROCESS
    checkpoint_dir: str = ""
    notice_signal: str = ""  # such as USR1; empty: the program can't save on notice
    grace_s: float = 10.0
    term_s: float = 10.0
    memory_bytes: int = 0  # a worker; 0: no limit
    cpus: float = 0.0  # a worker; 0: no limit
    max_failures: int = 3  # so many workers of an attempt are replaced under `torchft`


class Phase(Enum):
    """What the journal says is to become of a gang."""

    UP = "up"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang as the journal has it: where its workers are to stand after revision `revision` of `attempt`.

    `launched`: the journal knows for certain that it has been up. `finishing`: some of its workers are done
    for good. `leaving`: workers that were told to leave, and may still be there for all the journal knows.
    """

    job_id: str
    attempt: int
    revision: int
    slots: tuple[Slot, ...]
    program: Program
    phase: Phase = Phase.UP
    launched: bool = False
    finishing: bool = False
    leaving: tuple[Slot, ...] = ()


@dataclass(frozen=True, slots=True)
class GangUp:
    """Every worker of the gang has been started."""

    at_unix_s: float
    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class GangResized:
    """The gang stands as its revision says."""

    at_unix_s: float
    job_id: str
    attempt: int
    revision: int


@dataclass(frozen=True, slots=True)
class WorkersGone:
    """Workers that were told to leave by a resize are gone, and their GPUs are free for certain."""

    at_unix_s: float
    job_id: str
    attempt: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class WorkersDone:
    """Workers ended well by themselves while others of the gang go on; their GPUs are free for certain."""

    at_unix_s: float
    job_id: str
    attempt: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class GangStopped:
    """A gang that was told to stop is gone. `saved`: all its workers said so, by exiting 75."""

    at_unix_s: float
    job_id: str
    attempt: int
    saved: bool


@dataclass(frozen=True, slots=True)
class GangSucceeded:
    """Every worker ended well."""

    at_unix_s: float
    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class GangFailed:
    """A worker ended badly, and all are gone. `servers`: where it happened; `ran_s`: since the launch."""

    at_unix_s: float
    job_id: str
    attempt: int
    servers: tuple[str, ...]
    ran_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerReplaced:
    """A worker ended badly and was started again in its place while the others went on."""

    at_unix_s: float
    job_id: str
    attempt: int
    server_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reported:
    """What a program says of itself, through `aryl.train`: any of the keys step, total_steps, saved_step,
    steps_per_s, workers.
    """

    at_unix_s: float
    job_id: str
    attempt: int
    report: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerUp:
    """A server is there, or there again."""

    at_unix_s: float
    server_id: str


@dataclass(frozen=True, slots=True)
class ServerJoined:
    """A server is there, or there again, that the journal may not know yet."""

    at_unix_s: float
    server: ServerSpec


@dataclass(frozen=True, slots=True)
class ServerDown:
    """A server is gone with all that was on it."""

    at_unix_s: float
    server_id: str


@dataclass(frozen=True, slots=True)
class ServerStuck:
    """A worker there doesn't die. `stuck` False: there is no such worker, or none any more."""

    at_unix_s: float
    server_id: str
    stuck: bool


@dataclass(frozen=True, slots=True)
class BackendLost:
    """The backend can't reach what runs the workers, or (`fenced`) somebody else has taken over. Unless
    fenced, it should be opened again; orders given meanwhile may have been lost.
    """

    at_unix_s: float
    fenced: bool
    reason: str


Fact = (
    GangUp
    | GangResized
    | WorkersGone
    | WorkersDone
    | GangStopped
    | GangSucceeded
    | GangFailed
    | WorkerReplaced
    | Reported
    | ServerUp
    | ServerJoined
    | ServerDown
    | ServerStuck
    | BackendLost
)

Sink = Callable[[Fact], None]


class Backend(Protocol):
    """Runs gangs on real servers."""

    def open(self, fence: int, gangs: Sequence[Gang], sink: Sink, servers: Sequence[ServerSpec] = ()) -> None:
        """Take over. `servers` are those that the journal knows, and `gangs` is what it says should run or
        be stopping: adopt what does run, report what has ended meanwhile, repeat what was never carried out,
        and stop all that isn't in it.

        Raises FencedError if somebody with a higher `fence` has taken over already.
        """

    def launch(self, gang: Gang) -> None:
        """Start a gang."""

    def resize(self, gang: Gang) -> None:
        """Let the gang stand as `gang` says, which is a later revision of what runs."""

    def stop(self, job_id: str, attempt: int, *, save: bool) -> None:
        """Stop a gang. `save`: give notice first, so that it can save; else it is told to end at once."""

    def forget(self, job_id: str, attempt: int) -> None:
        """The journal knows how the attempt ended; nobody will ask again. Logs stay."""

    def close(self) -> None:
        """Let go without touching what runs."""
