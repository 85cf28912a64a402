"""The jobs of the testbed: drawn from a real trace, fitted to a small cluster and a few hours, written out.

A sample of the trace keeps its mix of sizes and running times, not its load. So the submissions are laid over
the span that is wanted, no job needs more than the training pool has or runs longer than `LONGEST_S`, and the
running times are stretched, all by the same factor, until the jobs are worth `LOAD` of the pool's GPU time in
the span. The same seed draws the same jobs. They are written out one by one, so that the live run and the
simulation can't read them differently; an elastic job saves on notice, which a simulation is told as saving
every second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aryl.errors import InputError
from aryl.sim.experiment import Experiment, JobsConfig
from aryl.sim.experiment_file import experiment_from_mapping, to_mapping
from aryl.traces.assign import assign_scenario
from aryl.traces.catalogue import resolve
from aryl.traces.load import load_trace
from aryl.traces.model import Trace, TraceJob
from aryl.traces.sample import sample_trace

LOAD = 1.0
LONGEST_S = 7_200.0
SHORTEST_S = 60.0
SAVES_EVERY_S = 1.0
BUNDLED = "synthetic-small"


def draw(setting: Experiment, jobs: int, span_s: float, seed: int) -> Experiment:
    """The experiment with so many jobs written out, submitted within `span_s` seconds, and with its demand
    fitted to that time.

    Raises InputError for a setting that doesn't name a trace and points, or in which workers that wait would
    have to know on what they wait.
    """
    wanted, points = setting.jobs, setting.inference.points
    if not isinstance(wanted, JobsConfig):
        raise InputError("jobs are to be drawn", field="jobs", expected="{trace: NAME, ...}")
    if points is None:
        raise InputError("a demand is to be replayed", field="inference.points", expected="[[0, 4], ...]")
    if setting.cluster.accounting != "more-gpus":
        raise InputError(
            "workers that wait are all as fast",
            field="cluster.accounting",
            found=setting.cluster.accounting,
            expected="more-gpus",
        )
    pool = setting.cluster.training
    trace = sample_trace(_load(wanted), jobs=jobs, seed=seed)
    trace = _fitted(trace, pool.servers * pool.gpus_per_server, span_s)
    trace = assign_scenario(trace, wanted.scenario, seed)
    if any(job.heterogeneous for job in trace.jobs):
        raise InputError(
            "workers that wait can't slow down on mixed GPUs",
            field="jobs.scenario",
            found=wanted.scenario,
            expected="basic, or none",
        )
    types = {
        kind: side.speed_of(kind)
        for side in (pool, setting.cluster.inference)
        for kind in side.server_gpu_types()
    }
    shrunk = span_s / points[-1][0]
    data = to_mapping(setting)
    data["jobs"] = [_written(job, number, types) for number, job in enumerate(trace.jobs)]
    data["inference"]["points"] = [[round(at_s * shrunk, 3), servers] for at_s, servers in points]
    data["simulation"]["seed"] = seed
    return experiment_from_mapping(data)


def _load(wanted: JobsConfig) -> Trace:
    try:
        resolve(wanted.trace, "trace")
    except InputError as error:
        print(f"{error}\ntaking the bundled {BUNDLED} instead", file=sys.stderr)
        return load_trace(BUNDLED)
    return load_trace(wanted.trace, window=wanted.window)


def _fitted(trace: Trace, gpus: int, span_s: float) -> Trace:
    """The jobs as this cluster can run them in this time."""
    first_s, last_s = trace.jobs[0].submit_s, trace.jobs[-1].submit_s
    stretch = span_s / max(last_s - first_s, 1.0)
    jobs = [
        replace(
            job,
            submit_s=round((job.submit_s - first_s) * stretch, 3),
            gpus=min(job.gpus, gpus),
        )
        for job in trace.jobs
    ]
    factor = _factor(jobs, LOAD * gpus * span_s)
    return replace(
        trace, jobs=tuple(replace(job, duration_s=round(_length_s(job, factor), 3)) for job in jobs)
    )


def _factor(jobs: Sequence[TraceJob], gpu_s: float) -> float:
    """What running times are multiplied by so that all jobs together are worth `gpu_s` GPU-seconds, or as
    near to that as the limits allow.
    """
    low, high = 1e-6, 1e3
    for _ in range(60):
        middle = (low * high) ** 0.5
        if sum(job.gpus * _length_s(job, middle) for job in jobs) < gpu_s:
            low = middle
        else:
            high = middle
    return high


def _length_s(job: TraceJob, factor: float) -> float:
    return min(max(job.duration_s * factor, SHORTEST_S), LONGEST_S)


def _written(job: TraceJob, number: int, types: dict[str, float]) -> dict[str, Any]:
    least = job.min_workers or job.gpus
    most = job.max_workers or least
    written: dict[str, Any] = {
        "id": f"job{number}",
        "submit": job.submit_s,
        "workers": {"min": least, "max": most} | ({"sizes": [*job.sizes]} if job.sizes else {}),
        "gpus_per_worker": job.gpus_per_worker or 1,
        "duration": job.duration_s,
    }
    if job.fungible:
        written["gpu_types"] = types
    if most > least:
        written["checkpoint"] = SAVES_EVERY_S
    return written
