"""The testbed's tables, as Markdown. Times of the engine are in cluster seconds, delays in real ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean

import numpy as np

from aryl.sim.experiment import Experiment
from benchmarks.testbed.compare import Compared, differences
from benchmarks.testbed.fold import Delay, Folded
from benchmarks.testbed.live import processors

_SIZES = (1, 2, 8, 32, 10_000)
NEAR = 0.05
# Above this share of its processors a machine makes its processes wait for one another.
SPARE = 0.8


def lines(experiment: Experiment, backend: str, minutes: float, runs: Sequence[Compared]) -> list[str]:
    """All that the command has to say."""
    text = [*_setting(experiment, backend, minutes, runs), "", *_outcomes(runs), ""]
    if len(runs) > 1:
        text += [*_gains(runs[0], runs[1:]), ""]
    return [*text, *_delays(runs), "", *_machine(runs), "", *_apart(runs)]


def near(runs: Sequence[Compared]) -> bool:
    """Whether mean JCT live is what the simulation makes of the measured costs, by `NEAR`."""
    return all(abs(_off(run.live, run.told)) <= NEAR for run in runs)


def _off(live: Folded, simulated: Folded) -> float:
    return simulated.mean_jct_s / live.mean_jct_s - 1.0


def _setting(experiment: Experiment, backend: str, minutes: float, runs: Sequence[Compared]) -> Iterator[str]:
    jobs = list(experiment.inline_jobs())
    elastic = sum(job.max_workers > job.min_workers for job in jobs)
    speed = runs[0].played.speed
    yield (
        f"{len(jobs)} jobs ({elastic} elastic, {sum(job.gpu_types is not None for job in jobs)} fungible, "
        f"{min(job.base_gpus for job in jobs)} to {max(job.base_gpus for job in jobs)} GPUs), submitted "
        f"within {minutes:g} minutes; backend {backend}; {speed:.3g} cluster seconds pass in a real one."
    )


def _outcomes(runs: Sequence[Compared]) -> Iterator[str]:
    yield "| policy | run | mean JCT (s) | off | mean queuing (s) | preempted | resizes | loans | reclaims |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for run in runs:
        kinds = (
            ("live", run.live),
            ("simulated, as the file says", run.file),
            ("simulated, costs as measured", run.told),
        )
        for name, folded in kinds:
            off = "" if folded is run.live else f"{_off(run.live, folded):+.1%}"
            yield (
                f"| `{run.policy}` | {name} | {folded.mean_jct_s:,.0f} | {off} | {folded.mean_queued_s:,.0f} "
                f"| {folded.preemptions} | {folded.resizes} | {folded.loans} | {folded.reclaims} |"
            )


def _gains(base: Compared, others: Sequence[Compared]) -> Iterator[str]:
    yield f"| mean JCT of `{base.policy}` over that of | live | as the file says | costs as measured |"
    yield "|---|--:|--:|--:|"
    for run in others:
        gains = [
            before.mean_jct_s / after.mean_jct_s
            for before, after in ((base.live, run.live), (base.file, run.file), (base.told, run.told))
        ]
        yield f"| `{run.policy}` | " + " | ".join(f"{gain:.3f}" for gain in gains) + " |"


def _delays(runs: Sequence[Compared]) -> Iterator[str]:
    yield "| delay, in real seconds | how many | mean | 95 % | most |"
    yield "|---|--:|--:|--:|--:|"
    speed = runs[0].played.speed
    launches = [delay for run in runs for delay in (*run.live.launch, *run.live.restart)]
    for least, most in pairwise(_SIZES):
        some = [delay for delay in launches if least <= delay.workers < most]
        words = f"{least} to {most - 1} workers" if most < _SIZES[-1] else f"{least} workers or more"
        yield from _row(f"launch of {words if most > least + 1 else '1 worker'}", some, speed)
    yield from _row("resize", [delay for run in runs for delay in run.live.resize], speed)
    yield from _row("leaving", [delay for run in runs for delay in run.live.vacate], speed)


def _row(name: str, delays: Sequence[Delay], speed: float) -> Iterator[str]:
    if not delays:
        yield f"| {name} | 0 | | | |"
        return
    real_s = np.array([delay.seconds for delay in delays]) / speed
    yield (
        f"| {name} | {len(delays)} | {real_s.mean():.2f} | {np.percentile(real_s, 95):.2f} "
        f"| {real_s.max():.2f} |"
    )


def _machine(runs: Sequence[Compared]) -> Iterator[str]:
    for run in runs:
        busy = run.played.busy
        if fmean(busy) > SPARE:
            yield f"**`{run.policy}`: the machine had no time to spare, and the delays are its own.**"
        end_s = run.costs.end_s / run.played.speed
        yield (
            f"`{run.policy}`: {processors()} processors, busy {fmean(busy):.0%} on average and "
            f"{np.percentile(busy, 95):.0%} at the 95th percentile of two seconds each; a submission at most "
            f"{run.played.late_s:.2f} s late, the longest pass {run.played.longest_pass_s * 1e3:.0f} ms; an "
            f"undisturbed job ran {end_s:+.2f} s longer than it should."
        )


def _apart(runs: Sequence[Compared]) -> Iterator[str]:
    yield "| policy | jobs within 5 % | mean gap (s) | farthest apart, live minus costs as measured |"
    yield "|---|--:|--:|---|"
    for run in runs:
        apart = differences(run.live.jobs, run.told.jobs)
        close = sum(abs(gap_s) <= NEAR * run.told.jobs[job_id].jct_s for job_id, gap_s in apart.items())
        worst = ", ".join(
            f"{job_id} {gap_s:+,.0f} s (queuing "
            f"{run.live.jobs[job_id].queued_s - run.told.jobs[job_id].queued_s:+,.0f} s)"
            for job_id, gap_s in list(apart.items())[:3]
        )
        mean_gap_s = fmean(abs(gap_s) for gap_s in apart.values())
        yield f"| `{run.policy}` | {close} of {len(apart)} | {mean_gap_s:,.0f} | {worst} |"
