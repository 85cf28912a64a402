"""What is to be seen of Ray Serve: its deployments, where replicas stand, and what follows from that. Pure.

A deployment needs the replicas that Serve's autoscaler has settled on, or more if the requests that are under
way and waiting call for more already: Serve takes its time (`upscale_delay_s`), and giving a server back
takes some, too. Where a policy of one's own says what requests call for, only its word counts. One without
autoscaling needs the replicas that it was deployed with.

A need is counted in servers, by the part of a server that a replica makes unusable for others like it: of
replicas with 3 GPUs one server with 4 takes one, so each counts as a whole server.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

_ALMOST = 1e-9
_SERVES_OWN = "ray.serve.autoscaling_policy:default_autoscaling_policy"


class Stage(Enum):
    """How far a replica has come."""

    WAITING = "waiting"  # for a place
    STARTING = "starting"  # it has one, and loads
    SERVING = "serving"
    MOVING = "moving"  # it serves until there is another one elsewhere
    LEAVING = "leaving"  # it takes no more requests, and ends those that it has
    UNKNOWN = "unknown"  # Serve itself has just come back


_STAGES = {
    "STARTING": Stage.STARTING,
    "UPDATING": Stage.SERVING,
    "RUNNING": Stage.SERVING,
    "PENDING_MIGRATION": Stage.MOVING,
    "STOPPING": Stage.LEAVING,
}


@dataclass(frozen=True, slots=True)
class InferenceServer:
    """A server of the inference pool: Ray's id of its node, and its units, one a GPU."""

    server_id: str
    node: str
    units: int


@dataclass(frozen=True, slots=True)
class Replica:
    """`units` by node; empty as long as it has no place."""

    stage: Stage
    units: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Deployment:
    """`units` are those of one replica; `wanted` is how many replicas are needed."""

    name: str
    units: float
    target: int
    wanted: int
    replicas: tuple[Replica, ...]

    def settled(self) -> list[Replica]:
        """The replicas that keep a place: those that leave don't, and those that move don't once there is
        another one in their stead.
        """
        there = [one for one in self.replicas if one.stage in (Stage.STARTING, Stage.SERVING)]
        moving = [one for one in self.replicas if one.stage is Stage.MOVING]
        return there + moving[: max(self.target - len(there), 0)]


@dataclass(frozen=True, slots=True)
class Sight:
    """Serve at one moment. `uncounted`: why not all that it needs can be counted; empty: it can."""

    deployments: tuple[Deployment, ...]
    uncounted: str = ""

    @property
    def unsure(self) -> bool:
        """Whether Serve doesn't know itself where its replicas stand."""
        return any(one.stage is Stage.UNKNOWN for each in self.deployments for one in each.replicas)

    def need_servers(self, units_per_server: int) -> float:
        """How many servers with so many units it takes."""
        return math.fsum(
            each.wanted * _part(each.units, units_per_server) for each in self.deployments if each.units > 0
        )

    def hosting(self, servers: Iterable[InferenceServer]) -> dict[str, tuple[int, ...]]:
        """The GPUs of each replica by server. One that stands on several servers at once can't be moved, so
        on each it counts as larger than any place.
        """
        by_node = {server.node: server for server in servers}
        found: dict[str, list[int]] = {}
        for each in self.deployments:
            for one in each.settled():
                whole = math.ceil(math.fsum(one.units.values()) - _ALMOST)
                for node, units in one.units.items():
                    server = by_node.get(node)
                    if server is None or units <= 0:
                        continue
                    spread = len(one.units) > 1
                    gpus = max(whole, server.units + 1) if spread else whole
                    found.setdefault(server.server_id, []).append(gpus)
        return {server_id: tuple(sorted(gpus, reverse=True)) for server_id, gpus in sorted(found.items())}

    def serves(self, server: InferenceServer) -> bool:
        """Whether a server whose gates are open does all that it can: its replicas serve, and no replica
        waits that would fit there.
        """
        free = float(server.units)
        for each in self.deployments:
            for one in each.replicas:
                here = one.units.get(server.node, 0.0)
                free -= here
                if here and one.stage in (Stage.STARTING, Stage.UNKNOWN):
                    return False
        return not any(
            0 < each.units <= free + _ALMOST and len(each.settled()) < each.target
            for each in self.deployments
        )


def sight_of(
    details: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, float]],
    requests: Mapping[tuple[str, str], float],
    *,
    resource: str,
    gpu_resource: str = "GPU",
    application: str | None = None,
) -> Sight:
    """What Serve's controller says of itself (the schema ServeInstanceDetails), made sense of.

    `groups`: units by node of the placement group of each replica that has one, by the name of its actor;
    `requests`: requests under way and waiting, by application and deployment. Only one `application` counts
    for the need, if it is given; hosting and gates are about all of them.
    """
    deployments, uncounted = [], []
    for app_name, app in details.get("applications", {}).items():
        for name, found in app.get("deployments", {}).items():
            config = found["deployment_config"]
            bundles = config.get("placement_group_bundles") or [found.get("required_resources", {})]
            title = f"{app_name}/{name}"
            if any(bundle.get(gpu_resource, 0) > bundle.get(resource, 0) for bundle in bundles):
                uncounted.append(title)
            units = math.fsum(bundle.get(resource, 0) for bundle in bundles)
            target = int(found["target_num_replicas"])
            counts = application is None or app_name == application
            own_policy = bool((app.get("deployed_app_config") or {}).get("autoscaling_policy"))
            called_for = 0 if own_policy else _called_for(config, requests.get((app_name, name)))
            wanted = max(target, called_for) if counts else 0
            replicas = tuple(_replica(one, units, groups) for one in found.get("replicas", ()))
            deployments.append(Deployment(title, units, target, wanted, replicas))
    return Sight(tuple(deployments), _uncounted(uncounted, resource))


def _called_for(config: Mapping[str, Any], requests: float | None) -> int:
    """How many replicas the requests call for now, within its limits; 0: that is for others to say."""
    scaling = config.get("autoscaling_config")
    if not scaling or not requests:
        return 0
    if scaling.get("policy", {}).get("policy_function", _SERVES_OWN) != _SERVES_OWN:
        return 0
    each = scaling.get("target_ongoing_requests") or 1.0
    return int(min(math.ceil(requests / each - _ALMOST), scaling.get("max_replicas", 1)))


def _replica(found: Mapping[str, Any], units: float, groups: Mapping[str, Mapping[str, float]]) -> Replica:
    node, state = found.get("node_id"), found.get("state")
    stage = _STAGES.get(str(getattr(state, "value", state)), Stage.UNKNOWN)
    group = groups.get(found.get("actor_name") or "")
    if group:
        return Replica(stage, dict(group))
    if node:
        return Replica(stage, {node: units})
    return Replica(Stage.WAITING if stage is Stage.STARTING else stage, {})


def _uncounted(names: Sequence[str], resource: str) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{shown} of Ray Serve asks for GPUs, but not for as many units of {resource}"


def _part(units: float, units_per_server: int) -> float:
    """The part of a server that a replica takes, or how many servers."""
    fit = math.floor(units_per_server / units + _ALMOST)
    return 1 / fit if fit else units / units_per_server
