"""What a source says: how much the inference side needed, in which unit, and when that was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol, assert_never

from aryl.core.model import Hosting


class Unit(Enum):
    """What a need is counted in. A share is one of the inference pool, 1.0 all of it."""

    SERVERS = "servers"
    GPUS = "gpus"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class Observation:
    """A need, and perhaps the highest that is to be expected, in `unit`; finite and not negative.

    `measured_unix_s` is when it was measured, which may be long before it was read. `hosting` says where
    replicas stand, if that is known.
    """

    measured_unix_s: float
    need: float
    unit: Unit
    forecast: float | None = None
    hosting: tuple[Hosting, ...] = ()


class Source(Protocol):
    """Something that can be asked for the present need. One thread asks at a time."""

    @property
    def where(self) -> str:
        """How people would name it; holds no secret."""

    def read(self) -> Observation:
        """The latest measurement. Raises ArylError, without secrets in it, if there is none to be had."""

    def close(self) -> None:
        """Let go of connections; nothing is read any more."""


def in_servers(observation: Observation, servers: int, gpus_per_server: float) -> Observation:
    """The same in servers of an inference pool with so many `servers`."""
    match observation.unit:
        case Unit.SERVERS:
            factor = 1.0
        case Unit.GPUS:
            factor = 1.0 / gpus_per_server
        case Unit.SHARE:
            factor = float(servers)
        case _:
            assert_never(observation.unit)
    forecast = observation.forecast
    return replace(
        observation,
        need=observation.need * factor,
        unit=Unit.SERVERS,
        forecast=None if forecast is None else forecast * factor,
    )
