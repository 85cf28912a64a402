"""The code that is simulated is the code that runs: one small trace, simulated and run with real processes,
gives the same plans in the same order at the same instants.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.worlds import RealWorld

from aryl.core import events as ev
from aryl.core.plan import Launch, Plan
from aryl.policies.catalogue import parse_policy
from aryl.scheduler.journal import MemoryJournal
from aryl.sim.experiment import Experiment
from aryl.sim.run import simulate
from aryl.sim.world import Workload, World, build_world, load_workload
from aryl.testing import experiment, job

OUTSIDE = (ev.Submitted, ev.Finished, ev.DemandReported, ev.Tick)
POLICIES = ["fifo", "srtf", "aryl:min_interval=0,cooldown=0"]
# Times such that no two things happen at once: real completions can't be made to.
JOBS = [
    job("a", 3, submit="1s", duration="10m3s"),
    job("b", (2, 6), submit="1m7s", work="60 gpu-min", fungible=True, heterogeneous=True),
    job("c", 4, submit="2m11s", duration="20m5s"),
    job("d", 2, submit="3m13s", duration="4m7s", fungible=True),
    job("e", (1, 4), submit="5m17s", work="24 gpu-min"),
    job("f", 4, submit="12m19s", duration="5m11s", priority=3),
    job("g", 1, submit="13m23s", duration="3m1s", fungible=True),
]


def small_trace(policy: str) -> Experiment:
    like: dict[str, Any] = {"gpus_per_server": 4, "gpu_type": "V100"}
    return experiment(
        JOBS,
        training={"servers": 2, **like},
        inference={"servers": 2, "speed": 1.0, **like},
        demand=[(0, 2), ("4m", 0), ("14m", 2)],
        policy=policy,
        simulation={"interval": 60, "restart_s": 0, "resize_s": 0, "checkpoint": "continuous", "until": "3h"},
    )


def plans_of(events: list[ev.Event]) -> list[tuple[float, Plan]]:
    return [(event.at, event.plan) for event in events if isinstance(event, ev.PlanCommitted)]


def simulated(trace: Experiment, policy: str) -> tuple[World, Workload, list[ev.Event]]:
    decider = parse_policy(policy)
    workload = load_workload(trace)
    world = build_world(trace, workload, decider)
    journal = MemoryJournal()
    simulate(world, decider, workload, (), journal)
    return world, workload, journal.events


@pytest.mark.parametrize("policy", POLICIES)
def test_a_small_trace_gives_the_same_plans_simulated_and_with_real_processes(
    policy: str, tmp_path: Path
) -> None:
    world, _, events = simulated(small_trace(policy), policy)
    real = RealWorld(tmp_path, replace(world.declared, confirms_loans=False), policy)
    try:
        outside = [event for event in events[1:] if isinstance(event, OUTSIDE)]
        assert len({event.at for event in outside}) == len(outside)
        for event in outside:
            real.at(event.at)
            match event:
                case ev.Submitted():
                    real.submit([event.job])
                case ev.Finished():
                    real.finish(event.job_id)
                case ev.DemandReported():
                    real.demand(event.need_servers, event.forecast_servers)
                case ev.Tick():
                    real.tick()
        expected = plans_of(events)
        launched = {step.job_id for _, plan in expected for step in plan.steps if isinstance(step, Launch)}
        assert launched == {one["id"] for one in JOBS}
        assert plans_of(real.journal.events) == expected
    finally:
        real.close()
