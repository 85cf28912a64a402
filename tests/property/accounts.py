"""Independent bookkeeping of a journal: how far jobs got, what preemptions were good for.

Nothing here asks the cluster how far a job has come: it is all worked out again from the events.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from aryl.core import events as ev
from aryl.core.model import Accounting, JobSpec, ServerSpec, Slot
from aryl.core.plan import Cause, Claim, Launch, Loan, Plan, Reclaim, Release, Reserve, Resize, Return, Stop

_FOR_A_CLAIM = (Cause.PRIORITY, Cause.QUOTA, Cause.ORDER)


@dataclass
class _Job:
    spec: JobSpec
    submit_s: float
    attempt: int = 0
    revision: int = 0
    slots: dict[str, list[int]] = field(default_factory=dict)  # server: [base, flexible, GPUs a worker]
    running: bool = False
    kept_s: float = 0.0
    stretches: list[tuple[float, float]] = field(default_factory=list)  # (seconds, rate) of this attempt
    since_s: float = 0.0
    rate: float = 0.0
    saving: bool = False
    stopping: bool = False
    most: int = 0

    @property
    def done_s(self) -> float:
        return self.kept_s + sum(seconds * rate for seconds, rate in self.stretches)

    def done_after(self, running_s: float) -> float:
        done_s = self.kept_s
        for seconds, rate in self.stretches:
            done_s += min(seconds, running_s) * rate
            running_s = max(running_s - seconds, 0.0)
        return done_s


class Accounts:
    """Raises AssertionError at the first event that doesn't add up."""

    def __init__(self, durations_s: dict[str, float]) -> None:
        self.durations_s = durations_s
        self.jobs: dict[str, _Job] = {}
        self.servers: dict[str, ServerSpec] = {}
        self.accounting = Accounting.MORE_GPUS
        self.fastest = 1.0  # of all servers that there ever were
        self.claims: dict[str, Claim] = {}
        self.recalled: set[str] = set()
        self.finish_s: dict[str, float] = {}
        self.submit_s: dict[str, float] = {}
        self.shortest_s: dict[str, float] = {}

    def enter(self, event: ev.Event) -> None:
        match event:
            case ev.ClusterDeclared():
                self.accounting = event.accounting
                self.servers = {server.server_id: server for server in event.servers}
                self.fastest = max((server.speed for server in event.servers), default=1.0)
            case ev.ServersJoined():
                self.servers |= {server.server_id: server for server in event.servers}
                self.fastest = max([self.fastest, *(server.speed for server in event.servers)])
            case ev.Submitted(job=spec):
                self.jobs[spec.job_id] = _Job(spec, event.at, most=spec.max_workers)
                self.submit_s[spec.job_id] = event.at
            case ev.PlanCommitted():
                self._plan(event.at, event.plan)
            case ev.Launched():
                job = self.jobs.get(event.job_id)
                if job and job.attempt == event.attempt and job.revision == 0 and not job.stopping:
                    self._run(job, event.at, running=True)
            case ev.Resized():
                job = self.jobs.get(event.job_id)
                if (
                    job
                    and (job.attempt, job.revision) == (event.attempt, event.revision)
                    and not job.stopping
                ):
                    self._run(job, event.at, running=True)
            case ev.Stopped():
                self._stopped(event)
            case ev.Finished():
                self._finished(event)
            case ev.ServerLost():
                self._drop_claims(event.server_id)
                for job in self.jobs.values():
                    if event.server_id in job.slots:
                        self._run(job, event.at, running=False)
                        del job.slots[event.server_id]
            case ev.ServerDrained(draining=True):
                self._drop_claims(event.server_id)
            case ev.LimitsChanged():
                self.claims.pop(event.job_id, None)
                if event.job_id in self.jobs:
                    self.jobs[event.job_id].most = max(self.jobs[event.job_id].most, event.max_workers)
            case ev.CancelRequested():
                self.claims.pop(event.job_id, None)
                job = self.jobs.get(event.job_id)
                if job and not job.slots and not job.stopping:
                    del self.jobs[event.job_id]

    def _plan(self, at: float, plan: Plan) -> None:
        self._preemptions_are_used(plan)
        for step in plan.steps:
            match step:
                case Launch():
                    job = self.jobs[step.job_id]
                    claim = self.claims.pop(step.job_id, None)
                    assert claim is None or claim.slots == step.slots, "a claim was used elsewhere"
                    job.attempt, job.revision, job.stretches = step.attempt, 0, []
                    job.running, job.since_s = False, at
                    for slot in step.slots:
                        self._add(job, slot)
                case Resize():
                    job = self.jobs[step.job_id]
                    self._run(job, at, running=False)
                    job.revision = step.revision
                    for slot in step.remove:
                        kept = job.slots[slot.server_id]
                        kept[0] -= slot.base
                        kept[1] -= slot.flexible
                        if not kept[0] + kept[1]:
                            del job.slots[slot.server_id]
                    for slot in step.add:
                        self._add(job, slot)
                case Stop():
                    job = self.jobs[step.job_id]
                    self._run(job, at, running=False)
                    job.slots.clear()
                    job.stopping, job.saving = True, step.save
                case Reserve(claim=claim):
                    assert claim.job_id not in self.claims
                    self.claims[claim.job_id] = claim
                case Release():
                    self.claims = {
                        job_id: claim
                        for job_id, claim in self.claims.items()
                        if claim.claim_id != step.claim_id
                    }
                case Reclaim():
                    self.recalled.add(step.server_id)
                    self._drop_claims(step.server_id)
                case Loan() | Return():
                    self.recalled.discard(step.server_id)

    def _preemptions_are_used(self, plan: Plan) -> None:
        """(5): who is preempted stands where somebody starts or claims a place in the same plan."""
        claims = [step.claim for step in plan.steps if isinstance(step, Reserve)]
        launches = [step for step in plan.steps if isinstance(step, Launch)]
        claimed = {slot.server_id for claim in claims for slot in claim.slots}
        # Claims are served from leaving GPUs first, so a start may take what an older claim held free.
        held = {slot.server_id for claim in self.claims.values() for slot in claim.slots}
        claimed |= held & {slot.server_id for launch in launches for slot in launch.slots}
        started = {claim.job_id for claim in claims} | {launch.job_id for launch in launches}
        recalled = self.recalled | {step.server_id for step in plan.steps if isinstance(step, Reclaim)}
        for step in plan.steps:
            if not isinstance(step, Stop):
                continue
            stood = set(self.jobs[step.job_id].slots)
            if step.cause is Cause.RECLAIM:
                assert stood & recalled, f"{step.job_id} was preempted for servers that it wasn't on"
            if step.cause not in _FOR_A_CLAIM:
                continue
            assert step.cause is Cause.ORDER or step.beneficiary in started
            assert stood & claimed, f"{step.job_id} was preempted for {step.cause}, nobody claims its place"

    def _drop_claims(self, server_id: str) -> None:
        self.claims = {
            job_id: claim
            for job_id, claim in self.claims.items()
            if server_id not in {slot.server_id for slot in claim.slots}
        }

    def _add(self, job: _Job, slot: Slot) -> None:
        have = job.slots.setdefault(slot.server_id, [0, 0, slot.gpus_per_worker])
        have[0] += slot.base
        have[1] += slot.flexible

    def _run(self, job: _Job, at: float, *, running: bool) -> None:
        if job.running:
            job.stretches.append((at - job.since_s, job.rate))
        job.running, job.since_s = running, at
        job.rate = self._rate(job)

    def _rate(self, job: _Job) -> float:
        spec, workers, speeds = job.spec, 0, 0.0
        kinds = set()
        for server_id, (base, flexible, _) in job.slots.items():
            server = self.servers[server_id]
            kinds.add(server.gpu_type)
            workers += base + flexible
            speed = dict(spec.gpu_types).get(server.gpu_type, server.speed)
            speeds += (base + flexible) * (speed if self.accounting is Accounting.SLOWER else 1.0)
        if not workers:
            return 0.0
        rate = spec.speedup(workers) / spec.speedup(spec.min_workers) * speeds / workers
        return rate * (spec.mixed_efficiency if len(kinds) > 1 else 1.0)

    def _stopped(self, event: ev.Stopped) -> None:
        job = self.jobs[event.job_id]
        assert job.stopping
        assert job.attempt == event.attempt
        every_s = job.spec.checkpoint_s
        if job.saving or every_s == 0.0:
            expected = [job.done_s]
        elif every_s is None:
            expected = [job.kept_s]
        else:
            saves = sum(seconds for seconds, _ in job.stretches) / every_s
            expected = [
                max(job.done_after(math.floor(saves + fuzz) * every_s), job.kept_s) for fuzz in (-1e-9, 1e-9)
            ]
        assert any(math.isclose(event.kept_s, kept_s, rel_tol=1e-9, abs_tol=1e-6) for kept_s in expected), (
            f"{event.job_id} kept {event.kept_s}, expected {expected}"
        )
        job.kept_s, job.stretches, job.stopping = event.kept_s, [], False

    def _finished(self, event: ev.Finished) -> None:
        job = self.jobs.pop(event.job_id)
        assert job.attempt == event.attempt
        self._run(job, event.at, running=False)
        duration_s = self.durations_s[event.job_id]
        assert math.isclose(job.done_s, duration_s, rel_tol=1e-9, abs_tol=1e-6), (
            f"{event.job_id} did {job.done_s} s of {duration_s} s"
        )
        self.finish_s[event.job_id] = event.at
        self.shortest_s[event.job_id] = duration_s / self._best_rate(job)

    def _best_rate(self, job: _Job) -> float:
        spec, best = job.spec, 1.0
        if self.accounting is Accounting.SLOWER:
            best = max([best, self.fastest, *(speed for _, speed in spec.gpu_types)])
        most = max(spec.speedup(job.most), spec.speedup(spec.min_workers))
        return best * most / spec.speedup(spec.min_workers)
