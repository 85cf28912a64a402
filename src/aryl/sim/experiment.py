"""An experiment: the cluster, the jobs, the inference demand, the policies and the rules of one simulation.

These models are the file format (docs/reference/experiment-file.md): the attributes carry the names of the
keys, and everything that can be checked without reading a trace is checked here. After validation all times
are seconds, all shares fractions and all work GPU-seconds. `experiment_file` reads them from YAML; `sweep`
multiplies them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from aryl.errors import nearest_word
from aryl.sim.experiment_fields import (
    Checkpoint,
    Count,
    PositiveCount,
    PositiveNumber,
    PositiveSeconds,
    Seconds,
    Share,
    Strict,
    Text,
    Window,
    choice,
    fault,
    whole_number,
)
from aryl.sim.experiment_inputs import EstimatesConfig, FailuresConfig, Headroom, Points
from aryl.sim.experiment_jobs import InlineJob, ProjectConfig, SpeedupConfig, TypeSpeeds, without_linear
from aryl.sim.policy_list import split_policies


def _names(value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise fault("wrong value", expected="a list of server names")
    for index, name in enumerate(value):
        if name in value[:index]:
            raise fault(f"server name '{name}' is given twice", index)
    return list(value)


def _server_groups(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping) or not value:
        raise fault("wrong value", expected="numbers of servers by GPU type, such as {H100: 8, A100: 8}")
    return {str(gpu_type): whole_number(servers, 0) for gpu_type, servers in value.items()}


class PoolConfig(Strict):
    """The servers of one pool. Speeds are relative to the reference GPU type, in which durations are given.

    A pool of several GPU types says `gpu_types` (servers of each type, in the order in which they are
    numbered) and, where they differ, `speeds`. `servers` then follows, as it does from `names`.
    """

    servers: Count
    gpus_per_server: PositiveCount = 8
    gpu_type: Text = "V100"
    speed: PositiveNumber = 1.0
    names: Annotated[list[str], PlainValidator(_names)] | None = None
    gpu_types: Annotated[dict[str, int], PlainValidator(_server_groups)] | None = None
    speeds: TypeSpeeds | None = None

    @model_validator(mode="before")
    @classmethod
    def _count_servers(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "servers" not in value:
            groups, names = value.get("gpu_types"), value.get("names")
            if isinstance(groups, Mapping):
                return {**value, "servers": sum(_server_groups(groups).values())}
            if isinstance(names, list | tuple):
                return {**value, "servers": len(names)}
        return value

    @model_validator(mode="after")
    def _counts_agree(self) -> PoolConfig:
        if self.gpu_types is not None and sum(self.gpu_types.values()) != self.servers:
            raise fault(
                f"gpu_types lists {sum(self.gpu_types.values())} servers, servers says {self.servers}",
                "gpu_types",
            )
        if self.names is not None and len(self.names) != self.servers:
            raise fault(f"{len(self.names)} names for {self.servers} servers", "names")
        for gpu_type in self.speeds or {}:
            known = list(self.gpu_types or {self.gpu_type: self.servers})
            if gpu_type not in known:
                raise fault(
                    f"no server has the GPU type '{gpu_type}'",
                    "speeds",
                    gpu_type,
                    expected="one of " + ", ".join(known),
                    nearest=nearest_word(gpu_type, known),
                )
        return self

    @model_serializer(mode="wrap")
    def _leave_out_what_follows(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        if self.gpu_types is not None or self.names is not None:
            written.pop("servers", None)
        return written

    def server_names(self, prefix: str) -> list[str]:
        """The names in order: `names`, or T1..Tn for the prefix `T`."""
        return (
            list(self.names) if self.names else [f"{prefix}{number}" for number in range(1, self.servers + 1)]
        )

    def server_gpu_types(self) -> list[str]:
        """The GPU type of each server, in the order of `server_names`."""
        groups = self.gpu_types or {self.gpu_type: self.servers}
        return [gpu_type for gpu_type, servers in groups.items() for _ in range(servers)]

    def speed_of(self, gpu_type: str) -> float:
        """Speed of a GPU type of this pool relative to the reference type."""
        return (self.speeds or {}).get(gpu_type, self.speed)


class InferencePoolConfig(PoolConfig):
    """The inference pool: by default T4s at a third of the speed, and no server unless asked for."""

    servers: Count = 0
    gpu_type: Text = "T4"
    speed: PositiveNumber = 0.33


class ClusterConfig(Strict):
    """Both pools. `accounting` says what a slower GPU type means to a job that moves there.

    `more-gpus`: it holds as many more GPUs as makes up for the speed. `slower`: the same number of GPUs, for
    longer.
    """

    training: PoolConfig
    inference: InferencePoolConfig = InferencePoolConfig()
    accounting: Annotated[Literal["more-gpus", "slower"], choice("more-gpus", "slower")] = "more-gpus"
    projects: dict[str, ProjectConfig] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_are_unique(self) -> ClusterConfig:
        training = set(self.training.server_names("T"))
        for name in self.inference.server_names("I"):
            if name in training:
                raise fault(f"both pools have a server '{name}'", "inference")
        return self

    def server_names(self) -> list[str]:
        """All servers, training first."""
        return self.training.server_names("T") + self.inference.server_names("I")


class JobsConfig(Strict):
    """Jobs from a trace: its name or path, the `window` to run, and what a scenario fills in."""

    trace: Text
    window: Window | None = None
    scenario: (
        Annotated[
            Literal["basic", "advanced", "heterogeneous", "ideal"],
            choice("basic", "advanced", "heterogeneous", "ideal"),
        ]
        | None
    ) = None
    seed: Count = 1
    limit: PositiveCount | None = None
    estimates: EstimatesConfig | None = None


class InferenceConfig(Strict):
    """The inference demand and how well it is foreseen.

    `points` are (seconds, servers). `from_s` (key `from`) is where in the curve the simulation starts; None
    means `Experiment.curve_start_s` decides.
    """

    curve: Text | None = None
    points: Points | None = None
    interpolate: Annotated[Literal["step", "line"], choice("step", "line")] = "step"
    peak: Share = 0.95
    headroom: Headroom = Headroom(share=0.02)
    lead: Seconds | None = None
    deadline: Seconds = 0.0
    forecast: Annotated[Literal["oracle", "last"], choice("oracle", "last")] = "oracle"
    from_s: Seconds | None = Field(default=None, alias="from")

    @model_validator(mode="after")
    def _one_demand(self) -> InferenceConfig:
        if self.curve is not None and self.points is not None:
            raise fault("give a curve or points, not both", "points")
        if self.from_s is not None and self.points is not None:
            raise fault("says where in a curve to start; points start at 0", "from")
        return self


class SimulationConfig(Strict):
    """The rules of the simulation, in seconds. `until` None: until the last job has finished."""

    interval: PositiveSeconds = 300.0
    restart_s: Seconds = 63.0
    resize_s: Seconds = 10.0
    vacate_s: Seconds = 0.0
    seed: Count = 1
    until: PositiveSeconds | None = None
    checkpoint: Checkpoint = None
    mixed_efficiency: Share | None = None
    speedup: Annotated[SpeedupConfig | None, BeforeValidator(without_linear)] = None
    failures: FailuresConfig | None = None
    check: bool = False


class ScriptedEvent(Strict):
    """Something that happens at a time: to a server's state, to a job's limits or to a job."""

    at: Seconds
    server: Text | None = None
    state: (
        Annotated[Literal["down", "up", "drain", "undrain"], choice("down", "up", "drain", "undrain")] | None
    ) = None
    job: Text | None = None
    min_workers: PositiveCount | None = None
    max_workers: PositiveCount | None = None
    cancel: bool = False

    @model_validator(mode="after")
    def _one_form(self) -> ScriptedEvent:
        limits = self.min_workers is not None or self.max_workers is not None
        of_server = self.server is not None and self.state is not None
        of_job = self.job is not None and (limits != self.cancel)
        foreign = (self.job is not None or limits or self.cancel) if of_server else self.state is not None
        if of_server == of_job or foreign:
            raise fault(
                "an event does one thing",
                expected="{at, server, state: down|up|drain|undrain}, "
                "{at, job, min_workers and/or max_workers} or {at, job, cancel: true}",
            )
        if self.min_workers and self.max_workers and self.min_workers > self.max_workers:
            raise fault(
                f"min_workers {self.min_workers} exceeds max_workers {self.max_workers}", "min_workers"
            )
        return self


def _jobs_form(value: object) -> str | None:
    if isinstance(value, Mapping | JobsConfig):
        return "<trace>"
    return "<list>" if isinstance(value, list | tuple) else None


def _policies(value: object) -> list[str]:
    policies = split_policies(value) if isinstance(value, str) else value
    if not isinstance(policies, list | tuple) or not policies:
        raise fault("wrong value", expected="a list of policies, such as [fifo, aryl]")
    for index, policy in enumerate(policies):
        if not isinstance(policy, str) or not policy.strip():
            raise fault("wrong value", index, expected="the name of a policy", found=policy)
        if policy in policies[:index]:
            raise fault(f"policy '{policy}' is given twice", index)
    return list(policies)


class Experiment(Strict):
    """A whole experiment.

    `sweep` maps dotted keys to the values to try; `expand_sweep` makes one experiment of each.
    """

    name: Text = "experiment"
    cluster: ClusterConfig
    jobs: Annotated[
        Annotated[JobsConfig, Tag("<trace>")] | Annotated[list[InlineJob], Tag("<list>")],
        Discriminator(
            _jobs_form,
            custom_error_type="jobs_form",
            custom_error_message="wrong value; expected {{trace: NAME}} or a list of jobs",
        ),
    ]
    inference: InferenceConfig = InferenceConfig()
    policies: Annotated[list[str], PlainValidator(_policies)] = Field(
        default_factory=lambda: ["fifo", "aryl"]
    )
    simulation: SimulationConfig = SimulationConfig()
    events: list[ScriptedEvent] = Field(default_factory=list)
    sweep: dict[str, list[Any]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _empty_sections_are_defaults(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: section for key, section in value.items() if section is not None}
        return value

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Experiment:
        seen: dict[str, int] = {}
        for index, job in enumerate(self.inline_jobs()):
            if job.id in seen:
                raise fault(f"job id '{job.id}' is given twice", "jobs", index, "id")
            seen[job.id] = index
        return self

    @model_validator(mode="after")
    def _events_name_what_exists(self) -> Experiment:
        servers = self.cluster.server_names()
        jobs = None if isinstance(self.jobs, JobsConfig) else [job.id for job in self.jobs]
        for index, event in enumerate(self.events):
            if event.server is not None and event.server not in set(servers):
                near = nearest_word(event.server, servers)
                raise fault(
                    f"no server '{event.server}'", "events", index, "server", nearest=near, found=event.server
                )
            if event.job is not None and jobs is not None and event.job not in jobs:
                near = nearest_word(event.job, jobs)
                raise fault(f"no job '{event.job}'", "events", index, "job", nearest=near)
        return self

    def inline_jobs(self) -> Iterator[InlineJob]:
        """The jobs written out in the file; none where they come from a trace."""
        if not isinstance(self.jobs, JobsConfig):
            yield from self.jobs

    @property
    def curve_start_s(self) -> float:
        """Where in the curve the simulation starts: `inference.from`, else `jobs.window`'s start, else 0."""
        if self.inference.from_s is not None:
            return self.inference.from_s
        if isinstance(self.jobs, JobsConfig) and self.jobs.window is not None:
            return self.jobs.window[0]
        return 0.0
