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
    Tag,
    model_validator,
)

from aryl.errors import nearest_word
from aryl.files.cluster_config import ClusterConfig
from aryl.files.fields import (
    EXPECTED_INSTANT,
    Checkpoint,
    Count,
    Instant,
    PositiveCount,
    PositiveSeconds,
    Seconds,
    Share,
    Strict,
    Text,
    Window,
    choice,
    fault,
)
from aryl.files.inference_fields import LendingFields, Points
from aryl.sim.experiment_inputs import EstimatesConfig, FailuresConfig
from aryl.sim.experiment_jobs import InlineJob
from aryl.sim.policy_list import split_policies
from aryl.wire.speedup import SpeedupConfig, without_linear


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


class InferenceConfig(LendingFields):
    """The inference demand, how well it is foreseen, and what may be lent.

    `points` are (seconds, servers). `from_s` (key `from`) is where in the curve the simulation starts; None
    means `Experiment.curve_start_s` decides. `drain`: how long the inference side takes to let go of a
    server.
    """

    curve: Text | None = None
    points: Points | None = None
    interpolate: Annotated[Literal["step", "line"], choice("step", "line")] = "step"
    peak: Share = 0.95
    drain: Seconds = 0.0
    from_s: Seconds | None = Field(default=None, alias="from")

    @model_validator(mode="after")
    def _one_demand(self) -> InferenceConfig:
        if self.curve is not None and self.points is not None:
            raise fault("give a curve or points, not both", "points")
        if self.from_s is not None and self.points is not None:
            raise fault("says where in a curve to start; points start at 0", "from")
        return self


class SimulationConfig(Strict):
    """The rules of the simulation, in seconds. `until` None: until the last job has finished. `start`: what
    the clock on the wall says at 0 s, in Unix time; only a calendar wants to know.
    """

    interval: PositiveSeconds = 300.0
    start: Instant | None = None
    restart_s: Seconds = 63.0
    resize_s: Seconds = 10.0
    vacate_s: Seconds = 0.0
    launch_s: Seconds = 0.0
    launch_worker_s: Seconds = 0.0
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
    def _a_calendar_needs_a_clock(self) -> Experiment:
        if self.inference.calendar is not None and self.simulation.start is None:
            raise fault(
                "a calendar needs to know when the simulation begins",
                *("simulation", "start"),
                expected=EXPECTED_INSTANT,
            )
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
