"""A reservation for a large gang: shorter jobs may fill the gap before it, but nobody may push it back
(ours; EASY backfilling).

The first job in the queue that has waited `after_s` and doesn't fit gets its shadow: the time and the place
at which it is expected to start. Others start only if they are expected to end by then, or keep off the
place.
"""

from __future__ import annotations

from dataclasses import dataclass

from aryl.core.cluster import Cluster, Job
from aryl.core.free_index import FreeIndex
from aryl.policies.admission import Starter, walk_until_done
from aryl.policies.draft import Draft
from aryl.policies.placement import Scatter, place_base
from aryl.policies.shadow import Shadow, shadow_of


@dataclass(frozen=True, slots=True)
class Reserving:
    """The reserving part of a policy."""

    after_s: float = 3600.0

    def admit(self, draft: Draft, starters: tuple[Starter, ...], scatter: Scatter, *, strict: bool) -> None:
        """Walk the queue as `admission.admit` does, holding back what would delay the reservation."""
        holder, shadow = self._reservation(draft, scatter)

        def harmless(job: Job) -> bool:
            return holder is None or shadow is None or _may_pass(draft, job, holder, shadow, scatter)

        walk_until_done(draft, starters, strict=strict, allowed=harmless)

    def holding_back(self, draft: Draft, scatter: Scatter, job_id: str) -> str | None:
        """The job whose reservation keeps this one from starting, if one does."""
        holder, shadow = self._reservation(draft, scatter)
        job = draft.cluster.jobs[job_id]
        if holder is None or shadow is None or _may_pass(draft, job, holder, shadow, scatter):
            return None
        return holder.spec.job_id

    def _reservation(self, draft: Draft, scatter: Scatter) -> tuple[Job | None, Shadow | None]:
        cluster = draft.cluster
        for entry in cluster.pending:
            job = cluster.jobs[entry.job_id]
            waited_s = cluster.now - job.pending_since_s
            if waited_s < self.after_s:
                draft.wake_at(job.pending_since_s + self.after_s)
                continue
            shadow = shadow_of(cluster, job, scatter, draft.untouched_index)
            if shadow is not None and shadow.at_s > cluster.now:
                return job, shadow
        return None, None


def _may_pass(draft: Draft, job: Job, holder: Job, shadow: Shadow, scatter: Scatter) -> bool:
    """Whether the job may start before the holder of the reservation: it is it, has a higher priority, or does no harm."""
    if job is holder or job.spec.priority > holder.spec.priority:
        return True
    return _harmless(draft, job, shadow, scatter)


def _harmless(draft: Draft, job: Job, shadow: Shadow, scatter: Scatter) -> bool:
    """Whether starting the job now can't push the reservation back."""
    cluster = draft.cluster
    left_s = job.remaining_s(cluster.now)
    if left_s is not None and cluster.now + left_s <= shadow.at_s:
        return True
    trial = _without_reserved(draft.untouched_index, cluster, shadow)
    return place_base(trial, cluster, job.spec, job.min_workers, scatter) is not None and _keeps_off(
        draft, job, shadow, scatter
    )


def _without_reserved(index: FreeIndex, cluster: Cluster, shadow: Shadow) -> FreeIndex:
    trial = index.fork()
    for slot in shadow.slots:
        place = cluster.server_by_id[slot.server_id].place
        trial.put(place, trial.lane[place], max(trial.free[place] - slot.gpus, 0))
    return trial


def _keeps_off(draft: Draft, job: Job, shadow: Shadow, scatter: Scatter) -> bool:
    """Whether the place that the job would really get leaves the reserved one alone."""
    cluster = draft.cluster
    slots = place_base(draft.untouched_index.fork(), cluster, job.spec, job.min_workers, scatter)
    reserved = {slot.server_id for slot in shadow.slots}
    return slots is not None and not any(slot.server_id in reserved for slot in slots)
