"""Preempting for a waiting job: who has to go so that it can start (ours; the paper preempts for reclaims
only).

A job may displace jobs of lower priority; and a project that is below its guaranteed share may take it back
from projects above theirs. Nobody is preempted before it has run `min_runtime_s`, and never without a
complete place for the claimant: victims are chosen so that as few jobs as possible stop, then least work is
lost.

Shares are of base demand: flexible workers make way for any gang, so they neither use up a share nor make
their job a victim. Gangs that run within their project's share are safe from other projects, whatever their
priorities, and from a job of their own project that is too large for the share. Otherwise shares and
priorities could take the same place from each other for ever.

How: if one victim suffices, the cheapest such; else victims are added, cheapest first, until the gang fits,
and then each that turns out not to be needed is left alone. Count jobs, not workers: a victim that is
striped over many servers frees its GPUs on all of them.
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
from aryl.policies.displace import make_room, settle, without_flexible
from aryl.policies.draft import Draft
from aryl.policies.patience import faster_from_s
from aryl.policies.placement import Scatter, place_base

# How many passed-over victims are kept with a preemption, so that it can be explained later.
MOST_WEIGHED = 3

# Nobody is stopped at the instant at which it was started: a pass would undo what the last one did.
LEAST_RUNTIME_S = 1.0


@dataclass(frozen=True, slots=True)
class Preempting:
    """The preempting part of a policy."""

    min_runtime_s: float = 0.0

    def starter(self, scatter: Scatter) -> Starter:
        """A starter that stops others where the job's priority or its project's share allows it."""

        def start(draft: Draft, job: Job) -> bool:
            causes = _entitled(draft, job)
            for cause in causes:
                victims = self._candidates(draft, job, cause, rested_only=True)
                found = _fewest(draft, job, victims, scatter)
                if found is not None and faster_from_s(draft, job, scatter, found[0]) is None:
                    _carry_out(draft, job, *found, victims, cause)
                    return True
            for cause in causes:
                for other in self._candidates(draft, job, cause, rested_only=False):
                    draft.wake_at(self._rested_s(other))
            return False

        return start

    def resting_victims(
        self, draft: Draft, job: Job, scatter: Scatter
    ) -> tuple[float, tuple[str, ...]] | None:
        """When those that the job could preempt have run long enough, and who they are, if that is all that
        it waits for.
        """
        rests = []
        for cause in _entitled(draft, job):
            resting = self._candidates(draft, job, cause, rested_only=False)
            found = _fewest(draft, job, resting, scatter)
            if found is not None:
                rested_s = max(self._rested_s(victim) for victim in found[1])
                if rested_s > draft.cluster.now:
                    rests.append((rested_s, tuple(victim.spec.job_id for victim in found[1])))
        return min(rests, default=None)

    def _rested_s(self, job: Job) -> float:
        """When a live job has run long enough to be preempted."""
        return job.launched_s + max(self.min_runtime_s, LEAST_RUNTIME_S)

    def _candidates(self, draft: Draft, job: Job, cause: Cause, *, rested_only: bool) -> list[Job]:
        """Who may be stopped for the job, cheapest first."""
        cluster, now = draft.cluster, draft.cluster.now
        may_use, safe = {stand.shelf for stand in cluster.stands(job.spec)}, _safe(draft)
        victims = [
            other
            for other in cluster.live.values()
            if other.state in LIVE_STATES
            and other.spec.job_id not in draft.preemptions
            and _may_displace(draft, job, other, cause, safe)
            and (not rested_only or now >= self._rested_s(other))
            and any(cluster.server_by_id[server_id].shelf in may_use for server_id in other.slots)
        ]
        return sorted(
            victims, key=lambda other: (other.spec.priority, other.lost_gpu_s(now), -other.spec.sequence)
        )


def _entitled(draft: Draft, job: Job) -> tuple[Cause, ...]:
    """Why the job may preempt at all; nothing almost always, and cheaply so."""
    cluster, causes = draft.cluster, []
    if cluster.live_by_priority and min(cluster.live_by_priority) < job.spec.priority:
        causes.append(Cause.PRIORITY)
    guaranteed = cluster.guaranteed.get(job.spec.project)
    if guaranteed is not None:
        wanted = job.min_workers * job.spec.gpus_per_worker
        if _held_gpus(draft, job.spec.project) + wanted <= guaranteed:
            causes.append(Cause.QUOTA)
    return tuple(causes)


def _may_displace(draft: Draft, job: Job, other: Job, cause: Cause, safe: dict[str, list[Job]]) -> bool:
    """Whether a job may stop another one; `safe` are the gangs that run within their project's share."""
    mine, theirs = job.spec.project, other.spec.project
    if cause is Cause.QUOTA:
        return mine != theirs and other not in safe.get(theirs, ())
    if other.spec.priority >= job.spec.priority:
        return False
    if other not in safe.get(theirs, ()):
        return True
    # One that would run beyond the share is no better than what it would take from it.
    above = [one for one in safe[theirs] if one.spec.priority >= job.spec.priority]
    return mine == theirs and _gang_gpus((*above, job)) <= draft.cluster.guaranteed[theirs]


def _safe(draft: Draft) -> dict[str, list[Job]]:
    """The gangs that fit into each project's share, the most important first, then those that run longest."""
    cluster = draft.cluster
    safe: dict[str, list[Job]] = {project: [] for project in cluster.guaranteed}
    if not safe:
        return safe
    gangs = [job for job_id, job in cluster.live.items() if job_id not in draft.preemptions]
    gangs += [cluster.jobs[job_id] for job_id in (*cluster.claims, *draft.starts)]
    for job in sorted(gangs, key=lambda job: _importance(cluster, job)):
        within = safe.get(job.spec.project)
        if within is not None and _gang_gpus((*within, job)) <= cluster.guaranteed[job.spec.project]:
            within.append(job)
    return safe


def _importance(cluster: Cluster, job: Job) -> tuple[int, float, int]:
    """Who comes first in a share. One that is to start counts as if it had, so that it makes no difference
    at which point of an instant this is asked.
    """
    since_s = job.launched_s if job.spec.job_id in cluster.live else cluster.now
    return -job.spec.priority, since_s, job.spec.sequence


def _gang_gpus(gangs: Iterable[Job]) -> int:
    """What gangs need on the reference type: a worker that takes more GPUs on a slower one counts no more."""
    return sum(job.min_workers * job.spec.gpus_per_worker for job in gangs)


def _held_gpus(draft: Draft, project: str) -> int:
    """GPUs that a project's gangs hold or have claimed, as this draft would leave it.

    Flexible workers don't count: they give way to any gang, so nobody needs a share to get past them.
    """
    cluster = draft.cluster
    coming = [
        cluster.jobs[name] for name in (*cluster.claims, *draft.starts) if _belongs(cluster, name, project)
    ]
    stopped = [cluster.jobs[name] for name in draft.preemptions if _belongs(cluster, name, project)]
    return cluster.project_gpus.get(project, 0) + _gang_gpus(coming) - _gang_gpus(stopped)


def _belongs(cluster: Cluster, job_id: str, project: str) -> bool:
    return cluster.jobs[job_id].spec.project == project


def _fewest(
    draft: Draft, job: Job, victims: Sequence[Job], scatter: Scatter
) -> tuple[tuple[Slot, ...], tuple[Job, ...]] | None:
    """A place for the job and the victims that it takes; None if there is none, or one that needs no victim.

    (A job that fits as things are and doesn't start waits for another reason; a preemption would be for
    nothing.)
    """
    index = without_flexible(draft, job.spec.priority)
    if not victims or _place_without(index, draft, job, (), scatter) is not None:
        return None
    for victim in victims:
        slots = _place_without(index, draft, job, (victim,), scatter)
        if slots is not None:
            return slots, (victim,)
    chosen: list[Job] = []
    for victim in victims:
        chosen.append(victim)
        if _place_without(index, draft, job, chosen, scatter) is not None:
            break
    else:
        return None
    # The last one was needed; of the others, the dearest may turn out not to be.
    for victim in reversed(chosen[:-1]):
        others = [other for other in chosen if other is not victim]
        if _place_without(index, draft, job, others, scatter) is not None:
            chosen = others
    slots = _place_without(index, draft, job, chosen, scatter)
    assert slots is not None
    return slots, tuple(chosen)


def _place_without(
    index: FreeIndex, draft: Draft, job: Job, victims: Iterable[Job], scatter: Scatter
) -> tuple[Slot, ...] | None:
    trial = index.fork()
    for victim in victims:
        for server_id, slot in victim.slots.items():
            place = draft.cluster.server_by_id[server_id].place
            if trial.lane[place] != OFF_SHELF:
                # Its flexible workers were counted as gone already where they may be displaced; what the
                # draft lets leave is somebody else's.
                displaced = (
                    slot.flexible
                    if victim.spec.priority <= job.spec.priority
                    else draft.shed_on(victim.spec.job_id, server_id)
                )
                trial.give(place, (slot.workers - displaced) * slot.gpus_per_worker)
    return place_base(trial, draft.cluster, job.spec, job.min_workers, scatter)


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
            promised = draft.shed_on(victim.spec.job_id, server_id) * slot.gpus_per_worker
            vacated[server_id] = vacated.get(server_id, 0) + slot.gpus - promised
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
    # What victims don't vacate comes from free GPUs and flexible workers, counted in single GPUs.
    rest = []
    for slot in slots:
        gpus = slot.gpus - vacated.get(slot.server_id, 0)
        if gpus > 0:
            rest.append(Slot(slot.server_id, gpus, 0, 1))
    make_room(draft, tuple(rest), job.spec.priority)
    draft.start(job, slots, cause)
    draft.claiming.add(job.spec.job_id)
    settle(draft, sorted(needed | vacated.keys()))
