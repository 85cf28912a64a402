"""A watcher that checks the invariants: after every event with `simulation.check`, else after one in
thousands.

Besides the state's own consistency it checks what only a sequence of events can show: no server is lent that
the inference side needs (invariant 8). Need is what every policy has to respect; one that lends by forecast
and keeps headroom promises more. A server that an operator gives is left out: what is needed was looked at
when it was given, and the policy has no say in it.
"""

from __future__ import annotations

from aryl.core.cluster import Cluster
from aryl.core.events import Event, PlanCommitted
from aryl.core.invariants import verify
from aryl.core.plan import Loan
from aryl.errors import InvariantError


class Audit:
    """Raises InvariantError at the first event that leaves the state wrong.

    `foresight`: whoever lends has to leave the forecast need and the headroom, not just the present need.
    `every`: the state is checked after every so many events; loans always are.
    """

    def __init__(self, *, foresight: bool = False, every: int = 1) -> None:
        self._foresight = foresight
        self._every = every
        self._seen = 0
        self._given: frozenset[str] = frozenset()  # what operators wanted lent before the present event

    def saw(self, event: Event, cluster: Cluster) -> None:
        """Check the state after an event."""
        self._seen += 1
        if self._seen % self._every == 0:
            verify(cluster)
        given = self._given
        if given or cluster.asked_mask:
            asked = cluster.places(cluster.asked_mask)
            self._given = frozenset(server.spec.server_id for server in asked if server.given)
        if not isinstance(event, PlanCommitted) or not any(
            isinstance(step, Loan) and step.server_id not in given for step in event.plan.steps
        ):
            return
        demand = cluster.demand
        left = cluster.inference_mask.bit_count() - cluster.on_loan
        if demand is None:
            raise InvariantError(
                f"at {event.at} s: servers are lent, but the inference side has said nothing"
            )
        kept = demand.need_servers
        if self._foresight:
            kept = cluster.kept_servers
        if left < kept - 1e-9:
            raise InvariantError(f"at {event.at} s: {left} inference servers are left, {kept} have to stay")
