"""Gates: units of the inference resource that Aryl holds on a server, so that no replica can stand there.

Each is a placement group, detached, which costs no process and outlives the daemon. The names say whose they
are, so the next daemon finds them. One takes the units that are free; for each of the others there is one
that waits for it in Ray, so that none that is let go of can be lost again to a replica that waits.
(Ray keeps a line about every placement group there ever was, so there is no more of them than it takes.)

A server that comes back after a loss has its gates back by itself: they ask for its label.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aryl.backends.ray.places import SERVER_LABEL
from aryl.backends.ray.serve.sight import InferenceServer

_PREFIX = "aryl-gate"
_GONE = "REMOVED"
_HELD = "CREATED"


@dataclass(frozen=True, slots=True)
class Gate:
    """`node` has its units; None: it waits for them."""

    group: str
    server_id: str
    units: int
    node: str | None


@dataclass(frozen=True, slots=True)
class Gates:
    """All there are, and the placement groups of others: units by node, by name."""

    gates: tuple[Gate, ...]
    groups: Mapping[str, Mapping[str, float]]

    def of(self, server_id: str) -> list[Gate]:
        """Those of one server."""
        return [gate for gate in self.gates if gate.server_id == server_id]

    def held(self, server: InferenceServer) -> int:
        """How many units of a server are held, on the node that it is now."""
        return sum(gate.units for gate in self.of(server.server_id) if gate.node == server.node)

    def shut(self, server: InferenceServer) -> bool:
        """Whether all of its units are held: it is empty, and stays so."""
        return self.held(server) >= server.units

    def closing(self, server: InferenceServer) -> bool:
        """Whether there are gates, but not all of them hold."""
        return bool(self.of(server.server_id)) and not self.shut(server)


def see_gates(ray: Any, resource: str) -> Gates:
    """What Ray's table of placement groups has."""
    gates: list[Gate] = []
    groups: dict[str, dict[str, float]] = {}
    for group, found in ray.util.placement_group_table().items():
        name, state = found["name"], found["state"]
        nodes = found["bundles_to_node_id"] if state == _HELD else {}
        parts = name.split("/")
        if state == _GONE:
            continue
        if parts[0] == _PREFIX and len(parts) == 3:
            units_held = round(found["bundles"][0].get(resource, 0))
            gates.append(Gate(group, parts[1], units_held, nodes.get(0) or None))
        elif name and nodes:
            units = groups.setdefault(name, {})
            for index, node in nodes.items():
                amount = found["bundles"][index].get(resource, 0.0)
                if amount:
                    units[node] = units.get(node, 0.0) + amount
    return Gates(tuple(gates), groups)


def close_gates(ray: Any, resource: str, server: InferenceServer, gates: Gates, free: int) -> None:
    """Ask for all units of a server that have no gate yet. So many are `free`, as far as is known."""
    missing = server.units - sum(gate.units for gate in gates.of(server.server_id))
    at_once = max(min(free, missing), 0)
    for units in ([at_once] if at_once else []) + [1] * (missing - at_once):
        ray.util.placement_group(
            [{resource: units}],
            name=f"{_PREFIX}/{server.server_id}/{uuid.uuid4().hex[:12]}",
            lifetime="detached",
            bundle_label_selector=[{SERVER_LABEL: server.server_id}],
        )


def open_gates(ray: Any, gates: Gates, server_id: str) -> None:
    """Let go of the units of a server."""
    from ray._raylet import PlacementGroupID
    from ray.util.placement_group import PlacementGroup

    for gate in gates.of(server_id):
        ray.util.remove_placement_group(PlacementGroup(PlacementGroupID.from_hex(gate.group)))
