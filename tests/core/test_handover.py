"""Loans that the inference side has to confirm, servers that fall ill, and a silent inference side."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.helpers import job
from tests.core.live_cluster import Live

from aryl.core import events as ev
from aryl.core.model import Health, JobSpec, Slot
from aryl.core.plan import Cause, Launch, Loan, Reclaim, Return, Stop, Weighed
from aryl.core.server import LOAN_RETRY_S

T4 = (("T4", 1.0),)


def _fits_loaned(job_id: str, workers: int = 8, **more: Any) -> JobSpec:
    return job(job_id, workers, gpu_types=T4, fungible=True, **more)


def _confirming(policy: str = "aryl", inference: int = 3) -> Live:
    return Live(policy, inference=inference, confirms_loans=True)


@pytest.mark.parametrize("policy", ["aryl", "opportunistic"])
def test_nothing_is_placed_on_a_loaned_server_before_it_is_handed_over(policy: str) -> None:
    live = _confirming(policy, inference=1)
    live.submit(_fits_loaned("A"))
    assert live.tell(ev.DemandReported(1.0, 0.0, 0.0)) == [Loan("I1")]
    assert (live.server("I1").handing_over, live.server("I1").placeable) == (True, False)
    assert live.tell(ev.Tick(30.0)) == []
    assert live.tell(ev.HandedOver(40.0, "I1")) == [Launch("A", 1, (Slot("I1", 8, 0, 1),))]
    assert live.tell(ev.HandedOver(41.0, "I1")) == []


def test_where_loans_arent_confirmed_a_loaned_server_takes_work_at_once() -> None:
    live = Live("aryl", inference=1)
    live.submit(_fits_loaned("A"))
    steps = live.tell(ev.DemandReported(1.0, 0.0, 0.0))
    assert steps == [Loan("I1"), Launch("A", 1, (Slot("I1", 8, 0, 1),))]


def test_a_server_whose_loan_is_called_off_stays_at_home_and_another_is_lent() -> None:
    live = _confirming(inference=2)
    assert live.tell(ev.DemandReported(0.0, 1.0, 1.0)) == [Loan("I2")]
    steps = live.tell(ev.LoanCalledOff(30.0, "I2", "a stream is open"))
    assert steps == [Loan("I1")]
    assert live.where() == {"I1": "on-loan", "I2": "owned"}
    assert not live.server("I2").handing_over


def test_a_server_whose_loan_was_called_off_is_lent_again_only_after_a_while() -> None:
    live = _confirming(inference=1)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    assert live.tell(ev.LoanCalledOff(30.0, "I1")) == []
    assert live.tell(ev.DemandReported(29.0 + LOAN_RETRY_S, 0.0, 0.0)) == []
    assert live.wake() == [Loan("I1")]
    assert live.cluster.now == 30.0 + LOAN_RETRY_S


def test_a_loan_that_was_handed_over_cant_be_called_off_any_more() -> None:
    live = _confirming(inference=1)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    live.tell(ev.HandedOver(10.0, "I1"))
    assert live.tell(ev.LoanCalledOff(11.0, "I1")) == []
    assert (live.where(), live.server("I1").placeable) == ({"I1": "on-loan"}, True)


def test_a_server_that_is_wanted_back_before_it_was_handed_over_is_at_home_at_once() -> None:
    live = _confirming(inference=1)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    steps = live.tell(ev.DemandReported(5.0, 1.0, 1.0))
    assert steps == [Reclaim("I1", 5.0, (Weighed("I1", 0.0),)), Return("I1")]
    assert not live.server("I1").handing_over
    assert live.tell(ev.HandedOver(6.0, "I1")) == []
    assert live.where() == {"I1": "owned"}
    assert live.tell(ev.DemandReported(7.0, 0.0, 0.0)) == [Loan("I1")]
    assert live.server("I1").handing_over


def test_an_operator_reclaims_a_server_that_is_being_handed_over() -> None:
    live = _confirming("fifo", inference=1)
    assert live.tell(ev.GiveRequested(0.0, "I1")) == [Loan("I1")]
    assert live.tell(ev.ReclaimRequested(5.0, "I1", 90.0)) == [Reclaim("I1", 90.0), Return("I1")]
    assert (live.where(), live.server("I1").handing_over) == ({"I1": "owned"}, False)


def test_a_reclaim_and_a_call_off_of_one_instant_leave_nothing_behind() -> None:
    live = _confirming("fifo", inference=1)
    live.tell(ev.GiveRequested(0.0, "I1"))
    assert live.tell(ev.ReclaimRequested(5.0, "I1", 90.0), ev.LoanCalledOff(5.0, "I1")) == []
    assert live.server("I1").recall_by_s == float("inf")
    assert live.tell(ev.GiveRequested(6.0, "I1")) == [Loan("I1")]
    assert live.where() == {"I1": "on-loan"}


def test_a_server_that_is_lost_while_it_is_handed_over_comes_back_as_it_was() -> None:
    live = _confirming(inference=2)
    live.tell(ev.DemandReported(0.0, 1.0, 1.0))
    live.tell(ev.ServerLost(5.0, "I2"))
    assert live.where()["I2"] == "on-loan"
    live.tell(ev.ServerReturned(9.0, "I2"))
    assert (live.server("I2").handing_over, live.server("I2").placeable) == (True, False)
    live.tell(ev.HandedOver(10.0, "I2"))
    assert live.server("I2").placeable


# --- health ---


@pytest.mark.parametrize("health", [Health.RESTING, Health.QUARANTINED, Health.SUSPECT])
def test_only_a_healthy_server_takes_work(health: Health) -> None:
    live = Live("fifo", training=1, inference=0)
    live.tell(ev.HealthChanged(0.0, "T1", health))
    assert live.submit(job("A", 8)) == []
    assert live.tell(ev.HealthChanged(5.0, "T1", Health.HEALTHY)) == [Launch("A", 1, (Slot("T1", 8, 0, 1),))]


def test_what_runs_on_a_server_that_falls_ill_goes_on_but_gets_no_more_workers_there() -> None:
    live = Live("aryl:cooldown=0,min_interval=0", training=1, inference=0)
    live.submit(job("F", 4, estimate_s=50.0), job("E", 4, 8, estimate_s=1000.0))
    live.tell(ev.HealthChanged(1.0, "T1", Health.RESTING))
    assert live.tell(ev.Finished(50.0, "F", 1)) == []
    assert live.job("E").workers == 4
    live.tell(ev.HealthChanged(60.0, "T1", Health.HEALTHY))
    assert live.job("E").workers == 8


@pytest.mark.parametrize("health", [Health.RESTING, Health.QUARANTINED, Health.SUSPECT])
def test_claims_on_a_server_that_falls_ill_are_dropped(health: Health) -> None:
    live = Live("aryl", training=1, inference=0)
    live.submit(job("L", 8))
    live.tell(ev.Tick(5.0))
    live.submit(job("H", 8, priority=1, at=5.0))
    assert set(live.cluster.claims) == {"H"}
    live.tell(ev.HealthChanged(6.0, "T1", health))
    assert (live.cluster.claims, [entry.job_id for entry in live.cluster.pending]) == ({}, ["H"])
    assert live.tell(ev.Stopped(7.0, "L", 1, 0.0)) == []
    assert live.tell(ev.HealthChanged(8.0, "T1", Health.HEALTHY)) == [Launch("H", 1, (Slot("T1", 8, 0, 1),))]


@pytest.mark.parametrize("policy", ["aryl", "opportunistic"])
def test_a_server_with_a_worker_that_doesnt_die_is_made_up_for_by_another(policy: str) -> None:
    """R9: inference can't count on it, so another goes back; it goes home itself when it is free at last."""
    live = Live(policy, training=0, inference=3)
    live.tell(ev.DemandReported(0.0, 0.0, 0.0))
    live.submit(_fits_loaned("A"), _fits_loaned("B"), _fits_loaned("C"))
    first = live.tell(ev.DemandReported(10.0, 1.0, 1.0))
    (stopped,) = [step for step in first if isinstance(step, Stop)]
    stuck = next(name for name, tenure in live.where().items() if tenure == "reclaiming")
    second = live.tell(ev.HealthChanged(70.0, stuck, Health.SUSPECT))
    (other,) = [step.server_id for step in second if isinstance(step, Reclaim)]
    (next_stopped,) = [step for step in second if isinstance(step, Stop)]
    assert other != stuck
    assert next_stopped.job_id != stopped.job_id
    assert live.tell(ev.Stopped(75.0, next_stopped.job_id, 1, 0.0)) == [Return(other)]
    assert live.where()[stuck] == "reclaiming"
    assert live.server(stuck).leaving == 8
    assert live.tell(ev.Stopped(100.0, stopped.job_id, 1, 0.0)) == [Return(stuck)]
    steps = live.tell(ev.HealthChanged(101.0, stuck, Health.HEALTHY))
    assert [step for step in steps if isinstance(step, Loan)] != []


def test_a_server_that_inference_cant_count_on_isnt_lent_either() -> None:
    live = Live("aryl", inference=2)
    live.tell(ev.HealthChanged(0.0, "I2", Health.QUARANTINED))
    assert live.tell(ev.DemandReported(1.0, 0.0, 0.0)) == [Loan("I1")]
    assert live.tell(ev.HealthChanged(2.0, "I2", Health.HEALTHY)) == [Loan("I2")]


# --- an inference side that is silent (I3) ---


@pytest.mark.parametrize("policy", ["aryl", "opportunistic"])
def test_on_a_guess_nothing_is_lent_and_nothing_taken_back(policy: str) -> None:
    live = Live(policy, inference=3)
    live.tell(ev.DemandReported(0.0, 2.0, 2.0))
    live.submit(_fits_loaned("A"), _fits_loaned("B"))
    lent = live.where()
    assert sorted(lent.values()) == ["on-loan", "owned", "owned"]
    assert live.tell(ev.TelemetryLost(180.0)) == []
    assert live.tell(ev.ServerLost(190.0, "I1"), ev.ServerReturned(190.0, "I1")) == []
    assert live.where() == lent
    assert live.tell(ev.ReclaimRequested(200.0, "I3", 200.0)) == [
        Reclaim("I3", 200.0),
        Stop("A", 1, Cause.DRAIN, True, "I3"),
    ]
    assert live.tell(ev.Stopped(205.0, "A", 1, 5.0)) == [Return("I3")]
    steps = live.tell(ev.DemandReported(300.0, 1.0, 1.0))
    assert [step for step in steps if isinstance(step, Loan)] == [Loan("I2"), Loan("I1")]


def test_the_next_word_of_the_inference_side_ends_the_silence() -> None:
    live = Live("aryl", inference=2)
    live.tell(ev.TelemetryLost(0.0))
    live.tell(ev.DemandReported(1.0, 2.0, 2.0))
    assert not live.cluster.telemetry_lost
    live.tell(ev.TelemetryLost(200.0))
    assert live.cluster.telemetry_lost
    assert live.tell(ev.DemandReported(201.0, 1.0, 1.0)) == [Loan("I2")]
