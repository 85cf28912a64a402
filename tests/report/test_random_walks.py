"""Clusters that stumble about at random: what the files say must be what the cluster held at every instant.

The walk does what policies and worlds do, and more of it than they would: servers vanish while workers are
leaving, limits change under running jobs, reclaims are withdrawn, jobs end in every way.
"""

from __future__ import annotations

import csv
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aryl.core import events as ev
from aryl.core.invariants import verify
from aryl.core.model import LIVE_STATES, JobState, Pool, ServerSpec, Slot, Tenure
from aryl.core.plan import Cause, Loan, Reclaim, Return
from aryl.report.files import write_run

if TYPE_CHECKING:
    from tests.report.conftest import Drive

Held = dict[str, int]  # GPUs by server


class Walk:
    """One random walk and what the cluster held, by its own account, at the end of each instant."""

    def __init__(self, drive: Drive, random: Random) -> None:
        self.drive, self.random = drive, random
        self.held: dict[float, Held] = {}
        self.waited_s: dict[str, float] = defaultdict(float)
        self.owned = [(0.0, server.spec) for server in drive.cluster.servers]  # since when

    def run(self, steps: int) -> None:
        acts = (
            *[self.submit] * 3,
            *[self.launch] * 6,
            *[self.finish] * 2,
            self.grow,
            self.shrink,
            self.vacate,
            self.stop,
            self.stopped,
            self.cancel,
            self.limits,
            self.lend,
            self.recall,
            self.give_back,
            self.lose,
            self.find,
            self.join,
            self.need,
        )
        for _ in range(steps):
            if self.random.random() < 0.7:
                step_s = self.random.choice((0.5, 1.0, 7.0))
                self.drive.now_s += step_s
                for name, job in self.drive.cluster.jobs.items():
                    if job.state is JobState.PENDING:
                        self.waited_s[name] += step_s
            self.random.choice(acts)()
            self.drive.happens(ev.Tick(self.drive.now_s))
            verify(self.drive.cluster)
            self.held[self.drive.now_s] = {
                server.spec.server_id: server.used + server.leaving for server in self.drive.cluster.servers
            }

    def submit(self) -> None:
        least = self.random.randint(1, 6)
        most = least + self.random.choice((0, 0, 3))
        name = f"j{self.drive.sequence}"
        self.drive.submit(name, least, most, fungible=self.random.random() < 0.6)

    def some(self, *states: JobState) -> str | None:
        names = [
            name
            for name, job in self.drive.cluster.jobs.items()
            if job.state in states and job.trouble is None and name not in self.drive.cluster.claims
        ]
        return self.random.choice(names) if names else None

    def place(self, name: str, workers: int, *, base: bool) -> tuple[Slot, ...]:
        """Workers on whatever is free, of one GPU type; empty where they don't all fit."""
        cluster = self.drive.cluster
        job = cluster.jobs[name]
        pools = [Pool.TRAINING, Pool.INFERENCE] if job.spec.fungible else [Pool.TRAINING]
        pool = self.random.choice(pools)
        if job.slots:
            pool = cluster.server_by_id[next(iter(job.slots))].spec.pool
        gpus = 1 if pool is Pool.TRAINING else 2
        slots = []
        for server in cluster.servers:
            count = min(server.free // gpus, workers)
            if server.spec.pool is pool and server.placeable and count > 0:
                slots.append(Slot(server.spec.server_id, count * base, count * (not base), gpus))
                workers -= count
        return () if workers else tuple(slots)

    def launch(self) -> None:
        name = self.some(JobState.PENDING)
        slots = self.place(name, self.drive.cluster.jobs[name].min_workers, base=True) if name else ()
        if name and slots:
            self.drive.launch(name, *slots, up=self.random.random() < 0.8)

    def finish(self) -> None:
        name = self.some(*LIVE_STATES)
        if name:
            attempt = self.drive.cluster.jobs[name].attempt
            kind = self.random.choice((ev.Finished, ev.Finished, ev.Failed))
            self.drive.happens(kind(self.drive.now_s, name, attempt))

    def grow(self) -> None:
        name = self.some(*LIVE_STATES)
        job = self.drive.cluster.jobs[name] if name else None
        if name and job and job.workers < job.max_workers:
            slots = self.place(name, self.random.randint(1, job.max_workers - job.workers), base=False)
            if slots:
                self.drive.resize(name, add=slots)

    def shrink(self) -> None:
        name = self.some(*LIVE_STATES)
        slots = (
            [slot for slot in self.drive.cluster.jobs[name].slots.values() if slot.flexible] if name else []
        )
        if name and slots:
            slot = self.random.choice(slots)
            gone = slot._replace(base=0, flexible=self.random.randint(1, slot.flexible))
            self.drive.resize(name, remove=(gone,), cause=Cause.BASE_DEMAND)

    def vacate(self) -> None:
        leaving = [job for job in self.drive.cluster.jobs.values() if job.leaving and not job.stopping]
        if leaving:
            job = self.random.choice(leaving)
            server_id, gpus = self.random.choice(list(job.leaving.items()))
            per_worker = 1 if server_id.startswith("T") else 2
            count = self.random.randint(1, gpus // per_worker)
            self.drive.vacated(job.spec.job_id, Slot(server_id, 0, count, per_worker))

    def stop(self) -> None:
        troubled = [name for name in self.drive.cluster.troubled if self.random.random() < 0.9]
        name = troubled[0] if troubled else self.some(*LIVE_STATES)
        if name:
            cause = self.drive.cluster.jobs[name].trouble or Cause.RECLAIM
            self.drive.stop(name, cause)

    def stopped(self) -> None:
        for name in [name for name, job in self.drive.cluster.jobs.items() if job.stopping]:
            self.drive.stopped(name)

    def cancel(self) -> None:
        if self.drive.cluster.jobs and self.random.random() < 0.4:
            name = self.random.choice(list(self.drive.cluster.jobs))
            self.drive.happens(ev.CancelRequested(self.drive.now_s, name))
            if name in self.drive.cluster.troubled and not self.drive.cluster.jobs[name].stopping:
                self.drive.stop(name, Cause.CANCELLED)

    def limits(self) -> None:
        name = self.some(JobState.PENDING, *LIVE_STATES)
        if name:
            least = self.random.randint(1, 6)
            self.drive.happens(ev.LimitsChanged(self.drive.now_s, name, least, least + 2))

    def servers(self, tenure: Tenure) -> list[str]:
        return [
            server.spec.server_id
            for server in self.drive.cluster.servers
            if server.spec.pool is Pool.INFERENCE and server.tenure is tenure
        ]

    def lend(self) -> None:
        names = [*self.servers(Tenure.OWNED) * 3, *self.servers(Tenure.RECLAIMING)]
        if names:
            self.drive.plan(Loan(self.random.choice(names)))

    def recall(self) -> None:
        names = self.servers(Tenure.ON_LOAN)
        if names:
            self.drive.plan(Reclaim(self.random.choice(names), self.drive.now_s + 60.0))

    def give_back(self) -> None:
        for name in self.servers(Tenure.RECLAIMING):
            server = self.drive.cluster.server_by_id[name]
            if not server.used and not server.leaving:
                self.drive.plan(Return(name))

    def lose(self) -> None:
        if self.random.random() < 0.4:
            name = self.random.choice(self.drive.cluster.servers).spec.server_id
            self.drive.happens(ev.ServerLost(self.drive.now_s, name))

    def find(self) -> None:
        for server in self.drive.cluster.servers:
            if not server.up:
                self.drive.happens(ev.ServerReturned(self.drive.now_s, server.spec.server_id))

    def join(self) -> None:
        """Servers of both pools, up to four."""
        known = len(self.drive.cluster.servers)
        if known < 8 and self.random.random() < 0.2:
            spec = self.random.choice(
                (
                    ServerSpec(f"T{known}", Pool.TRAINING, "V100", 8),
                    ServerSpec(f"I{known}", Pool.INFERENCE, "T4", 8, 0.5),
                )
            )
            self.owned.append((self.drive.now_s, spec))
            self.drive.happens(ev.ServersJoined(self.drive.now_s, (spec,)))

    def need(self) -> None:
        self.drive.need(self.random.choice((0, 0.5, 1, 2)))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def overlap_s(row: dict[str, str], first_s: float, last_s: float) -> float:
    return max(0.0, min(float(row["end_s"]), last_s) - max(float(row["start_s"]), first_s))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_the_files_say_what_the_cluster_held(new_drive: Callable[..., Drive], seed: int) -> None:
    drive = new_drive(2, 2)
    walk = Walk(drive, Random(seed))
    walk.run(120)
    outcome = drive.outcome()
    end_s = drive.cluster.now
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run(outcome, folder)
        schedule, jobs = table(folder / "schedule.csv"), table(folder / "jobs.csv")
        loans = table(folder / "loans.csv")

    for now_s, held in walk.held.items():
        said = dict.fromkeys(held, 0)
        for row in schedule:
            if float(row["start_s"]) <= now_s < float(row["end_s"]):
                said[row["server"]] += int(row["gpus"])
        if now_s < end_s:
            assert said == held, f"at {now_s} s"
        assert all(gpus <= 8 for gpus in said.values())

    gpu_s: dict[str, float] = defaultdict(float)
    for row in schedule:
        gpu_s[row["job_id"]] += int(row["gpus"]) * overlap_s(row, 0.0, end_s)
        per_worker = 1 if row["pool"] == "training" else 2
        assert int(row["gpus"]) == int(row["workers"]) * per_worker
    for job in jobs:
        assert float(job["gpu_s"]) == pytest.approx(gpu_s[job["job_id"]])
        assert float(job["queuing_s"]) == walk.waited_s[job["job_id"]]
        present = drive.cluster.jobs.get(job["job_id"])
        state = present.state if present else drive.cluster.ended[job["job_id"]]
        assert job["state"] == state.value
        if present:
            assert (int(job["attempts"]), int(job["preemptions"])) == (present.attempt, present.preemptions)

    for row in schedule:
        if row["pool"] == "inference":
            assert any(
                loan["server"] == row["server"]
                and float(loan["lent_s"]) <= float(row["start_s"])
                and float(row["end_s"]) <= float(loan["returned_s"] or "inf")
                for loan in loans
            ), f"{row} outside any loan"

    if outcome.jobs.job_id:
        first_s, last_s = min(outcome.jobs.submit_s), max(outcome.jobs.submit_s)
        last_s = last_s if last_s > first_s else end_s
        busy = sum(
            int(row["gpus"]) * overlap_s(row, first_s, last_s)
            for row in schedule
            if row["pool"] == "training"
        )
        owned_gpu_s = sum(
            spec.gpus * max(0.0, last_s - max(since_s, first_s))
            for since_s, spec in walk.owned
            if spec.pool is Pool.TRAINING
        )
        share = busy / owned_gpu_s if last_s > first_s else 0.0
        assert outcome.usage.training == pytest.approx(share)

    summary = outcome.summary()
    parts = ("finished", "unfinished", "rejected", "failed", "cancelled")
    assert summary["jobs"] == sum(summary[part] for part in parts)
    assert summary["preemptions"] == sum(int(job["preemptions"]) for job in jobs)
    assert summary["lost_gpu_s"] >= 0.0
    waiting = sum(job.state is JobState.PENDING for job in drive.cluster.jobs.values())
    assert drive.recorder._pending == waiting
