"""The real world, as the loop sees it: `ClusterDriver` on the wall clock.

Facts of the backend, accepted jobs, commands and the inference side's word gather in an inbox. `poll` sleeps
until something is there and hands out what it means, all at the one instant at which it was heard, in the
order that the simulator uses: completions, reports, operators, submissions, demand. `apply` turns a plan that
is in the journal into orders, each idempotent. After a restart `take_over` repeats the orders that follow
from the state.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import assert_never

from aryl.backends import port
from aryl.backends.port import Backend, Gang, Phase, Program
from aryl.core import events as ev
from aryl.core.cluster import Cluster, Job
from aryl.core.model import Health, JobSpec, JobState, Slot, Tenure, allowed_size
from aryl.core.plan import Launch, Loan, Plan, Reclaim, Release, Reserve, Resize, Return, Stop
from aryl.errors import ArylError, FencedError, UnreachableError
from aryl.live.clock import WallClock
from aryl.live.demand import InferenceDesk
from aryl.live.facts import WITHOUT_NOTICE, Interpreter
from aryl.live.hooks import Handover, Homecomings, HookRunner, LoanHooks, Ready
from aryl.live.inbox import Command, Halt, Happened, Inbox, NewJob, Note, Question

_log = logging.getLogger(__name__)

# The loop comes by at least so often, in real seconds, so that one that doesn't is noticed.
TURN_S = 1.0
REOPEN_AFTER_S = 1.0
# Facts are taken in while they pour in, but not for ever: others wait for a pass.
GATHER_S = 0.01

# What comes first at one instant, as in the simulator.
# Users and operators are heard in the order in which they spoke.
_COMPLETION, _REPORT, _USER, _DEMAND = range(4)


class LiveDriver:
    """Implements `ClusterDriver`. Made for one loop; `programs` finds what a job runs."""

    def __init__(
        self,
        clock: WallClock,
        backend: Backend,
        programs: Callable[[str], Program],
        desk: InferenceDesk,
        interpreter: Interpreter,
        hooks: LoanHooks | None = None,
    ) -> None:
        self.inbox = Inbox()
        self.last_turn_s = time.monotonic()
        self.stalls = 0
        self._clock, self._backend, self._programs = clock, backend, programs
        self._desk, self._interpreter = desk, interpreter
        hooks = hooks or LoanHooks()
        self._ready = hooks.ready
        self._hooks = HookRunner(hooks, self._released, self._restored)
        self._homecomings = Homecomings(self._hooks.restore, clock.speed)
        self._cluster: Cluster | None = None
        self._fence = 0
        self.handovers = Counter[Handover]()  # how loans began
        self._loans: dict[str, int] = {}  # how often each server was handed over
        self._called_off: list[str] = []  # servers that will be at home once the journal has it
        self._to_answer: list[Future[None]] = []
        self._to_forget: list[tuple[str, int]] = []
        self._halting = threading.Event()
        self._error: BaseException | None = None

    def take_over(self, cluster: Cluster, fence: int, came_home: Sequence[str] = ()) -> None:
        """Begin with the state that the journal gives: adopt what runs, repeat what was left undone. For the
        servers that don't serve yet that is to put them back into service, and for those that `came_home` a
        short time ago it may be.

        Raises FencedError, or ArylError if the backend can't be reached.
        """
        self._cluster, self._fence = cluster, fence
        told = self._desk.take_over(cluster)
        self._interpreter.troubles.take_over(cluster, cluster.now)
        self._open(cluster)
        for server in cluster.servers:
            if server.handing_over:
                self._hand_over(server.spec.server_id)
        restoring = [server.spec.server_id for server in cluster.servers if server.restoring]
        for server_id in dict.fromkeys((*restoring, *came_home)):
            self._homecomings.begin(server_id)
        # A first pass, whatever happens: the daemon may have died between an event and its pass.
        self.inbox.put(Happened(lambda _, now_s: (ev.Tick(now_s), *told)))

    def halt(self, error: BaseException | None = None) -> None:
        """Let `poll` say that there will be no more."""
        self.inbox.put(Halt(error))

    def close(self) -> None:
        """Let go of everything without touching what runs."""
        self._hooks.close()
        self._backend.close()
        self.inbox.close()
        # What the journal would not take may have been done or not; whoever asked is to ask the next leader.
        for answer in self._to_answer:
            answer.set_exception(UnreachableError("the control plane has stopped"))
        self._to_answer.clear()

    @property
    def failed_restores(self) -> int:
        """How often a restore failed."""
        return self._hooks.failures

    @property
    def error(self) -> BaseException | None:
        """Why the loop was halted, if it wasn't by request."""
        return self._error

    def poll(self, deadline_s: float) -> Sequence[ev.Event] | None:
        """What has happened, at the instant at which it is heard; see `ClusterDriver`."""
        self._answer()
        # Whatever else pours in: the next daemon hears of it.
        while not self._halting.is_set():
            self.last_turn_s = time.monotonic()
            wait_s = min(self._clock.seconds_until(min(deadline_s, self._next_s())), TURN_S)
            notes = self.inbox.wait(wait_s)
            if notes:
                time.sleep(GATHER_S)  # a gang's processes report within moments of each other
                notes += self.inbox.wait(0.0)
            events = self._hear(notes)
            if events:
                return events
            if self._clock.now() >= deadline_s:
                return ()
        return None

    def apply(self, plan: Plan, cluster: Cluster) -> None:
        """Turn the plan into orders."""
        for step in plan.steps:
            match step:
                case Launch() | Resize():
                    job = cluster.jobs[step.job_id]
                    gang = self._gang(job, cluster)
                    if isinstance(step, Launch):
                        self._backend.launch(gang)
                    else:
                        self._interpreter.watchdog.changed(step.job_id, step.attempt, cluster.now)
                        self._backend.resize(gang)
                case Stop():
                    save = step.cause not in WITHOUT_NOTICE
                    self._backend.stop(step.job_id, step.attempt, save=save)
                case Loan():
                    if cluster.server_by_id[step.server_id].handing_over:
                        self._hand_over(step.server_id)
                case Return():
                    self._homecomings.begin(step.server_id)
                case Reclaim() | Reserve() | Release():
                    pass
                case _:
                    assert_never(step)

    def _next_s(self) -> float:
        interpreter = self._interpreter
        return min(
            self._desk.next_s(),
            interpreter.troubles.next_s(),
            interpreter.watchdog.next_s(),
            self._homecomings.next_s(),
        )

    def _hear(self, notes: list[Note]) -> list[ev.Event]:
        """What the notes mean, with what time has brought, in the order of one instant."""
        cluster = self._cluster
        assert cluster is not None
        now_s = max(self._clock.now(), cluster.now)
        heard: list[tuple[int, ev.Event]] = []
        obeyed = False
        for note in notes:
            match note:
                case Question():
                    _answer_question(note, cluster)
                case Command() if note.alone and obeyed:
                    self.inbox.put(note)  # its turn is the next one
                case Command():
                    events = self._obey(note, cluster, now_s)
                    obeyed = obeyed or bool(events)
                    heard += events
                case Happened():
                    heard += [(_rank(event), event) for event in note.events(cluster, now_s)]
                case NewJob():
                    heard += [(_USER, event) for event in _arrival(note.spec, cluster, now_s)]
                case Halt():
                    self._error = self._error or note.error
                    self._halting.set()
                case port.BackendLost():
                    self._reopen(note, cluster)
                    # What was lost with it has to be known before the next pass.
                    notes += self.inbox.wait(0.0)
                case _:
                    heard += self._interpret(note, cluster, now_s)
        self._homecomings.try_again(cluster, now_s)
        interpreter = self._interpreter
        heard += [(_REPORT, event) for event in interpreter.troubles.rested(cluster, now_s)]
        for event in interpreter.watchdog.silent(cluster, now_s):
            self.stalls += 1
            heard.append((_REPORT, event))
        heard += [(_DEMAND, event) for event in self._desk.due(now_s)]
        heard.sort(key=lambda pair: pair[0])
        return [event for _, event in heard]

    def _interpret(self, fact: port.Fact, cluster: Cluster, now_s: float) -> list[tuple[int, ev.Event]]:
        heard = [
            (_COMPLETION if isinstance(event, ev.Finished) else _REPORT, event)
            for event in self._interpreter.events(fact, cluster, now_s)
        ]
        if isinstance(fact, port.GangStopped | port.GangSucceeded | port.GangFailed):
            self._to_forget.append((fact.job_id, fact.attempt))
        return heard

    def _obey(self, command: Command, cluster: Cluster, now_s: float) -> list[tuple[int, ev.Event]]:
        try:
            events = command.events(cluster, now_s)
        except Exception as error:
            command.answer.set_exception(error)
            return []
        if not events:  # nothing has to get into the journal first
            command.answer.set_result(None)
            return []
        self._to_answer.append(command.answer)
        return [(_rank(event), event) for event in events]

    def _answer(self) -> None:
        """What was heard the last time is in the journal now."""
        for answer in self._to_answer:
            answer.set_result(None)
        self._to_answer.clear()
        for server_id in self._called_off:
            # One that was asked back meanwhile comes home by a step of a plan.
            if self._cluster is not None and self._cluster.server_by_id[server_id].tenure is Tenure.OWNED:
                self._homecomings.begin(server_id)
        self._called_off.clear()
        for job_id, attempt in self._to_forget:
            self._backend.forget(job_id, attempt)
            self._interpreter.watchdog.forget(job_id, attempt)
            if self._cluster is not None and job_id in self._cluster.ended:
                self._interpreter.learner.forget(job_id)
        self._to_forget.clear()

    def _open(self, cluster: Cluster) -> None:
        for server in cluster.servers:
            if server.health is Health.SUSPECT:
                # What didn't die may have died meanwhile; if it hasn't, the backend says so again.
                self.inbox.put(port.ServerStuck(time.time(), server.spec.server_id, False))
        self._backend.open(
            self._fence,
            self._gangs(cluster),
            self.inbox.put,
            [server.spec for server in cluster.servers],
        )
        lent = [server.spec.server_id for server in cluster.servers if server.tenure is not Tenure.OWNED]
        self._hooks.take_over(lent)

    def _reopen(self, lost: port.BackendLost, cluster: Cluster) -> None:
        if lost.fenced:
            self.halt(FencedError(lost.reason))
            return
        _log.error("the backend is lost (%s): it is opened again", lost.reason)
        try:
            self._open(cluster)
        except FencedError as error:
            self.halt(error)
        except ArylError as error:
            _log.error("the backend can't be opened: %s", error)
            timer = threading.Timer(REOPEN_AFTER_S, self.inbox.put, [lost])
            timer.daemon = True
            timer.start()

    def _hand_over(self, server_id: str) -> None:
        self._loans[server_id] = self._loans.get(server_id, 0) + 1
        self._hooks.release(server_id, self._loans[server_id])

    def _released(self, server_id: str, loan: int, outcome: Handover, reason: str) -> None:
        def events(cluster: Cluster, now_s: float) -> Sequence[ev.Event]:
            # What comes late is about a loan that is over.
            if loan != self._loans[server_id] or not cluster.server_by_id[server_id].handing_over:
                return ()
            self.handovers[outcome] += 1
            if outcome is Handover.CALLED_OFF:
                self._called_off.append(server_id)
                return (ev.LoanCalledOff(now_s, server_id, reason),)
            return (ev.HandedOver(now_s, server_id),)

        self.inbox.put(Happened(events))

    def _restored(self, server_id: str, homecoming: int, wrong: str) -> None:
        def events(cluster: Cluster, now_s: float) -> Sequence[ev.Event]:
            restored = self._homecomings.ended(cluster, now_s, server_id, homecoming, wrong)
            if restored and self._ready is Ready.HOOK:
                return (ev.BackInService(now_s, server_id),)
            return ()

        self.inbox.put(Happened(events))

    def _gangs(self, cluster: Cluster) -> list[Gang]:
        return [
            self._gang(job, cluster) for job in cluster.jobs.values() if job.state is not JobState.PENDING
        ]

    def _gang(self, job: Job, cluster: Cluster) -> Gang:
        return Gang(
            job.spec.job_id,
            job.attempt,
            job.revision,
            tuple(job.slots.values()),
            self._programs(job.spec.job_id),
            Phase.STOPPING if job.stopping else Phase.UP,
            # One may be resized before it was ever up.
            launched=job.state is JobState.RUNNING,
            finishing=job.finishing,
            leaving=tuple(_leaving(job, cluster)),
        )


def _rank(event: ev.Event) -> int:
    return _DEMAND if isinstance(event, ev.DemandReported) else _USER


def _arrival(spec: JobSpec, cluster: Cluster, now_s: float) -> Iterator[ev.Event]:
    """A job that the state has already is one that was accepted before a restart. One that can't be is
    refused here, because the store has it, and would offer it again for ever.
    """
    if spec.job_id in cluster.jobs or spec.job_id in cluster.ended:
        return
    fits = 1 <= spec.min_workers <= spec.max_workers and allowed_size(spec.sizes, spec.min_workers)
    if fits:
        yield ev.Submitted(now_s, spec)
    else:
        yield ev.Refused(now_s, spec.job_id, "its numbers of workers contradict each other")


def _leaving(job: Job, cluster: Cluster) -> Iterator[Slot]:
    for server_id, gpus in job.leaving.items():
        shelf = cluster.server_by_id[server_id].shelf
        each = next(one.gpus_per_worker for one in cluster.stands(job.spec) if one.shelf == shelf)
        yield Slot(server_id, 0, gpus // each, each)


def _answer_question(question: Question, cluster: Cluster) -> None:
    try:
        question.answer.set_result(question.ask(cluster))
    except Exception as error:
        question.answer.set_exception(error)
