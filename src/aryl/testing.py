"""For tests: run a scenario and ask what happened, or put a cluster together by hand and ask a policy.

Two doors. `run_scenario` simulates an experiment (a file, a mapping or a model) under one policy with every
check on, and returns a `Record` that answers questions about any instant: who held what, who was stopped for
whom, why a job waited. `Scene` builds a state fact by fact, for tests of a single decision on a small
cluster.

Besides the invariants of the state after every event, `run_scenario` checks what only a pass can show:
asked again about the state that it has just made, the policy plans nothing (quiescence); and no job waits
for its base demand while flexible workers that it could displace would make room, unless the policy names
another reason for the wait.

Instants are seconds, or texts such as `90s`, `10m` or `1h30m`, counted from the start of the simulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aryl.core import events as ev
from aryl.core import upkeep
from aryl.core.check import check
from aryl.core.cluster import Cluster
from aryl.core.decision import Decision
from aryl.core.diff import diff
from aryl.core.evolve import evolve
from aryl.core.invariants import verify
from aryl.core.model import JobSpec, Pool, ServerSpec, Slot
from aryl.core.plan import Launch, Loan, Plan, Reclaim, Release, Reserve, Resize, Return, Stop
from aryl.errors import InputError, InvariantError
from aryl.files import units
from aryl.policies.aryl import Aryl
from aryl.policies.catalogue import parse_policy
from aryl.policies.displace import without_flexible
from aryl.policies.draft import Draft
from aryl.policies.placement import place_base
from aryl.policies.policy import Policy
from aryl.policies.reasons import Wait, WaitReason
from aryl.report.outcome import Outcome
from aryl.report.recorder import Recorder
from aryl.scheduler.journal import MemoryJournal, replay
from aryl.scheduler.loop import Loop
from aryl.sim.audit import Audit
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import experiment_from_mapping, load_experiment, with_overrides
from aryl.sim.limit import bound_of
from aryl.sim.world import build_world, load_workload

__all__ = ["At", "Record", "Scene", "experiment", "job", "run_scenario", "servers"]

At = float | str
S = TypeVar("S", Launch, Resize, Stop, Reserve, Release, Loan, Reclaim, Return)

# Waits that are the policy's own will although the job would fit over flexible workers.
_DELIBERATE = frozenset({Wait.RESERVED, Wait.FASTER_LATER, Wait.BEHIND_THE_HEAD})


def job(job_id: str, workers: int | tuple[int, int] | Mapping[str, object], **more: object) -> dict[str, Any]:
    """A job of an inline experiment: `job("E", (4, 16), submit="10m", duration="2h")`. Keys as in the file
    format.
    """
    shape = list(workers) if isinstance(workers, tuple) else workers
    if "duration" not in more and "work" not in more:
        more = {"duration": "1h", **more}
    return {"id": job_id, "workers": shape, **more}


def experiment(
    jobs: Sequence[Mapping[str, object]],
    *,
    training: int | Mapping[str, object] = 1,
    inference: int | Mapping[str, object] = 0,
    demand: Sequence[tuple[At, float]] = (),
    policy: str = "aryl",
    **sections: object,
) -> Experiment:
    """An experiment in memory. A number stands for that many servers of 8 V100s in either pool.

    `demand`: the need of the inference pool as (time, servers), without headroom and without lead;
    `sections` are further top-level keys of the file format and win over what follows from the other
    arguments. Overheads are zero unless `simulation` says otherwise. Raises InputError as reading a file
    would.
    """
    like = {"gpu_type": "V100", "speed": 1.0}
    data: dict[str, Any] = {
        "cluster": {
            "training": {"servers": training} if isinstance(training, int) else dict(training),
            "inference": {"servers": inference, **like} if isinstance(inference, int) else dict(inference),
        },
        "jobs": [dict(one) for one in jobs],
        "policies": [policy],
        "simulation": {"interval": 60, "restart_s": 0, "resize_s": 0, "check": True},
    }
    if demand:
        points = [list(point) for point in demand]
        data["inference"] = {"points": points, "headroom": 0, "lead": 0, "forecast": "oracle"}
    return experiment_from_mapping(data | sections)


def run_scenario(
    scenario: Path | str | Mapping[str, Any] | Experiment,
    policy: str | None = None,
    *,
    overrides: Sequence[str] = (),
) -> Record:
    """Simulate a scenario under one policy (default: the only one that it names), with every check on.

    `overrides` are settings such as `simulation.restart_s=0`. Raises InputError for a scenario that can't
    be used or leaves the choice of a policy open, and InvariantError at the first event or pass that is
    wrong.
    """
    if isinstance(scenario, Mapping):
        loaded = experiment_from_mapping(scenario)
    else:
        loaded = scenario if isinstance(scenario, Experiment) else load_experiment(scenario)
    if overrides:
        loaded = with_overrides(loaded, overrides)
    if policy is None:
        if len(loaded.policies) != 1:
            raise InputError(
                "say which policy", field="policies", found=", ".join(loaded.policies), expected="one policy"
            )
        policy = loaded.policies[0]
    decider = parse_policy(policy, seed=loaded.simulation.seed)
    workload = load_workload(loaded)
    world = build_world(loaded, workload, decider)
    recorder, journal = Recorder(schedule=True), MemoryJournal()
    watchers = (recorder, Audit())
    loop = Loop(Cluster(decider.order), decider, world.driver, journal=journal, watchers=watchers)
    loop.record(world.declared)
    passes = 0
    while loop.step():
        if loop.passes > passes:
            passes = loop.passes
            verify_rest(loop.cluster, decider)
        if world.driver.quiet and not loop.cluster.jobs:
            break
    outcome = recorder.outcome(
        policy=decider.name,
        trace=workload.trace,
        seed=workload.seed,
        durations_s=workload.durations_s,
        bound=bound_of(loaded, workload),
        events=loop.events,
    )
    return Record(loaded, decider, loop, tuple(journal.events), outcome)


def verify_rest(cluster: Cluster, policy: Policy) -> None:
    """Raise InvariantError if the policy, asked again right after a pass, wants more, or lets a gang wait for
    flexible workers.
    """
    again = policy.decide(cluster)
    if not again.empty or upkeep.due(cluster).steps:
        raise InvariantError(f"at {cluster.now} s: no rest after a pass, {policy.name} now wants {again}")
    if not isinstance(policy, Aryl) or policy.scaling is None or not cluster.flexible_mask:
        return
    for entry in cluster.pending:
        waiting = cluster.jobs[entry.job_id]
        index = without_flexible(Draft(cluster), waiting.spec.priority)
        if place_base(index, cluster, waiting.spec, waiting.min_workers, policy.scatter) is None:
            continue
        reason = policy.explain(cluster, entry.job_id)
        if reason.wait not in _DELIBERATE:
            raise InvariantError(f"at {cluster.now} s: flexible workers hold back {entry.job_id}: {reason}")


@dataclass(frozen=True)
class Record:
    """What happened in a run. `events` is the whole journal; `loop.cluster` the state at the end."""

    experiment: Experiment
    policy: Policy
    loop: Loop
    events: tuple[ev.Event, ...]
    outcome: Outcome

    def state_at(self, at: At) -> Cluster:
        """The state right after everything that happened until `at`, that instant included."""
        at_s = units.seconds(at)
        return replay(Cluster(self.policy.order), [event for event in self.events if event.at <= at_s])

    def workers_of(self, job_id: str, at: At) -> dict[str, int]:
        """Live workers of a job by server; empty if it doesn't run then."""
        found = self.state_at(at).jobs.get(job_id)
        return {} if found is None else {name: slot.workers for name, slot in found.slots.items()}

    def size_of(self, job_id: str, at: At) -> int:
        """Live workers of a job."""
        return sum(self.workers_of(job_id, at).values())

    def sizes(self, job_id: str) -> list[tuple[float, int]]:
        """Every change of a job's number of live workers, as (seconds, workers), the first launch first."""
        sizes = [(0.0, 0)]
        for at_s, cluster in self._states():
            found = cluster.jobs.get(job_id)
            workers = found.workers if found else 0
            if workers != sizes[-1][1]:
                sizes.append((at_s, workers))
        return sizes[1:]

    def reason(self, job_id: str, at: At) -> WaitReason:
        """Why a job waits at an instant. Raises KeyError for a job that isn't there then."""
        return self.policy.explain(self.state_at(at), job_id)

    def steps(self, kind: type[S], job_id: str | None = None) -> list[tuple[float, S]]:
        """Every committed step of a kind with its time; with `job_id`, those of one job."""
        return [
            (event.at, step)
            for event in self.events
            if isinstance(event, ev.PlanCommitted)
            for step in event.plan.steps
            if isinstance(step, kind) and (job_id is None or getattr(step, "job_id", None) == job_id)
        ]

    def stops(self, job_id: str | None = None) -> list[tuple[float, Stop]]:
        """Every stop of a running job: preemptions, and those for lost servers, limits or cancellation."""
        return self.steps(Stop, job_id)

    def resizes(self, job_id: str | None = None) -> list[tuple[float, Resize]]:
        """Every resize."""
        return self.steps(Resize, job_id)

    def starts(self, job_id: str) -> list[float]:
        """When each attempt of a job was launched."""
        return [at for at, _ in self.steps(Launch, job_id)]

    def started_at(self, job_id: str) -> float:
        """When a job was first launched; inf if never."""
        return next(iter(self.starts(job_id)), float("inf"))

    def ended_at(self, job_id: str) -> float:
        """When a job finished; inf if it didn't."""
        return next(
            (event.at for event in self.events if isinstance(event, ev.Finished) and event.job_id == job_id),
            float("inf"),
        )

    def recalled(self) -> dict[str, float]:
        """The servers that were asked back, with the time of the (last) request."""
        return {step.server_id: at for at, step in self.steps(Reclaim)}

    def returned(self) -> dict[str, float]:
        """The servers that went back to the inference pool, with the (last) time."""
        return {step.server_id: at for at, step in self.steps(Return)}

    def used_share(self, begin: At, end: At) -> float:
        """Share of all GPU time in [begin, end] in which GPUs were held by jobs, leaving workers included."""
        begin_s, end_s = units.seconds(begin), units.seconds(end)
        held_gpu_s, since_s, held_gpus, gpus = 0.0, begin_s, 0, 1
        for at_s, cluster in self._states():
            now_s = min(max(at_s, begin_s), end_s)
            held_gpu_s += held_gpus * (now_s - since_s)
            since_s = now_s
            held_gpus = sum(server.used + server.leaving for server in cluster.servers)
            gpus = sum(server.spec.gpus for server in cluster.servers)
        return (held_gpu_s + held_gpus * (end_s - since_s)) / (gpus * (end_s - begin_s))

    def _states(self) -> Iterator[tuple[float, Cluster]]:
        """The state after each event, one and the same object."""
        cluster = Cluster(self.policy.order)
        for event in self.events:
            evolve(cluster, event)
            yield event.at, cluster

    def passes_without_action(self, times: int) -> int:
        """Let the loop decide again on the final state; how many of `times` passes planned nothing."""
        quiet = 0
        for _ in range(times):
            before = self.loop.events
            self.loop.decide()
            quiet += self.loop.events == before
        return quiet


def servers(
    count: int,
    prefix: str = "T",
    *,
    gpus: int = 8,
    gpu_type: str = "V100",
    speed: float = 1.0,
    pool: Pool | None = None,
) -> tuple[ServerSpec, ...]:
    """Servers `prefix`1, `prefix`2, ...; those that begin with I belong to the inference pool unless `pool`
    is given.
    """
    owner = pool or (Pool.INFERENCE if prefix.startswith("I") else Pool.TRAINING)
    return tuple(
        ServerSpec(f"{prefix}{number}", owner, gpu_type, gpus, speed) for number in range(1, count + 1)
    )


class Scene:
    """A state built by hand, through `evolve` alone, and a policy to ask about it.

    `specs` are the servers (see `servers`) and `rules` the other fields of `ClusterDeclared`, such as
    `vacate_s` or `guaranteed`. After every step the invariants of the state are verified (InvariantError).
    """

    def __init__(self, *specs: ServerSpec, policy: str | Policy = "aryl", **rules: Any) -> None:
        self.policy = parse_policy(policy) if isinstance(policy, str) else policy
        self.cluster = Cluster(self.policy.order)
        self._sequence = 0
        self.happens(ev.ClusterDeclared(0.0, specs, **rules))

    def happens(self, *events: ev.Event) -> Scene:
        """Let facts change the state."""
        for event in events:
            evolve(self.cluster, event)
            verify(self.cluster)
        return self

    def at(self, at: At) -> Scene:
        """Let time pass until an instant."""
        return self.happens(ev.Tick(units.seconds(at)))

    def submit(self, job_id: str, workers: int, most: int | None = None, **spec: Any) -> JobSpec:
        """Submit a job now. `spec`: further fields of `JobSpec`; the estimate is an hour by default."""
        fields = {"estimate_s": 3600.0, **spec}
        submitted = JobSpec(job_id, self._sequence, self.cluster.now, workers, most or workers, **fields)
        self._sequence += 1
        self.happens(ev.Submitted(self.cluster.now, submitted))
        return submitted

    def run(self, job_id: str, on: Mapping[str, int | tuple[int, int]], **spec: Any) -> JobSpec:
        """Submit a job and let it run, with workers `on` servers, as base workers or as (base, flexible).

        All base workers are the gang; `most` may be more than stands there.
        """
        shares = {name: share if isinstance(share, tuple) else (share, 0) for name, share in on.items()}
        base = sum(share[0] for share in shares.values())
        most = spec.pop("most", sum(sum(share) for share in shares.values()))
        submitted = self.submit(job_id, base, most, **spec)
        slots = []
        for name, share in shares.items():
            stand = self.cluster.stand_on(submitted, self.cluster.server_by_id[name].shelf)
            per_worker = stand.gpus_per_worker if stand else submitted.gpus_per_worker
            slots.append(Slot(name, *share, per_worker))
        attempt = self.cluster.jobs[job_id].attempt + 1
        self._commit(Plan((Launch(job_id, attempt, tuple(slots)),)))
        self.happens(ev.Launched(self.cluster.now, job_id, attempt))
        return submitted

    def finish(self, job_id: str) -> Scene:
        """Let a running job end."""
        return self.happens(ev.Finished(self.cluster.now, job_id, self.cluster.jobs[job_id].attempt))

    def lend(self, *server_ids: str) -> Scene:
        """Put inference servers on loan."""
        self._commit(Plan(tuple(Loan(name) for name in server_ids)))
        return self

    def demand(self, need: float, forecast: float | None = None) -> Scene:
        """The inference side reports its need, and a forecast (default: the same), in servers."""
        return self.happens(ev.DemandReported(self.cluster.now, need, need if forecast is None else forecast))

    def decide(self) -> Decision:
        """What the policy wants now; checked, not carried out."""
        decision = self.policy.decide(self.cluster)
        check(self.cluster, decision)
        return decision

    def carry_out(self) -> Plan:
        """One pass: what the policy wants is committed and returned. Then the policy must be at rest."""
        plan = self._commit(diff(self.cluster, self.decide()))
        follows = self._commit(upkeep.due(self.cluster))
        verify_rest(self.cluster, self.policy)
        return Plan((*plan.steps, *follows.steps))

    def vacated(self) -> Scene:
        """The world confirms that all workers that were told to leave are gone; then what is due follows."""
        for job_id, found in tuple(self.cluster.jobs.items()):
            if found.stopping:
                kept_s = found.progress.saved_s
                self.happens(ev.Stopped(self.cluster.now, job_id, found.attempt, kept_s))
            elif found.leaving:
                gone = tuple(Slot(name, 0, gpus, 1) for name, gpus in found.leaving.items())
                self.happens(ev.Vacated(self.cluster.now, job_id, found.attempt, gone))
        self._commit(upkeep.due(self.cluster))
        return self

    def _commit(self, plan: Plan) -> Plan:
        if plan.steps:
            self.happens(ev.PlanCommitted(self.cluster.now, plan))
        return plan

    def explain(self, job_id: str) -> WaitReason:
        """Why a job waits."""
        return self.policy.explain(self.cluster, job_id)
