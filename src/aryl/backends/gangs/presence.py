"""Who is there, when a backend is opened: servers that are, that aren't, and that nobody is sure of."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aryl.backends.devices import Devices
from aryl.backends.gangs.losses import AttemptKey, Losses
from aryl.backends.port import Gang, ServerDown, ServerJoined, ServerUp, Sink
from aryl.backends.supervisor.protocol import WorkerStatus
from aryl.core.model import ServerSpec


@dataclass(frozen=True, slots=True)
class Presence:
    """The servers that are there, and others on which workers may still run."""

    here: tuple[ServerSpec, ...]
    doubtful: frozenset[str] = frozenset()


def say_who_is_there(
    presence: Presence | None,
    devices: Devices,
    losses: Losses,
    gangs: Sequence[Gang],
    known: Mapping[AttemptKey, Sequence[WorkerStatus]],
    emit: Sink,
) -> list[str]:
    """Tell which servers are up and which are down, and begin the account of losses anew. `presence` None:
    all servers that are known are there, as far as their GPUs answer. Returns those that are away.
    """
    now_s = time.time()
    away: list[str] = []
    if presence is None:
        here: dict[str, ServerSpec | None] = dict.fromkeys(devices.up())
    else:
        here = {server.server_id: server for server in presence.here}
        away = [one for one in devices.all() if one not in here and one not in presence.doubtful]
    lost = losses.take_over(gangs, known, away)
    for server_id in dict.fromkeys((*lost, *away)):
        emit(ServerDown(now_s, server_id))
    for server_id, server in here.items():
        if server is not None:
            devices.add(server_id, server.gpus)
        if not losses.waits(server_id):
            emit(ServerUp(now_s, server_id) if server is None else ServerJoined(now_s, server))
    return away
