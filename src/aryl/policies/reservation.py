"""A reservation for whoever has waited long: others may fill the gap before it, but nobody may push it back
(ours; EASY backfilling).

Jobs that have waited `after_s` go first, by priority and then by how long they have waited, whatever the
policy's order. The first of them that doesn't fit gets its shadow: the time and the place at which it is
expected to start. The others start only if they are expected to end by then, or keep off the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from aryl.core.cluster import Job
from aryl.policies.admission import Starter, admit, walk_queue
from aryl.policies.draft import Draft
from aryl.policies.placement import Scatter
from aryl.policies.shadow import Shadow, shadow_of


@dataclass(frozen=True, slots=True)
class Reserving:
    """The reserving part of a policy."""

    after_s: float = 3600.0

    def admit(self, draft: Draft, starters: tuple[Starter, ...], scatter: Scatter, *, strict: bool) -> None:
        """Start what can be started without delaying the reservation."""
        before = -1
        while len(draft.starts) > before:
            before = len(draft.starts)
            holder, shadow = self._reservation(draft, starters, scatter)
            if holder is None or shadow is None:
                admit(draft, starters, strict=strict)
                return
            # Whatever starts may change who holds the reservation, and for when.
            allowed = partial(_allowed, holder=holder, shadow=shadow, start_free=starters[0])
            walk_queue(draft, starters, strict, allowed)

    def holding_back(
        self, draft: Draft, starters: Sequence[Starter], scatter: Scatter, job_id: str
    ) -> str | None:
        """The job whose reservation keeps this one from starting, if one does."""
        holder, shadow = self._reservation(draft, starters, scatter)
        if holder is None or shadow is None or job_id in draft.starts:
            return None
        job = draft.cluster.jobs[job_id]
        allowed = _allowed(draft, job, holder, shadow, starters[0])
        return None if allowed or job_id in draft.starts else holder.spec.job_id

    def _reservation(
        self, draft: Draft, starters: Sequence[Starter], scatter: Scatter
    ) -> tuple[Job | None, Shadow | None]:
        """Start those that have waited long, as far as they fit; the first that doesn't, and its shadow."""
        for job in self._long_waiting(draft):
            if any(starter(draft, job) for starter in starters):
                continue
            shadow = shadow_of(draft, job, scatter, all_yield=True)
            if shadow is not None and shadow.at_s > draft.cluster.now:
                return job, shadow
        return None, None

    def _long_waiting(self, draft: Draft) -> list[Job]:
        cluster, long = draft.cluster, []
        for entry in cluster.pending:
            if entry.job_id in draft.starts:
                continue
            job = cluster.jobs[entry.job_id]
            if cluster.now < job.pending_since_s + self.after_s:
                draft.wake_at(job.pending_since_s + self.after_s)
            else:
                long.append(job)
        return sorted(
            long,
            key=lambda job: (-job.spec.priority, not job.at_front, job.pending_since_s, job.spec.sequence),
        )


def _allowed(draft: Draft, job: Job, holder: Job, shadow: Shadow, start_free: Starter) -> bool:
    """Whether a job may start at will. If not, but it fits beside the reserved place, it is started there."""
    now, left_s = draft.cluster.now, job.remaining_s(draft.cluster.now)
    ends_before = left_s is not None and now + left_s <= shadow.at_s
    if job is holder or job.spec.priority > holder.spec.priority or ends_before:
        return True
    aside = [(draft.cluster.server_by_id[slot.server_id].place, slot.gpus) for slot in shadow.slots]
    aside = [(place, min(gpus, draft.index.free[place])) for place, gpus in aside]
    for place, gpus in aside:
        draft.index.give(place, -gpus)
    start_free(draft, job)
    for place, gpus in aside:
        draft.index.give(place, gpus)
    return False
