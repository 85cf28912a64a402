"""The testbed's parts, and a small one: what is drawn, what is read from a journal, and a dozen jobs live
beside the same ones simulated.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.testbed import workload
from benchmarks.testbed.compare import Compared, compare, measured, simulated, told
from benchmarks.testbed.live import PROGRAM, play
from benchmarks.testbed.table import lines

from aryl.errors import InputError
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import experiment_from_mapping, with_overrides
from aryl.sim.run import run

JOBS, SPAN_S, SPEED = 12, 900.0, 75.0
RESTART_S, RESIZE_S, VACATE_S = 63.0, 10.0, 7.0
SETTING = experiment_from_mapping(
    {
        "cluster": {
            "training": {"servers": 1, "gpus_per_server": 8},
            "inference": {"servers": 2, "gpus_per_server": 8},
        },
        "jobs": {"trace": "synthetic-small", "scenario": "basic"},
        "inference": {
            "points": [[0, 2], [200, 0.5], [600, 1.5], [900, 2]],
            "forecast": "oracle",
            "headroom": 0,
            "settle": 0,
        },
        "simulation": {"interval": 60, "restart_s": RESTART_S, "resize_s": RESIZE_S, "vacate_s": VACATE_S},
    }
)


def drawn(jobs: int = JOBS, span_s: float = SPAN_S, seed: int = 3) -> Experiment:
    return workload.draw(SETTING, jobs, span_s, seed)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """A dozen jobs under `aryl`, live in a quarter of a minute and what they take after that."""
    folder = tmp_path_factory.mktemp("testbed")
    experiment = drawn()
    played = play(
        experiment, "aryl", folder, backend="local", speed=SPEED, on_progress=lambda _share, _text: None
    )
    return compare(experiment, "aryl", played, folder)


def test_the_same_seed_draws_the_same_jobs_and_another_one_others() -> None:
    assert drawn() == drawn()
    assert drawn() != drawn(seed=2)


def test_drawn_jobs_fit_the_cluster_and_are_worth_the_load() -> None:
    jobs = [*drawn(jobs=100, span_s=28_800.0).inline_jobs()]
    assert len(jobs) == 100
    assert max(job.base_gpus for job in jobs) <= 8
    assert all(workload.SHORTEST_S <= job.duration_s <= workload.LONGEST_S for job in jobs)
    assert (jobs[0].submit, max(job.submit for job in jobs)) == (0.0, 28_800.0)
    assert sum(job.work_gpu_s for job in jobs) == pytest.approx(workload.LOAD * 8 * 28_800.0, rel=1e-3)


def test_the_demand_is_fitted_to_the_span_of_the_jobs() -> None:
    assert drawn(span_s=450.0).inference.points == [(0.0, 2.0), (100.0, 0.5), (300.0, 1.5), (450.0, 2.0)]


@pytest.mark.parametrize("setting", ["jobs.scenario=ideal", "cluster.accounting=slower", "jobs=[]"])
def test_a_setting_in_which_workers_can_not_just_wait_is_refused(setting: str) -> None:
    with pytest.raises(InputError):
        workload.draw(with_overrides(SETTING, [setting]), JOBS, SPAN_S, 1)


def test_what_is_read_from_a_journal_is_what_the_simulation_says(tmp_path: Path) -> None:
    experiment = drawn(jobs=100, span_s=28_800.0, seed=2)
    summary: dict[str, Any] = run(experiment, "aryl").summary
    folded = simulated(experiment, "aryl", tmp_path / "journal")
    assert summary["preemptions"] > 0
    assert folded.mean_jct_s == pytest.approx(summary["jct_s"]["mean"])
    assert folded.mean_queued_s == pytest.approx(summary["queuing_s"]["mean"])
    assert (folded.preemptions, folded.resizes) == (summary["preemptions"], summary["resizes"])
    assert (folded.loans, folded.reclaims) == (summary["loans"], summary["reclaims"])


def test_the_costs_that_a_simulation_is_told_are_those_that_are_measured_in_it(tmp_path: Path) -> None:
    experiment = drawn(jobs=100, span_s=28_800.0, seed=2)
    folded = simulated(experiment, "aryl", tmp_path / "first")
    costs = measured(experiment, folded)
    assert folded.restart
    assert folded.resize
    assert costs.launch_s + costs.each_worker_s + costs.end_s == pytest.approx(0.0, abs=1e-6)
    assert (costs.restart_s, costs.vacate_s) == pytest.approx((RESTART_S, VACATE_S))
    again = simulated(told(experiment, costs), "aryl", tmp_path / "second")
    assert again.mean_jct_s == pytest.approx(folded.mean_jct_s, rel=0.01)


def test_a_dozen_jobs_live_all_end_and_none_before_its_work_is_done(small: Compared) -> None:
    least_s = [job.duration_s * job.min_workers / job.max_workers for job in drawn().inline_jobs()]
    jobs = [small.live.jobs[job.id] for job in drawn().inline_jobs()]
    assert len(jobs) == JOBS
    for job, shortest_s in zip(jobs, least_s, strict=True):
        assert job.first_start_s >= job.submit_s
        # The workers begin a moment before all of them are known to be up.
        assert job.finish_s - job.first_start_s >= shortest_s
    assert sum(job.jct_s for job in jobs) > sum(least_s)


def test_a_dozen_jobs_live_lend_as_they_do_in_the_simulation(small: Compared) -> None:
    assert small.live.loans == small.told.loans > 0
    assert small.live.reclaims == small.told.reclaims > 0


def test_a_simulation_that_is_told_the_costs_takes_as_long_as_a_dozen_jobs_live(small: Compared) -> None:
    # A dozen jobs are few, and one that starts elsewhere weighs a twelfth; the testbed itself is held to 5 %.
    assert small.told.mean_jct_s == pytest.approx(small.live.mean_jct_s, rel=0.2)


def test_the_tables_say_what_was_found(small: Compared) -> None:
    text = "\n".join(lines(drawn(), "local", 0.2, [small]))
    assert f"{JOBS} jobs" in text
    assert f"| `aryl` | live | {small.live.mean_jct_s:,.0f} |" in text
    assert f"| resize | {len(small.live.resize)} |" in text


def waiter(folder: Path, duration_s: float, size: int = 1) -> subprocess.Popen[bytes]:
    (folder / "run").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(PROGRAM)],
        env={
            **os.environ,
            "DURATION_S": str(duration_s),
            "BASE_WORKERS": "1",
            "RANK": "0",
            "ARYL_RANK": "0",
            "WORLD_SIZE": str(size),
            "ARYL_RUN_DIR": str(folder / "run"),
            "ARYL_CHECKPOINT_DIR": str(folder / "checkpoint"),
        },
    )


def test_a_worker_that_is_noticed_keeps_what_all_have_waited_together(tmp_path: Path) -> None:
    began_s = time.monotonic()
    first = waiter(tmp_path, 60_000.0, size=100)
    while b"waiting" not in Path(f"/proc/{first.pid}/cmdline").read_bytes():
        time.sleep(0.01)
    time.sleep(0.5)
    first.send_signal(signal.SIGUSR1)
    assert first.wait(60) == 75
    done_s = float((tmp_path / "checkpoint" / "progress").read_text())
    passed_s = time.monotonic() - began_s
    assert passed_s < done_s < 100 * passed_s
    assert waiter(tmp_path, done_s + 0.1).wait(60) == 0


def test_a_worker_that_was_noticed_before_it_began_leaves_at_once(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notice-0").touch()
    assert waiter(tmp_path, 600.0).wait(60) == 75
    assert float((tmp_path / "checkpoint" / "progress").read_text()) < 60.0
