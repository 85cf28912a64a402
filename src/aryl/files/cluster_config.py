"""A cluster as files describe it: two pools of servers, and what projects are promised.

Experiments and the live control plane read the same keys, so that a simulated cluster can be copied into the
configuration of a real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from aryl.errors import nearest_word
from aryl.files.fields import Count, PositiveCount, PositiveNumber, Strict, Text, choice, fault, whole_number
from aryl.files.job_fields import TypeSpeeds

# More than any cluster has; a slip of the finger shouldn't fill the memory.
MOST_SERVERS = 1_000_000
MOST_GROUPS = 1000

ServerCount = Annotated[int, PlainValidator(lambda value: whole_number(value, 0, MOST_SERVERS))]


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
    if len(value) > MOST_GROUPS:
        raise fault(f"more than {MOST_GROUPS} GPU types")
    return {str(gpu_type): whole_number(servers, 0, MOST_SERVERS) for gpu_type, servers in value.items()}


class ProjectConfig(Strict):
    """What a project is promised."""

    guaranteed: Count = 0


class PoolConfig(Strict):
    """The servers of one pool. Speeds are relative to the reference GPU type, in which durations are given.

    A pool of several GPU types says `gpu_types` (servers of each type, in the order in which they are
    numbered) and, where they differ, `speeds`. `servers` then follows, as it does from `names`.
    """

    servers: ServerCount
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
        # Those of servers that are found aren't known yet.
        for gpu_type in self.speeds or {} if self.servers else ():
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

    servers: ServerCount = 0
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
