"""What operators ask of servers is done under every policy: drain by a time, lend, take back by a time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.helpers import job
from tests.core.live_cluster import Live

from aryl.core import events as ev
from aryl.core.model import JobSpec, Slot
from aryl.core.plan import Cause, Launch, Loan, Reclaim, Resize, Return, Step, Stop
from aryl.policies.reclaim_problem import Rule

EVERY = ("fifo", "srtf", "aryl", "aryl:no-loaning", "opportunistic")
LENDING = ("aryl", "opportunistic")
T4 = (("T4", 1.0),)
VACATE_S = 30.0


def _loaned(job_id: str, workers: int = 8, most: int | None = None, **more: Any) -> JobSpec:
    return job(job_id, workers, most, gpu_types=T4, fungible=True, **more)


def _with_a_loan(policy: str, *specs: JobSpec, inference: int = 1) -> Live:
    """Every inference server is on loan, whoever lent it, and the jobs run there."""
    live = Live(policy, training=0, inference=inference, vacate_s=VACATE_S)
    if policy in LENDING:
        live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    else:
        live.tell(*(ev.GiveRequested(0.0, f"I{n + 1}") for n in range(inference)))
    if specs:
        live.submit(*specs)
    return live


def _stopped_for_drain(job_id: str, server_id: str) -> Stop:
    return Stop(job_id, 1, Cause.DRAIN, True, server_id)


# --- drain ---


@pytest.mark.parametrize("policy", EVERY)
def test_a_drained_server_without_a_deadline_only_takes_nothing_new(policy: str) -> None:
    live = Live(policy, training=1, inference=0, vacate_s=VACATE_S)
    live.submit(job("A", 4))
    assert live.tell(ev.ServerDrained(5.0, "T1", True)) == []
    assert live.submit(job("B", 4)) == []
    assert live.tell(ev.Tick(1e6)) == []
    assert live.deadline_s == float("inf")
    assert live.tell(ev.ServerDrained(1e6, "T1", False)) == [Launch("B", 1, (Slot("T1", 4, 0, 1),))]


@pytest.mark.parametrize("policy", EVERY)
def test_a_drained_server_with_a_deadline_is_empty_by_then(policy: str) -> None:
    """Base workers stay as long as there is time, and may save."""
    live = Live(policy, training=1, inference=0, vacate_s=VACATE_S)
    live.submit(job("A", 4))
    assert live.tell(ev.ServerDrained(5.0, "T1", True, 600.0)) == []
    assert live.wake() == [_stopped_for_drain("A", "T1")]
    assert live.cluster.now == 600.0 - VACATE_S
    assert live.tell(ev.Stopped(590.0, "A", 1, 500.0)) == []
    assert (live.job("A").progress.done_s, live.server("T1").used) == (500.0, 0)
    steps = live.tell(ev.ServerDrained(2000.0, "T1", False))
    assert steps == [Launch("A", 2, (Slot("T1", 4, 0, 1),))]


def test_flexible_workers_leave_a_server_that_is_drained_at_once() -> None:
    live = Live("aryl:cooldown=0,min_interval=0", training=2, inference=0, vacate_s=VACATE_S)
    live.submit(job("E", 8, 16, estimate_s=1e6))
    live.tell(ev.Resized(1.0, "E", 1, live.job("E").revision))
    (other,) = [name for name, slot in live.job("E").slots.items() if not slot.base]
    steps = live.tell(ev.ServerDrained(5.0, other, True, 600.0))
    revision = live.job("E").revision
    assert steps == [Resize("E", 1, revision, (), (Slot(other, 0, 8, 1),), Cause.DRAIN)]
    live.tell(ev.Vacated(8.0, "E", 1, (Slot(other, 0, 8, 1),)), ev.Resized(8.0, "E", 1, revision))
    assert (live.job("E").workers, live.job("E").preemptions, live.server(other).used) == (8, 0, 0)


def test_a_deadline_that_is_nearer_than_the_notice_stops_jobs_at_once() -> None:
    live = Live("fifo", training=1, inference=0, vacate_s=VACATE_S)
    live.submit(job("A", 4))
    assert live.tell(ev.ServerDrained(5.0, "T1", True, 10.0)) == [_stopped_for_drain("A", "T1")]


@pytest.mark.parametrize("policy", EVERY)
def test_a_loan_ends_when_its_server_is_drained_by_a_time(policy: str) -> None:
    live = _with_a_loan(policy, _loaned("A"))
    assert live.tell(ev.ServerDrained(5.0, "I1", True, 600.0)) == [Reclaim("I1", 600.0)]
    assert live.wake() == [_stopped_for_drain("A", "I1")]
    assert live.tell(ev.Stopped(580.0, "A", 1, 500.0)) == [Return("I1")]
    assert live.where() == {"I1": "owned"}


@pytest.mark.parametrize("policy", EVERY)
def test_undrain_stops_the_end_of_a_loan(policy: str) -> None:
    """L7."""
    live = _with_a_loan(policy, _loaned("A"))
    live.tell(ev.ServerDrained(5.0, "I1", True, 600.0))
    assert live.tell(ev.ServerDrained(9.0, "I1", False)) == [Loan("I1")]
    assert (live.where(), live.server("I1").placeable) == ({"I1": "on-loan"}, True)
    live.tell(ev.Tick(3000.0))
    assert live.job("A").preemptions == 0


def test_undrain_doesnt_stop_a_reclaim_that_the_inference_side_asked_for() -> None:
    live = Live("aryl", training=0, inference=1, vacate_s=VACATE_S, reclaim_within_s=100.0)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    live.submit(_loaned("A", estimate_s=50.0))
    (recall,) = live.tell(ev.DemandReported(1.0, 1.0, 1.0))
    assert isinstance(recall, Reclaim)
    assert live.tell(ev.ServerDrained(2.0, "I1", True, 600.0)) == []
    assert live.tell(ev.ServerDrained(3.0, "I1", False)) == []
    assert live.where() == {"I1": "reclaiming"}


def test_undrain_doesnt_stop_a_reclaim_that_an_operator_asked_for() -> None:
    live = _with_a_loan("fifo", _loaned("A"))
    live.tell(ev.ServerDrained(5.0, "I1", True, 600.0))
    live.tell(ev.ReclaimRequested(6.0, "I1", 900.0))
    assert live.tell(ev.ServerDrained(9.0, "I1", False)) == []
    assert live.wake() == [_stopped_for_drain("A", "I1")]
    assert live.cluster.now == 900.0 - VACATE_S


def test_a_job_that_lost_a_server_leaves_a_drained_one_in_the_same_pass() -> None:
    live = Live("aryl:cooldown=0,min_interval=0", training=3, inference=0, vacate_s=VACATE_S)
    live.submit(job("E", 8, 24, estimate_s=1e6))
    live.tell(ev.Resized(1.0, "E", 1, live.job("E").revision))
    (base,) = [name for name, slot in live.job("E").slots.items() if slot.base]
    lost, drained = [name for name in live.job("E").slots if name != base]
    live.tell(ev.ServerLost(5.0, lost), ev.ServerDrained(5.0, drained, True, 600.0))
    assert list(live.job("E").slots) == [base]
    assert live.job("E").trouble is None


# --- give ---


@pytest.mark.parametrize("policy", EVERY)
def test_a_server_that_an_operator_gives_is_lent_and_takes_work(policy: str) -> None:
    live = Live(policy, training=0, inference=1)
    live.submit(_loaned("A"))
    steps = live.tell(ev.GiveRequested(5.0, "I1"))
    assert steps == [Loan("I1"), Launch("A", 1, (Slot("I1", 8, 0, 1),))]
    assert not live.server("I1").given


def test_a_server_that_cant_be_lent_yet_is_lent_as_soon_as_it_can() -> None:
    live = Live("fifo", inference=1)
    live.tell(ev.ServerDrained(0.0, "I1", True))
    assert live.tell(ev.GiveRequested(1.0, "I1")) == []
    assert live.tell(ev.ServerDrained(2.0, "I1", False)) == [Loan("I1")]


def test_to_give_a_training_server_means_nothing() -> None:
    live = Live("fifo")
    assert live.tell(ev.GiveRequested(1.0, "T1"), ev.ReclaimRequested(1.0, "T1", 5.0)) == []
    assert live.cluster.asked_mask == 0


# --- reclaim ---


@pytest.mark.parametrize("policy", EVERY)
def test_a_server_that_an_operator_wants_back_is_there_by_the_deadline(policy: str) -> None:
    live = _with_a_loan(policy, _loaned("A"))
    assert live.tell(ev.ReclaimRequested(5.0, "I1", 600.0)) == [Reclaim("I1", 600.0)]
    assert live.submit(_loaned("B", 1)) == []
    assert live.wake() == [_stopped_for_drain("A", "I1")]
    assert live.cluster.now == 600.0 - VACATE_S
    assert live.tell(ev.Stopped(595.0, "A", 1, 500.0)) == [Return("I1")]
    assert live.server("I1").recall_by_s == float("inf")


@pytest.mark.parametrize("policy", EVERY)
def test_a_reclaimed_server_is_kept_at_home_until_it_is_given_again(policy: str) -> None:
    live = _with_a_loan(policy)
    assert live.tell(ev.ReclaimRequested(5.0, "I1", 600.0)) == [Reclaim("I1", 600.0), Return("I1")]
    assert live.tell(ev.DemandReported(9.0, 0.0, 0.0)) == []
    assert live.tell(ev.GiveRequested(20.0, "I1")) == [Loan("I1")]


@pytest.mark.parametrize("policy", EVERY)
def test_a_job_that_ends_in_time_isnt_stopped_for_a_reclaim(policy: str) -> None:
    live = _with_a_loan(policy, _loaned("A"))
    live.tell(ev.ReclaimRequested(5.0, "I1", 600.0))
    assert live.tell(ev.Finished(400.0, "A", 1)) == [Return("I1")]


@pytest.mark.parametrize("policy", EVERY)
def test_a_server_that_is_given_while_it_is_on_its_way_home_stays(policy: str) -> None:
    live = _with_a_loan(policy, _loaned("A"))
    live.tell(ev.ReclaimRequested(5.0, "I1", 600.0))
    assert live.tell(ev.GiveRequested(9.0, "I1")) == [Loan("I1")]
    live.tell(ev.Tick(3000.0))
    assert live.job("A").preemptions == 0


def test_of_two_reclaims_the_last_word_counts() -> None:
    live = _with_a_loan("fifo", _loaned("A"))
    live.tell(ev.ReclaimRequested(5.0, "I1", 600.0))
    assert live.tell(ev.ReclaimRequested(9.0, "I1", 300.0)) == []
    assert live.wake() == [_stopped_for_drain("A", "I1")]
    assert live.cluster.now == 300.0 - VACATE_S


def test_an_operator_may_be_in_a_greater_hurry_than_the_inference_side() -> None:
    live = Live("aryl", training=0, inference=1, vacate_s=VACATE_S, reclaim_within_s=900.0)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    live.submit(_loaned("A", estimate_s=500.0))
    assert [type(step) for step in live.tell(ev.DemandReported(1.0, 1.0, 1.0))] == [Reclaim]
    assert live.tell(ev.ReclaimRequested(2.0, "I1", 100.0)) == []
    assert live.wake() == [_stopped_for_drain("A", "I1")]
    assert live.cluster.now == 100.0 - VACATE_S


def test_nothing_is_launched_on_a_server_that_is_taken_back_at_that_moment() -> None:
    """A claim whose place falls empty as the reclaim comes is void."""
    live = _with_a_loan("aryl", _loaned("L"))
    live.tell(ev.Tick(5.0))
    live.submit(_loaned("H", priority=1, at=5.0))
    assert set(live.cluster.claims) == {"H"}
    steps = live.tell(ev.Stopped(9.0, "L", 1, 0.0), ev.ReclaimRequested(9.0, "I1", 600.0))
    assert steps == [Reclaim("I1", 600.0), Return("I1")]
    assert sorted(entry.job_id for entry in live.cluster.pending) == ["H", "L"]


# --- more asked than there is (R12) ---


def _shortfall(live: Live, need: float) -> float:
    at_home = list(live.where().values()).count("owned")
    return max(need - at_home, 0.0)


def test_what_cant_be_given_in_time_is_a_shortfall_and_is_withdrawn_with_the_need() -> None:
    """Three are asked for: two stand idle, and on the third a job ends soon enough to wait for it."""
    live = Live(
        f"aryl:reclaim={Rule.SERVER_FRACTION.value}",
        training=0,
        inference=4,
        vacate_s=VACATE_S,
        reclaim_within_s=300.0,
    )
    live.tell(ev.DemandReported(0.0, 1.0, 1.0))
    live.submit(_loaned("A", estimate_s=200.0))
    (busy,) = live.job("A").slots
    steps = live.tell(ev.DemandReported(10.0, 4.0, 4.0))
    assert sorted(_servers_of(steps, Return)) == sorted({"I2", "I3", "I4"} - {busy})
    assert live.where()[busy] == "reclaiming"
    assert _shortfall(live, 4.0) == 1.0
    steps = live.tell(ev.DemandReported(60.0, 3.0, 3.0))
    assert steps == [Loan(busy)]
    assert _shortfall(live, 3.0) == 0.0
    live.tell(ev.Tick(1000.0))
    assert (live.job("A").preemptions, live.where()[busy]) == (0, "on-loan")


def _servers_of(steps: list[Step], kind: type[Return]) -> list[str]:
    return [step.server_id for step in steps if isinstance(step, kind)]
