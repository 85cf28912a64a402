"""The inference pool that Ray Serve is: heard, emptied server by server, and given servers back.

Everything is seen anew each time, from Ray and from Serve, and what a server's gates say is what is wanted
of it. So nothing has to be remembered: a daemon that takes over, or a controller of Serve that comes back, is
put right by the next look.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from aryl.backends.ray.connection import load_ray
from aryl.backends.ray.places import POOL_LABEL, SERVER_LABEL
from aryl.backends.ray.serve.controller import ServeController
from aryl.backends.ray.serve.gates import Gates, close_gates, open_gates, see_gates
from aryl.backends.ray.serve.sight import InferenceServer, Sight, sight_of
from aryl.errors import ArylError, InputError, UnreachableError, nearest_word

_log = logging.getLogger(__name__)

RESOURCE = "aryl_inference"
INFERENCE = "inference"
LOOK_EVERY_S = 0.3

# One look and what is made of it at a time: the controller keeps what it was told last.
_telling = threading.Lock()


@dataclass(frozen=True, slots=True)
class Needed:
    """What Serve needs, in servers, and the GPUs of each replica by server."""

    servers: float
    hosting: dict[str, tuple[int, ...]]


class ServePool:
    """See the module. Needs a process that is connected to Ray (`aryl.backends.ray.connection`), and only
    once it is asked for something. `application`: only this one counts for the need; None: all do.

    `resource` is what replicas ask for, one unit for each GPU; `gpu_resource` what stands for GPUs. A server
    that came home is given `ready_within_s` until its replicas serve.
    """

    def __init__(
        self,
        application: str | None = None,
        *,
        resource: str = RESOURCE,
        gpu_resource: str = "GPU",
        ready_within_s: float = 600.0,
    ) -> None:
        self._application = application
        self._resource, self._gpu_resource = resource, gpu_resource
        self._ready_within_s = ready_within_s
        self._controller: ServeController | None = None

    def read(self) -> Needed:
        """What is needed now. Raises ArylError if it can't be told, or not be trusted."""
        ray = self._connected()
        servers = self._servers(ray)
        if not servers:
            raise ArylError(f"no server of the Ray cluster has {self._resource}")
        with _telling:
            gates = see_gates(ray, self._resource)
            details = self._serve(ray).details()
            sight = self._sight(ray, gates, details)
            self._ask_to_vacate(ray, servers, gates)
        self._check_application(details)
        if sight.uncounted:
            raise ArylError(sight.uncounted)
        if sight.unsure:
            raise ArylError("Ray Serve has just come back, and doesn't know yet where its replicas stand")
        most = max(server.units for server in servers.values())
        return Needed(sight.need_servers(most), sight.hosting(servers.values()))

    def release(self, server_id: str, cancelled: threading.Event) -> str:
        """Empty a server, and keep it empty. Returns "" once no replica is on it and none can come, or what
        went wrong, as the end of a sentence. It does no harm to do it again.

        If it is `cancelled`, the server stays half closed until it is restored or released.
        """
        why = ""
        while not cancelled.is_set():
            try:
                ray = self._connected()
                server = self._servers(ray).get(server_id)
                if server is None:
                    return f"failed: no server of that name has {self._resource} in the Ray cluster"
                with _telling:
                    gates = see_gates(ray, self._resource)
                    if gates.shut(server):
                        self._ask_to_vacate(ray, self._servers(ray), gates)
                        return ""
                    sight = self._sight_if_any(ray, gates)
                    if sight.uncounted:
                        return f"failed: {sight.uncounted}"
                    close_gates(ray, self._resource, server, gates, _free(server, gates, sight))
                    self._ask_to_vacate(ray, self._servers(ray), see_gates(ray, self._resource))
                why = f"left {server.units - gates.held(server)} of {server.units} GPUs in use"
            except ArylError as error:
                why = f"failed: {error}"
            cancelled.wait(LOOK_EVERY_S)
        return why or "was called off"

    def restore(self, server_id: str, cancelled: threading.Event) -> str:
        """Let replicas onto a server again. Returns "" once all that Serve wants to place there serves, or
        what went wrong, as the end of a sentence. It does no harm to do it again.
        """
        end_s = time.monotonic() + self._ready_within_s
        why = "was called off"
        while not cancelled.is_set():
            try:
                ray = self._connected()
                with _telling:
                    gates = see_gates(ray, self._resource)
                    open_gates(ray, gates, server_id)
                    servers = self._servers(ray)
                    gates = see_gates(ray, self._resource)
                    sight = self._sight_if_any(ray, gates)
                    self._ask_to_vacate(ray, servers, gates)
                server = servers.get(server_id)
                if server is None:
                    why = "failed: the server isn't in the Ray cluster"
                elif not gates.of(server_id) and sight.serves(server):
                    return ""
                else:
                    why = f"has brought no replicas into service there within {self._ready_within_s:g} s"
            except ArylError as error:
                why = f"failed: {error}"
            if time.monotonic() > end_s:
                return why
            cancelled.wait(LOOK_EVERY_S)
        return why

    def take_over(self, lent: Collection[str]) -> None:
        """Close the servers that are `lent`, and open all others: whatever an earlier daemon has left, and
        whatever Ray has lost. Raises ArylError.
        """
        ray = self._connected()
        servers = self._servers(ray)
        with _telling:
            gates = see_gates(ray, self._resource)
            for server_id in sorted({gate.server_id for gate in gates.gates} - set(lent)):
                _log.info("server %s is inference's, and opened", server_id)
                open_gates(ray, gates, server_id)
            for server_id in lent:
                if server_id in servers:
                    close_gates(ray, self._resource, servers[server_id], gates, 0)
            self._ask_to_vacate(ray, servers, see_gates(ray, self._resource))

    def _connected(self) -> Any:
        """Ray, which would start a cluster of its own if it were asked without a connection."""
        ray = load_ray()
        if not ray.is_initialized():
            raise UnreachableError("not connected to a Ray cluster")
        return ray

    def _serve(self, ray: Any) -> ServeController:
        if self._controller is None:
            self._controller = ServeController(ray)
        return self._controller

    def _servers(self, ray: Any) -> dict[str, InferenceServer]:
        """Those of the inference pool, by name."""
        found = {}
        for node in ray.nodes():
            labels, units = node.get("Labels", {}), round(node["Resources"].get(self._resource, 0))
            name = labels.get(SERVER_LABEL, "")
            if node["Alive"] and name and labels.get(POOL_LABEL) == INFERENCE and units > 0:
                found[name] = InferenceServer(name, node["NodeID"], units)
        return found

    def _sight(self, ray: Any, gates: Gates, details: Mapping[str, Any]) -> Sight:
        return sight_of(
            details,
            gates.groups,
            self._serve(ray).requests(),
            resource=self._resource,
            gpu_resource=self._gpu_resource,
            application=self._application,
        )

    def _sight_if_any(self, ray: Any, gates: Gates) -> Sight:
        """Nothing is to be seen of Serve where it doesn't run."""
        serve = self._serve(ray)
        return self._sight(ray, gates, serve.details()) if serve.running() else Sight(())

    def _check_application(self, details: Mapping[str, Any]) -> None:
        applications = details.get("applications", {})
        if self._application is not None and self._application not in applications:
            raise InputError(
                "Ray Serve has no such application",
                field="inference.ray_serve.application",
                found=self._application,
                expected="the name of an application, or all",
                nearest=nearest_word(self._application, applications),
            )

    def _ask_to_vacate(self, ray: Any, servers: dict[str, InferenceServer], gates: Gates) -> None:
        serve = self._serve(ray)
        if serve.running():
            serve.vacate([name for name, server in servers.items() if gates.closing(server)])


def _free(server: InferenceServer, gates: Gates, sight: Sight) -> int:
    """How many whole units of a server nobody holds."""
    used = math.fsum(one.units.get(server.node, 0.0) for each in sight.deployments for one in each.replicas)
    return server.units - math.ceil(used - 1e-9) - gates.held(server)
