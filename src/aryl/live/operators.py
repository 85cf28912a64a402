"""What operators ask of servers, as events. Each looks at the state first and refuses what can't be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aryl.core.cluster import Cluster
from aryl.core.events import (
    BackInService,
    Event,
    GiveRequested,
    HealthChanged,
    ReclaimRequested,
    ServerDrained,
)
from aryl.core.model import Health, Pool, Tenure
from aryl.core.server import Server
from aryl.errors import ConflictError, NotFoundError, nearest_word
from aryl.live import answers
from aryl.policies.loaning import Loaning, reclaim_instance
from aryl.policies.policy import Policy
from aryl.policies.reclaim_greedy import solve

# Who says that no more may be lent.
_SAYS = {
    "calendar": "the calendar allows",
    "max_lent": "max_lent allows",
    "min_servers": "min_servers leaves",
}


def drain(cluster: Cluster, now_s: float, server_id: str, within_s: float | None) -> Sequence[Event]:
    """Nothing new on a server; empty within `within_s`, or whenever its jobs are over."""
    server_named(cluster, server_id)
    deadline_s = float("inf") if within_s is None else now_s + within_s
    return (ServerDrained(now_s, server_id, True, deadline_s),)


def undrain(cluster: Cluster, now_s: float, server_id: str) -> Sequence[Event]:
    """A server takes work again, whyever it took none."""
    server = server_named(cluster, server_id)
    drained = ServerDrained(now_s, server_id, False)
    if server.health is Health.HEALTHY:
        return (drained,)
    return (drained, HealthChanged(now_s, server_id, Health.HEALTHY))


def give(cluster: Cluster, now_s: float, server_id: str) -> Sequence[Event]:
    """Lend a server, if inference can do without it and no limit is in the way."""
    server = server_named(cluster, server_id)
    if server.spec.pool is not Pool.INFERENCE:
        raise ConflictError(f"server {server_id} belongs to the training pool")
    if server.tenure is not Tenure.OWNED:
        raise ConflictError(f"server {server_id} is {server.tenure.value} already")
    if not server.up or server.draining or server.health is not Health.HEALTHY:
        raise ConflictError(f"server {server_id} takes nothing new")
    if cluster.demand is None:
        raise ConflictError("the inference side has not said yet what it needs")
    if cluster.telemetry_lost:
        raise ConflictError("the inference side has fallen silent, and what it said last may hold no more")
    demand, limit = cluster.demand, answers.limit(cluster)
    if limit is not None and cluster.on_loan >= cluster.lending_cap:
        raise ConflictError(
            f"{_SAYS[limit]} at most {cluster.lending_cap} on loan, and {cluster.on_loan} are"
        )
    needed = math.ceil(demand.need_servers + demand.headroom_servers - 1e-9)
    left = (cluster.inference_mask & ~cluster.on_loan_mask).bit_count() - 1
    if left < needed:
        raise ConflictError(
            f"{left} inference servers would be left, and {needed} are needed "
            f"({demand.need_servers:g} and a headroom of {demand.headroom_servers:g})"
        )
    return (GiveRequested(now_s, server_id),)


def ready(cluster: Cluster, now_s: float, server_id: str) -> Sequence[Event]:
    """A server that came home serves again."""
    server = server_named(cluster, server_id)
    if server.spec.pool is not Pool.INFERENCE:
        raise ConflictError(f"server {server_id} belongs to the training pool")
    if server.tenure is not Tenure.OWNED:
        raise ConflictError(f"server {server_id} isn't being restored: it is {server.tenure.value}")
    if not server.restoring:
        raise ConflictError(f"server {server_id} isn't being restored: it is in service")
    return (BackInService(now_s, server_id),)


def reclaim(
    cluster: Cluster, now_s: float, server_id: str | None, within_s: float | None, policy: Policy
) -> Sequence[Event]:
    """Take back a server, or the one on loan that costs least by the policy's own rule."""
    if server_id is None:
        server_id = _cheapest(cluster, policy)
    elif server_named(cluster, server_id).tenure is Tenure.OWNED:
        raise ConflictError(f"server {server_id} isn't on loan")
    within_s = cluster.reclaim_within_s if within_s is None else within_s
    return (ReclaimRequested(now_s, server_id, now_s + within_s),)


def server_named(cluster: Cluster, server_id: str) -> Server:
    """The server of that name. Raises NotFoundError with the nearest one."""
    server = cluster.server_by_id.get(server_id)
    if server is None:
        near = nearest_word(server_id, cluster.server_by_id)
        hint = f"; did you mean '{near}'?" if near else ""
        raise NotFoundError(f"there is no server {server_id}{hint}")
    return server


def _cheapest(cluster: Cluster, policy: Policy) -> str:
    loaning = getattr(policy, "loaning", None) or Loaning()
    servers, _, instance = reclaim_instance(cluster)
    if not servers:
        raise ConflictError("no server is on loan")
    answer = solve(instance, 1, loaning.rule, loaning.seed, deadline_s=None)
    chosen = (*answer.servers_to_return, *answer.servers_to_wait_for)
    return servers[chosen[0]].spec.server_id
