"""What is said of a server changes its tenure, its health and what is placed on it. Called by `evolve`."""

from __future__ import annotations

from typing import assert_never

from aryl.core import events as ev
from aryl.core.cluster import Cluster, Server
from aryl.core.evolve_plan import change_tenure, drop_claims_on
from aryl.core.model import Health, Pool, Tenure

ServerEvent = (
    ev.ServerReturned
    | ev.ServerDrained
    | ev.HealthChanged
    | ev.HandedOver
    | ev.LoanCalledOff
    | ev.GiveRequested
    | ev.ReclaimRequested
)


def evolve_server(cluster: Cluster, server: Server, event: ServerEvent) -> None:
    """Change one server by one fact."""
    match event:
        case ev.ServerReturned():
            server.up = True
        case ev.ServerDrained():
            server.draining = event.draining
            server.drain_by_s = event.deadline_s if event.draining else float("inf")
        case ev.HealthChanged():
            server.health = event.health
        case ev.HandedOver():
            server.handing_over = False
        case ev.LoanCalledOff():
            if server.tenure is Tenure.ON_LOAN and server.handing_over:
                server.handing_over = False
                server.called_off_s = event.at
                change_tenure(cluster, server, Tenure.RECLAIMING, event.at)
                change_tenure(cluster, server, Tenure.OWNED, 0.0)
        case ev.GiveRequested():
            server.kept_home = False
            server.given = server.tenure is Tenure.OWNED and server.spec.pool is Pool.INFERENCE
            server.called_off_s = float("-inf")
        case ev.ReclaimRequested():
            server.given = False
            server.kept_home = True
            if server.tenure is Tenure.ON_LOAN:
                server.recall_by_s = event.deadline_s
        case _:
            assert_never(event)
    if server.draining or server.health is not Health.HEALTHY:
        drop_claims_on(cluster, server.spec.server_id)
    cluster.note_asked(server)
    cluster.refresh(server)
