"""Every figure of an outcome against a computation by hand."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aryl.core import events as ev
from aryl.core.model import JobSpec, Pool, ServerSpec, Slot
from aryl.core.plan import Cause, Launch, Loan, Reclaim, Return
from aryl.report.outcome import DEMANDS, Outcome, Spread

if TYPE_CHECKING:
    from tests.report.conftest import Drive


def rows(outcome: Outcome) -> list[tuple[str, int, str, str, int, int, float, float]]:
    table = outcome.schedule
    assert table is not None
    return [
        (
            outcome.jobs.job_id[job],
            attempt,
            outcome.servers[place].server_id,
            DEMANDS[demand].value,
            workers,
            gpus,
            start,
            end,
        )
        for job, attempt, place, demand, workers, gpus, start, end in zip(
            *(
                column.tolist()
                for column in (
                    table.job,
                    table.attempt,
                    table.server,
                    table.demand,
                    table.workers,
                    table.gpus,
                    table.start_s,
                    table.end_s,
                )
            ),
            strict=True,
        )
    ]


def test_the_story_has_the_figures_worked_out_by_hand(told: Drive) -> None:
    # Waits: A 0, B 10..80, C 70..100 after its preemption, D 0. JCT: A 80, B 90, C 150, D 20.
    # Shares within 0..150: training (A 460 + B 160 + C 4 * 50) / (8 * 150); inference: 8 GPUs needed until 70
    # (it has one server until the other is back), 16 until 150, and C's 8 GPUs on loan for 60 s.
    summary = told.outcome(shortest_s={"A": 40, "B": 20, "C": 60, "D": 20}).summary()
    policy_wall_s, wall_s = summary.pop("policy_wall_s"), summary.pop("wall_s")
    notes, fairness = summary.pop("notes"), summary.pop("fairness")

    # Speeds, of running times of 100 s: 1.25, 1.11, 0.67 and 5.
    assert fairness == {
        "jain": pytest.approx((289 / 36 / 4) ** 2 / (1.25**2 + (10 / 9) ** 2 + (2 / 3) ** 2 + 25) * 4),
        "jain_users": None,
        "slowdown_p99": pytest.approx(1.482),
        "slowdown_worst": 1.5,
        "longest_wait_s": 70.0,
        "longest_wait_large_s": None,
    }
    assert (policy_wall_s, wall_s) == (0.0, 0.0)
    assert [note.split(".")[0] for note in notes] == ["Usage counts GPUs that are held"]
    assert summary == {
        "policy": "by-hand",
        "trace": "paper",
        "seed": 1,
        "jobs": 4,
        "finished": 4,
        "unfinished": 0,
        "queuing_s": pytest.approx({"mean": 25.0, "median": 15.0, "p95": 64.0, "p99": 68.8}),
        "first_wait_s": pytest.approx({"mean": 17.5, "median": 0.0, "p95": 59.5, "p99": 67.9}),
        "jct_s": pytest.approx({"mean": 85.0, "median": 85.0, "p95": 141.0, "p99": 148.2}),
        "jct_bound_s": 35.0,
        "usage": pytest.approx({"training": 820 / 1200, "inference": 2320 / 2400, "overall": 3140 / 3600}),
        "makespan_s": 170.0,
        "preemptions": 1,
        "preempted_jobs": 1,
        "preemption_ratio": 0.25,
        "lost_gpu_s": 200.0,
        "collateral_gpus": 3,
        "resizes": 2,
        "loans": 1,
        "reclaims": 1,
        "loaned_server_s": 60.0,
        "inference_shortfall_server_s": 10.0,
        "events": 30,
        "rejected": 0,
        "failed": 0,
        "cancelled": 0,
        "wasted_claims": 0,
        "end_s": 170.0,
    }


def test_the_summary_has_the_keys_of_the_contract_in_order(told: Drive) -> None:
    contract = (
        "policy,trace,seed,jobs,finished,unfinished,queuing_s,first_wait_s,jct_s,jct_bound_s,usage,makespan_s,"
        "preemptions,preempted_jobs,preemption_ratio,lost_gpu_s,collateral_gpus,resizes,loans,reclaims,"
        "loaned_server_s,inference_shortfall_server_s,events,policy_wall_s,wall_s"
    )
    assert ",".join(told.outcome().summary()).startswith(contract)


def test_a_stretch_lasts_as_long_as_the_gpus_are_held(told: Drive) -> None:
    assert rows(told.outcome()) == [
        ("A", 1, "T1", "base", 4, 4, 0.0, 80.0),
        ("C", 1, "I2", "base", 4, 8, 10.0, 70.0),  # told to stop at 60, gone at 70
        ("A", 1, "T1", "flexible", 4, 4, 20.0, 55.0),  # told to leave at 50, gone at 55
        ("B", 1, "T1", "base", 8, 8, 80.0, 100.0),
        ("C", 2, "T1", "base", 4, 4, 100.0, 160.0),
        ("D", 1, "T1", "base", 1, 1, 150.0, 170.0),
    ]


def test_the_job_table_says_what_became_of_each_job(told: Drive) -> None:
    jobs = told.outcome().jobs
    assert jobs.job_id == ("A", "B", "C", "D")
    assert jobs.first_start_s.tolist() == [0.0, 80.0, 10.0, 150.0]
    assert jobs.finish_s.tolist() == [80.0, 100.0, 160.0, 170.0]
    assert jobs.attempts.tolist() == [1, 1, 2, 1]
    assert jobs.preemptions.tolist() == [0, 0, 1, 0]
    assert jobs.resizes.tolist() == [2, 0, 0, 0]
    assert jobs.queuing_s.tolist() == [0.0, 70.0, 30.0, 0.0]
    assert jobs.gpu_s.tolist() == [460.0, 160.0, 720.0, 20.0]
    assert jobs.lost_gpu_s.tolist() == [0.0, 0.0, 200.0, 0.0]


def test_loans_and_demand_are_rows_of_what_changed(told: Drive) -> None:
    outcome = told.outcome()
    loans, demand = outcome.loans, outcome.demand
    assert (loans.server.tolist(), loans.lent_s.tolist()) == ([2], [10.0])
    assert (loans.reclaim_s.tolist(), loans.returned_s.tolist()) == ([60.0], [70.0])
    assert demand.time_s.tolist() == [0.0, 10.0, 60.0, 70.0]
    assert demand.need_servers.tolist() == [1.0, 1.0, 2.0, 2.0]
    assert demand.on_loan_servers.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert demand.shortfall_servers.tolist() == [0.0, 0.0, 1.0, 0.0]


def test_the_series_are_the_levels_of_each_instant(told: Drive) -> None:
    series = told.outcome().series
    at = dict(zip(series.edge_s.tolist(), series.pending.tolist(), strict=False))
    assert (at[0.0], at[10.0], at[70.0], at[80.0], at[100.0]) == (0.0, 1.0, 2.0, 1.0, 0.0)
    widths = np.diff(series.edge_s)
    assert float((series.loaned_gpus * widths).sum()) == pytest.approx(480.0)
    assert float((series.training_gpus * widths).sum()) == pytest.approx(460 + 160 + 240 + 20)


def test_without_a_schedule_everything_else_is_the_same(
    new_drive: Callable[..., Drive], told: Drive, tell: Callable[[Drive], None]
) -> None:
    bare = new_drive(1, 2, schedule=False)
    tell(bare)
    assert bare.outcome().schedule is None
    assert bare.outcome().summary() == told.outcome().summary()


def test_an_outcome_survives_pickling(told: Drive) -> None:
    outcome = told.outcome()
    again = pickle.loads(pickle.dumps(outcome))
    assert again.summary() == outcome.summary()
    assert rows(again) == rows(outcome)


def test_asking_for_the_outcome_in_between_changes_nothing(
    new_drive: Callable[..., Drive], told: Drive, tell: Callable[[Drive], None]
) -> None:
    watched = new_drive(1, 2)
    happens = watched.happens

    def nosy(event: ev.Event) -> None:
        happens(event)
        watched.outcome()

    watched.happens = nosy  # type: ignore[method-assign]
    tell(watched)
    assert watched.outcome().summary() == told.outcome().summary()
    assert rows(watched.outcome()) == rows(told.outcome())


def test_a_withdrawn_reclaim_is_neither_a_reclaim_nor_a_second_loan(new_drive: Callable[..., Drive]) -> None:
    drive = new_drive(1, 1)
    drive.plan(Loan("I1"))
    drive.now_s = 5.0
    drive.plan(Reclaim("I1", 50.0))
    drive.now_s = 8.0
    drive.plan(Loan("I1"))
    drive.now_s = 20.0
    drive.plan(Reclaim("I1", 50.0), Return("I1"))
    drive.now_s = 30.0
    drive.plan(Loan("I1"))
    outcome = drive.outcome(end_s=40.0)
    assert outcome.loans.lent_s.tolist() == [0.0, 30.0]
    assert outcome.loans.reclaim_s.tolist()[0] == 20.0
    assert np.isnan(outcome.loans.returned_s[1])
    assert (outcome.totals.loans, outcome.totals.reclaims, outcome.totals.loaned_server_s) == (2, 1, 30.0)


def test_jobs_that_are_not_over_are_unfinished_and_count_up_to_the_end(
    new_drive: Callable[..., Drive],
) -> None:
    drive = new_drive(1)
    drive.submit("runs", 4)
    drive.submit("waits", 8)
    drive.launch("runs", Slot("T1", 4, 0, 1))
    outcome = drive.outcome(end_s=25.0)
    assert outcome.jobs.state == ("RUNNING", "PENDING")
    assert outcome.jobs.gpu_s.tolist() == [100.0, 0.0]
    assert outcome.jobs.queuing_s.tolist() == [0.0, 25.0]
    assert rows(outcome) == [("runs", 1, "T1", "base", 4, 4, 0.0, 25.0)]
    summary = outcome.summary()
    assert (summary["finished"], summary["unfinished"]) == (0, 2)
    assert summary["jct_s"] == {"mean": None, "median": None, "p95": None, "p99": None}
    assert summary["jct_bound_s"] is None
    assert "2 jobs were not over" in summary["notes"][0]


def test_refused_and_cancelled_jobs_are_counted_apart(new_drive: Callable[..., Drive]) -> None:
    drive = new_drive(1)
    huge = JobSpec("huge", 0, 0.0, 99, 99)
    drive.happens(ev.Refused(0.0, "huge", "99 GPUs are more than there are"))
    drive.submit("gone", 4)
    drive.submit("stays", 4)
    drive.submit("runs", 4)
    drive.launch("runs", Slot("T1", 4, 0, 1))
    drive.now_s = 7.0
    drive.happens(ev.CancelRequested(7.0, "gone"))
    drive.happens(ev.CancelRequested(7.0, "runs"))
    drive.stop("runs", Cause.CANCELLED)
    drive.now_s = 9.0
    drive.stopped("runs")
    outcome = drive.outcome(refused={"huge": huge})
    assert outcome.jobs.state == ("REJECTED", "CANCELLED", "PENDING", "CANCELLED")
    assert outcome.jobs.min_workers.tolist() == [99.0, 4.0, 4.0, 4.0]
    assert outcome.jobs.queuing_s.tolist() == [0.0, 7.0, 9.0, 0.0]
    assert outcome.jobs.gpu_s.tolist() == [0.0, 0.0, 0.0, 36.0]
    summary = outcome.summary()
    counts = [summary[key] for key in ("jobs", "finished", "unfinished", "rejected", "cancelled", "failed")]
    assert counts == [4, 0, 1, 1, 2, 0]
    # A cancelled job was stopped for nobody's sake, and its user doesn't want its work.
    assert (summary["preemptions"], summary["lost_gpu_s"]) == (0, 0.0)


def test_late_reports_of_an_older_attempt_change_nothing(told: Drive) -> None:
    before = told.outcome()
    for late in (
        ev.Finished(170.0, "C", 1),
        ev.Stopped(170.0, "C", 1, 0.0),
        ev.Stopped(170.0, "A", 1, 0.0),
        ev.Vacated(170.0, "A", 1, (Slot("T1", 0, 4, 1),)),
        ev.Failed(170.0, "D", 1),
    ):
        told.happens(late)
    assert told.outcome().summary() == before.summary() | {"events": 35}
    assert rows(told.outcome()) == rows(before)


def test_a_job_that_stopped_is_counted_once_however_often_it_is_reported(
    new_drive: Callable[..., Drive],
) -> None:
    drive = new_drive(1)
    drive.submit("A", 4)
    drive.launch("A", Slot("T1", 4, 0, 1))
    drive.now_s = 10.0
    drive.stop("A", Cause.PRIORITY)
    drive.stopped("A")
    drive.now_s = 15.0
    drive.stopped("A")
    outcome = drive.outcome(end_s=20.0)
    assert outcome.jobs.queuing_s.tolist() == [10.0]
    assert outcome.totals.lost_gpu_s == 40.0
    assert outcome.series.pending.tolist()[-1] == 1.0


def test_a_lost_server_ends_the_stretches_on_it_and_is_no_preemption(new_drive: Callable[..., Drive]) -> None:
    drive = new_drive(2)
    drive.submit("A", 4, 8)
    drive.launch("A", Slot("T1", 2, 2, 1), Slot("T2", 2, 0, 1))
    drive.now_s = 10.0
    drive.resize("A", remove=(Slot("T1", 0, 2, 1),))
    drive.now_s = 12.0
    drive.happens(ev.ServerLost(12.0, "T1"))
    drive.stop("A", Cause.SERVER_LOST)
    drive.now_s = 15.0
    drive.vacated("A", Slot("T1", 0, 2, 1))
    drive.stopped("A")
    outcome = drive.outcome()
    assert rows(outcome) == [
        ("A", 1, "T1", "base", 2, 2, 0.0, 12.0),
        ("A", 1, "T1", "flexible", 2, 2, 0.0, 12.0),
        ("A", 1, "T2", "base", 2, 2, 0.0, 15.0),
    ]
    assert outcome.jobs.gpu_s.tolist() == [24 + 24 + 30]
    assert (outcome.totals.preemptions, outcome.totals.resizes) == (0, 1)
    assert outcome.totals.lost_gpu_s == pytest.approx(60.0)  # six workers for ten seconds


def test_a_server_that_is_down_is_missing_where_inference_needs_it(new_drive: Callable[..., Drive]) -> None:
    drive = new_drive(1, 2)
    drive.need(2)
    drive.submit("A", 8)
    drive.now_s = 10.0
    drive.happens(ev.ServerLost(10.0, "I1"))
    drive.now_s = 30.0
    drive.happens(ev.ServerReturned(30.0, "I1"))
    drive.now_s = 40.0
    drive.submit("B", 8)
    outcome = drive.outcome()
    assert outcome.totals.inference_shortfall_server_s == 20.0
    assert outcome.usage.inference == pytest.approx((16 * 20 + 8 * 20) / (16 * 40))


def test_a_server_that_joins_is_capacity_from_then_on(new_drive: Callable[..., Drive]) -> None:
    drive = new_drive(1, 1)
    drive.need(1)
    drive.submit("A", 8)
    drive.launch("A", Slot("T1", 8, 0, 1))
    drive.now_s = 30.0
    training = ServerSpec("T2", Pool.TRAINING, "A100", 16, 2.0)
    drive.happens(ev.ServersJoined(30.0, (training, ServerSpec("I2", Pool.INFERENCE, "T4", 24, 0.5))))
    drive.need(2)
    drive.plan(Loan("I2"))
    drive.submit("F", 4, fungible=True)
    drive.launch("F", Slot("I2", 4, 0, 2))
    drive.now_s = 40.0
    drive.submit("B", 8)
    outcome = drive.outcome()
    assert [server.server_id for server in outcome.servers] == ["T1", "I1", "T2", "I2"]
    owned = {"training": 8 * 40 + 16 * 10, "inference": 8 * 40 + 24 * 10}
    # Inference needs 8 GPUs, then two servers of 16 GPUs on average, of which one is lent.
    used = {"training": 8 * 40, "inference": 8 * 30 + (16 + 8) * 10}
    assert outcome.usage._asdict() == pytest.approx(
        {pool: used[pool] / owned[pool] for pool in owned}
        | {"overall": sum(used.values()) / sum(owned.values())}
    )
    assert rows(outcome)[-1] == ("F", 1, "I2", "base", 4, 8, 30.0, 40.0)
    assert outcome.series.need_gpus.tolist() == [8.0, 32.0]
    assert outcome.totals.inference_shortfall_server_s == 10.0


def test_a_server_that_comes_back_with_other_gpus_counts_as_what_it_is_now(
    new_drive: Callable[..., Drive],
) -> None:
    drive = new_drive(1)
    drive.happens(ev.ServersJoined(0.0, (ServerSpec("T2", Pool.TRAINING, "V100", 8),)))
    drive.submit("A", 8)
    drive.launch("A", Slot("T1", 8, 0, 1))
    drive.happens(ev.ServerLost(10.0, "T2"))
    drive.happens(ev.ServersJoined(20.0, (ServerSpec("T2", Pool.TRAINING, "V100", 24),)))
    drive.now_s = 40.0
    drive.submit("B", 8)
    assert drive.outcome().usage.training == pytest.approx(8 * 40 / (16 * 20 + 32 * 20))


def test_changed_limits_change_what_a_worker_is(new_drive: Callable[..., Drive]) -> None:
    drive = new_drive(1)
    drive.submit("A", 2, 4)
    drive.launch("A", Slot("T1", 2, 2, 1))
    drive.now_s = 10.0
    drive.happens(ev.LimitsChanged(10.0, "A", 3, 4))
    drive.now_s = 30.0
    drive.finish("A")
    assert rows(drive.outcome()) == [
        ("A", 1, "T1", "base", 2, 2, 0.0, 10.0),
        ("A", 1, "T1", "flexible", 2, 2, 0.0, 10.0),
        ("A", 1, "T1", "base", 3, 3, 10.0, 30.0),
        ("A", 1, "T1", "flexible", 1, 1, 10.0, 30.0),
    ]


def test_usage_with_one_submission_is_measured_until_the_end(new_drive: Callable[..., Drive]) -> None:
    drive = new_drive(2)
    drive.now_s = 100.0
    drive.submit("A", 8)
    drive.launch("A", Slot("T1", 8, 0, 1))
    drive.now_s = 150.0
    drive.finish("A")
    assert tuple(drive.outcome(end_s=200.0).usage) == (0.25, 0.0, 0.25)


def test_several_steps_of_one_plan_are_taken_in_order(new_drive: Callable[..., Drive]) -> None:
    drive = new_drive(1)
    drive.submit("A", 4)
    drive.submit("B", 4)
    drive.plan(Launch("A", 1, (Slot("T1", 4, 0, 1),)), Launch("B", 1, (Slot("T1", 4, 0, 1),)))
    drive.now_s = 5.0
    drive.finish("A")
    drive.finish("B")
    assert drive.outcome().jobs.gpu_s.tolist() == [20.0, 20.0]


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([7.0], (7.0, 7.0, 7.0, 7.0)),
        ([0.0, 10.0], (5.0, 5.0, 9.5, 9.9)),
        ([float(n) for n in range(101)], (50.0, 50.0, 95.0, 99.0)),
    ],
)
def test_percentiles_interpolate_linearly(values: list[float], spread: tuple[float, ...]) -> None:
    assert tuple(Spread.of(np.array(values))) == pytest.approx(spread)
