"""The policies that don't preempt, lend or resize: an order of the queue, strict or with passing over.

`fifo` is what the paper compares with; `sjf` is shortest job first by estimated running time.
"""

from __future__ import annotations

from dataclasses import dataclass

from aryl.core.cluster import Cluster, Job
from aryl.core.decision import NOTHING, Decision
from aryl.core.model import JobSpec
from aryl.core.pending import QueueKey
from aryl.policies.admission import admit, start_where_free
from aryl.policies.draft import Draft
from aryl.policies.explain import explain_wait
from aryl.policies.order import ORDERS
from aryl.policies.placement import Scatter, fits_when_empty
from aryl.policies.reasons import WaitReason


@dataclass(frozen=True, slots=True)
class Queueing:
    """Start waiting jobs in the order of `order`; `strict`: the head blocks."""

    name: str
    ordering: str
    strict: bool
    scatter: Scatter = Scatter.ALLOWED

    def could_ever_start(self, cluster: Cluster, spec: JobSpec) -> bool:
        """Whether the gang fits into the empty training pool."""
        return fits_when_empty(cluster, spec, lends=False, scatter=self.scatter)

    def order(self, job: Job, now_s: float) -> QueueKey:
        """The place of a waiting job in the queue."""
        return ORDERS[self.ordering](job, now_s)

    def decide(self, cluster: Cluster) -> Decision:
        """Start what fits."""
        if not len(cluster.pending):
            return NOTHING
        draft = Draft(cluster)
        admit(draft, (start_where_free(self.scatter),), strict=self.strict)
        return draft.decision()

    def explain(self, cluster: Cluster, job_id: str) -> WaitReason:
        """Why a job waits."""
        return explain_wait(cluster, job_id, strict=self.strict, scatter=self.scatter, lends=False)
