"""A worker as the daemon's side sees it: its actor, its status, and what is to be done about it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aryl.backends.supervisor.protocol import (
    StopSchedule,
    WorkerKey,
    WorkerSpec,
    WorkerState,
    WorkerStatus,
)

# Where the status of a worker says on which incarnation of its server it runs.
NODE = "node"


@dataclass(slots=True)
class Hand:
    """See the module. `stop` is the last order to leave, and `sent_unix_s` when it was given."""

    status: WorkerStatus
    actor: Any = None
    seen: int = 0
    stop: StopSchedule | None = None
    sent_unix_s: float = 0.0
    started: bool = False  # its actor was told to start the program
    task: asyncio.Task[None] | None = None

    @staticmethod
    def of(spec: WorkerSpec, node: str) -> Hand:
        """A worker that is to be started."""
        return Hand(
            WorkerStatus(
                spec.key,
                spec.server_id,
                spec.gpus,
                {**spec.meta, NODE: node},
                spec.log_path,
                WorkerState.STARTING,
            )
        )

    @property
    def key(self) -> WorkerKey:
        """Which worker it is."""
        return self.status.key

    @property
    def node(self) -> str:
        """The incarnation of its server."""
        return self.status.meta[NODE]

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left."""
        return self.status.state.ended

    def take(self, status: WorkerStatus) -> None:
        """Note what the actor says. It knows nothing of nodes."""
        told = status.told_to_stop or self.stop is not None
        self.status = replace(status, meta={**status.meta, NODE: self.node}, told_to_stop=told)

    def end(self, now_s: float, state: WorkerState, reason: str, *, signal: int | None = None) -> None:
        """It is gone, and not by its own account."""
        self.status = replace(
            self.status,
            state=state,
            reason=reason,
            signal=signal,
            exit_code=None,
            ended_unix_s=now_s,
            told_to_stop=self.status.told_to_stop or self.stop is not None,
            orphan=False,
        )


def with_real_gpus(specs: Sequence[WorkerSpec], given: Sequence[Sequence[str]]) -> list[WorkerSpec]:
    """The specs of one gang start with the GPUs that Ray has `given` to each, instead of those that were
    counted here: on a server the ones stand for the others, worker by worker. Where Ray gives none (they are
    another resource) nothing changes.
    """
    names: dict[tuple[str, str], str] = {}
    for spec, gpus in zip(specs, given, strict=True):
        if len(gpus) == len(spec.gpus):
            pairs = zip(spec.gpus, gpus, strict=True)
            names |= {(spec.server_id, str(counted)): real for counted, real in pairs}
    return [replace(spec, env=_renamed(spec, names)) for spec in specs]


def _renamed(spec: WorkerSpec, names: Mapping[tuple[str, str], str]) -> dict[str, str]:
    counted = [gpu for gpu in spec.env.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    real = [names.get((spec.server_id, gpu), gpu) for gpu in counted]
    return {**spec.env, "CUDA_VISIBLE_DEVICES": ",".join(real)}
