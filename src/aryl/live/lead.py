"""What the leading daemon does: bring the state back from the journal, take over what runs, and turn the
loop.

Exactly one of these acts on a store at any time: each write of the journal and each order to the supervisor
carries the fencing token of the lead, and whoever has an older one is refused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from aryl.core.cluster import Cluster
from aryl.core.events import Event
from aryl.core.evolve import evolve
from aryl.core.invariants import violations
from aryl.core.model import JobSpec, Pool, ServerSpec
from aryl.errors import NotFoundError
from aryl.live import world
from aryl.live.backends import make_backend
from aryl.live.clock import WallClock
from aryl.live.config import ServeConfig
from aryl.live.demand import Word
from aryl.live.driver import LiveDriver
from aryl.live.facts import Interpreter
from aryl.live.hooks import RESTORE_WITHIN_S
from aryl.live.inbox import Happened, NewJob
from aryl.live.learning import Learner
from aryl.live.programs import Programs
from aryl.live.projection import Projection
from aryl.live.recollection import Recollection
from aryl.live.sources.observation import Observation
from aryl.live.store import JobRow, SqlJournal, Store
from aryl.live.submission import to_spec
from aryl.live.troubles import REST_S, QuarantineRule, Troubles, Watchdog
from aryl.policies.policy import Policy
from aryl.scheduler.loop import Loop
from aryl.wire.job_file import JobFile

_log = logging.getLogger(__name__)

EVENTS_PER_AUDIT = 5_000
# A loop that hasn't come by for two of these isn't ready.
INTERVAL_S = 5.0


class Lead:
    """One term of leading. `start` returns once the state is back and the loop turns in a thread of its
    own.
    """

    def __init__(
        self,
        config: ServeConfig,
        store: Store,
        policy: Policy,
        token: int,
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.config, self.store, self.policy = config, store, policy
        self.clock = WallClock(store.epoch_s(), config.clock.speed)
        self.over = threading.Event()
        self.error: BaseException | None = None
        self.audit, self.defects = Audit(), Defects()
        self.token = token
        self._interval_s = interval_s
        self._cluster = Cluster(policy.order)
        self._programs = Programs(store, config, self._cluster)
        speed = config.clock.speed
        rule = config.quarantine
        self.interpreter = Interpreter(
            Troubles(QuarantineRule(rule.within, rule.failures, rule.jobs, REST_S * speed)),
            Watchdog(config.watchdog * speed),
            Learner(speed),
        )
        self.backend = make_backend(config)
        self.give_back = world.give_back(config)
        self.desk = world.inference_desk(config, self.clock, self.give_back)
        self.poller = world.demand_poller(config, self._polled)
        self.driver = LiveDriver(
            self.clock,
            self.backend,
            self._programs.of,
            self.desk,
            self.interpreter,
            world.loan_hooks(config),
        )
        self._thread = threading.Thread(target=self._turn, name="aryl-loop", daemon=True)
        self.loop: Loop | None = None

    def start(self) -> None:
        """Bring back the state, take over, and begin to turn.

        Raises InputError if the journal is another cluster's, FencedError, ArylError.
        """
        began_s = time.monotonic()
        events = 0
        recollection = Recollection()
        for event in self.store.events():
            evolve(self._cluster, event)
            recollection.saw(event)
            self.give_back.saw(event, self._cluster)
            self.desk.remember(event)
            events += 1
        declared = world.declare(self.config)
        projection = Projection(self.store.epoch_s(), self._cluster)
        journal = SqlJournal(self.store, self.token, projection)
        watchers = projection, self._programs, self.audit, self.give_back
        self.loop = Loop(
            self._cluster,
            self.policy,
            self.driver,
            journal=journal,
            watchers=watchers,
            on_defect=self.defects.note,
        )
        if events:
            world.check_same_cluster(self._cluster, declared)
        if not events or world.rules_of(self._cluster) != world.rules_in(declared):
            now_s = max(self._cluster.now, self.clock.now()) if events else 0.0
            self.loop.record(replace(declared, at=now_s))
            journal.flush()
        took_s = time.monotonic() - began_s
        _log.info("%d events brought back in %.1f s: %d jobs", events, took_s, len(self._cluster.jobs))
        now_s = max(self._cluster.now, self.clock.now())
        for job_id, attempt in recollection.reporting(self._cluster):
            self.interpreter.watchdog.heard(job_id, attempt, now_s)
        came_home = recollection.came_home(self._cluster, RESTORE_WITHIN_S * self.config.clock.speed)
        self._programs.expect(self._cluster.live)
        self.driver.take_over(self._cluster, self.token, came_home)
        for row in self.store.unjournaled():
            self.accepted(row, self.job_file(row.job_id))
        self._thread.start()
        if self.poller is not None:
            self.poller.start()

    def accepted(self, row: JobRow, job: JobFile) -> None:
        """A job is in the store: let the loop know."""
        spec = self.spec(job, row.job_id, row.sequence, self.clock.at(row.submitted))
        self.driver.inbox.put(NewJob(spec))

    def spec(self, job: JobFile, job_id: str, sequence: int, submit_s: float) -> JobSpec:
        """What the engine knows of a job."""
        joined = {server.gpu_type for server in self.servers if server.pool is Pool.INFERENCE}
        types = joined.union(self.config.cluster.inference.server_gpu_types())
        return to_spec(job, job_id, sequence, submit_s, frozenset(types))

    @property
    def servers(self) -> list[ServerSpec]:
        """All servers that there are, up or down. May be asked from any thread."""
        return [server.spec for server in tuple(self._cluster.servers)]

    def job_file(self, job_id: str) -> JobFile:
        """What the user asked for. Raises NotFoundError."""
        body = self.store.bodies([job_id]).get(job_id)
        if body is None:
            raise NotFoundError(f"there is no job {job_id}")
        return JobFile.model_validate_json(body)

    @property
    def ready(self) -> bool:
        """Whether the loop comes by."""
        return not self.over.is_set() and time.monotonic() - self.driver.last_turn_s < 2 * self._interval_s

    def stop(self, error: BaseException | None = None) -> None:
        """Stop turning, without touching what runs."""
        if self.poller is not None:
            self.poller.close()
        self.driver.halt(error)
        if self._thread.is_alive():
            self._thread.join()
        self.driver.close()

    def _polled(self, seen: Observation) -> None:
        """A source has told something, in a thread of its own."""

        def events(cluster: Cluster, now_s: float) -> Sequence[Event]:
            measured_s = min(self.clock.at(seen.measured_unix_s), now_s)
            need = world.of_the_pool(seen, cluster)
            return self.desk.told(Word(measured_s, need.need, need.forecast, hosting=need.hosting), now_s)

        self.driver.inbox.put(Happened(events))

    def _turn(self) -> None:
        assert self.loop is not None
        try:
            self.loop.run()
            self.error = self.driver.error
        except BaseException as error:
            self.error = error
            _log.exception("the loop has stopped")
        finally:
            self.over.set()
            self.driver.inbox.close()


class Audit:
    """Checks the invariants of the state now and then, and counts what was wrong."""

    def __init__(self, every: int = EVENTS_PER_AUDIT) -> None:
        self.violations = 0
        self._every, self._seen = every, 0

    def saw(self, _event: Event, cluster: Cluster) -> None:
        """Look at the state after one event in so many."""
        self._seen += 1
        if self._seen % self._every:
            return
        for wrong in violations(cluster):
            self.violations += 1
            _log.error("the state contradicts itself: %s", wrong)


class Defects:
    """Counts the errors of the policy. Stopping for one would help nobody: the next daemon would find the
    same state, and stop at it again.
    """

    def __init__(self) -> None:
        self.count = 0

    def note(self, error: Exception) -> None:
        """The policy's decision can't be carried out, and is skipped."""
        self.count += 1
        _log.error("a defect of the policy, whose decision is skipped: %s", error, exc_info=error)
