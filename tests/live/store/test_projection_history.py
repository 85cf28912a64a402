"""The history of jobs and loans, told event by event on small clusters."""

from __future__ import annotations

import pytest
from tests.live.store.databases import lead, new_job

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.model import Health, JobSpec, JobState, Pool, ServerSpec, Slot
from aryl.core.plan import (
    Cause,
    Claim,
    Launch,
    Loan,
    Plan,
    Reclaim,
    Release,
    Reserve,
    Resize,
    Return,
    Step,
    Stop,
    Weighed,
)
from aryl.live.projection import NOTEWORTHY_CHANGE, Projection
from aryl.live.store import JobRow, LoanRow, SqlJournal, Store
from aryl.policies.catalogue import parse_policy

ZERO_S = 1_000_000.0
FOREVER = float("inf")


class Told:
    """A cluster of two training servers and an inference server, and a store that is told of every event."""

    def __init__(self, store: Store, *, confirms_loans: bool = False) -> None:
        self.store = store
        self.cluster = Cluster(parse_policy("fifo").order)
        self.projection = Projection(ZERO_S, self.cluster)
        self.journal = SqlJournal(store, lead(store), self.projection)
        servers = (
            ServerSpec("T1", Pool.TRAINING, "V100", 8),
            ServerSpec("T2", Pool.TRAINING, "V100", 8),
            ServerSpec("I1", Pool.INFERENCE, "V100", 8),
        )
        self.tell(ev.ClusterDeclared(0.0, servers, confirms_loans=confirms_loans))

    def tell(self, *events: ev.Event) -> None:
        for event in events:
            evolve(self.cluster, event)
            self.journal.append(event)
            self.projection.saw(event, self.cluster)
        self.journal.flush()

    def plan(self, at: float, *steps: Step) -> None:
        self.tell(ev.PlanCommitted(at, Plan(steps)))

    def submit(self, at: float, name: str, workers: tuple[int, int] = (4, 4), **more: object) -> str:
        row, _ = self.store.accept(
            new_job(name, min_workers=workers[0], max_workers=workers[1]), "ann", None, "", ZERO_S + at
        )
        spec = JobSpec(row.job_id, row.sequence, at, *workers, **more)  # type: ignore[arg-type]
        self.tell(ev.Submitted(at, spec))
        return row.job_id

    def run(self, at: float, name: str, workers: tuple[int, int] = (4, 4), server: str = "T1") -> str:
        job_id = self.submit(at, name, workers)
        slot = Slot(server, workers[0], 0, 1)
        self.plan(at, Launch(job_id, 1, (slot,)))
        self.tell(ev.Launched(at, job_id, 1))
        return job_id

    def row(self, job_id: str) -> JobRow:
        row = self.store.job(job_id)
        assert row is not None
        return row

    def kinds(self, job_id: str) -> list[str]:
        return [entry.kind for entry in self.store.history(job_id)]


@pytest.fixture
def told(store: Store) -> Told:
    return Told(store)


def test_a_quiet_life_is_told_from_end_to_end(told: Told) -> None:
    job_id = told.submit(1.0, "a", (2, 4))
    told.plan(2.0, Launch(job_id, 1, (Slot("T1", 2, 0, 1),)))
    told.tell(ev.Launched(3.0, job_id, 1))
    told.plan(4.0, Resize(job_id, 1, 1, (Slot("T2", 0, 2, 1),), (), Cause.GROWTH))
    grown = told.row(job_id)
    told.tell(ev.Resized(5.0, job_id, 1, 1), ev.Finished(9.0, job_id, 1))
    history = told.store.history(job_id)
    assert [(one.sequence, one.at - ZERO_S, one.kind, one.attempt, one.text) for one in history] == [
        (1, 1.0, "submitted", 0, "2 to 4 workers of 1 GPU wanted"),
        (2, 2.0, "launched", 1, "2 workers on T1 (2)"),
        (3, 3.0, "started", 1, "all 2 workers are up"),
        (4, 4.0, "resized", 1, "from 2 to 4 workers; more on T2 (2)"),
        (6, 9.0, "finished", 1, "the job ended well"),
    ]
    assert history[3].cause == "growth"
    assert history[3].view().cause == "growth"
    places = [(place.server, place.base, place.flexible, place.gpus) for place in grown.placement]
    assert (grown.state, grown.workers, grown.gpus, places) == (
        JobState.RESIZING,
        4,
        4,
        [("T1", 2, 0, 2), ("T2", 0, 2, 2)],
    )
    row = told.row(job_id)
    assert (row.state, row.attempt, row.workers, row.placement) == (JobState.SUCCEEDED, 1, 0, ())
    assert (row.resizes, row.preemptions, row.failures, row.journaled) == (1, 0, 0, 1)
    assert (row.started, row.finished) == (ZERO_S + 2.0, ZERO_S + 9.0)


def test_who_preempted_me_is_on_record_with_the_alternatives_and_their_costs(told: Told) -> None:
    victim = told.run(1.0, "victim", (8, 8))
    taker = told.submit(2.0, "taker", (8, 8))
    weighed = (Weighed(victim, 12.5), Weighed("spared-9", 80.0))
    claim = Claim(0, taker, (Slot("T1", 8, 0, 1),), Cause.PRIORITY)
    told.plan(3.0, Stop(victim, 1, Cause.PRIORITY, True, taker, weighed), Reserve(claim))
    told.tell(ev.Stopped(4.0, victim, 1, 2.0))
    told.plan(4.0, Launch(taker, 1, claim.slots))
    preempted, stopped = told.store.history(victim)[-2:]
    assert (preempted.kind, preempted.cause, preempted.beneficiary) == ("preempted", "priority", taker)
    assert preempted.alternatives == weighed
    assert [(one.what, one.cost) for one in preempted.view().alternatives] == [
        (victim, 12.5),
        ("spared-9", 80.0),
    ]
    assert taker not in preempted.text
    assert "it may save first" in preempted.text
    assert (stopped.kind, stopped.text) == ("stopped", "all workers are gone; 2 s of work are kept")
    assert (told.row(victim).state, told.row(victim).preemptions) == (JobState.PENDING, 1)
    assert told.kinds(taker) == ["submitted", "reserved", "launched"]


def test_a_report_that_comes_too_late_leaves_no_entry(told: Told) -> None:
    job_id = told.run(1.0, "a")
    told.plan(2.0, Stop(job_id, 1, Cause.ORDER, True, "other"))
    told.tell(ev.Stopped(3.0, job_id, 1, 1.0))
    told.plan(4.0, Launch(job_id, 2, (Slot("T1", 4, 0, 1),)))
    before = told.store.history(job_id)
    told.tell(
        ev.Launched(5.0, job_id, 1),
        ev.Stopped(5.0, job_id, 1, 0.0),
        ev.Crashed(5.0, job_id, 1, 0.0, "late"),
        ev.Finished(5.0, job_id, 1),
        ev.WorkerReplaced(5.0, job_id, 1, "T1", "late"),
        ev.Stalled(5.0, job_id, 1),
        ev.WorkersDone(5.0, job_id, 1, (Slot("T1", 1, 0, 1),)),
    )
    assert told.store.history(job_id) == before
    told.tell(ev.Finished(6.0, job_id, 2))
    ended = told.store.history(job_id), told.row(job_id)
    told.tell(
        ev.Finished(7.0, job_id, 2),
        ev.Failed(7.0, job_id, 2, "late"),
        ev.CancelRequested(7.0, job_id),
        ev.LimitsChanged(7.0, job_id, 1, 2),
        ev.Learned(7.0, job_id, 2, 1.0, 1.0, 500.0),
    )
    assert (told.store.history(job_id), told.row(job_id)) == ended


def test_a_job_that_crashes_is_tried_again_and_then_given_up(told: Told) -> None:
    job_id = told.submit(1.0, "a", max_failures=2)
    told.plan(1.0, Launch(job_id, 1, (Slot("T1", 4, 0, 1),)))
    told.tell(ev.Launched(2.0, job_id, 1), ev.Crashed(5.0, job_id, 1, 0.0, "rank 3 exited with 1"))
    row = told.row(job_id)
    assert (row.state, row.failures, row.message) == (JobState.PENDING, 1, "rank 3 exited with 1")
    told.plan(6.0, Launch(job_id, 2, (Slot("T2", 4, 0, 1),)))
    assert (told.row(job_id).message, told.row(job_id).started) == ("", ZERO_S + 1.0)
    told.tell(ev.Crashed(7.0, job_id, 2, 3.0, "rank 0 exited\0with \udc80"))
    row = told.row(job_id)
    assert (row.state, row.failures, row.finished) == (JobState.FAILED, 2, ZERO_S + 7.0)
    assert row.message == "it has crashed 2 times: rank 0 exited with ?"
    assert told.kinds(job_id)[-4:] == ["crashed", "launched", "crashed", "failed"]


def test_a_victim_that_crashes_on_its_way_out_was_stopped(told: Told) -> None:
    job_id = told.run(1.0, "a")
    told.plan(2.0, Stop(job_id, 1, Cause.RECLAIM, True, "I1"))
    told.tell(ev.Crashed(3.0, job_id, 1, 0.0, "killed"))
    assert (told.row(job_id).failures, told.row(job_id).message) == (0, "")
    last = told.store.history(job_id)[-1]
    assert (last.kind, last.text) == ("stopped", "all workers are gone (killed); no work is kept")


def test_a_cancelled_job_is_told_to_stop_and_gone_when_its_workers_are(told: Told) -> None:
    job_id = told.run(1.0, "a")
    told.tell(ev.CancelRequested(2.0, job_id), ev.CancelRequested(2.0, job_id))
    told.plan(2.0, Stop(job_id, 1, Cause.CANCELLED, False, job_id))
    told.tell(ev.Stopped(3.0, job_id, 1, 0.0))
    assert told.kinds(job_id)[-3:] == ["cancel-requested", "told-to-stop", "cancelled"]
    assert told.store.history(job_id)[-2].beneficiary is None
    assert (told.row(job_id).state, told.row(job_id).finished) == (JobState.CANCELLED, ZERO_S + 3.0)
    waiting = told.submit(4.0, "b")
    told.tell(ev.CancelRequested(5.0, waiting))
    assert told.kinds(waiting) == ["submitted", "cancelled"]
    assert told.row(waiting).finished == ZERO_S + 5.0


def test_a_job_that_could_never_run_is_refused(told: Told) -> None:
    row, _ = told.store.accept(new_job(), "ann", None, "", ZERO_S)
    told.tell(ev.Refused(1.0, row.job_id, "too large"))
    refused = told.row(row.job_id)
    assert (refused.state, refused.message, refused.finished) == (JobState.FAILED, "too large", ZERO_S + 1.0)
    assert told.kinds(row.job_id) == ["refused"]


def test_limits_are_those_that_the_user_set(told: Told) -> None:
    job_id = told.run(1.0, "a", (2, 4))
    told.tell(ev.LimitsChanged(2.0, job_id, 2, 6), ev.LimitsChanged(2.0, job_id, 2, 6))
    told.tell(ev.WorkersDone(3.0, job_id, 1, (Slot("T1", 1, 0, 1),)))
    row = told.row(job_id)
    assert (row.min_workers, row.max_workers, row.workers) == (2, 6, 1)
    assert [one.text for one in told.store.history(job_id)[-2:]] == [
        "2 to 4 workers before, 2 to 6 workers now",
        "1 of 2 workers ended well",
    ]


def test_what_goes_wrong_while_a_job_runs_is_told(told: Told) -> None:
    job_id = told.run(1.0, "a")
    told.tell(ev.WorkerReplaced(2.0, job_id, 1, "T1", "exit 1"), ev.Stalled(3.0, job_id, 1))
    told.tell(ev.Stalled(3.0, job_id, 1))
    assert told.row(job_id).message == "it has fallen silent and has to start again"
    told.plan(3.0, Stop(job_id, 1, Cause.STALLED, False, job_id))
    assert told.kinds(job_id)[-3:] == ["worker-replaced", "stalled", "told-to-stop"]
    other = told.run(4.0, "b", server="T2")
    told.tell(ev.ServerLost(5.0, "T2"))
    last = told.store.history(other)[-1]
    assert (last.kind, last.cause, last.text) == (
        "server-lost",
        "server-lost",
        "T2 is gone with 4 of 4 workers",
    )
    assert told.row(other).workers == 0
    told.tell(ev.Failed(6.0, other, 1))
    assert told.row(other).message == "the job ended badly"


def test_an_estimate_is_told_when_it_has_moved_far(told: Told) -> None:
    job_id = told.submit(1.0, "a", estimate_s=100.0)
    told.plan(1.0, Launch(job_id, 1, (Slot("T1", 4, 0, 1),)))
    told.tell(ev.Launched(1.0, job_id, 1))
    near_s = 100.0 * (1 + NOTEWORTHY_CHANGE)
    told.tell(ev.Learned(2.0, job_id, 1, 1.0, 1.0, near_s), ev.Learned(2.0, job_id, 1, 1.0, 1.0))
    assert (told.row(job_id).estimate_s, told.kinds(job_id)[-1]) == (near_s, "started")
    told.tell(ev.Learned(3.0, job_id, 1, 1.0, 1.0, near_s + 1))
    assert told.store.history(job_id)[-1].text == "it will take 126 s, not 100 s"
    told.tell(ev.Learned(4.0, job_id, 1, 1.0, 1.0, near_s + 2))
    assert told.kinds(job_id).count("learned") == 1
    first = told.run(5.0, "b", server="T2")
    told.tell(ev.Learned(6.0, first, 1, 1.0, 1.0, 60.0))
    assert told.store.history(first)[-1].text == "it will take 60 s"


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (ev.ServerLost(5.0, "T1"), "server-lost"),
        (ev.ServerDrained(5.0, "T1", True), "drain"),
        (ev.HealthChanged(5.0, "T1", Health.SUSPECT), "drain"),
        (ev.LimitsChanged(5.0, "taker-2", 3, 8), "limits"),
        (ev.CancelRequested(5.0, "taker-2"), "cancelled"),
        (ev.PlanCommitted(5.0, Plan((Release(0, Cause.WITHDRAWN),))), "withdrawn"),
    ],
)
def test_a_claim_that_is_dropped_is_told_whatever_dropped_it(told: Told, event: ev.Event, cause: str) -> None:
    victim = told.run(1.0, "victim", (8, 8))
    taker = told.submit(2.0, "taker", (8, 8))
    claim = Claim(0, taker, (Slot("T1", 8, 0, 1),), Cause.PRIORITY)
    told.plan(3.0, Stop(victim, 1, Cause.PRIORITY, True, taker), Reserve(claim))
    # A projection that begins here knows the claim from the cluster.
    told.projection = Projection(ZERO_S, told.cluster)
    told.journal = SqlJournal(told.store, lead(told.store), told.projection)
    told.tell(event)
    released = [one for one in told.store.history(taker) if one.kind == "claim-released"]
    assert [one.cause for one in released] == [cause]


def test_a_claim_that_was_used_is_not_released_when_another_one_is(told: Told) -> None:
    victims = [told.run(1.0, "victim", (8, 8), server) for server in ("T1", "T2")]
    takers = [told.submit(2.0, "taker", (8, 8)) for _ in victims]
    slots = [(Slot(server, 8, 0, 1),) for server in ("T1", "T2")]
    stops = [
        Stop(victim, 1, Cause.PRIORITY, True, taker) for victim, taker in zip(victims, takers, strict=True)
    ]
    claims = [Reserve(Claim(number, takers[number], slots[number], Cause.PRIORITY)) for number in (0, 1)]
    told.plan(3.0, *stops, *claims)
    told.tell(ev.Stopped(4.0, victims[0], 1, 0.0))
    told.plan(4.0, Launch(takers[0], 1, slots[0]))
    told.tell(ev.CancelRequested(5.0, takers[1]))
    assert told.kinds(takers[0]) == ["submitted", "reserved", "launched"]
    assert told.kinds(takers[1]) == ["submitted", "reserved", "claim-released", "cancelled"]


def test_resizes_that_are_written_at_once_are_all_counted(told: Told) -> None:
    job_id = told.run(1.0, "a", (2, 8))
    grow = [Resize(job_id, 1, number, (Slot("T2", 0, 1, 1),), (), Cause.GROWTH) for number in (1, 2)]
    told.tell(*(ev.PlanCommitted(2.0, Plan((step,))) for step in grow))
    told.plan(3.0, Resize(job_id, 1, 3, (), (Slot("T2", 0, 2, 1),), Cause.BASE_DEMAND))
    assert told.row(job_id).resizes == 3
    assert [one.text for one in told.store.history(job_id)[-3:]] == [
        "from 2 to 3 workers; more on T2 (1)",
        "from 3 to 4 workers; more on T2 (1)",
        "from 4 to 2 workers; fewer on T2 (2)",
    ]


def _loan(server: str, *times: float | None) -> LoanRow:
    lent, *rest = (None if at is None else ZERO_S + at for at in times)
    assert lent is not None
    return LoanRow(server, lent, *rest)


def test_a_loan_whose_reclaim_is_withdrawn_goes_on(told: Told) -> None:
    told.plan(1.0, Loan("I1"))
    told.plan(2.0, Reclaim("I1", 50.0))
    assert told.store.loans(5) == [_loan("I1", 1.0, 2.0, 50.0, None)]
    told.plan(3.0, Loan("I1"))
    assert told.store.loans(5) == [_loan("I1", 1.0, None, None, None)]
    told.plan(4.0, Reclaim("I1", FOREVER))
    told.plan(5.0, Return("I1"))
    told.plan(6.0, Loan("I1"))
    assert told.store.loans(5) == [_loan("I1", 6.0, None, None, None), _loan("I1", 1.0, 4.0, None, 5.0)]
    assert told.store.loans(1)[0].view().lent == ZERO_S + 6.0


def test_a_loan_that_is_called_off_is_over_and_a_late_word_changes_nothing(store: Store) -> None:
    told = Told(store, confirms_loans=True)
    told.plan(1.0, Loan("I1"))
    told.tell(ev.LoanCalledOff(2.0, "I1", "streams go on"))
    over = [_loan("I1", 1.0, None, None, 2.0)]
    assert told.store.loans(5) == over
    told.tell(ev.LoanCalledOff(3.0, "I1"))
    assert told.store.loans(5) == over
    told.plan(400.0, Loan("I1"))
    told.tell(ev.HandedOver(401.0, "I1"), ev.LoanCalledOff(402.0, "I1"))
    assert told.store.loans(5)[0] == _loan("I1", 400.0, None, None, None)
