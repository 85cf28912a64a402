"""What bounds a simulated experiment: the work of its jobs, and the GPUs that training could use at best."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.model import JobSpec, Pool
from aryl.report.bound import Bound, JobLoad, Room
from aryl.sim.demand import LINE_STEP_S
from aryl.sim.experiment import Experiment
from aryl.sim.inference_side import need_of
from aryl.sim.world import Workload, declare


def bound_of(experiment: Experiment, workload: Workload) -> Bound:
    """The bound for these jobs on these servers, for every scheduler that leaves inference what it needs.

    Servers count as up all the time and lent servers as there at once: less can only take longer. A GPU
    counts for as much of a reference GPU as the best of the jobs makes of it.
    """
    empty = Cluster(lambda job, now_s: ())
    evolve(empty, declare(experiment))
    return Bound(_loads(experiment, workload, empty), _room(experiment, workload, empty))


def _loads(experiment: Experiment, workload: Workload, empty: Cluster) -> dict[str, JobLoad]:
    limits: dict[str, tuple[int, int]] = {}
    for event in experiment.events:
        if event.job is not None:
            least, most = limits.get(event.job, (1 << 30, 0))
            # A limit that isn't named is none of the new ones.
            limits[event.job] = min(least, event.min_workers or least), max(most, event.max_workers or most)
    loads = {}
    for spec in workload.specs:
        best = max((stand.speed for stand in empty.stands(spec)), default=1.0)
        least, most = limits.get(spec.job_id, (1 << 30, 0))
        loads[spec.job_id] = _load(spec, workload.durations_s[spec.job_id], best, least, most)
    return loads


def _load(spec: JobSpec, duration_s: float, best: float, least: int, most: int) -> JobLoad:
    """A speed-up curve is concave, so a job makes most of a GPU with the fewest workers that it may have."""
    least, most = min(spec.min_workers, least), max(spec.max_workers, most)
    speed_at_base = spec.speedup(spec.min_workers)
    work_gpu_s = duration_s * spec.gpus_per_worker * least * speed_at_base / spec.speedup(least)
    return JobLoad(spec.submit_s, duration_s * speed_at_base / spec.speedup(most) / best, work_gpu_s)


def _room(experiment: Experiment, workload: Workload, empty: Cluster) -> Room:
    """GPUs of the reference type that training could use, as a step function."""
    worth = _worth_by_shelf(empty, workload.specs)
    training = sum(
        server.spec.gpus * worth[server.shelf]
        for server in empty.servers
        if server.spec.pool is Pool.TRAINING
    )
    lendable = [
        server.spec.gpus * worth[server.shelf]
        for server in empty.servers
        if server.spec.pool is Pool.INFERENCE
    ]
    last_s = workload.specs[-1].submit_s if workload.specs else 0.0
    if not lendable or not any(lendable):
        return Room(np.zeros(1), np.array([training]))
    need, end_s = need_of(experiment, min(last_s, experiment.simulation.until or last_s))
    from_s = np.union1d([0.0], need.time_s[(need.time_s > 0.0) & (need.time_s <= end_s)])
    if need.is_line:
        from_s = np.union1d(from_s, np.arange(0.0, end_s + LINE_STEP_S, LINE_STEP_S))
    servers = need.at(from_s)
    if need.is_line:
        # Within a step there is as much as at its better end.
        servers = np.minimum(servers, np.append(servers[1:], servers[-1]))
    idle = np.floor(np.clip(len(lendable) - servers, 0.0, len(lendable)) + 1e-9).astype(np.int64)
    # The best servers first, whichever are lent.
    gpus = np.concatenate([[0.0], np.cumsum(sorted(lendable, reverse=True))])
    return Room(from_s, training + gpus[idle])


def _worth_by_shelf(empty: Cluster, specs: Iterable[JobSpec]) -> list[float]:
    """For each shelf, what one of its GPUs is worth to the job that makes most of it, in reference GPUs."""
    kinds = {(spec.gpus_per_worker, spec.gpu_types, spec.fungible): spec for spec in specs}
    worth = [0.0] * len(empty.free.shelves)
    for spec in kinds.values():
        for stand in empty.stands(spec):
            value = spec.gpus_per_worker * stand.speed / stand.gpus_per_worker
            worth[stand.shelf] = max(worth[stand.shelf], value)
    return worth
