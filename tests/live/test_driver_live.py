"""The driver between the loop and a backend: the order of one instant, answers, orders, and what is repeated
after a restart. The clock stands, and the backend is one of memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from tests.contract.worlds import StandingClock
from tests.core.helpers import cluster_of, commit, happen, job, resize, run, stop, submit
from tests.live.cluster import eventually
from tests.live.desks import pushed_desk

from aryl.backends import port
from aryl.backends.port import Gang, Phase, Program, Sink
from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.model import Health, ServerSpec, Slot
from aryl.core.plan import Cause, Launch, Loan, Plan, Reclaim, Return, Step
from aryl.errors import ArylError, ConflictError, FencedError, UnreachableError
from aryl.live import driver as live_driver
from aryl.live import operators
from aryl.live.demand import InferenceDesk, Word
from aryl.live.driver import LiveDriver
from aryl.live.facts import Interpreter
from aryl.live.hooks import LoanHooks
from aryl.live.inbox import Command, Halt, Happened, NewJob, Question
from aryl.live.learning import Learner
from aryl.live.troubles import QuarantineRule, Troubles, Watchdog

PROGRAM = Program(("true",), "/")
ENDLESS = float("inf")


class MemoryBackend:
    """Implements `Backend`; remembers what it was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.sink: Sink | None = None
        self.refuses: list[ArylError] = []  # what the next openings raise

    def open(self, fence: int, gangs: Sequence[Gang], sink: Sink, servers: Sequence[ServerSpec] = ()) -> None:
        self.told.append(("open", fence, tuple(gangs)))
        if self.refuses:
            raise self.refuses.pop(0)
        self.sink = sink

    def launch(self, gang: Gang) -> None:
        self.told.append(("launch", gang))

    def resize(self, gang: Gang) -> None:
        self.told.append(("resize", gang))

    def stop(self, job_id: str, attempt: int, *, save: bool) -> None:
        self.told.append(("stop", job_id, attempt, save))

    def forget(self, job_id: str, attempt: int) -> None:
        self.told.append(("forget", job_id, attempt))

    def close(self) -> None:
        self.told.append(("close",))

    def take(self) -> list[tuple[Any, ...]]:
        """What it was told since the last time."""
        told, self.told = self.told, []
        return told


class Bench:
    """A driver over a cluster that the test moves by hand."""

    def __init__(
        self, cluster: Cluster, hooks: LoanHooks | None = None, desk: InferenceDesk | None = None
    ) -> None:
        self.cluster = cluster
        self.clock = StandingClock()
        self.backend = MemoryBackend()
        self.interpreter = Interpreter(Troubles(QuarantineRule()), Watchdog(60.0), Learner())
        self.desk = desk or pushed_desk(180.0)
        self.driver = LiveDriver(
            self.clock, self.backend, lambda _job: PROGRAM, self.desk, self.interpreter, hooks
        )

    def take_over(self, came_home: Sequence[str] = ()) -> None:
        """Begin, and leave the first pass behind."""
        self.driver.take_over(self.cluster, 7, came_home)
        assert self.poll() == [ev.Tick(self.cluster.now)]

    def poll(self, deadline_s: float = ENDLESS) -> list[ev.Event]:
        """What is heard next; it happens."""
        events = self.driver.poll(deadline_s)
        assert events is not None
        happen(self.cluster, *events)
        return list(events)

    def put(self, *facts: port.Fact) -> None:
        assert self.backend.sink is not None
        for fact in facts:
            self.backend.sink(fact)

    def apply(self, *steps: Step) -> list[tuple[Any, ...]]:
        """Decide, and have it carried out: what the backend is told."""
        self.backend.take()
        commit(self.cluster, *steps)
        self.driver.apply(Plan(steps), self.cluster)
        return self.backend.take()


Make = Callable[..., Bench]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Bench] = []

    def bench(cluster: Cluster | None = None, **more: Any) -> Bench:
        made.append(Bench(cluster or cluster_of(2, 2, confirms_loans=True), **more))
        return made[-1]

    yield bench
    for one in made:
        one.driver.close()


def gang(job_id: str, *slots: Slot, attempt: int = 1, revision: int = 0, **more: Any) -> Gang:
    return Gang(job_id, attempt, revision, slots, PROGRAM, **more)


def test_all_that_is_heard_together_happens_at_one_instant_in_the_simulators_order(make: Make) -> None:
    cluster = cluster_of(2)
    run(cluster, job("a", 1), Slot("T1", 1, 0, 1))
    run(cluster, job("b", 1), Slot("T2", 1, 0, 1))
    bench = make(cluster)
    bench.take_over()
    bench.clock.now_s = 10.0
    inbox = bench.driver.inbox
    inbox.put(Happened(lambda _, now_s: (ev.DemandReported(now_s, 0.0, 0.0),)))
    demand: Command = Command(lambda _, now_s: (ev.DemandReported(now_s, 1.0, 1.0),))
    inbox.put(demand)
    inbox.put(NewJob(job("c", 1)))
    inbox.put(Command(lambda _, now_s: (ev.CancelRequested(now_s, "b"),)))
    bench.put(port.ServerDown(0.0, "T2"), port.GangSucceeded(0.0, "a", 1))
    events = bench.poll()
    assert [type(event) for event in events] == [
        ev.Finished,
        ev.ServerLost,
        ev.Submitted,
        ev.CancelRequested,
        ev.DemandReported,
        ev.DemandReported,
    ]
    assert events[-1] == ev.DemandReported(10.0, 1.0, 1.0)
    assert {event.at for event in events} == {10.0}


def test_time_never_goes_back_however_the_clock_is_set(make: Make) -> None:
    cluster = cluster_of(1)
    happen(cluster, ev.Tick(50.0))
    bench = make(cluster)
    bench.clock.now_s = 20.0
    bench.take_over()
    bench.driver.inbox.put(NewJob(job("a", 1)))
    assert [event.at for event in bench.poll()] == [50.0]


def test_a_deadline_that_comes_is_no_event(make: Make) -> None:
    bench = make()
    bench.take_over()
    assert bench.poll(deadline_s=0.0) == []


def test_the_loop_shows_that_it_is_there_though_nothing_happens(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_driver, "TURN_S", 0.01)
    bench = make()
    bench.take_over()
    before_s = bench.driver.last_turn_s
    with ThreadPoolExecutor() as pool:
        polling = pool.submit(bench.driver.poll, ENDLESS)
        eventually(lambda: bench.driver.last_turn_s > before_s + 0.02, "it stands")
        bench.driver.halt()
        assert polling.result(60) is None


def test_a_command_is_answered_when_the_loop_comes_again_and_not_before(make: Make) -> None:
    bench = make()
    bench.take_over()
    command = Command(lambda _, now_s: (ev.Tick(now_s),))
    bench.driver.inbox.put(command)
    bench.poll()
    assert not command.answer.done()
    bench.poll(deadline_s=0.0)
    assert command.answer.result(0) is None


def test_a_refused_command_is_answered_at_once_and_nothing_happens(make: Make) -> None:
    bench = make()
    bench.take_over()

    def refuse(_cluster: Cluster, _now_s: float) -> Sequence[ev.Event]:
        raise ConflictError("no")

    command, question = Command(refuse), Question(lambda _: 1 // 0)
    bench.driver.inbox.put(command)
    bench.driver.inbox.put(question)
    assert bench.poll(deadline_s=0.0) == []
    assert isinstance(command.answer.exception(0), ConflictError)
    assert isinstance(question.answer.exception(0), ZeroDivisionError)


def test_what_may_not_be_in_the_journal_is_answered_with_ask_again(make: Make) -> None:
    bench = make()
    bench.take_over()
    command = Command(lambda _, now_s: (ev.Tick(now_s),))
    bench.driver.inbox.put(command)
    bench.driver.poll(ENDLESS)
    bench.driver.close()
    assert isinstance(command.answer.exception(0), UnreachableError)
    assert bench.backend.take()[-1] == ("close",)


def test_the_inference_side_that_falls_silent_is_lost_and_heard_again(make: Make) -> None:
    bench = make()
    bench.take_over()
    said: Future[None] = Future()
    bench.driver.inbox.put(Command(lambda _, now_s: bench.desk.told(Word(now_s, 1.0), now_s), said))
    assert bench.poll() == [ev.DemandReported(0.0, 1.0, 1.0, 0.0)]
    bench.clock.now_s = 179.0
    assert bench.poll(deadline_s=179.0) == []
    bench.clock.now_s = 180.0
    assert bench.poll() == [ev.TelemetryLost(180.0)]
    assert bench.cluster.telemetry_lost
    bench.driver.inbox.put(Happened(lambda _, now_s: bench.desk.told(Word(now_s, 2.0), now_s)))
    assert bench.poll() == [ev.DemandReported(180.0, 2.0, 2.0, 0.0)]
    assert not bench.cluster.telemetry_lost


def test_a_calendar_that_is_gone_limits_nothing_after_a_restart_a_while_later(make: Make) -> None:
    cluster = cluster_of(1, 2)
    happen(cluster, ev.LendingLimited(5.0, 0))
    bench = make(cluster)
    bench.clock.now_s = 50.0
    bench.driver.take_over(cluster, 7)
    assert set(bench.poll()) == {ev.Tick(50.0), ev.LendingLimited(50.0, None)}
    assert cluster.lending_limit is None


def test_a_job_that_the_state_has_is_not_submitted_twice_and_an_impossible_one_is_refused(make: Make) -> None:
    bench = make()
    bench.take_over()
    bench.driver.inbox.put(NewJob(job("a", 1)))
    assert bench.poll() == [ev.Submitted(0.0, job("a", 1))]
    for spec in (job("a", 1), job("bad", 3, 2), job("odd", 3, 4, sizes=(2, 4))):
        bench.driver.inbox.put(NewJob(spec))
    why = "its numbers of workers contradict each other"
    assert bench.poll() == [ev.Refused(0.0, "bad", why), ev.Refused(0.0, "odd", why)]
    happen(bench.cluster, ev.CancelRequested(0.0, "a"))
    bench.driver.inbox.put(NewJob(job("a", 1)))
    assert bench.poll(deadline_s=0.0) == []


def test_what_depends_on_the_state_never_shares_a_turn(make: Make) -> None:
    """Two operators give away a server each, where only one can be done without."""
    bench = make(cluster_of(1, 2, confirms_loans=True))
    bench.take_over()
    happen(bench.cluster, ev.DemandReported(0.0, 1.0, 1.0))
    first = Command(lambda cluster, now_s: operators.give(cluster, now_s, "I1"), alone=True)
    second = Command(lambda cluster, now_s: operators.give(cluster, now_s, "I2"), alone=True)
    cancel = Command(lambda _, now_s: (ev.CancelRequested(now_s, "a"),))
    for command in (first, second, cancel):
        bench.driver.inbox.put(command)
    assert bench.poll() == [ev.GiveRequested(0.0, "I1"), ev.CancelRequested(0.0, "a")]
    bench.apply(Loan("I1"))
    assert bench.poll() == [ev.HandedOver(0.0, "I1")]
    assert first.answer.result(0) is None
    assert isinstance(second.answer.exception(0), ConflictError)


def test_plans_become_orders(make: Make) -> None:
    cluster = cluster_of(2)
    submit(cluster, job("e", 2, 6))
    bench = make(cluster)
    bench.take_over()
    base, more = Slot("T1", 2, 0, 1), Slot("T2", 0, 2, 1)
    assert bench.apply(Launch("e", 1, (base,))) == [("launch", gang("e", base))]
    bench.put(port.GangUp(0.0, "e", 1))
    assert bench.poll() == [ev.Launched(0.0, "e", 1)]
    assert bench.apply(resize(cluster, "e", add=(more,))) == [("resize", gang("e", base, more, revision=1))]
    bench.put(port.GangResized(0.0, "e", 1, 1))
    bench.poll()
    assert bench.apply(resize(cluster, "e", remove=(more,))) == [
        ("resize", gang("e", base, revision=2, leaving=(more,)))
    ]
    assert bench.apply(stop(cluster, "e")) == [("stop", "e", 1, True)]


@pytest.mark.parametrize("cause", [Cause.PRIORITY, Cause.RECLAIM, Cause.SERVER_LOST, Cause.DRAIN])
def test_who_may_save_is_asked_to_also_where_nobody_counts_on_it(make: Make, cause: Cause) -> None:
    cluster = cluster_of(1)
    run(cluster, job("a", 1), Slot("T1", 1, 0, 1))
    bench = make(cluster)
    bench.take_over()
    assert bench.apply(stop(cluster, "a", cause)) == [("stop", "a", 1, True)]


@pytest.mark.parametrize("cause", [Cause.CANCELLED, Cause.STALLED])
def test_who_is_cancelled_or_silent_is_not_asked(make: Make, cause: Cause) -> None:
    cluster = cluster_of(1)
    run(cluster, job("a", 1), Slot("T1", 1, 0, 1))
    bench = make(cluster)
    bench.take_over()
    bench.driver.inbox.put(
        Happened(lambda _, now_s: (ev.CancelRequested(now_s, "a"),))
        if cause is Cause.CANCELLED
        else Happened(lambda _, now_s: (ev.Stalled(now_s, "a", 1),))
    )
    bench.poll()
    assert bench.apply(stop(cluster, "a", cause)) == [("stop", "a", 1, False)]


@pytest.mark.parametrize(
    "fact", [port.GangSucceeded(0.0, "a", 1), port.GangFailed(0.0, "a", 1, (), 9.0, "why")]
)
def test_an_attempt_is_forgotten_when_its_end_is_in_the_journal(make: Make, fact: port.Fact) -> None:
    cluster = cluster_of(1)
    run(cluster, job("a", 1), Slot("T1", 1, 0, 1))
    bench = make(cluster)
    bench.take_over()
    bench.interpreter.watchdog.heard("a", 1, 0.0)
    bench.backend.take()
    bench.put(fact)
    bench.poll()
    assert bench.backend.take() == []
    bench.poll(deadline_s=0.0)
    assert bench.backend.take() == [("forget", "a", 1)]
    assert bench.interpreter.watchdog.next_s() == ENDLESS


def test_a_job_that_falls_silent_is_counted(make: Make) -> None:
    cluster = cluster_of(1)
    run(cluster, job("a", 1), Slot("T1", 1, 0, 1))
    bench = make(cluster)
    bench.take_over()
    bench.put(port.Reported(0.0, "a", 1, {"step": 1.0}))
    assert bench.poll(deadline_s=0.0) == []
    bench.clock.now_s = 60.0
    assert bench.poll() == [ev.Stalled(60.0, "a", 1)]
    assert bench.driver.stalls == 1


def test_a_restart_tells_the_backend_of_every_gang_as_the_journal_has_it(make: Make) -> None:
    cluster = cluster_of(3)
    submit(cluster, job("waits", 1), job("starting", 1))
    run(cluster, job("runs", 1), Slot("T3", 1, 0, 1))
    run(cluster, job("stopping", 1), Slot("T1", 1, 0, 1))
    run(cluster, job("e", 2, 6), Slot("T2", 2, 2, 1))
    commit(cluster, Launch("starting", 1, (Slot("T3", 1, 0, 1),)))
    commit(cluster, stop(cluster, "stopping"))
    commit(cluster, resize(cluster, "e", remove=(Slot("T2", 0, 1, 1),)))
    bench = make(cluster)
    bench.take_over()
    ((what, fence, gangs),) = bench.backend.take()
    assert (what, fence) == ("open", 7)
    assert {one.job_id: one for one in gangs} == {
        "starting": gang("starting", Slot("T3", 1, 0, 1)),
        "runs": gang("runs", Slot("T3", 1, 0, 1), launched=True),
        "stopping": gang("stopping", phase=Phase.STOPPING, leaving=(Slot("T1", 0, 1, 1),)),
        "e": gang("e", Slot("T2", 2, 1, 1), revision=1, leaving=(Slot("T2", 0, 1, 1),)),
    }


def test_a_suspicion_ends_with_the_restart_unless_the_backend_repeats_it(make: Make) -> None:
    cluster = cluster_of(1)
    happen(cluster, ev.HealthChanged(0.0, "T1", Health.SUSPECT))
    bench = make(cluster)
    bench.driver.take_over(cluster, 7)
    bench.put(port.ServerStuck(0.0, "T1", True))
    assert bench.poll() == [
        ev.HealthChanged(0.0, "T1", Health.HEALTHY),
        ev.HealthChanged(0.0, "T1", Health.SUSPECT),
        ev.Tick(0.0),
    ]


def test_a_backend_that_is_lost_is_opened_again_until_it_is_there(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_driver, "REOPEN_AFTER_S", 0.01)
    bench = make()
    bench.take_over()
    bench.backend.refuses = [ArylError("not yet"), ArylError("not yet")]
    bench.backend.take()
    bench.put(port.BackendLost(0.0, False, "gone"))
    with ThreadPoolExecutor() as pool:
        polling = pool.submit(bench.driver.poll, ENDLESS)
        eventually(lambda: len(bench.backend.told) == 3, "it isn't opened again")
        bench.driver.halt()
        assert polling.result(60) is None
    assert bench.driver.error is None
    assert bench.backend.take() == [("open", 7, ())] * 3


@pytest.mark.parametrize("at_once", [True, False])
def test_whoever_was_replaced_halts(make: Make, at_once: bool) -> None:
    bench = make()
    bench.take_over()
    if not at_once:
        bench.backend.refuses = [FencedError("somebody else has taken over")]
    bench.put(port.BackendLost(0.0, at_once, "somebody else has taken over"))
    assert bench.driver.poll(ENDLESS) is None
    assert isinstance(bench.driver.error, FencedError)


def test_what_was_heard_before_the_halt_is_still_told(make: Make) -> None:
    bench = make()
    bench.take_over()
    bench.driver.inbox.put(NewJob(job("a", 1)))
    bench.driver.inbox.put(Halt(ArylError("why")))
    assert [type(event) for event in bench.poll()] == [ev.Submitted]
    assert bench.driver.poll(ENDLESS) is None
    assert str(bench.driver.error) == "why"


def lent(bench: Bench) -> None:
    bench.driver.inbox.put(Happened(lambda _, now_s: (ev.DemandReported(now_s, 0.0, 0.0),)))
    bench.poll()
    bench.apply(Loan("I1"))


def test_a_server_that_is_lent_is_handed_over_at_once_where_there_are_no_hooks(make: Make) -> None:
    bench = make()
    bench.take_over()
    lent(bench)
    assert bench.poll() == [ev.HandedOver(0.0, "I1")]
    assert not bench.cluster.server_by_id["I1"].handing_over


def test_a_loan_whose_hook_fails_is_called_off(make: Make) -> None:
    bench = make(hooks=LoanHooks(release=("/bin/false",)))
    bench.take_over()
    lent(bench)
    assert bench.poll() == [ev.LoanCalledOff(0.0, "I1", "its release exited with 1")]


def test_word_of_a_loan_that_is_over_changes_nothing(make: Make) -> None:
    bench = make()
    bench.take_over()
    lent(bench)
    # Before the word of the hand-over is heard the server is asked back, returned and lent again.
    bench.apply(Reclaim("I1", 5.0))
    bench.apply(Return("I1"))
    bench.apply(Loan("I1"))
    assert bench.poll() == [ev.HandedOver(0.0, "I1")]
    assert bench.poll(deadline_s=0.0) == []


def test_a_restart_repeats_the_hand_over_and_the_restore_that_may_not_be_done(
    make: Make, tmp_path: Any
) -> None:
    cluster = cluster_of(1, 2, confirms_loans=True)
    happen(cluster, ev.DemandReported(0.0, 0.0, 0.0))
    commit(cluster, Loan("I1"))
    log = tmp_path / "log"
    bench = make(cluster, hooks=LoanHooks(restore=("/bin/sh", "-c", f'echo "$ARYL_SERVER_ID" >> "{log}"')))
    bench.driver.take_over(cluster, 7, ["I2"])
    assert sorted(type(event).__name__ for event in bench.poll()) == ["HandedOver", "Tick"]
    eventually(lambda: log.exists() and log.read_text() == "I2\n", "it isn't restored")
    assert bench.driver.failed_restores == 0


def test_facts_that_pour_in_are_taken_together(make: Make) -> None:
    """A gang's processes report within moments of each other: one pass for all of them."""
    cluster = cluster_of(2)
    for name in "abcd":
        run(cluster, job(name, 1), Slot("T1", 1, 0, 1))
    bench = make(cluster)
    bench.take_over()
    with ThreadPoolExecutor() as pool:
        polling = pool.submit(bench.driver.poll, ENDLESS)
        time.sleep(0.05)
        bench.put(*(port.GangSucceeded(0.0, name, 1) for name in "abcd"))
        assert polling.result(60) == [ev.Finished(0.0, name, 1) for name in "abcd"]
