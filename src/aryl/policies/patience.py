"""Start now at less than full speed, or wait for better GPUs? Compare the estimated finishing times.

The question is raised by algorithms, section 4; the rule is ours. It arises in two cases: where a slower GPU
makes a job slower (under the paper's accounting a worker takes more GPUs instead and runs at full speed), and
where a heterogeneous job would be spread over two GPU types and lose efficiency by that.
"""

from __future__ import annotations

from aryl.core.cluster import Cluster, Job, Stand
from aryl.core.model import Accounting, Slot
from aryl.policies.admission import Starter, could_fit
from aryl.policies.displace import without_flexible
from aryl.policies.draft import Draft
from aryl.policies.placement import Scatter, place_base
from aryl.policies.shadow import shadow_of


def patient(starter: Starter, scatter: Scatter, *, over_flexible: bool = False) -> Starter:
    """The starter, except for jobs that are expected to end sooner if they wait for better GPUs.

    `over_flexible`: the starter can get at once what only flexible workers are in the way of.
    """

    def start(draft: Draft, job: Job) -> bool:
        faster_s = faster_from_s(draft, job, scatter)
        waits = faster_s is not None and (faster_s > draft.cluster.now or not over_flexible)
        return not waits and starter(draft, job)

    return start


def faster_from_s(
    draft: Draft, job: Job, scatter: Scatter, slots: tuple[Slot, ...] | None = None
) -> float | None:
    """When to start instead, if a job that would start below its best speed now is to end sooner by waiting.

    `slots` is the place that it would get (default: what free GPUs and flexible workers give). Absolute
    seconds; None if it had better start now, or can't.
    """
    cluster, spec = draft.cluster, job.spec
    mixing_costs = spec.heterogeneous and spec.mixed_efficiency < 1.0
    if not mixing_costs and cluster.accounting is not Accounting.SLOWER:
        return None
    left_s = job.remaining_s(cluster.now)
    if left_s is None or (slots is None and not could_fit(cluster, draft, job, extra=True)):
        return None
    if slots is None:
        slots = place_base(draft.untouched_index.fork(), cluster, spec, job.min_workers, scatter)
    if slots is None and cluster.flexible_mask:
        slots = place_base(without_flexible(draft, spec.priority), cluster, spec, job.min_workers, scatter)
    if slots is None:
        return None
    stands = cluster.stands(spec)
    best = max(stand.speed for stand in stands)
    # Where the user has changed the gang since, full speed isn't that of the gang that was submitted.
    full_rate = best * spec.speedup(job.min_workers) / spec.speedup(spec.min_workers)
    rate = _rate(cluster, job, slots)
    if rate >= full_rate * (1.0 - 1e-9):
        return None
    ends_now_s = cluster.now + left_s / rate
    for pure in _by_type(cluster, [stand for stand in stands if stand.speed == best]):
        shadow = shadow_of(draft, job, scatter, pure)
        if shadow is not None and shadow.at_s + left_s / full_rate < ends_now_s:
            return shadow.at_s
    return None


def _by_type(cluster: Cluster, stands: list[Stand]) -> list[list[Stand]]:
    groups: dict[str, list[Stand]] = {}
    for stand in stands:
        groups.setdefault(cluster.free.shelves[stand.shelf].gpu_type, []).append(stand)
    return list(groups.values())


def _rate(cluster: Cluster, job: Job, slots: tuple[Slot, ...]) -> float:
    counts: dict[str, int] = {}
    for slot in slots:
        kind = cluster.server_by_id[slot.server_id].spec.gpu_type
        counts[kind] = counts.get(kind, 0) + slot.base
    return cluster.rate(job.spec, counts)
