"""Start now on slower GPUs, or wait for fast ones? Compare the estimated finishing times (algorithms, section 4; the rule is ours).

The question arises only where a slower GPU makes a job slower; under the paper's accounting a worker takes more GPUs instead
and runs at full speed, so waiting never pays.
"""

from __future__ import annotations

from aryl.core.cluster import Cluster, Job
from aryl.core.model import Accounting, Slot
from aryl.policies.admission import Starter
from aryl.policies.draft import Draft
from aryl.policies.placement import Scatter, place_base
from aryl.policies.shadow import shadow_of


def patient(starter: Starter, scatter: Scatter) -> Starter:
    """The starter, except for jobs that are expected to end sooner if they wait for faster GPUs."""

    def start(draft: Draft, job: Job) -> bool:
        if draft.cluster.accounting is Accounting.SLOWER and sooner_if_it_waits(draft, job, scatter):
            return False
        return starter(draft, job)

    return start


def sooner_if_it_waits(draft: Draft, job: Job, scatter: Scatter) -> bool:
    """Whether a job that would have to start on slower GPUs now is expected to end sooner on fast ones later."""
    cluster, now = draft.cluster, draft.cluster.now
    stands = cluster.stands(job.spec)
    fastest = max((stand.speed for stand in stands), default=0.0)
    fast = [stand for stand in stands if stand.speed == fastest]
    left_s = job.remaining_s(now)
    if len(fast) == len(stands) or left_s is None:
        return False
    if (
        place_base(draft.untouched_index.fork(), cluster, job.spec, job.min_workers, scatter, fast)
        is not None
    ):
        return False
    slots = place_base(draft.untouched_index.fork(), cluster, job.spec, job.min_workers, scatter)
    shadow = shadow_of(cluster, job, scatter, draft.untouched_index, fast)
    if slots is None or shadow is None:
        return False
    return shadow.at_s + left_s / fastest < now + left_s / _rate(cluster, job, slots)


def _rate(cluster: Cluster, job: Job, slots: tuple[Slot, ...]) -> float:
    counts: dict[str, int] = {}
    for slot in slots:
        kind = cluster.server_by_id[slot.server_id].spec.gpu_type
        counts[kind] = counts.get(kind, 0) + slot.base
    return cluster.rate(job.spec, counts)
