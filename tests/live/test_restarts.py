"""kill -9 of the control plane, again and again, in the middle of a busy day (scenario L1)."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.live.cluster import PATIENCE_S, LiveCluster, eventually
from tests.live.witness import (
    Nursery,
    assert_allocated_is_live,
    assert_journal_is_whole,
    living_workers,
    met_twice,
    steps_of,
    witness_env,
    witness_program,
)

from aryl.client import ArylClient
from aryl.core.model import FINAL_STATES, JobState, Tenure
from aryl.errors import UnreachableError
from aryl.wire.views import JobView, ServerView

T = TypeVar("T")

# The daemon is killed when one of these is the newest thing in the journal: an event, a step of a plan (which
# isn't carried out then), or "lead", when a daemon has just become the leader and takes over.
POINTS = Counter(
    {
        "lead": 3,
        "Submitted": 2,
        "Launch": 4,
        "Launched": 3,
        "Resize": 4,
        "Vacated": 2,
        "Resized": 2,
        "Stop": 3,
        "Stopped": 2,
        "Crashed": 1,
        "Finished": 2,
        "Loan": 1,
        "HandedOver": 1,
        "Reclaim": 1,
        "Return": 1,
        "CancelRequested": 1,
        "ServerDrained": 1,
    }
)
MOST_DAYS = 4
DELAYS_S = (0.0, 0.0, 0.002, 0.005, 0.015, 0.04)


class Killer:
    """Kills the daemon at every point and starts the next one, in a thread of its own."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.points = Counter(POINTS)
        self.kills = 0
        self.anywhere = False  # at the next event, whatever it is
        self.error: BaseException | None = None
        self._cluster, self._nursery = cluster, Nursery(cluster)
        self._store = f"{cluster.state}/aryl.db"
        self._random = random.Random(7)
        self._over = threading.Event()
        self._nursery.start()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def left(self) -> int:
        """Kills that are still to come."""
        return self.points.total()

    def close(self) -> None:
        """Kill the last daemon."""
        self._over.set()
        self._thread.join()
        self._nursery.close()

    def _run(self) -> None:
        try:
            self._kill_all()
        except BaseException as error:
            self.error = error

    def _kill_all(self) -> None:
        connection = sqlite3.connect(f"file:{self._store}?mode=ro", uri=True, isolation_level=None)
        try:
            token, seen = self._look(connection)
            while self.left and not self._over.is_set():
                kinds: set[str] = set()
                new_token, last = self._look(connection)
                if new_token > token:
                    kinds.add("lead")
                if last > seen:
                    kinds |= self._kinds(connection, last)
                token, seen = new_token, last
                chosen = next((kind for kind in sorted(kinds) if self.points[kind]), None)
                if chosen is None and self.anywhere and kinds - {"lead"}:
                    chosen = max(self.points, key=lambda kind: self.points[kind])
                if chosen is None:
                    time.sleep(0.002)
                    continue
                time.sleep(self._random.choice(DELAYS_S))
                self._nursery.kill()
                self.points[chosen] -= 1
                self.kills += 1
                assert_journal_is_whole(f"sqlite:///{self._store}")
                token, seen = self._look(connection)
                self._nursery.start()
        finally:
            connection.close()

    @staticmethod
    def _look(connection: sqlite3.Connection) -> tuple[int, int]:
        token = connection.execute("SELECT coalesce(max(token), 0) FROM leader").fetchone()[0]
        last = connection.execute("SELECT coalesce(max(sequence), -1) FROM journal").fetchone()[0]
        return int(token), int(last)

    @staticmethod
    def _kinds(connection: sqlite3.Connection, sequence: int) -> set[str]:
        (body,) = connection.execute("SELECT body FROM journal WHERE sequence = ?", [sequence]).fetchone()
        event = json.loads(body)
        if event["type"] == "PlanCommitted":
            return {step["type"] for step in event["plan"]["steps"]}
        return {event["type"]}


class Day:
    """What people do in a day, with a control plane that goes away at any moment."""

    def __init__(self, cluster: LiveCluster, killer: Killer, number: int) -> None:
        self.cluster, self.killer, self.number = cluster, killer, number
        self.evening = cluster.folder / f"evening-{number}"
        self.run = witness_program(cluster)
        self.jobs: dict[str, JobState] = {}

    def ask(self, question: Callable[[ArylClient], T]) -> T:
        """Ask until there is an answer, whoever gives it."""

        def answered() -> tuple[T] | None:
            if self.killer.error is not None:
                raise self.killer.error
            with ArylClient(self.cluster.url, timeout_s=PATIENCE_S, retries=0) as client:
                try:
                    return (question(client),)
                except UnreachableError:
                    return None

        return eventually(answered, "nobody answers", self.cluster.said)[0]

    def submit(
        self,
        name: str,
        workers: object,
        ends: JobState = JobState.SUCCEEDED,
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> str:
        file = {"checkpoint": {"signal": "USR1", "grace": 20}, **more}
        told = witness_env(self.cluster, **(env or {}))
        job = self.cluster.job(f"{name}-{self.number}", workers, run=self.run, env=told, **file)
        key = f"{name}-{self.number}"
        job_id = self.ask(lambda client: client.submit(job, idempotency_key=key)).job_id
        self.jobs[job_id] = ends
        return job_id

    def wait(self, job_id: str, state: JobState, workers: int | None = None) -> None:
        def there() -> bool:
            view = self.job(job_id)
            assert view.state is state or view.state not in FINAL_STATES, f"{view}\n{self.cluster.said()}"
            return view.state is state and workers in (None, view.workers)

        eventually(there, f"{job_id} is never {state.value} with {workers}", self.report)

    def wait_tenure(self, server_id: str, tenure: Tenure) -> None:
        def there() -> bool:
            return any(one.server == server_id and one.tenure is tenure for one in self.servers())

        eventually(there, f"{server_id} is never {tenure.value}", self.report)

    def report(self) -> str:
        jobs = "\n".join(str(self.job(job_id)) for job_id in self.jobs)
        return f"{jobs}\n{self.cluster.said()}"

    def job(self, job_id: str) -> JobView:
        return self.ask(lambda client: client.job(job_id))

    def servers(self) -> list[ServerView]:
        return self.ask(lambda client: client.servers())

    def pass_by(self) -> None:
        """Morning to evening."""
        until_evening = {"UNTIL": str(self.evening)}
        both = {"V100": 1.0, "T4": 1.0}
        self.ask(lambda client: client.report_demand(2))
        anchor = self.submit("anchor", 1, priority=9, env=until_evening)
        grows = self.submit(
            "grows", [2, 8], gpu_types=both, heterogeneous=True, estimate=600, env=until_evening
        )
        fails = self.submit("fails", 1, env={"CRASHES": "1"}, checkpoint=None)
        small = self.submit("small", 2)
        doomed = self.submit("doomed", 1, JobState.CANCELLED, env=until_evening)
        self.wait(fails, JobState.SUCCEEDED)
        self.wait(small, JobState.SUCCEEDED)
        self.ask(lambda client: client.cancel(doomed))
        self.wait(doomed, JobState.CANCELLED)
        victim = self.submit("victim", 3, estimate=600, env=until_evening)
        self.wait(victim, JobState.RUNNING)
        self.ask(lambda client: client.report_demand(1))
        self.wait_tenure("I2", Tenure.ON_LOAN)
        self.wait(grows, JobState.RUNNING, 8)
        # Whoever had to make room comes back.
        self.wait(self.submit("urgent", 6, priority=9), JobState.SUCCEEDED)
        self.wait(victim, JobState.RUNNING)
        self.ask(lambda client: client.drain("T2", 0.0))
        eventually(
            lambda: all(
                one.used_gpus == one.leaving_gpus == 0 for one in self.servers() if one.server == "T2"
            ),
            "T2 is never empty",
            self.report,
        )
        self.ask(lambda client: client.undrain("T2"))
        self.wait(victim, JobState.RUNNING)
        self.wait(grows, JobState.RUNNING, 8)
        assert_allocated_is_live(self.cluster, self.servers)
        self.ask(lambda client: client.report_demand(2))
        self.wait_tenure("I2", Tenure.OWNED)
        self.wait(anchor, JobState.RUNNING)
        self.evening.touch()
        for job_id, state in self.jobs.items():
            self.wait(job_id, state)
        self.check()

    def check(self) -> None:
        """Nothing ran twice, nothing is lost, nobody is blamed for a restart."""
        assert_allocated_is_live(self.cluster, self.servers)
        assert living_workers(self.cluster) == {}
        assert met_twice(self.cluster) == ""
        for job_id in self.jobs:
            view = self.job(job_id)
            crashed = job_id.startswith("fails-")
            assert view.failures == int(crashed), f"{view}\n{self.cluster.said()}"
            steps = steps_of(self.cluster, job_id)
            first = [1, 2, 3, 4, 5] if crashed else []
            assert steps == first + list(range(1, len(steps) - len(first) + 1)), job_id


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[LiveCluster, Killer]]:
    cluster = LiveCluster(
        tmp_path, lease=0.3, policy="aryl:min_interval=0,cooldown=0", quarantine={"within": 0.01}
    )
    try:
        killer = Killer(cluster)
        try:
            yield cluster, killer
        finally:
            killer.close()
    finally:
        cluster.close()


def test_a_control_plane_killed_at_thirty_points_of_a_day_loses_nothing_and_runs_nothing_twice(
    busy: tuple[LiveCluster, Killer],
) -> None:
    cluster, killer = busy
    days: list[Day] = []
    while killer.left:
        killer.anywhere = len(days) == MOST_DAYS - 1
        assert len(days) < MOST_DAYS
        days.append(Day(cluster, killer, len(days) + 1))
        days[-1].pass_by()
    assert killer.kills == POINTS.total() >= 30
