"""Preempting for a waiting job: who has to go so that it can start (ours; the paper preempts for reclaims only).

A job may displace jobs of lower priority; and a project that is below its guaranteed share may take it back from projects above
theirs. Nobody is preempted before it has run `min_runtime_s`, and never without a complete place for the claimant: victims are
chosen so that as few jobs as possible stop, then least work is lost.

How: if one victim suffices, the cheapest such; else victims are added, cheapest first, until the gang fits, and then each that
turns out not to be needed is left alone. Count jobs, not workers: a victim that is striped over many servers frees its
GPUs on all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aryl.core.cluster import Cluster, Job
from aryl.core.decision import Preemption
from aryl.core.free_index import OFF_SHELF, FreeIndex
from aryl.core.model import LIVE_STATES, Slot
from aryl.core.plan import Cause, Weighed
from aryl.policies.admission import Starter
from aryl.policies.displace import make_room, without_flexible
from aryl.policies.draft import Draft
from aryl.policies.placement import Scatter, place_base

# How many passed-over victims are kept with a preemption, so that it can be explained later.
MOST_WEIGHED = 3


@dataclass(frozen=True, slots=True)
class Preempting:
    """The preempting part of a policy."""

    min_runtime_s: float = 0.0

    def starter(self, scatter: Scatter) -> Starter:
        """A starter that stops others where the job's priority or its project's share allows it."""

        def start(draft: Draft, job: Job) -> bool:
            cause = _entitled(draft.cluster, job)
            if cause is None:
                return False
            victims = self._candidates(draft, job, cause, rested_only=True)
            found = _fewest(draft, job, victims, scatter)
            if found is None:
                self._wake_when_rested(draft, job, cause)
                return False
            slots, chosen = found
            _carry_out(draft, job, slots, chosen, victims, cause)
            return True

        return start

    def victims_rest_until(self, draft: Draft, job: Job, scatter: Scatter) -> float | None:
        """When those that the job could preempt have run long enough, if that is all that it waits for."""
        cause = _entitled(draft.cluster, job)
        if cause is None or _fewest(
            draft, job, self._candidates(draft, job, cause, rested_only=True), scatter
        ):
            return None
        resting = self._candidates(draft, job, cause, rested_only=False)
        found = _fewest(draft, job, resting, scatter)
        return max(victim.launched_s + self.min_runtime_s for victim in found[1]) if found else None

    def _candidates(self, draft: Draft, job: Job, cause: Cause, *, rested_only: bool) -> list[Job]:
        """Who may be stopped for the job, cheapest first."""
        cluster, now = draft.cluster, draft.cluster.now
        may_use = {stand.shelf for stand in cluster.stands(job.spec)}
        victims = [
            other
            for other in cluster.live.values()
            if other.state in LIVE_STATES
            and draft.undecided(other)
            and _may_displace(cluster, job, other, cause)
            and (not rested_only or now >= other.launched_s + self.min_runtime_s)
            and any(cluster.server_by_id[server_id].shelf in may_use for server_id in other.slots)
        ]
        return sorted(
            victims, key=lambda other: (other.spec.priority, other.lost_gpu_s(now), -other.spec.sequence)
        )

    def _wake_when_rested(self, draft: Draft, job: Job, cause: Cause) -> None:
        for other in self._candidates(draft, job, cause, rested_only=False):
            draft.wake_at(other.launched_s + self.min_runtime_s)


def _entitled(cluster: Cluster, job: Job) -> Cause | None:
    """Why the job may preempt at all; None almost always, and cheaply so."""
    if cluster.live_by_priority and min(cluster.live_by_priority) < job.spec.priority:
        return Cause.PRIORITY
    guaranteed = cluster.guaranteed.get(job.spec.project)
    if (
        guaranteed is not None
        and cluster.project_gpus.get(job.spec.project, 0) + job.spec.base_gpus <= guaranteed
    ):
        return Cause.QUOTA
    return None


def _may_displace(cluster: Cluster, job: Job, other: Job, cause: Cause) -> bool:
    if cause is Cause.PRIORITY:
        return other.spec.priority < job.spec.priority
    project = other.spec.project
    return project != job.spec.project and cluster.project_gpus.get(project, 0) > cluster.guaranteed.get(
        project, 0
    )


def _fewest(
    draft: Draft, job: Job, victims: Sequence[Job], scatter: Scatter
) -> tuple[tuple[Slot, ...], tuple[Job, ...]] | None:
    """A place for the job and the victims that it takes."""
    index = without_flexible(draft, job.spec.priority)
    for victim in victims:
        slots = _place_without(index, draft.cluster, job, (victim,), scatter)
        if slots is not None:
            return slots, (victim,)
    chosen: list[Job] = []
    for victim in victims:
        chosen.append(victim)
        if _place_without(index, draft.cluster, job, chosen, scatter) is not None:
            break
    else:
        return None
    # The last one was needed; of the others, the dearest may turn out not to be.
    for victim in reversed(chosen[:-1]):
        others = [other for other in chosen if other is not victim]
        if _place_without(index, draft.cluster, job, others, scatter) is not None:
            chosen = others
    slots = _place_without(index, draft.cluster, job, chosen, scatter)
    assert slots is not None
    return slots, tuple(chosen)


def _place_without(
    index: FreeIndex, cluster: Cluster, job: Job, victims: Iterable[Job], scatter: Scatter
) -> tuple[Slot, ...] | None:
    trial = index.fork()
    for victim in victims:
        for server_id, slot in victim.slots.items():
            place = cluster.server_by_id[server_id].place
            if trial.lane[place] != OFF_SHELF:
                # Its flexible workers were counted as gone already where they may be displaced.
                displaced = slot.flexible if victim.spec.priority <= job.spec.priority else 0
                trial.give(place, (slot.workers - displaced) * slot.gpus_per_worker)
    return place_base(trial, cluster, job.spec, job.min_workers, scatter)


def _carry_out(
    draft: Draft,
    job: Job,
    slots: tuple[Slot, ...],
    chosen: Sequence[Job],
    victims: Sequence[Job],
    cause: Cause,
) -> None:
    now = draft.cluster.now
    passed_over = [other for other in victims if other not in chosen][:MOST_WEIGHED]
    needed = {slot.server_id for slot in slots}
    vacated: dict[str, int] = {}
    for victim in chosen:
        outside = 0
        for server_id, slot in victim.slots.items():
            vacated[server_id] = vacated.get(server_id, 0) + slot.gpus
            outside += 0 if server_id in needed else slot.gpus
        draft.preempt(
            Preemption(
                victim.spec.job_id,
                cause,
                job.spec.job_id,
                weighed=tuple(
                    Weighed(other.spec.job_id, other.lost_gpu_s(now)) for other in (victim, *passed_over)
                ),
                collateral_gpus=outside,
            )
        )
    # What victims don't vacate comes from free GPUs and flexible workers.
    rest = []
    for slot in slots:
        workers = slot.base - vacated.get(slot.server_id, 0) // slot.gpus_per_worker
        if workers > 0:
            rest.append(slot._replace(base=workers))
    make_room(draft, tuple(rest), job.spec.priority)
    draft.start(job, slots, cause)
    draft.claiming.add(job.spec.job_id)
