"""Same jobs, same rules, same numbers: those that others published, and those of a brute-force simulator.

One pool counted in GPUs, gangs, no overheads; at one instant completions come first, then arrivals, then one
pass; ties by (submission, position). Preemption keeps all progress.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.model import JobSpec, Pool, ServerSpec
from aryl.policies.catalogue import parse_policy
from aryl.scheduler.journal import MemoryJournal
from aryl.scheduler.loop import Loop
from aryl.sim.driver import Overheads, SimDriver

DATA = os.environ.get("ARYL_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="set ARYL_DATA to the folder with the traces")


@needs_data
@pytest.mark.parametrize(
    ("trace", "gpus", "policy", "mean_jct_s"),
    [
        ("itp06.csv", 128, "fifo", 81209.76),
        ("itp06.csv", 128, "srtf", 29500.92),
        ("philly10k.csv", 512, "fifo", 17949.00),
    ],
)
def test_the_published_figures_come_out_to_the_cent(
    trace: str, gpus: int, policy: str, mean_jct_s: float
) -> None:
    path = Path(DATA or "") / "anchors" / trace
    begin = "from aryl.cli.main import main; main()"
    command = [sys.executable, "-c", begin, "simulate", "--trace", str(path)]
    command += ["--training-servers", "1", "--gpus-per-server", str(gpus), "--inference-servers", "0"]
    command += ["--policy", policy, "--set", "simulation.restart_s=0", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (run,) = json.loads(done.stdout)["runs"]
    with path.open(encoding="utf-8") as file:
        assert run["finished"] == run["jobs"] == sum(1 for _ in csv.DictReader(file))
    assert round(run["jct_s"]["mean"], 2) == mean_jct_s


Row = tuple[float, int, float]  # submission, GPUs, duration


def brute_force(rows: list[Row], gpus: int, policy: str) -> dict[int, float]:
    """When each job ends. The state is what is left of whom and who runs; nothing else is kept."""
    left = [duration_s for _, _, duration_s in rows]
    waiting: list[int] = []
    running: list[int] = []
    ends: dict[int, float] = {}
    now, arrived = 0.0, 0
    while len(ends) < len(rows):
        next_end = min((now + left[job] for job in running), default=float("inf"))
        next_arrival = rows[arrived][0] if arrived < len(rows) else float("inf")
        then = min(next_end, next_arrival)
        over = [job for job in running if now + left[job] == then]
        for job in running:
            left[job] = 0.0 if job in over else left[job] - (then - now)
        now = then
        ends.update(dict.fromkeys(over, now))
        running = [job for job in running if job not in over]
        while arrived < len(rows) and rows[arrived][0] == now:
            waiting.append(arrived)
            arrived += 1
        if policy == "srtf":
            waiting, running = sorted(waiting + running, key=lambda job: (left[job], job)), []
        order = (
            sorted(waiting, key=lambda job: (left[job], job))
            if policy in ("sjf", "srtf")
            else sorted(waiting)
        )
        free = gpus - sum(rows[job][1] for job in running)
        for job in order:
            if rows[job][1] <= free:
                free -= rows[job][1]
                running.append(job)
            elif policy == "fifo":
                break
        waiting = [job for job in waiting if job not in running]
    return ends


def simulated(rows: list[Row], gpus: int, policy_name: str) -> dict[int, float]:
    policy = parse_policy(policy_name)
    specs = [
        JobSpec(str(number), number, submit_s, size, size, estimate_s=duration_s)
        for number, (submit_s, size, duration_s) in enumerate(rows)
    ]
    driver = SimDriver(
        [ev.Submitted(spec.submit_s, spec) for spec in specs],
        {spec.job_id: spec.estimate_s or 0.0 for spec in specs},
        overheads=Overheads(0.0, 0.0, 0.0),
    )
    journal = MemoryJournal()
    loop = Loop(Cluster(policy.order), policy, driver, journal=journal)
    loop.record(ev.ClusterDeclared(0.0, (ServerSpec("T1", Pool.TRAINING, "V100", gpus),)))
    loop.run()
    return {int(event.job_id): event.at for event in journal.events if isinstance(event, ev.Finished)}


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "sjf", "srtf"])
@settings(deadline=None, max_examples=120)
@given(
    gpus=st.sampled_from((4, 8, 13)),
    jobs=st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 13), st.integers(1, 40)), min_size=1, max_size=25
    ),
)
def test_every_finishing_time_is_that_of_the_brute_force_simulator(
    policy: str, gpus: int, jobs: list[tuple[int, int, int]]
) -> None:
    rows: list[Row] = sorted((float(at), min(size, gpus), float(length)) for at, size, length in jobs)
    expected = brute_force(rows, gpus, policy)
    found = simulated(rows, gpus, policy)
    assert found == expected
    jcts = [end_s - rows[job][0] for job, end_s in found.items()]
    assert statistics.fmean(jcts) == pytest.approx(
        statistics.fmean(expected[job] - rows[job][0] for job in expected)
    )


def test_the_brute_force_simulator_is_right_about_a_case_worked_out_by_hand() -> None:
    """4 GPUs. Two jobs of 3 and one of 1 that could pass the second; the last is short."""
    rows: list[Row] = [(0.0, 3, 10.0), (1.0, 3, 10.0), (2.0, 1, 4.0), (3.0, 4, 1.0)]
    assert brute_force(rows, 4, "fifo") == {0: 10.0, 1: 20.0, 2: 14.0, 3: 21.0}
    assert brute_force(rows, 4, "fifo-skip") == {2: 6.0, 0: 10.0, 1: 20.0, 3: 21.0}
    assert brute_force(rows, 4, "sjf") == {2: 6.0, 0: 10.0, 3: 11.0, 1: 21.0}
    assert brute_force(rows, 4, "srtf") == {3: 4.0, 2: 7.0, 0: 11.0, 1: 21.0}
