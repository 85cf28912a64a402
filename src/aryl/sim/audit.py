"""A watcher that checks the invariants after every event; `simulation.check` switches it on.

Besides the state's own consistency it checks what only a sequence of events can show: nothing is lent beyond what
the inference side can spare (invariant 8).
"""

from __future__ import annotations

from aryl.core.cluster import Cluster
from aryl.core.events import Event, PlanCommitted
from aryl.core.invariants import verify
from aryl.core.plan import Loan
from aryl.errors import InvariantError


class Audit:
    """Raises InvariantError at the first event that leaves the state wrong."""

    def saw(self, event: Event, cluster: Cluster) -> None:
        """Check the state after an event."""
        verify(cluster)
        if isinstance(event, PlanCommitted) and any(isinstance(step, Loan) for step in event.plan.steps):
            demand = cluster.demand
            left = cluster.inference_mask.bit_count() - cluster.on_loan
            if demand is None or left < demand.forecast_servers + cluster.headroom_servers - 1e-9:
                raise InvariantError(
                    f"at {event.at} s: {left} inference servers are left, {demand} needs more"
                )
