"""A small cluster, moved by hand: no policy, no driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.property.snapshot import snapshot

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.invariants import verify
from aryl.core.model import JobSpec, Pool, ServerSpec, Slot
from aryl.core.plan import Cause, Claim, Launch, Plan, Reserve, Resize, Step, Stop
from aryl.errors import ArylError


def declared(training: int = 2, inference: int = 0, gpus: int = 8, **rules: Any) -> ev.ClusterDeclared:
    """T1.. with V100s and I1.. with T4s of half the speed."""
    servers = [ServerSpec(f"T{n + 1}", Pool.TRAINING, "V100", gpus) for n in range(training)]
    servers += [ServerSpec(f"I{n + 1}", Pool.INFERENCE, "T4", gpus, 0.5) for n in range(inference)]
    return ev.ClusterDeclared(0.0, tuple(servers), **rules)


def cluster_of(training: int = 2, inference: int = 0, gpus: int = 8, **rules: Any) -> Cluster:
    """An empty cluster whose queue is in the order of submission."""
    cluster = Cluster(lambda job, now_s: ())
    evolve(cluster, declared(training, inference, gpus, **rules))
    return cluster


def job(job_id: str, least: int, most: int | None = None, at: float = 0.0, **more: Any) -> JobSpec:
    """A job of `least`..`most` one-GPU workers."""
    more.setdefault("sequence", sum(ord(letter) for letter in job_id))
    return JobSpec(job_id=job_id, submit_s=at, min_workers=least, max_workers=most or least, **more)


def happen(cluster: Cluster, *events: ev.Event) -> None:
    """Let events happen; the state must be sound after each of them."""
    for event in events:
        evolve(cluster, event)
        verify(cluster)


def commit(cluster: Cluster, *steps: Step, at: float | None = None) -> None:
    happen(cluster, ev.PlanCommitted(cluster.now if at is None else at, Plan(steps)))


def submit(cluster: Cluster, *specs: JobSpec) -> None:
    for spec in specs:
        happen(cluster, ev.Submitted(max(spec.submit_s, cluster.now), spec))


def run(cluster: Cluster, spec: JobSpec, *slots: Slot) -> None:
    """Submit a job and have it running there."""
    submit(cluster, spec)
    commit(cluster, Launch(spec.job_id, 1, slots))
    happen(cluster, ev.Launched(cluster.now, spec.job_id, 1))


def resize(
    cluster: Cluster,
    job_id: str,
    add: tuple[Slot, ...] = (),
    remove: tuple[Slot, ...] = (),
    cause: Cause = Cause.GROWTH,
) -> Resize:
    found = cluster.jobs[job_id]
    return Resize(job_id, found.attempt, found.revision + 1, add, remove, cause)


def stop(cluster: Cluster, job_id: str, cause: Cause = Cause.PRIORITY, *, save: bool = False) -> Stop:
    return Stop(job_id, cluster.jobs[job_id].attempt, cause, save, "somebody")


def claim(cluster: Cluster, job_id: str, *slots: Slot) -> Reserve:
    return Reserve(Claim(cluster.claims_made, job_id, slots, Cause.PRIORITY))


def refused(error: type[ArylError], cluster: Cluster, match: str, act: Callable[[], object]) -> None:
    """`act` raises, and nothing has changed."""
    before = snapshot(cluster)
    with pytest.raises(error, match=match):
        act()
    assert snapshot(cluster) == before
