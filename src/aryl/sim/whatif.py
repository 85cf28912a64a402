"""What would happen: to a job, if it were submitted now; to the jobs that are here, under another policy.

Both let the ordinary loop go on from a copy of the real cluster on a virtual clock. What isn't known is
supposed: jobs run for as long as they are estimated to, nobody else comes, nothing breaks, and inference
needs what it said last (or what a `need` foretells). A job without an estimate is supposed never to end, so
that nobody is promised its place: where that decides, the answer is "unknown".

All times are seconds on the cluster's own scale. The same state and question always give the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from aryl.core.cluster import OVERDUE_S, Cluster
from aryl.core.events import DemandReported, Event, Finished, PlanCommitted, Submitted
from aryl.core.evolve import evolve
from aryl.core.model import JobSpec, JobState
from aryl.core.plan import Cause, Launch, Stop
from aryl.files.units import human_seconds
from aryl.policies.catalogue import parse_policy
from aryl.policies.policy import Policy
from aryl.policies.reasons import Wait, WaitReason
from aryl.policies.sentence import sentence
from aryl.scheduler.loop import Loop
from aryl.scheduler.ports import Watcher
from aryl.sim.driver import Overheads, SimDriver
from aryl.sim.snapshot import rebuild, restore, snapshot
from aryl.wire.views import DryRunView, WhatIfOutcome

Verdict = Literal["now", "later", "never", "unknown"]
NeedAt = Callable[[float], float]  # servers that inference needs, by the second

HORIZON_S = 30 * 86400.0
# Where looking ahead is given up: a matter of seconds, even with thousands of jobs.
MOST_PASSES = 20_000
MOST_SERVERS_NAMED = 4
# How often the inference side reports where its need is foretold.
REPORT_EVERY_S = 300.0
# Stops that nobody decided on for another's sake.
_NOT_PREEMPTED = (Cause.CANCELLED, Cause.SERVER_LOST, Cause.LIMITS, Cause.STALLED)


@dataclass(frozen=True, slots=True)
class DryRun:
    """Would it fit? `now`: the next pass starts it. `starts_s` is absolute; `servers` are those that it would
    start on.
    """

    verdict: Verdict
    starts_s: float | None
    text: str
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one policy would make of the jobs that are here now.

    Means are over the jobs that would finish, and None if none would. JCT counts from submission; queuing
    from the beginning of the present wait. `without_estimate` jobs are among the unfinished, and hold their
    GPUs to the end.
    """

    policy: str
    finished: int
    unfinished: int
    mean_jct_s: float | None
    mean_queuing_s: float | None
    preemptions: int
    without_estimate: int


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Answers from snapshots, for whoever has a cluster but may not simulate. Safe to use from any thread.

    `overheads` None: what the cluster itself expects changes to cost; `need` None: inference needs what it
    said last.
    """

    overheads: Overheads | None = None
    need: NeedAt | None = None
    horizon_s: float = HORIZON_S
    most_passes: int = MOST_PASSES

    def snapshot(self, cluster: Cluster) -> bytes:
        """The state as it is now, for the other methods. To be called where the cluster doesn't change."""
        return snapshot(cluster)

    def dry_run(self, blob: bytes, policy: Policy, spec: JobSpec) -> DryRunView:
        """Whether and when a job would start (`starts` in seconds of the cluster). `policy` must be the one
        that the cluster runs under. Raises IllegalTransitionError for a job that can't be submitted.
        """
        found = dry_run(
            restore(blob),
            policy,
            spec,
            horizon_s=self.horizon_s,
            overheads=self.overheads,
            need=self.need,
            most_passes=self.most_passes,
        )
        return DryRunView(
            verdict=found.verdict, starts=found.starts_s, text=found.text, servers=list(found.servers)
        )

    def compare(self, blob: bytes, policies: Sequence[str]) -> list[WhatIfOutcome]:
        """What each policy would do from here on. Raises InputError for one that doesn't exist."""
        outlooks = compare(
            blob,
            policies,
            horizon_s=self.horizon_s,
            overheads=self.overheads,
            need=self.need,
            most_passes=self.most_passes,
        )
        return [
            WhatIfOutcome(
                policy=one.policy,
                finished=one.finished,
                unfinished=one.unfinished,
                mean_jct_s=one.mean_jct_s,
                mean_queuing_s=one.mean_queuing_s,
                preemptions=one.preemptions,
            )
            for one in outlooks
        ]


def dry_run(
    cluster: Cluster,
    policy: Policy,
    spec: JobSpec,
    *,
    horizon_s: float = HORIZON_S,
    overheads: Overheads | None = None,
    need: NeedAt | None = None,
    most_passes: int = MOST_PASSES,
) -> DryRun:
    """Submit a job to a copy of the cluster, which is used up by that, and see when it starts.

    It comes at `spec.submit_s`, or at the cluster's time if that is later. Raises IllegalTransitionError for
    a job that can't be submitted.
    """
    job_id, at_s = spec.job_id, max(spec.submit_s, cluster.now)
    fits = policy.could_ever_start(cluster, spec)
    evolve(cluster, Submitted(at_s, spec))
    job = cluster.jobs[job_id]
    if not fits:
        why = sentence(_for_ever(policy.explain(cluster, job_id)), at_s, names=False)
        return DryRun("never", None, f"It could never start here: {why}")
    loop = _looking_ahead(cluster, policy, overheads, need, at_s + horizon_s)
    loop.decide()
    if job.attempt:
        return DryRun("now", at_s, f"It would start at once on {_listed(job.slots)}.", tuple(job.slots))
    why = sentence(policy.explain(cluster, job_id), at_s, names=False)
    while loop.passes < most_passes and loop.step():
        if job.attempt:
            after = human_seconds(job.launched_s - at_s)
            text = f"It would start in about {after} on {_listed(job.slots)}. At first: {why}"
            return DryRun("later", job.launched_s, text, tuple(job.slots))
    return DryRun("unknown", None, f"{_no_end(loop, at_s, horizon_s, most_passes)} At first: {why}")


def compare(
    blob: bytes,
    policies: Sequence[str],
    *,
    horizon_s: float = HORIZON_S,
    overheads: Overheads | None = None,
    need: NeedAt | None = None,
    most_passes: int = MOST_PASSES,
) -> list[Outlook]:
    """What each policy would make of the jobs of a snapshot, from there on and without any new ones.

    Estimates are taken for true. Raises InputError for a policy that doesn't exist.
    """
    deciders = [parse_policy(name) for name in policies]
    return [_outlook(restore(blob), one, horizon_s, overheads, need, most_passes) for one in deciders]


def _outlook(
    cluster: Cluster,
    policy: Policy,
    horizon_s: float,
    overheads: Overheads | None,
    need: NeedAt | None,
    most_passes: int,
) -> Outlook:
    tally = _Tally(
        {
            job_id: job.spec.submit_s
            for job_id, job in cluster.jobs.items()
            if job.state is not JobState.CANCELLING
        }
    )
    blind = sum(cluster.jobs[job_id].spec.estimate_s is None for job_id in tally.submitted_s)
    rebuild(cluster, policy)
    loop = _looking_ahead(cluster, policy, overheads, need, cluster.now + horizon_s, (tally,))
    loop.decide()
    while cluster.jobs and loop.passes < most_passes and loop.step():
        pass
    finished = len(tally.jct_s)
    return Outlook(
        policy.name,
        finished,
        len(tally.submitted_s) - finished,
        _mean(list(tally.jct_s.values())),
        _mean([tally.queuing_s.get(job_id, 0.0) for job_id in tally.jct_s]),
        tally.preemptions,
        blind,
    )


@dataclass(slots=True)
class _Tally:
    """Watches what becomes of the jobs."""

    submitted_s: dict[str, float]
    jct_s: dict[str, float] = field(default_factory=dict)
    queuing_s: dict[str, float] = field(default_factory=dict)
    preemptions: int = 0

    def saw(self, event: Event, cluster: Cluster) -> None:
        if isinstance(event, Finished) and cluster.ended.get(event.job_id) is JobState.SUCCEEDED:
            if event.job_id in self.submitted_s:
                self.jct_s[event.job_id] = event.at - self.submitted_s[event.job_id]
        elif isinstance(event, PlanCommitted):
            for step in event.plan.steps:
                if isinstance(step, Launch):
                    waited_s = event.at - cluster.jobs[step.job_id].pending_since_s
                    self.queuing_s[step.job_id] = self.queuing_s.get(step.job_id, 0.0) + waited_s
                elif isinstance(step, Stop) and step.cause not in _NOT_PREEMPTED:
                    self.preemptions += 1


def _looking_ahead(
    cluster: Cluster,
    policy: Policy,
    overheads: Overheads | None,
    need: NeedAt | None,
    until_s: float,
    watchers: Sequence[Watcher] = (),
) -> Loop:
    """The ordinary loop, about to make its first pass over the cluster as it stands."""
    driver = SimDriver(
        (),
        {job_id: _expected_s(cluster, job_id) for job_id in cluster.jobs},
        demand=None if need is None else _foretold(cluster, need),
        overheads=overheads
        or Overheads(cluster.restart_s, cluster.resize_s, cluster.vacate_s, load_s=cluster.load_s),
        until_s=until_s,
    )
    driver.take_over(cluster)
    return Loop(cluster, policy, driver, watchers=watchers)


def _expected_s(cluster: Cluster, job_id: str) -> float:
    """How long a job is supposed to take, in base seconds; one that has outlived its estimate is nearly
    done.
    """
    job = cluster.jobs[job_id]
    estimate_s, done_s = job.spec.estimate_s, job.progress.done_at(cluster.now)
    if estimate_s is None:
        return math.inf
    return estimate_s if estimate_s > done_s else done_s + OVERDUE_S


def _foretold(cluster: Cluster, need: NeedAt) -> Iterator[DemandReported]:
    """Reports as the inference side would make them, each with the highest need until a reclaim could have
    answered the next one.
    """
    began_s = cluster.now
    lead_s = REPORT_EVERY_S + cluster.reclaim_within_s + cluster.vacate_s + cluster.load_s
    ahead = range(math.ceil(lead_s / REPORT_EVERY_S) + 1)
    tick = 0
    while True:
        tick += 1
        servers = [need(began_s + (tick + more) * REPORT_EVERY_S) for more in ahead]
        yield DemandReported(began_s + tick * REPORT_EVERY_S, servers[0], max(servers))


def _for_ever(reason: WaitReason) -> WaitReason:
    """Why a policy that could never start a job says no."""
    known = reason.wait in (Wait.NO_MATCHING_GPU, Wait.TOO_LARGE)
    return reason if known else replace(reason, wait=Wait.TOO_LARGE)


def _no_end(loop: Loop, at_s: float, horizon_s: float, most_passes: int) -> str:
    """Why no start is in sight."""
    cluster = loop.cluster
    if loop.passes >= most_passes:
        seen = human_seconds(cluster.now - at_s)
        return (
            f"It can't be said when it would start: not within the next {seen}, as far as was looked ahead."
        )
    blind = sum(job.spec.estimate_s is None for job in cluster.live.values())
    if blind:
        jobs = "a job has" if blind == 1 else f"{blind} jobs have"
        return f"It can't be said when it would start: {jobs} no estimate and may hold its place."
    return f"No start is in sight within {human_seconds(horizon_s)}: nothing foreseen makes room for it."


def _listed(servers: Iterable[str]) -> str:
    names = list(servers)
    if len(names) <= MOST_SERVERS_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:MOST_SERVERS_NAMED])} and {len(names) - MOST_SERVERS_NAMED} more servers"


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
