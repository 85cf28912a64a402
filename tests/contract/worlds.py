"""Two worlds behind the same port: the simulator, and this machine through the local backend.

`RealWorld` runs the loop in the test's own thread, on a clock that stands still until the test moves it, so
that what is decided at an instant doesn't depend on how fast the machine is. Its programs run until a file
appears.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.live.desks import pushed_desk

from aryl.backends.local import LocalBackend
from aryl.backends.port import Program
from aryl.backends.supervisor.client import SupervisorClient
from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.invariants import verify
from aryl.core.model import JobSpec, JobState
from aryl.live.clock import WallClock
from aryl.live.driver import LiveDriver
from aryl.live.facts import Interpreter
from aryl.live.inbox import Happened, NewJob
from aryl.live.learning import Learner
from aryl.live.troubles import Troubles, Watchdog
from aryl.policies.catalogue import parse_policy
from aryl.scheduler.journal import MemoryJournal
from aryl.scheduler.loop import Loop

STABLE = (JobState.PENDING, JobState.RUNNING)


class StandingClock(WallClock):
    """Stands until it is moved."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.now_s = 0.0

    def now(self) -> float:
        """The instant that was set."""
        return self.now_s

    def seconds_until(self, at_s: float) -> float:
        """Nothing comes by itself."""
        return 0.0 if at_s <= self.now_s else float("inf")


class Checked:
    """Checks the invariants after every event."""

    def saw(self, _event: ev.Event, cluster: Cluster) -> None:
        """Raise at the first event that is wrong."""
        verify(cluster)


class RealWorld:
    """Real processes under the loop. `folder` holds everything."""

    def __init__(self, folder: Path, declared: ev.ClusterDeclared, policy: str) -> None:
        self.folder = folder
        self.clock = StandingClock()
        indices = {spec.server_id: tuple(range(spec.gpus)) for spec in declared.servers}
        self.backend = LocalBackend(folder / "state", indices)
        self.driver = LiveDriver(
            self.clock,
            self.backend,
            self.program_of,
            pushed_desk(),
            Interpreter(Troubles(), Watchdog(float("inf")), Learner()),
        )
        self.journal = MemoryJournal()
        decider = parse_policy(policy)
        self.cluster = Cluster(decider.order)
        self.loop = Loop(self.cluster, decider, self.driver, journal=self.journal, watchers=(Checked(),))
        self.loop.record(declared)
        self.driver.take_over(self.cluster, 1)
        self.loop.step()

    def program_of(self, job_id: str) -> Program:
        """Runs until it may end."""
        script = f'while [ ! -e "{self.folder}/{job_id}.done" ]; do sleep 0.05; done'
        return Program(("/bin/sh", "-c", script), str(self.folder), grace_s=5.0, term_s=5.0)

    def at(self, now_s: float) -> None:
        """Move the clock; what the policy wanted to be woken for is done."""
        self.clock.now_s = max(now_s, self.clock.now_s)

    def submit(self, specs: Sequence[JobSpec]) -> None:
        """Jobs arrive."""
        for spec in specs:
            self.driver.inbox.put(NewJob(spec))
        self.settle(lambda: all(spec.job_id in self.cluster.jobs for spec in specs))

    def demand(self, need: float, forecast: float) -> None:
        """Inference speaks."""
        self.driver.inbox.put(Happened(lambda _, now_s: (ev.DemandReported(now_s, need, forecast),)))
        before = self.loop.events
        self.settle(lambda: self.loop.events > before)

    def finish(self, job_id: str) -> None:
        """Let a job end."""
        (self.folder / f"{job_id}.done").touch()
        self.settle(lambda: job_id in self.cluster.ended)

    def tick(self) -> None:
        """A pass, whatever happens."""
        self.driver.inbox.put(Happened(lambda _, now_s: (ev.Tick(now_s),)))
        before = self.loop.events
        self.settle(lambda: self.loop.events > before)

    def settle(self, there: Callable[[], bool]) -> None:
        """Turn the loop until `there`, and until no process is on its way."""
        while not there() or not self.at_rest():
            assert self.loop.step()

    def at_rest(self) -> bool:
        """Whether nothing is on its way."""
        cluster = self.cluster
        handing = any(server.handing_over for server in cluster.servers)
        moving = any(job.state not in STABLE or job.leaving for job in cluster.jobs.values())
        return not handing and not moving and not cluster.reclaiming_mask

    def close(self) -> None:
        """End everything."""
        self.driver.close()
        client = SupervisorClient.connect(self.folder / "state" / "supervisor", 2**40, lambda _event: None)
        client.shutdown(force=True)
        client.close()
