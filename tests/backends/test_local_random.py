"""The local backend under whatever can happen, in any order, with daemons that die at any moment.

Jobs come, are resized, stopped and cancelled; workers start late, end well, badly or as they are told; the
daemon is replaced by one that knows only the journal and what the supervisor says. After every step: no GPU
has two workers, no worker of an older attempt lives on unless it is on its way out, the engine's state is
sound. In the end, when everything is let run, all jobs are over and nothing is held.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.backends.fake_supervisor import FakeSupervisor
from tests.contract.worlds import StandingClock
from tests.live.desks import pushed_desk

from aryl.backends.gangs import attempt as gang_attempt
from aryl.backends.gangs import backend as gang_backend
from aryl.backends.gangs import elastic as gang_elastic
from aryl.backends.gangs.elastic import LIGHTHOUSE_RANK
from aryl.backends.local import LocalBackend
from aryl.backends.port import Launcher, Program
from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor.protocol import WorkerStatus
from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.invariants import verify
from aryl.core.model import FINAL_STATES, JobSpec, Pool, ServerSpec
from aryl.live import driver as live_driver
from aryl.live.driver import LiveDriver
from aryl.live.facts import Interpreter
from aryl.live.inbox import Happened, NewJob
from aryl.live.learning import Learner
from aryl.live.troubles import Troubles, Watchdog
from aryl.policies.catalogue import parse_policy
from aryl.scheduler.journal import MemoryJournal, replay
from aryl.scheduler.loop import Loop

SERVERS = (
    ServerSpec("T1", Pool.TRAINING, "V100", 3),
    ServerSpec("T2", Pool.TRAINING, "V100", 3),
    ServerSpec("I1", Pool.INFERENCE, "V100", 3),
)
POLICY = parse_policy("aryl:min_interval=0,cooldown=0")
DECLARED = ev.ClusterDeclared(0.0, SERVERS)
MOST_TURNS = 300


class Random(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.supervisor = FakeSupervisor()
        self.patch.setattr(SupervisorClient, "connect", self.supervisor.connect)
        self.patch.setattr(gang_backend, "TICK_S", 3600.0)
        self.patch.setattr(gang_attempt, "TOGETHER_S", 0.0)
        self.patch.setattr(gang_elastic, "TOO_SOON_S", 0.0)
        self.patch.setattr(live_driver, "GATHER_S", 0.0)
        self.clock = StandingClock()
        self.journal = MemoryJournal()
        self.launchers: dict[str, Launcher] = {}
        self.driver: LiveDriver | None = None
        self.jobs = 0

    def program_of(self, job_id: str) -> Program:
        return Program(("true",), "/", launcher=self.launchers[job_id], notice_signal="USR1")

    @initialize()
    def begin(self) -> None:
        self.journal.append(DECLARED)
        self._take_over()

    @rule(
        least=st.integers(1, 3),
        more=st.integers(0, 4),
        launcher=st.sampled_from(list(Launcher)),
        failures=st.integers(1, 3),
        fungible=st.booleans(),
    )
    def submit(self, least: int, more: int, launcher: Launcher, failures: int, fungible: bool) -> None:
        self.jobs += 1
        job_id = f"j{self.jobs}"
        self.launchers[job_id] = launcher
        spec = JobSpec(
            job_id,
            self.jobs,
            self.clock.now_s,
            least,
            least + more,
            estimate_s=100.0,
            checkpoint_s=0.0,
            fungible=fungible,
            max_failures=failures,
        )
        self._put(NewJob(spec))

    @rule(pick=st.integers(0, 10**6))
    def a_worker_runs(self, pick: int) -> None:
        if self.supervisor.alive:
            self.supervisor.run(self._picked(pick).key)
            self._turn()

    @rule(pick=st.integers(0, 10**6), how=st.sampled_from(["told", "well", "badly", "killed"]))
    def a_worker_ends(self, pick: int, how: str) -> None:
        if self.supervisor.alive:
            self._end(self._picked(pick), how)
            self._turn()

    @rule(need=st.integers(0, 1))
    def inference_speaks(self, need: int) -> None:
        self._put(Happened(lambda _, now_s: (ev.DemandReported(now_s, need, need),)))

    @rule(pick=st.integers(0, 10**6))
    def a_job_is_cancelled(self, pick: int) -> None:
        if self.cluster.jobs:
            job_id = sorted(self.cluster.jobs)[pick % len(self.cluster.jobs)]
            self._put(Happened(lambda _, now_s: (ev.CancelRequested(now_s, job_id),)))

    @rule(pick=st.integers(0, 10**6), least=st.integers(1, 3), more=st.integers(0, 4))
    def limits_change(self, pick: int, least: int, more: int) -> None:
        if self.cluster.jobs:
            job_id = sorted(self.cluster.jobs)[pick % len(self.cluster.jobs)]
            self._put(Happened(lambda _, now_s: (ev.LimitsChanged(now_s, job_id, least, least + more),)))

    @rule(server=st.sampled_from([spec.server_id for spec in SERVERS]), drain=st.booleans())
    def a_server_is_drained(self, server: str, drain: bool) -> None:
        def events(_cluster: Cluster, now_s: float) -> tuple[ev.Event, ...]:
            return (ev.ServerDrained(now_s, server, drain, now_s + 5.0 if drain else float("inf")),)

        self._put(Happened(events))

    @rule(seconds=st.floats(0.5, 20.0))
    def time_passes(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self._put(Happened(lambda _, now_s: (ev.Tick(now_s),)))

    @rule()
    def done_workers_are_reported(self) -> None:
        self._tick()
        self._turn()

    @rule()
    def the_daemon_is_replaced(self) -> None:
        assert self.driver is not None
        self.driver.close()
        self.cluster = replay(Cluster(POLICY.order), self.journal.events)
        self._take_over()

    @rule(turns=st.integers(0, 2))
    def the_daemon_dies_in_the_middle(self, turns: int) -> None:
        """Its last plan is in the journal, and was never carried out."""
        assert self.driver is not None
        self.patch.setattr(self.driver, "apply", lambda _plan, _cluster: None)
        self.clock.now_s += 1.0
        self._put(Happened(lambda _, now_s: (ev.Tick(now_s),)))
        for _ in range(turns):
            if self.supervisor.alive:
                self._end(self.supervisor.alive[0], "told")
            self._turn()
        self.the_daemon_is_replaced()

    @invariant()
    def no_gpu_has_two_workers(self) -> None:
        held: set[tuple[str, int]] = set()
        for status in self.supervisor.alive:
            for gpu in status.gpus:
                assert (status.server_id, gpu) not in held, f"{status.key} on {status.server_id}/{gpu}"
                held.add((status.server_id, gpu))

    @invariant()
    def what_lives_belongs_to_somebody(self) -> None:
        if self.driver is None:
            return
        verify(self.cluster)
        for status in self.supervisor.alive:
            job = self.cluster.jobs.get(status.key.job_id)
            current = job is not None and job.attempt == status.key.attempt and job.state.value != "PENDING"
            assert current or status.told_to_stop, status

    def teardown(self) -> None:
        try:
            if self.driver is not None:
                self._let_everything_run()
        finally:
            if self.driver is not None:
                self.driver.close()
            self.patch.undo()
            self.folder.cleanup()

    def _let_everything_run(self) -> None:
        self._put(
            Happened(lambda _, now_s: [ev.ServerDrained(now_s, spec.server_id, False) for spec in SERVERS])
        )
        self._put(Happened(lambda _, now_s: (ev.DemandReported(now_s, 0, 0),)))
        for _ in range(MOST_TURNS):
            if not self.cluster.jobs and not self.supervisor.alive:
                break
            for status in self.supervisor.alive:
                self.supervisor.run(status.key)
                self._end(self.supervisor.statuses[status.key], "told" if status.told_to_stop else "well")
            self._tick()
            self.clock.now_s += 1.0
            self._put(Happened(lambda _, now_s: (ev.Tick(now_s),)))
        assert not self.cluster.jobs, [
            (name, job.state, job.slots, job.leaving, self._attempt(name))
            for name, job in self.cluster.jobs.items()
        ]
        assert not self.supervisor.alive
        assert all(state in FINAL_STATES for state in self.cluster.ended.values())
        assert all(server.used == server.leaving == server.held == 0 for server in self.cluster.servers)

    def _take_over(self) -> None:
        if not hasattr(self, "cluster"):
            self.cluster = replay(Cluster(POLICY.order), self.journal.events)
        self.backend = LocalBackend(
            Path(self.folder.name), {spec.server_id: tuple(range(spec.gpus)) for spec in SERVERS}
        )
        self.driver = LiveDriver(
            self.clock,
            self.backend,
            self.program_of,
            pushed_desk(),
            Interpreter(Troubles(), Watchdog(float("inf")), Learner()),
        )
        self.loop = Loop(self.cluster, POLICY, self.driver, journal=self.journal)
        self.driver.take_over(self.cluster, 1)
        self._turn()

    def _put(self, note: NewJob | Happened) -> None:
        assert self.driver is not None
        self.driver.inbox.put(note)
        self._turn()

    def _turn(self) -> None:
        """Let the loop hear everything that is there, and decide."""
        assert self.driver is not None
        self.driver.inbox.put(Happened(lambda _, now_s: (ev.Tick(now_s),)))
        self.loop.step()
        verify(self.cluster)

    def _attempt(self, job_id: str) -> object:
        """What the backend thinks of a job, for the message of a failure."""
        for (name, _), attempt in self.backend._attempts.items():
            if name == job_id:
                workers = [(one.key, one.leaving, one.ended, one.code) for one in attempt.workers.values()]
                return attempt.stage, attempt.owed, attempt.up, attempt.resizing, attempt.gang, workers
        return None

    def _tick(self) -> None:
        for attempt in tuple(self.backend._attempts.values()):
            if attempt.stage is gang_attempt.Stage.UP:
                attempt.tick()

    def _picked(self, pick: int) -> WorkerStatus:
        return self.supervisor.alive[pick % len(self.supervisor.alive)]

    def _end(self, status: WorkerStatus, how: str) -> None:
        if status.key.rank == LIGHTHOUSE_RANK and not status.told_to_stop:
            return
        if how == "told" and status.told_to_stop:
            self.supervisor.end(status.key, 75)
        elif how == "well":
            self.supervisor.end(status.key, 0)
        elif how == "badly":
            self.supervisor.end(status.key, 1)
        elif how == "killed":
            self.supervisor.end(status.key, None, 9)


TestLocalBackend = Random.TestCase
TestLocalBackend.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
