"""`opportunistic`: what the paper compares with as using idle inference servers without orchestration.

Training servers run FIFO. Fungible jobs also queue for whatever inference servers stand idle at the moment,
at low priority: no forecast, no headroom, and when the inference side needs a server it takes its next one,
whatever runs on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from aryl.core.cluster import Cluster, Job, Stand
from aryl.core.decision import Decision
from aryl.core.model import JobSpec
from aryl.core.pending import QueueKey
from aryl.policies.draft import Draft
from aryl.policies.explain import explain_wait
from aryl.policies.loaning import Loaning
from aryl.policies.placement import Scatter, fits_when_empty, place_base
from aryl.policies.reasons import WaitReason
from aryl.policies.reclaim_problem import Rule

_TAKING = Loaning(Rule.IN_ORDER, foresight=False)


@dataclass(frozen=True, slots=True)
class Opportunistic:
    """FIFO on training servers, and a second FIFO of fungible jobs on idle inference servers."""

    name: str = "opportunistic"

    def could_ever_start(self, cluster: Cluster, spec: JobSpec) -> bool:
        """Whether the gang fits into one of the pools when it is empty; it is never spread over both."""
        return any(_belongs(cluster, spec, _stands(cluster, spec, loaned=loaned)) for loaned in (False, True))

    def order(self, job: Job, now_s: float) -> QueueKey:
        """Order of submission."""
        return ()

    def decide(self, cluster: Cluster) -> Decision:
        """One pass."""
        draft = Draft(cluster)
        _TAKING.decide(draft)
        if len(cluster.pending):
            _fill(draft, loaned=False)
            # One that leaves the head of the first queue by the second makes way for those behind it.
            while _fill(draft, loaned=True) and _fill(draft, loaned=False):
                pass
        return draft.decision()

    def explain(self, cluster: Cluster, job_id: str) -> WaitReason:
        """Why a job waits."""
        return explain_wait(cluster, job_id, strict=True, scatter=Scatter.ALLOWED, lends=True)


def _fill(draft: Draft, *, loaned: bool) -> bool:
    """Start the heads of one queue as long as they fit; whether any did.

    A job that accepts none of its servers, or could never fit on them, isn't in it.
    """
    cluster, started = draft.cluster, False
    walk = cluster.pending.walk()
    while walk.next():
        job = cluster.jobs[walk.job_id]
        stands = _stands(cluster, job.spec, loaned=loaned)
        if walk.job_id in draft.starts:
            walk.skip_job()
        elif _start_on(draft, job, stands):
            started = True
            walk.skip_job()
        elif not _belongs(cluster, job.spec, stands):
            walk.skip_class()
        else:
            break
    return started


def _stands(cluster: Cluster, spec: JobSpec, *, loaned: bool) -> list[Stand]:
    return [stand for stand in cluster.stands(spec) if cluster.free.shelves[stand.shelf].loaned is loaned]


def _belongs(cluster: Cluster, spec: JobSpec, stands: list[Stand]) -> bool:
    return bool(stands) and fits_when_empty(cluster, spec, lends=True, stands=stands)


def _start_on(draft: Draft, job: Job, stands: list[Stand]) -> bool:
    if sum(draft.untouched_index.shelf_free(stand.shelf) for stand in stands) < job.min_workers:
        return False
    slots = place_base(draft.index, draft.cluster, job.spec, job.min_workers, Scatter.ALLOWED, stands)
    if slots is None:
        return False
    draft.start(job, slots)
    return True
