"""One policy live and simulated: as the file says, and with what changes were seen to cost live.

The file's simulation takes the file's word for what changes cost. The second one is told what was measured:
what a launch takes by the size of the gang, the means of a restart, a resize and of leaving, and, on top of
the running times, how long an end takes to be heard of. What then is left of the difference is what the
simulator doesn't know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import StatisticsError, fmean, linear_regression

from aryl.scheduler.journal import from_lines
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import experiment_from_mapping, to_mapping
from aryl.sim.run import run
from benchmarks.testbed.fold import Delay, Folded, JobTimes, fold
from benchmarks.testbed.live import Played


@dataclass(frozen=True, slots=True)
class Costs:
    """What changes cost live, in cluster seconds. A gang starts in `launch_s` and `each_worker_s` for each of
    its workers; `end_s` is how much longer an undisturbed job then runs than it should.
    """

    launch_s: float
    each_worker_s: float
    end_s: float
    restart_s: float
    resize_s: float
    vacate_s: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One policy. `file` and `told` are simulations: as the file says, and with the measured costs."""

    policy: str
    played: Played
    live: Folded
    costs: Costs
    file: Folded
    told: Folded


def compare(experiment: Experiment, policy: str, played: Played, folder: Path) -> Compared:
    """Simulate what was played. The journals are left in `folder`."""
    submitted_s = {job.id: job.submit for job in experiment.inline_jobs()}
    live = fold(played.events, submitted_s, zero_s=played.zero_s, names=played.jobs)
    costs = measured(experiment, live)
    return Compared(
        policy,
        played,
        live,
        costs,
        simulated(experiment, policy, folder / "file.jsonl"),
        simulated(told(experiment, costs), policy, folder / "told.jsonl"),
    )


def simulated(experiment: Experiment, policy: str, journal: Path) -> Folded:
    """Simulate under one policy."""
    run(experiment, policy, journal=journal)
    submitted_s = {job.id: job.submit for job in experiment.inline_jobs()}
    with journal.open(encoding="utf-8") as lines:
        return fold(from_lines(lines, str(journal)), submitted_s)


def measured(experiment: Experiment, live: Folded) -> Costs:
    """What changes cost; what never happened costs what the file says."""
    simulation = experiment.simulation
    launch_s, each_s = _line(live.launch)
    workers = {delay.job_id: delay.workers for delay in live.launch}
    over = [
        job.finish_s - job.up_s - inline.duration_s
        for inline in experiment.inline_jobs()
        if _undisturbed(job := live.jobs[inline.id]) and workers[inline.id] == inline.min_workers
    ]
    return Costs(
        launch_s,
        each_s,
        fmean(over) if over else 0.0,
        mean_s(live.restart, simulation.restart_s),
        mean_s(live.resize, simulation.resize_s),
        mean_s(live.vacate, simulation.vacate_s),
    )


def told(experiment: Experiment, costs: Costs) -> Experiment:
    """The experiment with these costs. Estimates stay as they are: nobody told the live scheduler either."""
    data = to_mapping(experiment)
    data["simulation"] |= {
        "restart_s": costs.restart_s,
        "resize_s": costs.resize_s,
        "vacate_s": costs.vacate_s,
        "launch_s": costs.launch_s,
        "launch_worker_s": costs.each_worker_s,
    }
    for job, inline in zip(data["jobs"], experiment.inline_jobs(), strict=True):
        job["estimate"] = inline.duration_s if inline.estimate is None else inline.estimate
        job["duration"] = max(inline.duration_s + costs.end_s, 1e-3)
    return experiment_from_mapping(data)


def mean_s(delays: Sequence[Delay], otherwise_s: float) -> float:
    """The mean of what was seen."""
    return fmean(delay.seconds for delay in delays) if delays else otherwise_s


def differences(left: Mapping[str, JobTimes], right: Mapping[str, JobTimes]) -> dict[str, float]:
    """By how much a job took longer on the left, the largest difference first."""
    found = {job_id: left[job_id].jct_s - right[job_id].jct_s for job_id in left}
    return dict(sorted(found.items(), key=lambda item: -abs(item[1])))


def _undisturbed(job: JobTimes) -> bool:
    return job.preemptions == 0 and job.resizes == 0


def _line(delays: Sequence[Delay]) -> tuple[float, float]:
    """Seconds that a launch takes in any case, and for each worker; least squares, never negative."""
    try:
        slope, start = linear_regression(
            [delay.workers for delay in delays], [delay.seconds for delay in delays]
        )
    except StatisticsError:  # all are of one size
        return mean_s(delays, 0.0), 0.0
    if slope < 0.0:
        return mean_s(delays, 0.0), 0.0
    return start, slope
