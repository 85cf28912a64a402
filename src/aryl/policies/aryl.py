"""`aryl`: the paper's scheduler. Lend and recall servers, start base demands shortest first, share out the
rest.

One pass: 1. loaning: how many servers are on loan, and which go back (`loaning.py`); 2. phase 1: base demands
in the order of the queue, over free GPUs, then over those of flexible workers (`displace.py`), then,
   if a job's priority or its project's share entitles it, over those of others (`preempt.py`);
3. phase 2: what is left goes to elastic jobs by an exact knapsack (`scaling.py`).

Each part can be switched off or set differently; with loaning and scaling off and the order `fifo` what
remains is FIFO itself. Priorities, guaranteed shares, reservations and minimum running times are ours; where
no job has any, they change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from aryl.core.cluster import Cluster, Job
from aryl.core.decision import NOTHING, Decision
from aryl.core.model import JobSpec
from aryl.core.pending import QueueKey
from aryl.policies.admission import Starter, admit, start_where_free
from aryl.policies.displace import start_over_flexible
from aryl.policies.draft import Draft
from aryl.policies.explain import MOST_NAMED, explain_wait
from aryl.policies.loaning import Loaning
from aryl.policies.order import ORDERS
from aryl.policies.patience import faster_from_s, patient
from aryl.policies.placement import Scatter, fits_when_empty
from aryl.policies.preempt import Preempting
from aryl.policies.reasons import Wait, WaitReason
from aryl.policies.reservation import Reserving
from aryl.policies.scaling import Scaling


@dataclass(frozen=True, slots=True)
class Aryl:
    """The paper's scheduler, part by part; None switches a part off."""

    name: str = "aryl"
    ordering: str = "sjf"
    strict: bool = False
    scatter: Scatter = Scatter.ALLOWED
    loaning: Loaning | None = field(default_factory=Loaning)
    scaling: Scaling | None = field(default_factory=Scaling)
    preempting: Preempting | None = field(default_factory=Preempting)
    reserving: Reserving | None = None

    def could_ever_start(self, cluster: Cluster, spec: JobSpec) -> bool:
        """Whether the gang fits into the empty training pool, with all servers that may be lent."""
        return fits_when_empty(cluster, spec, lends=self.lends, scatter=self.scatter)

    @property
    def lends(self) -> bool:
        """Whether inference servers are lent."""
        return self.loaning is not None

    def order(self, job: Job, now_s: float) -> QueueKey:
        """The place of a waiting job in the queue."""
        return ORDERS[self.ordering](job, now_s)

    def decide(self, cluster: Cluster) -> Decision:
        """One pass."""
        draft = Draft(cluster)
        if self.loaning is not None:
            self.loaning.decide(draft)
        if len(cluster.pending):
            self._phase_1(draft)
        if self.scaling is not None:
            self.scaling.decide(draft)
        decision = draft.decision()
        return NOTHING if decision.empty and decision.wake_at_s == float("inf") else decision

    def explain(self, cluster: Cluster, job_id: str) -> WaitReason:
        """Why a job waits."""
        reason = explain_wait(cluster, job_id, strict=self.strict, scatter=self.scatter, lends=self.lends)
        if reason.wait is Wait.NEXT_PASS:
            faster_s = faster_from_s(Draft(cluster), cluster.jobs[job_id], self.scatter)
            if faster_s is not None and faster_s > cluster.now:
                return replace(reason, wait=Wait.FASTER_LATER, starts_s=faster_s)
        if reason.wait is Wait.NEXT_PASS and self.reserving is not None:
            held = self.reserving.holding_back(Draft(cluster), self._starters(), self.scatter, job_id)
            if held is not None:
                return replace(reason, wait=Wait.RESERVED, behind=(held,), starts_s=None)
        if reason.wait in (Wait.NOT_ENOUGH_FREE, Wait.FRAGMENTED) and self.preempting is not None:
            resting = self.preempting.resting_victims(Draft(cluster), cluster.jobs[job_id], self.scatter)
            if resting is not None:
                rested_s, victims = resting
                return replace(reason, wait=Wait.VICTIMS_REST, behind=victims[:MOST_NAMED], starts_s=rested_s)
        return reason

    def _starters(self) -> tuple[Starter, ...]:
        """What is tried for a waiting job, in this order."""
        starters: list[Starter] = [patient(start_where_free(self.scatter), self.scatter)]
        if self.scaling is not None:
            starters.append(patient(start_over_flexible(self.scatter), self.scatter, over_flexible=True))
        if self.preempting is not None:
            starters.append(self.preempting.starter(self.scatter))
        return tuple(starters)

    def _phase_1(self, draft: Draft) -> None:
        if self.reserving is not None:
            self.reserving.admit(draft, self._starters(), self.scatter, strict=self.strict)
        else:
            admit(draft, self._starters(), strict=self.strict)
