"""Whole simulations with the store behind them: its rows say what a look at the cluster says."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update
from tests.live.store.databases import lead, new_job
from tests.strategies import Case, cases

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.model import JobState
from aryl.core.plan import Launch, Loan, Reclaim, Resize, Return, Stop
from aryl.live.projection import Projection
from aryl.live.store import SqlJournal, Store
from aryl.live.store.tables import HISTORY, JOBS, LOANS
from aryl.policies.catalogue import parse_policy
from aryl.scheduler.journal import replay
from aryl.scheduler.loop import Loop

POLICIES = ("aryl", "srtf", "aryl:cooldown=0", "fifo", "aryl-las")
ZERO_S = 0.0


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has just been made; copying it is quicker than making another."""
    path = tmp_path_factory.mktemp("empty") / "aryl.db"
    Store.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="module")
def new_store(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Store]:
    folder = tmp_path_factory.mktemp("stores")
    numbers = iter(range(1_000_000))

    def make() -> Store:
        path = folder / f"{next(numbers)}.db"
        shutil.copy(empty_store, path)
        return Store.open(f"sqlite:///{path}")

    return make


def accept(store: Store, case: Case) -> None:
    """Accept the jobs of a simulation under the names that they have there."""
    for spec in case.specs:
        row, _ = store.accept(
            new_job(spec.job_id, min_workers=spec.min_workers, max_workers=spec.max_workers),
            "ann",
            None,
            "",
            spec.submit_s,
        )
        with store.writing() as connection:
            connection.execute(update(JOBS).where(JOBS.c.job_id == row.job_id).values(job_id=spec.job_id))


class Run:
    """A simulation whose loop writes to a store, and which may be interrupted."""

    def __init__(self, case: Case, policy: str, store: Store) -> None:
        self.store, self.policy = store, parse_policy(policy, seed=1)
        self.driver = case.driver(self.policy)
        self.loop = self._start(Cluster(self.policy.order))
        self.loop.record(case.declared)

    def _start(self, cluster: Cluster) -> Loop:
        projection = Projection(ZERO_S, cluster)
        journal = SqlJournal(self.store, lead(self.store), projection)
        return Loop(cluster, self.policy, self.driver, journal=journal, watchers=[projection])

    def interrupt(self) -> None:
        """Forget everything but the store, and go on from what is in it."""
        cluster = replay(Cluster(self.policy.order), self.store.events())
        wake_at_s = self.loop._wake_at_s
        self.loop = self._start(cluster)
        self.loop._wake_at_s = wake_at_s

    def turns(self) -> Iterator[Cluster]:
        while self.loop.step():
            yield self.loop.cluster
            if self.driver.quiet and not self.loop.cluster.jobs:
                return


def stands(store: Store) -> dict[str, tuple[Any, ...]]:
    rows, _ = store.jobs(limit=1000)
    return {
        row.job_id: (
            row.state,
            row.attempt,
            row.workers,
            row.gpus,
            row.preemptions,
            row.failures,
            row.min_workers,
            row.max_workers,
            {place.server: (place.base, place.flexible, place.gpus) for place in row.placement},
        )
        for row in rows
        if row.journaled is not None
    }


def assert_agrees(store: Store, cluster: Cluster) -> None:
    found = stands(store)
    assert set(found) >= set(cluster.jobs) | set(cluster.ended)
    for job_id, job in cluster.jobs.items():
        places = {slot.server_id: (slot.base, slot.flexible, slot.gpus) for slot in job.slots.values()}
        assert found[job_id] == (
            job.state,
            job.attempt,
            job.workers,
            job.gpus,
            job.preemptions,
            job.failures,
            *job.limits,
            places,
        )
    for job_id, state in cluster.ended.items():
        assert (found[job_id][0], found[job_id][2], found[job_id][8]) == (state, 0, {})


def assert_recounted(store: Store) -> None:
    """What the journal says, counted again from its first event."""
    resizes: Counter[str] = Counter()
    started: dict[str, float] = {}
    loans: list[tuple[str, float, float | None, float | None]] = []
    stops: list[tuple[int, str, str, list[list[Any]]]] = []
    for number, event in enumerate(store.events()):
        for step in event.plan.steps if isinstance(event, ev.PlanCommitted) else ():
            match step:
                case Resize():
                    resizes[step.job_id] += 1
                case Launch():
                    started.setdefault(step.job_id, event.at)
                case Stop():
                    weighed = [[one.what, one.cost] for one in step.weighed]
                    stops.append((number, step.job_id, step.cause.value, weighed))
                case Loan():
                    last = max((n for n, loan in enumerate(loans) if loan[0] == step.server_id), default=None)
                    if last is None or loans[last][3] is not None:
                        loans.append((step.server_id, event.at, None, None))
                    else:
                        loans[last] = (*loans[last][:2], None, None)
                case Reclaim() | Return():
                    last = max(n for n, loan in enumerate(loans) if loan[0] == step.server_id)
                    server, lent, asked, _ = loans[last]
                    loans[last] = (
                        (server, lent, event.at, None)
                        if isinstance(step, Reclaim)
                        else (server, lent, asked, event.at)
                    )
    rows, _ = store.jobs(limit=1000)
    assert {row.job_id: row.resizes for row in rows if row.resizes} == resizes
    assert {row.job_id: row.started for row in rows if row.started is not None} == started
    over = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
    assert all((row.finished is not None) == (row.state in over) for row in rows)
    with store.reading() as connection:
        kept = connection.execute(select(LOANS).order_by(LOANS.c.sequence)).all()
        entries = connection.execute(
            select(HISTORY).where(HISTORY.c.kind.in_(["preempted", "told-to-stop"]))
        ).all()
    assert sorted((row.server, row.lent, row.reclaim_asked, row.returned) for row in kept) == sorted(loans)
    assert sorted((one.sequence, one.job_id, one.cause, json.loads(one.alternatives)) for one in entries) == (
        sorted(stops)
    )


def history_of(store: Store) -> list[tuple[Any, ...]]:
    with store.reading() as connection:
        ordered = select(HISTORY).order_by(HISTORY.c.sequence, HISTORY.c.part)
        return [tuple(row) for row in connection.execute(ordered)]


@given(cases(), st.sampled_from(POLICIES))
@settings(max_examples=15, deadline=None)
def test_rows_say_what_the_cluster_says_after_every_turn(
    new_store: Callable[[], Store], case: Case, policy: str
) -> None:
    store = new_store()
    accept(store, case)
    run = Run(case, policy, store)
    for cluster in run.turns():
        assert_agrees(store, cluster)
    assert_recounted(store)
    names = re.compile(r"\bj\d+\b")
    assert [row for row in history_of(store) if names.search(row[6])] == []
    store.close()


@given(cases(), st.sampled_from(POLICIES), st.integers(1, 5))
@settings(max_examples=8, deadline=None)
def test_a_restart_changes_nothing_in_the_tables(
    new_store: Callable[[], Store], case: Case, policy: str, every: int
) -> None:
    whole, broken = new_store(), new_store()
    for store in (whole, broken):
        accept(store, case)
    for _ in Run(case, policy, whole).turns():
        pass
    run = Run(case, policy, broken)
    for turn, cluster in enumerate(run.turns()):
        if turn % every == 0:
            run.interrupt()
            assert run.loop.cluster.now == cluster.now
    assert list(broken.events()) == list(whole.events())
    assert history_of(broken) == history_of(whole)
    assert broken.jobs(limit=1000) == whole.jobs(limit=1000)
    assert broken.loans(1000) == whole.loans(1000)
    whole.close()
    broken.close()
