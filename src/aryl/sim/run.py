"""One run: one experiment under one policy, from the first submission to the last completion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from aryl.core.cluster import Cluster
from aryl.files.inference_fields import ORACLE
from aryl.policies.catalogue import parse_policy
from aryl.policies.policy import Policy
from aryl.report.outcome import Outcome
from aryl.report.recorder import Recorder
from aryl.scheduler.journal import FileJournal
from aryl.scheduler.loop import Loop
from aryl.scheduler.ports import Journal, Watcher
from aryl.sim.audit import Audit
from aryl.sim.experiment import Experiment
from aryl.sim.limit import bound_of
from aryl.sim.world import Workload, World, build_world, load_workload

OnProgress = Callable[[float, str], None]

# The invariants are checked after one in so many events, which takes about a hundredth of a run's time; tests
# set it to 1.
EVENTS_PER_AUDIT = 5_000

# Progress is told after this many turns of the loop: often enough to look smooth, seldom enough to cost
# nothing.
TURNS_PER_REPORT = 2_000


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came out. Picklable."""

    policy: str
    outcome: Outcome

    @property
    def summary(self) -> dict[str, Any]:
        """One element of `runs` in the JSON contract."""
        return self.outcome.summary()


def run(
    experiment: Experiment,
    policy: str,
    *,
    journal: Path | None = None,
    schedule: bool = False,
    on_progress: OnProgress | None = None,
) -> RunResult:
    """Simulate. `schedule`: also keep who held which GPUs when; `on_progress` gets a share of 0..1 and a few
    words.

    Raises InputError for input that can't be used; nothing has been written then.
    """
    began_s = perf_counter()
    decider = parse_policy(policy, seed=experiment.simulation.seed)
    workload = load_workload(experiment)
    world = build_world(experiment, workload, decider)
    recorder = Recorder(schedule=schedule)
    watchers: list[Watcher] = [recorder, Audit(every=1 if experiment.simulation.check else EVENTS_PER_AUDIT)]
    if journal is None:
        loop = simulate(world, decider, workload, watchers, None, on_progress)
    else:
        with journal.open("w", encoding="utf-8", newline="\n") as file:
            loop = simulate(world, decider, workload, watchers, FileJournal(file), on_progress)
    outcome = recorder.outcome(
        policy=decider.name,
        trace=workload.trace,
        seed=workload.seed,
        durations_s=workload.durations_s,
        bound=bound_of(experiment, workload),
        wall_s=perf_counter() - began_s,
        policy_wall_s=loop.policy_wall_s,
        events=loop.events,
        end_s=experiment.simulation.until if loop.cluster.jobs else None,
        refused=world.refused,
        notes=_notes(experiment),
    )
    return RunResult(decider.name, outcome)


def _notes(experiment: Experiment) -> tuple[str, ...]:
    """How to read the results."""
    if experiment.cluster.inference.servers and experiment.inference.forecast.predictor == ORACLE:
        return ("The demand forecast is an oracle: it looks ahead in the curve, which no real forecast can.",)
    return ()


def simulate(
    world: World,
    policy: Policy,
    workload: Workload,
    watchers: Sequence[Watcher] = (),
    journal: Journal | None = None,
    on_progress: OnProgress | None = None,
) -> Loop:
    """Drive a world to its end and return the loop with the final state."""
    loop = Loop(Cluster(policy.order), policy, world.driver, journal=journal, watchers=watchers)
    loop.record(world.declared)
    jobs, cluster, turns = max(len(workload.specs), 1), loop.cluster, 0
    while loop.step():
        if world.driver.quiet and not cluster.jobs:
            break
        turns += 1
        if on_progress is not None and turns % TURNS_PER_REPORT == 0:
            on_progress(
                len(cluster.ended) / jobs, f"{len(cluster.pending)} waiting, {len(cluster.live)} running"
            )
    if on_progress is not None:
        on_progress(1.0, "done")
    return loop
