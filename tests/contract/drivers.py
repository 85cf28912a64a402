"""The two drivers, made ready for one suite: a job that runs for a while, and a way to hear of what
happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.live.desks import pushed_desk

from aryl.backends.local import LocalBackend
from aryl.backends.port import Program
from aryl.backends.supervisor.client import SupervisorClient
from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.invariants import verify
from aryl.core.model import JobSpec, Pool, ServerSpec, Slot
from aryl.core.plan import Plan, Step
from aryl.live.clock import WallClock
from aryl.live.driver import LiveDriver
from aryl.live.facts import Interpreter
from aryl.live.inbox import NewJob
from aryl.live.learning import Learner
from aryl.live.troubles import Troubles, Watchdog
from aryl.policies.catalogue import parse_policy
from aryl.scheduler.ports import ClusterDriver
from aryl.sim.driver import Overheads, SimDriver

E = TypeVar("E", bound=ev.Event)
MOST_POLLS = 200

SERVERS = (
    ServerSpec("T1", Pool.TRAINING, "V100", 4),
    ServerSpec("T2", Pool.TRAINING, "V100", 4),
    ServerSpec("I1", Pool.INFERENCE, "V100", 4),
)


def spec(job_id: str, workers: int, most: int | None = None) -> JobSpec:
    """A job that keeps all its work when it is stopped."""
    return JobSpec(job_id, 0, 0.0, workers, most or workers, checkpoint_s=0.0, fungible=True)


def on(server_id: str, base: int, flexible: int = 0) -> Slot:
    """Workers of one GPU."""
    return Slot(server_id, base, flexible, 1)


class Bench:
    """A cluster and its driver, without a policy: the test decides."""

    def __init__(self, driver: ClusterDriver, cluster: Cluster) -> None:
        self.driver, self.cluster = driver, cluster
        self.heard: list[ev.Event] = []

    def commit(self, *steps: Step) -> None:
        """Decide, and have it carried out."""
        plan = Plan(steps)
        evolve(self.cluster, ev.PlanCommitted(self.cluster.now, plan))
        verify(self.cluster)
        self.driver.apply(plan, self.cluster)

    def poll(self, deadline_s: float = float("inf")) -> tuple[ev.Event, ...]:
        """What happens next. Checks what every poll has to keep."""
        events = self.driver.poll(deadline_s)
        assert events is not None, "the world has ended"
        assert len({event.at for event in events}) <= 1, "one poll, one instant"
        for event in events:
            evolve(self.cluster, event)  # raises for one that is before the cluster's time
            verify(self.cluster)
            self.heard.append(event)
        return tuple(events)

    def until(self, kind: type[E], there: Callable[[E], bool] = lambda _event: True) -> E:
        """Hear until something of this kind has happened."""
        for event in self.heard:
            if isinstance(event, kind) and there(event):
                return event
        for _ in range(MOST_POLLS):
            for event in self.poll():
                if isinstance(event, kind) and there(event):
                    return event
        raise AssertionError(f"no {kind.__name__} in {self.heard}")

    def count(self, kind: type[ev.Event]) -> int:
        """How often something has been heard."""
        return sum(isinstance(event, kind) for event in self.heard)


@contextmanager
def simulated(_folder: Path, jobs: Mapping[JobSpec, float]) -> Iterator[Bench]:
    """The simulator; `jobs` run for so many seconds at base demand."""
    arrivals = [ev.Submitted(0.0, job) for job in jobs]
    durations = {job.job_id: seconds for job, seconds in jobs.items()}
    driver = SimDriver(arrivals, durations, overheads=Overheads(0.5, 0.2, 0.1))
    yield Bench(driver, _declared())


@contextmanager
def local(folder: Path, jobs: Mapping[JobSpec, float]) -> Iterator[Bench]:
    """Real processes of this machine, which sleep."""
    backend = LocalBackend(folder / "state", {one.server_id: tuple(range(one.gpus)) for one in SERVERS})
    seconds = {job.job_id: duration_s for job, duration_s in jobs.items()}

    def program_of(job_id: str) -> Program:
        return Program(("/bin/sleep", f"{seconds[job_id]:g}"), str(folder), grace_s=5.0, term_s=5.0)

    driver = LiveDriver(
        WallClock(time.time()),
        backend,
        program_of,
        pushed_desk(),
        Interpreter(Troubles(), Watchdog(float("inf")), Learner()),
    )
    cluster = _declared()
    driver.take_over(cluster, 1)
    for job in jobs:
        driver.inbox.put(NewJob(job))
    try:
        yield Bench(driver, cluster)
    finally:
        driver.close()
        client = SupervisorClient.connect(folder / "state" / "supervisor", 2**40, lambda _event: None)
        client.shutdown(force=True)
        client.close()


def _declared() -> Cluster:
    cluster = Cluster(parse_policy("fifo").order)
    evolve(cluster, ev.ClusterDeclared(0.0, SERVERS))
    return cluster
