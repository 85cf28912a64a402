"""What the daemon and the supervisor say to each other: one JSON object a line, over a Unix stream socket.

A request is `{"id": n, "op": name, ...}`. Its answer is `{"re": n, "ok": {...}}`, or `{"re": n, "error":
kind, "text": why}` with a kind of `Refusal`. An event is `{"event": name, ...}` and may come at any time
after hello. Whatever doesn't fit raises `ProtocolError`, which names the field.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from aryl.errors import ArylError

VERSION = 1
# The environment variable by which the supervisor recognises what belongs to a worker.
MARKER = "ARYL_WORKER"
MAX_LINE_BYTES = 16 << 20
MAX_REPORT_BYTES = 4096
MAX_REPORT_KEYS = 32

Json = dict[str, object]


class ProtocolError(ArylError):
    """A line, a request or a field isn't what it should be."""


class Refusal(Enum):
    """Why a request was refused."""

    FENCED = "fenced"  # somebody with a higher fencing token has taken over
    BAD = "bad"  # the request makes no sense
    BUSY = "busy"  # workers live, or the supervisor is about to end


class WorkerState(Enum):
    """Where a worker is. Its GPUs are free for certain in the last two, and only there."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"  # the supervisor that ran it died, so that nobody knows how it ended

    @property
    def ended(self) -> bool:
        """Nothing of the worker is left."""
        return self in (WorkerState.EXITED, WorkerState.LOST)


@dataclass(frozen=True, slots=True, order=True)
class WorkerKey:
    """Names one start of one worker. `generation` counts the gang starts within an attempt, from 0."""

    job_id: str
    attempt: int
    generation: int
    rank: int

    @property
    def text(self) -> str:
        """The key as one word, for logs and folder names."""
        return f"{self.job_id}.{self.attempt}.{self.generation}.{self.rank}"


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What to start. `env` is the complete environment; the supervisor adds only `ARYL_WORKER`. `gpus` are
    the GPU indices that it holds. A limit of 0 is no limit. `meta` is free for the backend, and comes back in
    the status. The program is looked up in the PATH of `env`; no shell is involved.
    """

    key: WorkerKey
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    log_path: str
    server_id: str
    gpus: tuple[int, ...] = ()
    memory_bytes: int = 0
    cpus: float = 0.0
    meta: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopSchedule:
    """When a worker that is to leave gets what, in unix seconds; times in the past mean at once.
    `notice_signal` is a name such as `USR1`; empty means no notice. Each process of the worker gets it once,
    as soon as it would hear it, and none that would end of it. If the worker isn't gone `stuck_after_s` after
    SIGKILL, it is stuck.
    """

    notice_signal: str
    notice_at_unix_s: float
    term_at_unix_s: float
    kill_at_unix_s: float
    stuck_after_s: float = 60.0


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What the supervisor knows of a worker. `exit_code` is None while it lives, when a signal ended it (then
    `signal` has its number), and when it is lost. `reason` says in words what was wrong, if it knows more
    than the code. A program that can't be started has ended with 127 (not found) or 126 (anything else), as
    shells have it, and a reason. An `orphan` lives, but the supervisor that ran it died: it is being
    killed, and will be lost.
    """

    key: WorkerKey
    server_id: str
    gpus: tuple[int, ...]
    meta: Mapping[str, str]
    log_path: str
    state: WorkerState
    pid: int | None = None
    started_unix_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    ended_unix_s: float | None = None
    told_to_stop: bool = False
    stuck: bool = False
    reason: str = ""
    last_report: Mapping[str, float] = field(default_factory=dict)
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """The program of a worker runs."""

    at_unix_s: float
    status: WorkerStatus


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """A worker has ended, or was lost; nothing of it is left."""

    at_unix_s: float
    status: WorkerStatus


@dataclass(frozen=True, slots=True)
class WorkerStuck:
    """A worker doesn't die of SIGKILL; or, `stuck` False, it is gone at last (its exit follows)."""

    at_unix_s: float
    key: WorkerKey
    server_id: str
    stuck: bool


@dataclass(frozen=True, slots=True)
class WorkerReported:
    """The last value of each key that the worker has reported. Reports that follow closely arrive as one."""

    at_unix_s: float
    key: WorkerKey
    report: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class StartRefused:
    """These workers, whose start nobody waited for, aren't taken on."""

    at_unix_s: float
    keys: tuple[WorkerKey, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SupervisorGone:
    """The connection is lost: the supervisor ended, or (`fenced`) somebody else has taken over."""

    at_unix_s: float
    fenced: bool


WorkerEvent = WorkerStarted | WorkerExited | WorkerStuck | WorkerReported
SupervisorEvent = WorkerEvent | StartRefused | SupervisorGone


def encode_line(value: Json) -> bytes:
    """One line. Non-ASCII is escaped, so that any environment survives the way."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def decode_line(line: bytes) -> Json:
    """The object on a line. Raises ProtocolError."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise ProtocolError("not a line of JSON") from None
    return as_object(value, "line")


def as_object(value: object, name: str) -> Json:
    """`value` as a JSON object. Raises ProtocolError."""
    if not isinstance(value, dict):
        raise ProtocolError(f"{name}: expected an object")
    return value


def as_list(value: object, name: str) -> list[object]:
    """`value` as a JSON list. Raises ProtocolError."""
    if not isinstance(value, list):
        raise ProtocolError(f"{name}: expected a list")
    return value


def as_text(value: object, name: str) -> str:
    """`value` as a text without NUL, which no path, argument or variable can hold. Raises ProtocolError."""
    if not isinstance(value, str) or "\0" in value:
        raise ProtocolError(f"{name}: expected a text")
    return value


def as_int(value: object, name: str) -> int:
    """`value` as a whole number >= 0. Raises ProtocolError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ProtocolError(f"{name}: expected a whole number >= 0")
    return value


def as_number(value: object, name: str) -> float:
    """`value` as a finite number. Raises ProtocolError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise ProtocolError(f"{name}: expected a finite number")


def as_bool(value: object, name: str) -> bool:
    """`value` as true or false. Raises ProtocolError."""
    if not isinstance(value, bool):
        raise ProtocolError(f"{name}: expected true or false")
    return value


def as_texts(value: object, name: str) -> dict[str, str]:
    """`value` as an object of texts. Raises ProtocolError."""
    return {as_text(k, name): as_text(v, f"{name}.{k}") for k, v in as_object(value, name).items()}


def as_numbers(value: object, name: str) -> dict[str, float]:
    """`value` as an object of finite numbers. Raises ProtocolError."""
    return {k: as_number(v, f"{name}.{k}") for k, v in as_object(value, name).items()}


def key_to_json(key: WorkerKey) -> list[object]:
    """A key as `[job, attempt, generation, rank]`."""
    return [key.job_id, key.attempt, key.generation, key.rank]


def key_from_json(value: object) -> WorkerKey:
    """The inverse of `key_to_json`. Raises ProtocolError."""
    parts = as_list(value, "key")
    if len(parts) != 4:
        raise ProtocolError("key: expected [job, attempt, generation, rank]")
    numbers = [as_int(part, "key") for part in parts[1:]]
    return WorkerKey(as_text(parts[0], "key"), numbers[0], numbers[1], numbers[2])


def spec_to_json(spec: WorkerSpec) -> Json:
    """A spec as an object."""
    return {
        "key": key_to_json(spec.key),
        "argv": list(spec.argv),
        "cwd": spec.cwd,
        "env": dict(spec.env),
        "log_path": spec.log_path,
        "server_id": spec.server_id,
        "gpus": list(spec.gpus),
        "memory_bytes": spec.memory_bytes,
        "cpus": spec.cpus,
        "meta": dict(spec.meta),
    }


def spec_from_json(value: object) -> WorkerSpec:
    """The inverse of `spec_to_json`. Raises ProtocolError."""
    got = as_object(value, "spec")
    argv = tuple(as_text(part, "argv") for part in as_list(got.get("argv"), "argv"))
    if not argv or not argv[0]:
        raise ProtocolError("argv: expected a program")
    env = as_texts(got.get("env"), "env")
    if any(not name or "=" in name for name in env):
        raise ProtocolError("env: a name is empty or holds '='")
    log_path = as_text(got.get("log_path"), "log_path")
    if not log_path.startswith("/"):
        raise ProtocolError("log_path: expected an absolute path")
    cwd = as_text(got.get("cwd"), "cwd")
    if not cwd.startswith("/"):
        raise ProtocolError("cwd: expected an absolute path")
    cpus = as_number(got.get("cpus"), "cpus")
    if cpus < 0:
        raise ProtocolError("cpus: expected a number >= 0")
    return WorkerSpec(
        key=key_from_json(got.get("key")),
        argv=argv,
        cwd=cwd,
        env=env,
        log_path=log_path,
        server_id=as_text(got.get("server_id"), "server_id"),
        gpus=tuple(as_int(gpu, "gpus") for gpu in as_list(got.get("gpus"), "gpus")),
        memory_bytes=as_int(got.get("memory_bytes"), "memory_bytes"),
        cpus=cpus,
        meta=as_texts(got.get("meta"), "meta"),
    )


def schedule_to_json(schedule: StopSchedule) -> Json:
    """A schedule as an object."""
    return {
        "notice_signal": schedule.notice_signal,
        "notice_at": schedule.notice_at_unix_s,
        "term_at": schedule.term_at_unix_s,
        "kill_at": schedule.kill_at_unix_s,
        "stuck_after_s": schedule.stuck_after_s,
    }


def schedule_from_json(value: object) -> StopSchedule:
    """The inverse of `schedule_to_json`. Raises ProtocolError."""
    got = as_object(value, "schedule")
    name = as_text(got.get("notice_signal"), "notice_signal")
    if name:
        signal_number(name)
    return StopSchedule(
        notice_signal=name,
        notice_at_unix_s=as_number(got.get("notice_at"), "notice_at"),
        term_at_unix_s=as_number(got.get("term_at"), "term_at"),
        kill_at_unix_s=as_number(got.get("kill_at"), "kill_at"),
        stuck_after_s=as_number(got.get("stuck_after_s"), "stuck_after_s"),
    )


def signal_number(name: str) -> signal.Signals:
    """The signal named `USR1` or `SIGUSR1`. Raises ProtocolError."""
    try:
        return signal.Signals["SIG" + name.upper().removeprefix("SIG")]
    except KeyError:
        raise ProtocolError(f"notice_signal: there is no signal '{name}'") from None
