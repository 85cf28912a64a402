"""Which servers there are: those that are declared, and those that join later. Called by `evolve`.

Who joins stands behind all others and on shelves behind theirs, so nobody's place, bit in a mask or shelf
ever changes, and a cluster that is declared at once looks like one whose servers join one after the other.
Nobody is ever taken out: a server that leaves for good is lost, and stays known. One that joined may come
back as another machine, since nothing of the old one is left once it is lost. Servers that were declared
are what whoever declares them says, and their GPUs can't change behind his back.
"""

from __future__ import annotations

from collections.abc import Sequence

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.free_index import Shelf
from aryl.core.gang import regauge
from aryl.core.model import Pool, ServerSpec
from aryl.core.server import Server
from aryl.errors import IllegalTransitionError

_UNFIT = "it needs at least one GPU, of a speed above 0"


def declare(cluster: Cluster, event: ev.ClusterDeclared) -> None:
    """The servers and the rules; or other rules for the same servers. Raises IllegalTransitionError."""
    declared = cluster.declared_servers
    if declared is not None and [one.spec for one in cluster.servers[:declared]] != list(event.servers):
        raise IllegalTransitionError("the servers are declared once, before anything else")
    if declared is not None and cluster.accounting is not event.accounting:
        raise IllegalTransitionError("how slower GPUs are accounted for is declared once")
    _refuse_twins(event.servers)
    cluster.accounting = event.accounting
    cluster.resize_s, cluster.restart_s, cluster.vacate_s = event.resize_s, event.restart_s, event.vacate_s
    cluster.headroom_servers, cluster.reclaim_within_s = event.headroom_servers, event.reclaim_within_s
    cluster.guaranteed = dict(event.guaranteed)
    cluster.confirms_loans, cluster.confirms_returns = event.confirms_loans, event.confirms_returns
    cluster.load_s = event.load_s
    cluster.least_kept_servers = event.least_kept_servers
    cluster.most_lent_servers = event.most_lent_servers
    if declared is None:
        cluster.declared_servers = len(event.servers)
        for spec in event.servers:
            _add(cluster, spec)


def join(cluster: Cluster, event: ev.ServersJoined) -> None:
    """Add servers, or put others in the place of lost ones. Raises IllegalTransitionError."""
    _refuse_twins(event.servers)
    for spec in event.servers:
        server = cluster.server_by_id.get(spec.server_id)
        wrong = why_not(cluster, spec, None if server is None else server.spec)
        if not wrong and server is not None and server.up:
            wrong = f"it is there already, with {in_words(server.spec)}"
        if wrong:
            raise IllegalTransitionError(f"server {spec.server_id} can't join: {wrong}")
    for spec in event.servers:
        server = cluster.server_by_id.get(spec.server_id)
        if server is None:
            _add(cluster, spec)
        else:
            server.spec, server.up = spec, True
            _stand(cluster, server)
    cluster.forget_stands()
    for job in cluster.live.values():
        # The first shelf of a GPU type says how fast that is.
        if 0.0 < job.progress.rate != cluster.rate(job.spec, job.kinds):
            regauge(cluster, job, event.at)


def why_not(cluster: Cluster, spec: ServerSpec, known: ServerSpec | None) -> str:
    """Why a server can't join now or once it is lost, as the end of a sentence; "" if it can. `known` is what
    has been said of it before, perhaps not in the state yet.
    """
    if cluster.declared_servers is None:
        return "no cluster has been declared"
    if spec.gpus < 1 or not 0.0 < spec.speed < float("inf"):
        return _UNFIT
    server = cluster.server_by_id.get(spec.server_id)
    if server is not None and server.place < cluster.declared_servers:
        return f"it was declared with {in_words(server.spec)}"
    if known is not None and known.pool is not spec.pool:
        return f"it belongs to the {known.pool.value} pool, and needs another name to change sides"
    return ""


def in_words(spec: ServerSpec) -> str:
    """What a server has, for messages."""
    speed = "" if spec.speed == 1.0 else f" of speed {spec.speed:g}"
    return f"{spec.gpus} {spec.gpu_type} GPUs{speed} in the {spec.pool.value} pool"


def shelf_of(spec: ServerSpec) -> Shelf:
    """The shelf on which a server stands."""
    return Shelf(spec.pool is Pool.INFERENCE, spec.gpu_type, spec.gpus, spec.speed)


def _refuse_twins(servers: Sequence[ServerSpec]) -> None:
    if len({spec.server_id for spec in servers}) < len(servers):
        raise IllegalTransitionError("two servers have the same name")


def _add(cluster: Cluster, spec: ServerSpec) -> None:
    server = Server(spec, len(cluster.servers))
    cluster.servers.append(server)
    cluster.server_by_id[spec.server_id] = server
    cluster.free.add_place()
    _stand(cluster, server)


def _stand(cluster: Cluster, server: Server) -> None:
    """Put an empty server on its shelf, and into the accounts."""
    server.shelf = cluster.free.shelf_number(shelf_of(server.spec))
    cluster.shelf_flexible += [0] * (len(cluster.free.shelves) - len(cluster.shelf_flexible))
    cluster.note_asked(server)
    cluster.refresh(server)
