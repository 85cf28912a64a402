"""What is said of a server changes its tenure, its health and what is placed on it. Called by `evolve`."""

from __future__ import annotations

from typing import assert_never

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.evolve_plan import change_tenure, drop_claims_on, go_home, note_restoring
from aryl.core.model import Health, Pool, Tenure
from aryl.core.server import Server

ServerEvent = (
    ev.ServerReturned
    | ev.ServerDrained
    | ev.HealthChanged
    | ev.HandedOver
    | ev.BackInService
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
            if not event.draining and _reclaimed_to_drain(server):
                server.given = True  # the loan goes on
            server.draining = event.draining
            server.drain_by_s = event.deadline_s if event.draining else float("inf")
        case ev.HealthChanged():
            # One that is set apart doesn't get away with a rest.
            apart = server.health in (Health.QUARANTINED, Health.SUSPECT)
            if event.health is not Health.RESTING or not apart:
                server.health = event.health
        case ev.HandedOver():
            server.handing_over = False
        case ev.BackInService():
            note_restoring(cluster, server, restoring=False)
        case ev.LoanCalledOff():
            if server.tenure is Tenure.ON_LOAN and server.handing_over:
                server.called_off_s = event.at
                change_tenure(cluster, server, Tenure.RECLAIMING, event.at)
                go_home(cluster, server)
        case ev.GiveRequested():
            server.kept_home = False
            server.given = server.tenure is not Tenure.ON_LOAN and server.spec.pool is Pool.INFERENCE
            server.called_off_s = float("-inf")
            server.recall_by_s = float("inf")
        case ev.ReclaimRequested():
            server.given = False
            server.kept_home = True
            if server.tenure is not Tenure.OWNED:
                server.recall_by_s = event.deadline_s
        case _:
            assert_never(event)
    if server.draining or server.health is not Health.HEALTHY:
        drop_claims_on(cluster, server.spec.server_id)
    cluster.note_asked(server)
    cluster.refresh(server)


def _reclaimed_to_drain(server: Server) -> bool:
    """Whether a loan is being ended for the sake of a drain, and nobody has asked for the server itself."""
    drained = server.drain_by_s < float("inf") and server.deadline_s == server.drain_by_s
    return server.tenure is Tenure.RECLAIMING and drained and not server.kept_home
