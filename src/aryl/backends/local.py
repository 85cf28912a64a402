"""The local backend: gangs as processes of this machine, started by a supervisor that outlives the daemon.

Servers are shares of the machine's GPUs that the configuration names, or emulated ones.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from aryl.backends.devices import Nvml
from aryl.backends.gangs.backend import GangBackend
from aryl.backends.gangs.crew import Crew, OnEvent
from aryl.backends.supervisor.client import SupervisorClient

LOOPBACK = "127.0.0.1"


class LocalBackend(GangBackend):
    """Implements `Backend`. `indices` are the GPUs of each server; `state` is the folder of all that is kept;
    the supervisor stays for `linger_s` when nobody needs it.
    """

    def __init__(
        self,
        state: Path,
        indices: Mapping[str, Sequence[int]],
        *,
        nvml: Nvml | None = None,
        stuck_after_s: float = 60.0,
        linger_s: float = 30.0,
        roots: Sequence[str] | None = None,
    ) -> None:
        super().__init__(state, indices, nvml=nvml, stuck_after_s=stuck_after_s, roots=roots)
        self._linger_s = linger_s
        self._supervisor: SupervisorClient | None = None

    @property
    def supervisor_pid(self) -> int | None:
        """The process that runs the workers."""
        return self._supervisor.pid if self._supervisor is not None else None

    def connect(self, fence: int, on_event: OnEvent) -> Crew:
        """The supervisor of the state folder, which is started if none runs."""
        directory = self._state / "supervisor"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._supervisor = SupervisorClient.connect(directory, fence, on_event, linger_s=self._linger_s)
        return self._supervisor

    def present(self, crew: Crew) -> None:
        """All servers are shares of this machine."""

    def address(self, server_id: str | None) -> str:
        """Workers of one machine meet on the loopback."""
        return LOOPBACK

    def free_port(self, server_id: str | None) -> int:
        """A port that nobody listens on."""
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port: int = probe.getsockname()[1]
            return port
