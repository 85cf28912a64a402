"""Preemptive orders: whoever stands first in the order runs, and others are stopped for it, keeping all their
progress.

`srtf`: shortest remaining time first. `las`: least attained service first, without any estimate (Tiresias,
NSDI'19, without its queues). What doesn't fit is passed over. Decisions fall when something happens, not at a
fixed quantum.

A preempted job is asked to save first: these orders make sense only for jobs that can. Who runs is decided by
counting GPUs; jobs that go on running stay where they are, and the others are placed into what is then left.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge

from aryl.core.cluster import Cluster, Job
from aryl.core.decision import NOTHING, Decision, Preemption
from aryl.core.diff import split_starts
from aryl.core.free_index import OFF_SHELF, FreeIndex
from aryl.core.model import JobSpec
from aryl.core.pending import Entry, QueueKey
from aryl.core.plan import Cause, Weighed
from aryl.policies.admission import admit, start_where_free
from aryl.policies.displace import settle
from aryl.policies.draft import Draft
from aryl.policies.explain import explain_wait
from aryl.policies.order import ORDERS, Order, by_remaining_time
from aryl.policies.placement import Scatter, fits_when_empty, place_base
from aryl.policies.reasons import WaitReason

TIME_ORDERS: dict[str, Order] = {"srtf": by_remaining_time, "las": ORDERS["las"]}


@dataclass(frozen=True, slots=True)
class TimeSharing:
    """A preemptive order of running and waiting jobs alike."""

    name: str

    def could_ever_start(self, cluster: Cluster, spec: JobSpec) -> bool:
        """Whether the gang fits into the empty training pool."""
        return fits_when_empty(cluster, spec, lends=False, scatter=Scatter.ALLOWED)

    def order(self, job: Job, now_s: float) -> QueueKey:
        """The place of a job in the order; constant while it waits."""
        return TIME_ORDERS[self.name](job, now_s)

    def decide(self, cluster: Cluster) -> Decision:
        """Stop whoever stands behind those that should run."""
        if not len(cluster.pending):
            return NOTHING
        chosen, stopped = self._choose(cluster)
        if not chosen:
            return NOTHING
        draft = Draft(cluster)
        trial = cluster.free.fork()
        for job in stopped.values():
            for server_id, slot in job.slots.items():
                trial.give(cluster.server_by_id[server_id].place, slot.gpus)
        first: dict[str, str] = {}  # the first job that is placed on each server
        for job in chosen:
            slots = place_base(trial, cluster, job.spec, job.min_workers, Scatter.ALLOWED)
            if slots is None:
                continue
            draft.start(job, slots, Cause.ORDER)
            for slot in slots:
                first.setdefault(slot.server_id, job.spec.job_id)
        for job in stopped.values():
            # A place that nobody came to need isn't worth a preemption. The order says who is spared first.
            beneficiary = _in_the_way_of(cluster, job, trial, first)
            if beneficiary is None:
                for server_id, slot in job.slots.items():
                    trial.give(cluster.server_by_id[server_id].place, -slot.gpus)
                continue
            weighed = (Weighed(job.spec.job_id, job.lost_gpu_s(cluster.now)),)
            draft.preempt(Preemption(job.spec.job_id, Cause.ORDER, beneficiary, save=True, weighed=weighed))
        if draft.preemptions:
            _use_the_rest(draft)
        return draft.decision()

    def explain(self, cluster: Cluster, job_id: str) -> WaitReason:
        """Why a job waits."""
        return explain_wait(cluster, job_id, strict=False, scatter=Scatter.ALLOWED, lends=False)

    def _choose(self, cluster: Cluster) -> tuple[list[Job], dict[str, Job]]:
        """Which waiting jobs should run now and which running ones should not, by counting GPUs on each
        shelf.
        """
        running = sorted(Entry(cluster.queue_key(job), job_id) for job_id, job in cluster.live.items())
        room = [cluster.free.shelf_free(shelf) for shelf in range(len(cluster.free.shelves))]
        for job in cluster.live.values():
            for server_id, slot in job.slots.items():
                server = cluster.server_by_id[server_id]
                if cluster.free.lane[server.place] != OFF_SHELF:
                    room[server.shelf] += slot.gpus
        chosen: list[Job] = []
        stopped = {entry.job_id: cluster.live[entry.job_id] for entry in running}
        for entry in merge(running, cluster.pending):
            if not any(room):
                break
            job = cluster.jobs[entry.job_id]
            if entry.job_id in cluster.live:
                shelves: dict[int, int] = {}
                for server_id, slot in job.slots.items():
                    server = cluster.server_by_id[server_id]
                    if cluster.free.lane[server.place] != OFF_SHELF:
                        shelves[server.shelf] = shelves.get(server.shelf, 0) + slot.gpus
                if all(room[shelf] >= gpus for shelf, gpus in shelves.items()):
                    for shelf, gpus in shelves.items():
                        room[shelf] -= gpus
                    del stopped[entry.job_id]
            else:
                for stand in cluster.stands(job.spec):
                    gpus = job.min_workers * stand.gpus_per_worker
                    if room[stand.shelf] >= gpus:
                        room[stand.shelf] -= gpus
                        chosen.append(job)
                        break
        return chosen, stopped if chosen else {}


def _use_the_rest(draft: Draft) -> None:
    """Claims are served from leaving GPUs first, so more may be free than was left over."""
    _, claims = split_starts(draft.cluster, draft.decision())
    draft.claiming.update(start.job_id for start in claims)
    touched = {slot.server_id for start in draft.starts.values() for slot in start.slots}
    touched.update(*(draft.cluster.live[job_id].slots for job_id in draft.preemptions))
    settle(draft, sorted(touched))
    admit(draft, (start_where_free(Scatter.ALLOWED),), strict=False)


def _in_the_way_of(cluster: Cluster, job: Job, trial: FreeIndex, first: dict[str, str]) -> str | None:
    """Whom a job makes room for: the one placed where `trial`, with the job gone, has less than it holds."""
    for server_id, slot in job.slots.items():
        place = cluster.server_by_id[server_id].place
        if server_id in first and trial.lane[place] != OFF_SHELF and trial.free[place] < slot.gpus:
            return first[server_id]
    return None
