"""Fills in what a trace doesn't say about its jobs: who is elastic, fungible, heterogeneous.

The public traces have no such columns, so a scenario draws them from a seed. What a trace does say always
wins, and counts towards the scenario's shares. Each of the three draws has a stream of its own: two
scenarios with one seed agree about the elastic jobs, and `advanced` differs from `basic` in its
heterogeneous jobs and in nothing else.

Elastic jobs are drawn without replacement with weight (GPU time) ** a, by the exponential keys of Efraimidis
and Spirakis (2006): the job with the smallest `e / weight` comes first, `e` exponential. With a = 0 every
job is as likely, with a = 1 the GPU time decides, above that the largest jobs nearly always win. The
exponent is found by bisection on the same `e`, so that the jobs drawn hold as near to the wanted share of
GPU time as this trace allows; a few exchanges close what gap is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from aryl.errors import InputError, nearest_word
from aryl.traces.canonical import base_workers, worker_problem
from aryl.traces.model import Trace, TraceJob

ELASTIC_SHARE = 0.05
ELASTIC_GPU_TIME_SHARE = 0.36
FUNGIBLE_SHARE = 0.21
HETEROGENEOUS_SHARE = 0.10
GROWTH = 2  # max_workers over min_workers of a job that a scenario makes elastic

_LOWEST_EXPONENT, _HIGHEST_EXPONENT, _BISECTIONS, _SWAPS = -4.0, 8.0, 40, 8

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a scenario wants, as shares of the jobs. `heterogeneous` None means every fungible job.

    `mixed_efficiency` is what a heterogeneous job keeps of its speed while it holds both GPU types; the
    simulator applies it.
    """

    name: str
    elastic: float
    elastic_gpu_time: float
    fungible: float
    heterogeneous: float | None
    mixed_efficiency: float


_BASIC = Scenario("basic", ELASTIC_SHARE, ELASTIC_GPU_TIME_SHARE, FUNGIBLE_SHARE, 0.0, 0.7)
SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _BASIC,
        replace(_BASIC, name="advanced", heterogeneous=HETEROGENEOUS_SHARE),
        replace(_BASIC, name="heterogeneous", heterogeneous=None),
        Scenario("ideal", 1.0, 1.0, 1.0, None, 1.0),
    )
}


@dataclass(frozen=True, slots=True)
class AssignmentSummary:
    """Shares of a resolved trace: of its jobs, and of its GPU time at base demand where the name says so."""

    jobs: int
    elastic: float
    elastic_gpu_time: float
    fungible: float
    heterogeneous: float


def find_scenario(name: str) -> Scenario:
    """The scenario of that name: basic, advanced, heterogeneous or ideal.

    Raises:
        InputError: there is none of that name.
    """
    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise InputError(
            "unknown scenario",
            field="scenario",
            found=name,
            expected="one of " + ", ".join(SCENARIOS),
            nearest=nearest_word(name, SCENARIOS),
        )
    return scenario


def assign_scenario(trace: Trace, scenario: str | None, seed: int) -> Trace:
    """The trace with nothing left open: no job's workers, flags or priority are None afterwards.

    With no scenario a job is what the trace says: inelastic unless it names a range, one GPU a worker unless
    it says otherwise, fungible only if it says so or accepts several GPU types, priority 0.

    Args:
        trace: the jobs.
        scenario: basic, advanced, heterogeneous, ideal, or None.
        seed: whole number >= 0; the same seed gives the same assignment.

    Raises:
        InputError: an unknown scenario, a negative seed, or a job whose numbers contradict each other.
    """
    if seed < 0:
        raise InputError("not a seed", field="seed", found=seed, expected="a whole number >= 0")
    for job in trace.jobs:
        problem = worker_problem(job)
        if problem is not None:
            field, found, message, expected = problem
            raise InputError(
                f"job '{job.job_id}': {message}",
                file=trace.source,
                field=field,
                found=found,
                expected=expected,
            )
    if scenario is None:
        nothing = np.zeros(len(trace.jobs), dtype=np.bool_)
        return _resolved(trace, nothing, nothing, nothing)
    wanted = find_scenario(scenario)
    fungible = _draw_fungible(trace, wanted, _stream(seed, 1))
    heterogeneous = _draw_heterogeneous(trace, wanted, fungible, _stream(seed, 2))
    return _resolved(trace, _draw_elastic(trace, wanted, _stream(seed, 0)), fungible, heterogeneous)


def _stream(seed: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, number])))


def _flags(trace: Trace, test: Callable[[TraceJob], bool]) -> Flags:
    return np.fromiter((test(job) for job in trace.jobs), dtype=np.bool_, count=len(trace.jobs))


def _says_elastic(job: TraceJob) -> bool:
    return (job.max_workers or 0) > base_workers(job) or len(job.sizes or ()) > 1


def _says_fungible(job: TraceJob) -> bool:
    return (
        bool(job.fungible)
        or bool(job.heterogeneous)
        or (job.fungible is None and len(job.gpu_types or ()) > 1)
    )


def _draw_elastic(trace: Trace, wanted: Scenario, random: np.random.Generator) -> Flags:
    gpu_s = np.array([job.gpus * job.duration_s for job in trace.jobs])
    stated = _flags(trace, _says_elastic)
    open_ = _flags(trace, lambda job: job.max_workers is None and job.sizes is None)
    exponential = -np.log1p(-random.random(len(trace.jobs)))
    count = min(round(wanted.elastic * len(trace.jobs)) - int(stated.sum()), int(open_.sum()))
    if count <= 0:
        return stated
    wanted_gpu_s = wanted.elastic_gpu_time * gpu_s.sum() - gpu_s[stated].sum()
    places = np.flatnonzero(open_)
    # A job of no length weighs next to nothing, and a logarithm must exist.
    log_weight = np.log(np.maximum(gpu_s[places], 1e-3))
    log_key = np.log(np.maximum(exponential[places], 1e-300))

    def drawn(exponent: float) -> npt.NDArray[np.intp]:
        return places[np.argsort(log_key - exponent * log_weight, kind="stable")[:count]]

    def gap(chosen: npt.NDArray[np.intp]) -> float:
        return float(gpu_s[chosen].sum() - wanted_gpu_s)

    low, high = _LOWEST_EXPONENT, _HIGHEST_EXPONENT
    best = drawn(1.0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        chosen = drawn(middle)
        if abs(gap(chosen)) < abs(gap(best)):
            best = chosen
        low, high = (low, middle) if gap(chosen) > 0 else (middle, high)
    flags = stated.copy()
    flags[_swapped(best, places, gpu_s, wanted_gpu_s)] = True
    return flags


def _swapped(
    chosen: npt.NDArray[np.intp],
    places: npt.NDArray[np.intp],
    gpu_s: npt.NDArray[np.float64],
    wanted_gpu_s: float,
) -> npt.NDArray[np.intp]:
    """The jobs drawn, a few of them exchanged so that their GPU time comes nearest to what is wanted."""
    for _ in range(_SWAPS):
        rest = np.setdiff1d(places, chosen)
        gap = gpu_s[chosen].sum() - wanted_gpu_s
        if len(rest) == 0 or gap == 0:
            break
        rest = rest[np.argsort(gpu_s[rest], kind="stable")]
        # The best partner of each job drawn is the one whose GPU time is less by the gap.
        target = gpu_s[chosen] - gap
        right = np.minimum(np.searchsorted(gpu_s[rest], target), len(rest) - 1)
        left = np.maximum(right - 1, 0)
        nearer_left = np.abs(gpu_s[rest[left]] - target) <= np.abs(gpu_s[rest[right]] - target)
        partner = rest[np.where(nearer_left, left, right)]
        remaining = np.abs(gpu_s[partner] - target)
        best = int(np.argmin(remaining))
        if remaining[best] >= abs(gap):
            break
        chosen = chosen.copy()
        chosen[best] = partner[best]
    return chosen


def _uniformly(candidates: Flags, count: int, random: np.random.Generator) -> Flags:
    """`count` of the candidates, each as likely; all of them if there are fewer."""
    keys = np.where(candidates, random.random(len(candidates)), 2.0)
    chosen = np.zeros(len(candidates), dtype=np.bool_)
    chosen[np.argsort(keys, kind="stable")[: max(0, min(count, int(candidates.sum())))]] = True
    return chosen


def _draw_fungible(trace: Trace, wanted: Scenario, random: np.random.Generator) -> Flags:
    stated = _flags(trace, _says_fungible)
    open_ = _flags(
        trace, lambda job: job.fungible is None and job.heterogeneous is not True and not job.gpu_types
    )
    count = round(wanted.fungible * len(trace.jobs)) - int(stated.sum())
    return stated | _uniformly(open_, count, random)


def _draw_heterogeneous(
    trace: Trace, wanted: Scenario, fungible: Flags, random: np.random.Generator
) -> Flags:
    stated = _flags(trace, lambda job: job.heterogeneous is True)
    open_ = fungible & _flags(trace, lambda job: job.heterogeneous is None)
    if wanted.heterogeneous is None:
        return stated | open_
    count = round(wanted.heterogeneous * len(trace.jobs)) - int(stated.sum())
    return stated | _uniformly(open_, count, random)


def _resolved(trace: Trace, elastic: Flags, fungible: Flags, heterogeneous: Flags) -> Trace:
    flags = zip(elastic.tolist(), fungible.tolist(), heterogeneous.tolist(), strict=True)
    jobs = tuple(_resolve(job, *each) for job, each in zip(trace.jobs, flags, strict=True))
    return replace(trace, jobs=jobs)


def _resolve(job: TraceJob, elastic: bool, fungible: bool, heterogeneous: bool) -> TraceJob:
    base = base_workers(job)
    largest = job.max_workers
    if largest is None:
        grown = base * GROWTH if elastic else base
        largest = job.sizes[-1] if job.sizes is not None else grown
    return TraceJob(
        job.job_id,
        job.submit_s,
        job.gpus,
        job.duration_s,
        min_workers=base,
        max_workers=largest,
        gpus_per_worker=job.gpus // base,
        sizes=job.sizes,
        user=job.user,
        project=job.project,
        priority=0 if job.priority is None else job.priority,
        model=job.model,
        gpu_types=job.gpu_types,
        fungible=fungible or _says_fungible(job),
        heterogeneous=heterogeneous or job.heterogeneous is True,
        estimate_s=job.estimate_s,
        checkpoint_s=job.checkpoint_s,
        estimate_known=job.estimate_known,
    )


def summarise_assignment(trace: Trace) -> AssignmentSummary:
    """The shares in a trace as it is; what it leaves open counts as inelastic and not fungible."""
    gpu_s = np.array([job.gpus * job.duration_s for job in trace.jobs])
    elastic = _flags(trace, _says_elastic)
    return AssignmentSummary(
        jobs=len(trace.jobs),
        elastic=float(elastic.mean()),
        elastic_gpu_time=float(gpu_s[elastic].sum() / gpu_s.sum()) if gpu_s.sum() else 0.0,
        fungible=float(_flags(trace, _says_fungible).mean()),
        heterogeneous=float(_flags(trace, lambda job: bool(job.heterogeneous)).mean()),
    )
