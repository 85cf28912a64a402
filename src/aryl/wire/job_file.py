"""The job file: what a user asks a live cluster to run, as YAML on the command line and as JSON in the API.

One model validates both, so that an error says the same in both. What can be checked without the cluster is
checked here; whether a job could ever run, and where it may work, only the server knows. A relative
`workdir` is relative to the job file, which the server never sees: so it is absolute once the file is loaded,
and has to be in JSON.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from aryl.errors import InputError
from aryl.files.faults import Place
from aryl.files.fields import PositiveNumber, PositiveSeconds, Seconds, Section, Share, choice, fault
from aryl.files.job_fields import TypeSpeeds, WorkersConfig
from aryl.files.yaml_source import YamlSource, plain_values, read_yaml
from aryl.wire.job_file_fields import (
    AbsolutePath,
    Command,
    Env,
    Memory,
    Name,
    PathText,
    Signal,
    argument_vector,
    clean_path,
    is_inside,
    is_name,
    whole,
)
from aryl.wire.speedup import SpeedupConfig, without_linear

MOST_FILE_BYTES = 2**20
MOST_WORKERS = 100_000
MOST_GPUS_PER_WORKER = 1024
MOST_GPU_TYPES = 100
MOST_GPU_TYPE_CHARS = 100
MOST_GRACE_S = 86_400.0
MOST_ESTIMATE_S = 100 * 366 * 86_400.0
MOST_CPUS = 4096
DEFAULT_GRACE_S = 90.0
MOST_DEFAULT_TERM_S = 30.0

_WHAT = "a job file"
_KEYS = "name, run and workers"


class CheckpointSettings(Section):
    """How the program saves its state. Times in seconds.

    `dir` is inside `workdir`; by default Aryl makes a folder of its own for the job. `signal` is sent `grace`
    before a worker has to be gone, and SIGTERM `term` before. `every`: it saves so often by itself.
    """

    dir: PathText | None = None
    signal: Signal | None = None
    grace: PositiveSeconds | None = None
    term: Seconds | None = None
    every: PositiveSeconds | None = None

    @model_validator(mode="after")
    def _times_agree(self) -> CheckpointSettings:
        if self.grace is not None and self.signal is None:
            raise fault(
                "there is no signal that the grace could follow",
                "grace",
                expected="signal: USR1, or another that the program saves on",
            )
        if self.grace is not None and self.grace > MOST_GRACE_S:
            raise fault("wrong value", "grace", expected="at most 24h", found=self.grace)
        if self.term is not None and self.term > (self.grace_s if self.signal else MOST_GRACE_S):
            raise fault(
                "SIGTERM would come before the signal" if self.signal else "wrong value",
                "term",
                expected="at most the grace" if self.signal else "at most 24h",
                found=self.term,
            )
        return self

    @property
    def grace_s(self) -> float:
        """From the signal to the end."""
        return DEFAULT_GRACE_S if self.grace is None else self.grace

    @property
    def term_s(self) -> float:
        """From SIGTERM to the end, for a program that is signalled."""
        return min(MOST_DEFAULT_TERM_S, self.grace_s / 3) if self.term is None else self.term


class Resources(Section):
    """The most that a worker may use besides its GPUs; None: no limit. `memory` in bytes."""

    memory: Memory | None = None
    cpus: PositiveNumber | None = None

    @model_validator(mode="after")
    def _is_bounded(self) -> Resources:
        if self.cpus is not None and self.cpus > MOST_CPUS:
            raise fault("wrong value", "cpus", expected=f"at most {MOST_CPUS}", found=self.cpus)
        return self


class JobFile(Section):
    """A job for a live cluster. Times in seconds.

    `workers` is the least and the most number of workers; `gpu_types` the accepted types with their speeds
    relative to the reference type, None for any training server.
    """

    name: Name
    run: Command
    workdir: AbsolutePath
    env: Env = Field(default_factory=dict)
    workers: WorkersConfig = WorkersConfig(min=1, max=1)
    gpus_per_worker: Annotated[int, *whole(1, MOST_GPUS_PER_WORKER)] = 1
    gpu_types: TypeSpeeds | None = None
    heterogeneous: bool = False
    mixed_efficiency: Share | None = None
    speedup: Annotated[SpeedupConfig | None, BeforeValidator(without_linear)] = None
    estimate: PositiveSeconds | None = None
    priority: Annotated[int, *whole(-1000, 1000)] = 0
    project: Name | None = None
    user: Name | None = None
    launcher: Annotated[
        Literal["process", "torchrun", "torchft"],
        choice("process", "torchrun", "torchft"),
        WithJsonSchema({"enum": ["process", "torchrun", "torchft"]}),
    ] = "process"
    checkpoint: CheckpointSettings | None = None
    resources: Resources = Resources()
    max_failures: Annotated[int, *whole(1, 1000)] = 3

    @model_validator(mode="after")
    def _is_bounded(self) -> JobFile:
        if self.workers.max > MOST_WORKERS:
            raise fault(
                "wrong value", "workers", expected=f"at most {MOST_WORKERS} workers", found=self.workers.max
            )
        if self.estimate is not None and self.estimate > MOST_ESTIMATE_S:
            raise fault("wrong value", "estimate", expected="at most a hundred years", found=self.estimate)
        if self.mixed_efficiency == 0:
            raise fault("wrong value", "mixed_efficiency", expected="a share above 0", found=0)
        return self

    @model_validator(mode="after")
    def _gpu_types_are_names(self) -> JobFile:
        if len(self.gpu_types or ()) > MOST_GPU_TYPES:
            raise fault(f"more than {MOST_GPU_TYPES} GPU types", "gpu_types")
        for gpu_type in self.gpu_types or ():
            if not gpu_type.strip() or not gpu_type.isprintable() or len(gpu_type) > MOST_GPU_TYPE_CHARS:
                raise fault(
                    "not the name of a GPU type", "gpu_types", gpu_type, expected="a name such as V100"
                )
        return self

    @model_validator(mode="after")
    def _checkpoints_stay_inside(self) -> JobFile:
        folder = self.checkpoint_dir
        if folder is not None and not is_inside(folder, self.workdir):
            raise fault(
                "outside workdir",
                "checkpoint",
                "dir",
                expected="a folder inside workdir",
                found=self.checkpoint.dir if self.checkpoint else None,
            )
        return self

    @model_validator(mode="after")
    def _a_resize_loses_nothing(self) -> JobFile:
        if self.elastic and self.launcher != "torchft" and self.checkpoint is None:
            raise fault(
                f"under 'launcher: {self.launcher}' a resize starts the program anew, "
                "and without checkpoints its work would be lost",
                "workers",
                expected="a section 'checkpoint', 'launcher: torchft' or a fixed number of workers",
            )
        return self

    @property
    def elastic(self) -> bool:
        """Whether it may run with more workers than it needs."""
        return self.workers.max > self.workers.min

    @property
    def command(self) -> tuple[str, ...]:
        """The argument vector of a worker."""
        return argument_vector(self.run)

    @property
    def checkpoint_dir(self) -> str | None:
        """The absolute path of the folder for checkpoints; None leaves it to Aryl."""
        if self.checkpoint is None or self.checkpoint.dir is None:
            return None
        return clean_path(os.path.join(self.workdir, self.checkpoint.dir))


def load_job_file(path: Path | str, overrides: Sequence[str] = ()) -> JobFile:
    """Read and check a job file, with settings such as `workers=4` on top.

    The job's name is the file's, and its workdir the file's folder, unless the file says otherwise.

    Raises `InputError` with file and line, or the setting, that is to blame.
    """
    data, places = read_yaml(path, what=_WHAT, keys=_KEYS, most_bytes=MOST_FILE_BYTES)
    if is_name(Path(path).stem):
        data.setdefault("name", Path(path).stem)
    source = YamlSource(data, places)
    for setting in overrides:
        source = source.apply(setting, "workers=4")
    workdir = source.data.get("workdir")
    folder = os.path.abspath(os.path.dirname(path))
    if workdir is None or isinstance(workdir, str):
        absolute = os.path.join(folder, workdir) if workdir and workdir.strip() else workdir or folder
        source = YamlSource({**source.data, "workdir": absolute}, source.places)
    return _checked(source)


def job_file_from_mapping(data: object, source: str | None = None) -> JobFile:
    """Check a job given as nested mappings and lists, such as JSON. `source` is named in errors.

    Raises `InputError`.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"not {_WHAT}", file=source, expected=f"a mapping with {_KEYS}")
    return _checked(YamlSource(dict(data), {(): Place(source)}))


def to_mapping(job: JobFile) -> dict[str, Any]:
    """The job as plain values, which `job_file_from_mapping` turns into an equal job."""
    return plain_values(job)


def _checked(source: YamlSource) -> JobFile:
    try:
        return source.validate(JobFile)
    except RecursionError:
        raise InputError("nested too deeply", file=source.places.get((), Place()).file) from None
