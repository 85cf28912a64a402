"""The simulated world: a heap of what is going to happen, and the physics of jobs.

At one instant completions come first, then what workers and servers report, then submissions, then the
inference side; then one pass. How far a job has come is the cluster's own account (`core/progress.py`): it is
exact here, because work is done at exactly the modelled rate. What the scheduler can't know, the true running
time, is in `durations_s`, and only here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import assert_never

from aryl.core.cluster import Cluster, Job
from aryl.core.events import (
    BackInService,
    Event,
    Finished,
    HandedOver,
    HealthChanged,
    Launched,
    Resized,
    ServerLost,
    Stopped,
    Vacated,
)
from aryl.core.model import Health, JobState, Slot
from aryl.core.plan import Launch, Loan, Plan, Reclaim, Release, Reserve, Resize, Return, Stop

# What comes first at one instant.
_COMPLETION, _REPORT, _SERVICE, _SCRIPT, _FAILURE, _ARRIVAL, _DEMAND = range(7)
# What goes on for ever and doesn't keep a simulation going by itself.
_ENDLESS = (_SERVICE, _FAILURE, _DEMAND)


@dataclass(frozen=True, slots=True)
class Overheads:
    """What changes cost, in seconds: standing still after a restart or a resize, the time that leaving
    workers take; where loans are confirmed, the time until the inference side lets go of a server; where
    returns are, the time until it serves from one again; how long a server rests after a launch has failed
    there; and how long a first launch takes, in any case and for each worker.
    """

    restart_s: float = 63.0
    resize_s: float = 10.0
    vacate_s: float = 0.0
    hand_over_s: float = 0.0
    load_s: float = 0.0
    rest_s: float = 5.0
    launch_s: float = 0.0
    launch_worker_s: float = 0.0

    def until_up_s(self, attempt: int, workers: int) -> float:
        """From the launch of an attempt with so many workers until it makes progress."""
        return self.restart_s if attempt > 1 else self.launch_s + self.launch_worker_s * workers


class SimDriver:
    """Implements `ClusterDriver` on a virtual clock.

    `arrivals` must ascend in time; `demand` yields what the inference side says, in order, and alone never
    keeps a simulation going (see `quiet`). Nothing happens after `until_s`. A simulation that doesn't begin
    with an empty cluster has to `take_over` what is under way.
    """

    def __init__(
        self,
        arrivals: Sequence[Event],
        durations_s: Mapping[str, float],
        *,
        demand: Iterator[Event] | None = None,
        failures: Iterator[Event] | None = None,
        script: Sequence[Event] = (),
        overheads: Overheads | None = None,
        until_s: float | None = None,
    ) -> None:
        self._heap: list[tuple[float, int, int, Event]] = []
        self._sequence = 0
        self._durations_s = durations_s
        self._overheads = overheads or Overheads()
        self._until_s = float("inf") if until_s is None else until_s
        self._sources: dict[int, Iterator[Event]] = {
            _ARRIVAL: iter(arrivals),
            _FAILURE: failures or iter(()),
            _DEMAND: demand or iter(()),
        }
        self._ahead = 0  # events in the heap that count, endless ones left out
        self._finish: dict[str, int] = {}  # sequence number of the completion that counts
        self._awaited: dict[tuple[type, str], int] = {}  # the report about a server that counts, by its kind
        self._lost: dict[str, int] = {}  # the first sequence number after a server's last loss
        for event in script:
            self._push(_SCRIPT, event)
        for priority in self._sources:
            self._push_next(priority)

    def poll(self, deadline_s: float) -> Sequence[Event] | None:
        """The events of the next instant; none if `deadline_s` comes first; None at the end."""
        heap = self._heap
        while heap and heap[0][1] <= _SERVICE and self._stale(heap[0]):
            self._drop(heappop(heap))
        at_s = heap[0][0] if heap else float("inf")
        next_s = min(at_s, deadline_s)
        if next_s > self._until_s or next_s == float("inf"):
            return None
        if deadline_s < at_s:
            return ()
        events: list[Event] = []
        while heap and heap[0][0] == at_s:
            entry = heappop(heap)
            _, priority, _, event = entry
            if priority <= _SERVICE and self._stale(entry):
                self._drop(entry)
                continue
            if priority not in _ENDLESS:
                self._ahead -= 1
            if priority in self._sources:
                self._push_next(priority)
            if isinstance(event, Finished):
                del self._finish[event.job_id]
            elif isinstance(event, ServerLost):
                self._lost[event.server_id] = self._sequence
            elif isinstance(event, Vacated):
                event = self._without_lost(event, entry[2])
            events.append(event)
        return events

    def apply(self, plan: Plan, cluster: Cluster) -> None:
        """Let the plan have its consequences."""
        now = cluster.now
        for step in plan.steps:
            match step:
                case Launch():
                    wait_s = self._overheads.until_up_s(step.attempt, cluster.jobs[step.job_id].workers)
                    self._push(_REPORT, Launched(now + wait_s, step.job_id, step.attempt))
                    self._expect_finish(cluster.jobs[step.job_id], now + wait_s, cluster)
                case Resize():
                    # A resize doesn't shorten a restart that is still under way.
                    job = cluster.jobs[step.job_id]
                    back_s = max(now + self._overheads.resize_s, self._up_s(job))
                    if step.remove:
                        gone_s = now + self._overheads.vacate_s
                        self._push(_REPORT, Vacated(gone_s, step.job_id, step.attempt, step.remove))
                    self._push(_REPORT, Resized(back_s, step.job_id, step.attempt, step.revision))
                    self._expect_finish(job, back_s, cluster)
                case Stop():
                    self._forget_finish(step.job_id)
                    progress = cluster.jobs[step.job_id].progress
                    kept_s = progress.done_s if step.save else progress.saved_s
                    self._push(
                        _REPORT, Stopped(now + self._overheads.vacate_s, step.job_id, step.attempt, kept_s)
                    )
                case Loan():
                    self._awaited.pop((BackInService, step.server_id), None)
                    if cluster.server_by_id[step.server_id].handing_over:
                        self._expect_handover(step.server_id, now)
                case Return():
                    self._awaited.pop((HandedOver, step.server_id), None)
                    if cluster.server_by_id[step.server_id].restoring:
                        self._expect_service(step.server_id, now)
                case Reserve() | Release() | Reclaim():
                    pass
                case _:
                    assert_never(step)

    def take_over(self, cluster: Cluster) -> None:
        """Go on from a cluster as it stands: what is under way there will end. The next thing to be done is a
        pass, which sees to the jobs in trouble.

        When a change began follows from the state, so a simulation that is cut in two goes on as it would
        have. Not in the state are: whether a job that has been told to stop may save first (it keeps what it
        has saved), which of a job's leaving workers were told first (all leave with the last), and since when
        servers are handed over, load or rest (they begin now). What is overdue happens now.
        """
        now, overheads = cluster.now, self._overheads
        for server in cluster.servers:
            if server.handing_over:
                self._expect_handover(server.spec.server_id, now)
            if server.restoring:
                self._expect_service(server.spec.server_id, now)
            if server.health is Health.RESTING:
                rested = HealthChanged(now + overheads.rest_s, server.spec.server_id, Health.HEALTHY)
                self._push(_REPORT, rested)
        for job_id, job in cluster.jobs.items():
            if job.stopping:
                gone_s = max(job.progress.since_s + overheads.vacate_s, now)
                self._push(_REPORT, Stopped(gone_s, job_id, job.attempt, job.progress.saved_s))
                continue
            if job.leaving:
                gone_s = max(job.scaled_in_s + overheads.vacate_s, now)
                gone = tuple(Slot(server_id, 0, gpus, 1) for server_id, gpus in job.leaving.items())
                self._push(_REPORT, Vacated(gone_s, job_id, job.attempt, gone))
            if job.trouble is not None or job_id not in cluster.live:
                continue
            back_s = job.progress.since_s
            if job.state is JobState.STARTING:
                back_s = max(self._up_s(job), now)
                self._push(_REPORT, Launched(back_s, job_id, job.attempt))
            elif job.state is JobState.RESIZING:
                back_s = max(job.progress.since_s + overheads.resize_s, self._up_s(job), now)
                self._push(_REPORT, Resized(back_s, job_id, job.attempt, job.revision))
            self._expect_finish(job, back_s, cluster)

    @property
    def quiet(self) -> bool:
        """Nothing lies ahead but inference demand and failures: if no job is left either, the simulation is
        over.
        """
        return self._ahead == 0

    def _without_lost(self, event: Vacated, sequence: int) -> Vacated:
        """Nobody reports about workers that were lost with their server while they were leaving."""
        slots = tuple(slot for slot in event.slots if self._lost.get(slot.server_id, 0) <= sequence)
        return event if len(slots) == len(event.slots) else replace(event, slots=slots)

    def _up_s(self, job: Job) -> float:
        """When the job's attempt stands, a restart included."""
        return job.launched_s + self._overheads.until_up_s(job.attempt, job.workers)

    def _expect_finish(self, job: Job, from_s: float, cluster: Cluster) -> None:
        """The job goes on at `from_s` with the workers that it has now; note when it will be done."""
        job_id = job.spec.job_id
        self._forget_finish(job_id)
        rate = cluster.rate(job.spec, job.kinds)
        left_s = max(self._durations_s[job_id] - job.progress.done_s, 0.0)
        # One whose workers have all ended by themselves is done.
        at_s = from_s + (left_s / rate if job.workers else 0.0)
        self._finish[job_id] = self._sequence
        self._push(_COMPLETION, Finished(max(at_s, cluster.now), job_id, job.attempt))

    def _expect_handover(self, server_id: str, from_s: float) -> None:
        """The inference side lets go of the server from `from_s` on; an earlier handover counts no more."""
        self._awaited[HandedOver, server_id] = self._sequence
        self._push(_REPORT, HandedOver(from_s + self._overheads.hand_over_s, server_id))

    def _expect_service(self, server_id: str, from_s: float) -> None:
        """The server loads its models from `from_s` on; what was under way there before counts no more."""
        self._awaited[BackInService, server_id] = self._sequence
        self._push(_SERVICE, BackInService(from_s + self._overheads.load_s, server_id))

    def _forget_finish(self, job_id: str) -> None:
        if self._finish.pop(job_id, None) is not None:
            self._ahead -= 1

    def _stale(self, entry: tuple[float, int, int, Event]) -> bool:
        event = entry[3]
        if isinstance(event, Finished):
            return self._finish.get(event.job_id) != entry[2]
        if isinstance(event, HandedOver | BackInService):
            return self._awaited.get((type(event), event.server_id)) != entry[2]
        return False

    def _drop(self, entry: tuple[float, int, int, Event]) -> None:
        """Keep account of an entry that doesn't count; a completion was taken off when that began."""
        if entry[1] == _REPORT:
            self._ahead -= 1

    def _push(self, priority: int, event: Event) -> None:
        heappush(self._heap, (event.at, priority, self._sequence, event))
        self._sequence += 1
        if priority not in _ENDLESS:
            self._ahead += 1

    def _push_next(self, priority: int) -> None:
        event = next(self._sources[priority], None)
        if event is not None:
            self._push(priority, event)
