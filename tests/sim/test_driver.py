"""The simulated world: what comes first at one instant, what overheads cost, and when it is over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.decision import NOTHING, Decision
from aryl.core.evolve import evolve
from aryl.core.model import JobSpec, Pool, ServerSpec, Slot
from aryl.core.plan import Cause, Launch, Plan, Resize, Step, Stop
from aryl.errors import DecisionError
from aryl.policies.policy import Policy
from aryl.policies.queueing import Queueing
from aryl.scheduler.loop import MOST_PLANS_AT_ONCE, Loop
from aryl.sim.driver import Overheads, SimDriver

SERVERS = tuple(ServerSpec(f"T{n}", Pool.TRAINING, "V100", 8) for n in (1, 2))
FREE = Overheads(0.0, 0.0, 0.0)


def spec(
    job_id: str, at: float, workers: int = 4, most: int | None = None, *, saves: float | None = None
) -> JobSpec:
    return JobSpec(job_id, int(at), at, workers, most or workers, checkpoint_s=saves)


class Bench:
    """A world that is moved by hand."""

    def __init__(self, driver: SimDriver) -> None:
        self.driver = driver
        self.cluster = Cluster(lambda job, now_s: ())
        evolve(self.cluster, ev.ClusterDeclared(0.0, SERVERS))

    def next(self, deadline_s: float = float("inf")) -> list[ev.Event] | None:
        polled = self.driver.poll(deadline_s)
        for event in polled or ():
            evolve(self.cluster, event)
        return None if polled is None else list(polled)

    def wait(self, until_s: float) -> None:
        """Let time pass in which nothing happens."""
        assert self.next(until_s) == []
        evolve(self.cluster, ev.Tick(until_s))

    def do(self, *steps: Step) -> None:
        plan = Plan(steps)
        evolve(self.cluster, ev.PlanCommitted(self.cluster.now, plan))
        self.driver.apply(plan, self.cluster)

    def launch(self, job_id: str, *slots: Slot) -> None:
        self.do(Launch(job_id, self.cluster.jobs[job_id].attempt + 1, slots))

    def resize(self, job_id: str, add: tuple[Slot, ...] = (), remove: tuple[Slot, ...] = ()) -> None:
        found = self.cluster.jobs[job_id]
        self.do(Resize(job_id, found.attempt, found.revision + 1, add, remove, Cause.GROWTH))

    def stop(self, job_id: str, *, save: bool = False) -> None:
        self.do(Stop(job_id, self.cluster.jobs[job_id].attempt, Cause.PRIORITY, save, "somebody"))


def bench(
    specs: Sequence[JobSpec] = (),
    durations_s: Sequence[float] = (),
    overheads: Overheads = FREE,
    **more: object,
) -> Bench:
    arrivals = [ev.Submitted(job.submit_s, job) for job in specs]
    lengths = {job.job_id: length for job, length in zip(specs, durations_s, strict=True)}
    return Bench(SimDriver(arrivals, lengths, overheads=overheads, **more))  # type: ignore[arg-type]


def test_at_one_instant_completions_come_first_then_reports_script_arrivals_and_demand() -> None:
    jobs = (spec("A", 0.0), spec("B", 0.0), spec("C", 10.0), spec("D", 10.0))
    it = bench(
        jobs,
        (10.0, 99.0, 1.0, 1.0),
        Overheads(0.0, 0.0, 4.0),
        script=[ev.ServerDrained(10.0, "T2", True), ev.ServerDrained(10.0, "T1", False)],
        demand=iter([ev.DemandReported(10.0, 1.0, 1.0)]),
    )
    it.next()
    it.launch("A", Slot("T1", 4, 0, 1))
    it.launch("B", Slot("T1", 4, 0, 1))
    assert [type(event) for event in it.next() or ()] == [ev.Launched, ev.Launched]
    it.wait(6.0)
    it.stop("B")
    assert it.next() == [
        ev.Finished(10.0, "A", 1),
        ev.Stopped(10.0, "B", 1, 0.0),
        ev.ServerDrained(10.0, "T2", True),
        ev.ServerDrained(10.0, "T1", False),
        ev.Submitted(10.0, jobs[2]),
        ev.Submitted(10.0, jobs[3]),
        ev.DemandReported(10.0, 1.0, 1.0),
    ]


def test_completions_at_one_instant_come_in_the_order_in_which_they_were_foreseen() -> None:
    it = bench((spec("A", 0.0), spec("B", 0.0)), (10.0, 10.0))
    it.next()
    it.launch("B", Slot("T1", 4, 0, 1))
    it.launch("A", Slot("T1", 4, 0, 1))
    it.next()
    assert it.next() == [ev.Finished(10.0, "B", 1), ev.Finished(10.0, "A", 1)]


def test_a_completion_that_a_resize_has_moved_doesnt_happen_at_its_old_time() -> None:
    it = bench((spec("E", 0.0, 2, 8),), (100.0,))
    it.next()
    it.launch("E", Slot("T1", 2, 0, 1))
    it.next()
    it.wait(40.0)
    it.resize("E", add=(Slot("T1", 0, 4, 1),))
    assert it.next() == [ev.Resized(40.0, "E", 1, 1)]
    assert it.next() == [ev.Finished(60.0, "E", 1)]  # 60 s left, at three times the speed
    assert it.next() is None
    assert it.driver.quiet


def test_a_completion_of_a_stopped_attempt_never_happens() -> None:
    it = bench((spec("A", 0.0),), (100.0,))
    it.next()
    it.launch("A", Slot("T1", 4, 0, 1))
    it.next()
    it.wait(40.0)
    it.stop("A")
    assert it.next() == [ev.Stopped(40.0, "A", 1, 0.0)]
    assert it.driver.quiet
    assert it.next() is None


@pytest.mark.parametrize(
    ("saves", "save", "kept_s"),
    [(None, False, 0.0), (None, True, 40.0), (0.0, False, 40.0), (15.0, False, 30.0)],
)
def test_a_stop_keeps_what_was_saved(saves: float | None, save: bool, kept_s: float) -> None:
    it = bench((spec("A", 0.0, saves=saves),), (100.0,), Overheads(0.0, 0.0, 5.0))
    it.next()
    it.launch("A", Slot("T1", 4, 0, 1))
    it.next()
    it.wait(40.0)
    it.stop("A", save=save)
    assert it.next() == [ev.Stopped(45.0, "A", 1, kept_s)]
    it.launch("A", Slot("T1", 4, 0, 1))
    it.next()
    assert it.next() == [ev.Finished(45.0 + 100.0 - kept_s, "A", 2)]


def test_a_restart_stands_still_first_and_a_first_start_doesnt() -> None:
    it = bench((spec("A", 0.0),), (100.0,), Overheads(restart_s=63.0, resize_s=0.0))
    it.next()
    it.launch("A", Slot("T1", 4, 0, 1))
    assert it.next() == [ev.Launched(0.0, "A", 1)]
    it.wait(10.0)
    it.stop("A")
    it.next()
    it.launch("A", Slot("T1", 4, 0, 1))
    assert it.next() == [ev.Launched(73.0, "A", 2)]
    assert it.next() == [ev.Finished(173.0, "A", 2)]


def test_a_first_start_takes_what_it_is_said_to_take_by_the_size_of_the_gang() -> None:
    overheads = Overheads(restart_s=63.0, resize_s=0.0, launch_s=2.0, launch_worker_s=0.5)
    it = bench((spec("A", 0.0),), (100.0,), overheads)
    it.next()
    it.launch("A", Slot("T1", 4, 0, 1))
    assert it.next() == [ev.Launched(4.0, "A", 1)]
    it.wait(54.0)
    it.stop("A")
    it.next()
    it.launch("A", Slot("T1", 4, 0, 1))
    assert it.next() == [ev.Launched(117.0, "A", 2)]


def test_a_resize_stands_still_and_its_leaving_workers_take_their_time() -> None:
    it = bench((spec("E", 0.0, 2, 4),), (100.0,), Overheads(0.0, resize_s=10.0, vacate_s=3.0))
    it.next()
    it.launch("E", Slot("T1", 2, 2, 1))
    it.next()
    it.wait(20.0)
    gone = (Slot("T1", 0, 2, 1),)
    it.resize("E", remove=gone)
    assert it.next() == [ev.Vacated(23.0, "E", 1, gone)]
    assert it.next() == [ev.Resized(30.0, "E", 1, 1)]
    assert it.next() == [ev.Finished(90.0, "E", 1)]  # 40 s done by then, 60 s left at the base rate


@pytest.mark.parametrize(("resized_after_s", "back_s"), [(5.0, 63.0), (60.0, 70.0)])
def test_a_resize_during_a_restart_doesnt_shorten_it(resized_after_s: float, back_s: float) -> None:
    it = bench((spec("E", 0.0, 2, 4),), (100.0,), Overheads(restart_s=63.0, resize_s=10.0))
    it.next()
    it.launch("E", Slot("T1", 2, 0, 1))
    it.next()
    it.stop("E")
    it.next()
    it.launch("E", Slot("T1", 2, 0, 1))
    it.wait(resized_after_s)
    it.resize("E", add=(Slot("T1", 0, 2, 1),))
    seen: list[ev.Event] = []
    while (events := it.next()) is not None:
        seen += events
    assert seen == [
        ev.Launched(63.0, "E", 2),
        ev.Resized(back_s, "E", 2, 1),
        ev.Finished(back_s + 50.0, "E", 2),
    ]


def test_nobody_reports_about_workers_that_were_lost_while_they_were_leaving() -> None:
    gone = (Slot("T2", 0, 2, 1),)
    it = bench(
        (spec("E", 0.0, 2, 8),),
        (100.0,),
        Overheads(0.0, 0.0, vacate_s=10.0),
        script=[ev.ServerLost(5.0, "T2"), ev.ServerReturned(6.0, "T2")],
    )
    it.next()
    it.launch("E", Slot("T1", 2, 0, 1), Slot("T2", 0, 2, 1))
    it.next()
    it.resize("E", remove=gone)
    it.next()
    assert it.next() == [ev.ServerLost(5.0, "T2")]
    it.next()
    it.resize("E", add=gone)
    it.next()
    it.resize("E", remove=gone)
    it.next()
    assert it.next() == [ev.Vacated(10.0, "E", 1, ())]
    assert it.cluster.server_by_id["T2"].free == 6, "the second ones are still leaving"
    assert it.next() == [ev.Vacated(16.0, "E", 1, gone)]


def test_a_deadline_comes_before_the_next_event() -> None:
    it = bench((spec("A", 50.0),), (10.0,))
    assert it.driver.poll(20.0) == ()
    assert it.driver.poll(50.0) == [ev.Submitted(50.0, spec("A", 50.0))]


def test_nothing_happens_after_until() -> None:
    it = bench((spec("A", 0.0), spec("B", 30.0)), (100.0, 1.0), until_s=29.0)
    assert it.next() is not None
    it.launch("A", Slot("T1", 4, 0, 1))
    assert it.next() == [ev.Launched(0.0, "A", 1)]
    assert it.driver.poll(29.0) == ()
    assert it.driver.poll(29.5) is None


def test_demand_alone_keeps_nothing_going() -> None:
    it = bench(demand=iter([ev.DemandReported(5.0 * tick, 1.0, 1.0) for tick in range(3)]))
    assert it.driver.quiet
    assert it.next() == [ev.DemandReported(0.0, 1.0, 1.0)]
    assert it.driver.quiet


def test_what_lies_ahead_is_not_quiet() -> None:
    it = bench((spec("A", 0.0),), (10.0,), script=[ev.ServerDrained(40.0, "T1", True)])
    assert not it.driver.quiet
    it.next()
    it.launch("A", Slot("T1", 4, 0, 1))
    it.next()
    assert it.next() == [ev.Finished(10.0, "A", 1)]
    assert not it.driver.quiet
    it.next()
    assert it.driver.quiet
    assert it.next() is None


def test_an_empty_world_is_over_at_once() -> None:
    assert bench().driver.poll(float("inf")) is None


class _Fixed(Queueing):
    """A policy that always answers the same."""

    answer: Decision = NOTHING

    def decide(self, cluster: Cluster) -> Decision:
        return self.answer


def _loop(policy: Policy, *jobs: JobSpec) -> Loop:
    driver = SimDriver(
        [ev.Submitted(job.submit_s, job) for job in jobs], {job.job_id: 10.0 for job in jobs}, overheads=FREE
    )
    loop = Loop(Cluster(policy.order), policy, driver)
    loop.record(ev.ClusterDeclared(0.0, SERVERS))
    return loop


@pytest.mark.parametrize("wake_at_s", [0.0, 5.0, 7.0])
def test_a_wake_up_that_isnt_in_the_future_is_an_error_of_the_policy(wake_at_s: float) -> None:
    policy = _Fixed("fixed", "fifo", strict=True)
    object.__setattr__(policy, "answer", Decision(wake_at_s=wake_at_s))
    with pytest.raises(DecisionError, match=r"fixed asks at 7.0 s to be woken at"):
        _loop(policy, spec("A", 7.0)).step()


def test_a_wake_up_gives_the_policy_a_turn_although_nothing_happens() -> None:
    policy = _Fixed("fixed", "fifo", strict=True)
    object.__setattr__(policy, "answer", Decision(wake_at_s=30.0))
    loop = _loop(policy, spec("A", 7.0))
    loop.step()
    assert loop.passes == 1
    object.__setattr__(policy, "answer", NOTHING)
    loop.step()
    assert (loop.passes, loop.cluster.now) == (2, 30.0)
    assert not loop.step()


class _Fickle(Queueing):
    """Starts a job, and takes it back as soon as it runs."""

    def decide(self, cluster: Cluster) -> Decision:
        from aryl.core.decision import Preemption, Start

        if cluster.live:
            return Decision(preemptions=(Preemption("A", Cause.PRIORITY, "nobody"),))
        if "A" in cluster.pending:
            return Decision(starts=(Start("A", (Slot("T1", 4, 0, 1),)),))
        return NOTHING


def test_a_policy_that_doesnt_come_to_rest_is_stopped_with_its_last_plans_named() -> None:
    policy = _Fickle("fickle", "fifo", strict=True)
    loop = _loop(policy, spec("A", 7.0), spec("B", 7.0))

    def quarrel() -> None:
        # A launch alone calls for no further pass; the second one stands for whatever else happens then.
        for _ in range(MOST_PLANS_AT_ONCE):
            loop.step()
            loop.decide()

    with pytest.raises(DecisionError, match=r"fickle doesn't come to rest at 7.0 s.*launch A.*stop A \(prio"):
        quarrel()


def test_an_event_that_cant_be_is_not_journaled() -> None:
    from aryl.errors import IllegalTransitionError
    from aryl.scheduler.journal import MemoryJournal

    journal = MemoryJournal()
    policy = Queueing("fifo", "fifo", strict=True)
    loop = Loop(Cluster(policy.order), policy, SimDriver([], {}), journal=journal)
    loop.record(ev.ClusterDeclared(0.0, SERVERS))
    with pytest.raises(IllegalTransitionError):
        loop.record(ev.ServerLost(1.0, "T9"))
    assert journal.events == [ev.ClusterDeclared(0.0, SERVERS)]
