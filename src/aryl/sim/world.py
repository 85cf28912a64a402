"""From an experiment to a simulated world: servers, submissions, true running times, demand, scripted
events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.model import Accounting, JobSpec, Pool, ServerSpec, allowed_size
from aryl.core.speedup import LINEAR, Speedup
from aryl.errors import InputError, nearest_word
from aryl.files.cluster_config import PoolConfig
from aryl.files.inference_fields import ORACLE
from aryl.policies.policy import Policy
from aryl.sim.driver import Overheads, SimDriver
from aryl.sim.experiment import Experiment, JobsConfig, ScriptedEvent
from aryl.sim.experiment_jobs import InlineJob
from aryl.sim.failures import random_failures
from aryl.sim.inference_side import inference_side
from aryl.traces.assign import assign_scenario
from aryl.traces.estimates import perturb_estimates
from aryl.traces.load import load_trace
from aryl.traces.model import Trace, TraceJob


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs as the scheduler sees them, and what it can't see: their true running times at base demand."""

    trace: str
    seed: int
    specs: tuple[JobSpec, ...]
    durations_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class World:
    """A world for one run. `arrivals` are submissions, or refusals of jobs that could never run here."""

    declared: ev.ClusterDeclared
    arrivals: tuple[ev.Event, ...]
    refused: dict[str, JobSpec]
    driver: SimDriver


def load_workload(experiment: Experiment) -> Workload:
    """Read the jobs. Raises InputError for a trace that can't be read or used."""
    default_checkpoint_s = _checkpoint_s(experiment.simulation.checkpoint)
    curve = experiment.simulation.speedup.curve() if experiment.simulation.speedup else LINEAR
    jobs = experiment.jobs
    if isinstance(jobs, JobsConfig):
        trace = _read_trace(jobs)
        efficiency = experiment.simulation.mixed_efficiency
        if efficiency is None:
            efficiency = 1.0 if jobs.scenario == "ideal" else 0.7
        specs = [
            _from_trace(job, number, default_checkpoint_s, curve, efficiency, experiment)
            for number, job in enumerate(trace.jobs)
        ]
        durations_s = {job.job_id: job.duration_s for job in trace.jobs}
        name, seed = trace.source, jobs.seed
    else:
        ordered = sorted(jobs, key=lambda job: job.submit)
        specs = [
            _from_inline(job, number, default_checkpoint_s, curve, experiment)
            for number, job in enumerate(ordered)
        ]
        durations_s = {job.id: job.duration_s for job in ordered}
        name, seed = experiment.name, experiment.simulation.seed
    return Workload(name, seed, tuple(specs), durations_s)


def build_world(experiment: Experiment, workload: Workload, policy: Policy) -> World:
    """The world in which one policy runs. Raises InputError for a demand curve or an event that can't be
    used.
    """
    simulation = experiment.simulation
    declared = declare(experiment)
    scratch = Cluster(policy.order)
    evolve(scratch, declared)
    fits: dict[object, bool] = {}
    arrivals: list[ev.Event] = []
    refused: dict[str, JobSpec] = {}
    for spec in workload.specs:
        shape = (spec.min_workers, spec.gpus_per_worker, spec.fungible, spec.heterogeneous, spec.gpu_types)
        if shape not in fits:
            fits[shape] = policy.could_ever_start(scratch, spec)
        if fits[shape]:
            arrivals.append(ev.Submitted(spec.submit_s, spec))
        else:
            refused[spec.job_id] = spec
            arrivals.append(
                ev.Refused(spec.submit_s, spec.job_id, "the gang doesn't fit into the empty cluster")
            )
    last_s = workload.specs[-1].submit_s if workload.specs else 0.0
    side = inference_side(experiment, min(last_s, simulation.until or last_s))
    driver = SimDriver(
        arrivals,
        workload.durations_s,
        demand=None if side is None else side.events(),
        failures=_failures(experiment, workload, declared),
        script=_script(experiment.events, workload),
        overheads=Overheads(
            simulation.restart_s,
            simulation.resize_s,
            simulation.vacate_s,
            experiment.inference.drain,
            experiment.inference.load,
            launch_s=simulation.launch_s,
            launch_worker_s=simulation.launch_worker_s,
        ),
        until_s=simulation.until,
    )
    return World(declared, tuple(arrivals), refused, driver)


def declare(experiment: Experiment) -> ev.ClusterDeclared:
    """The servers of both pools, training first, and the rules they are accounted by."""
    cluster, simulation, inference = experiment.cluster, experiment.simulation, experiment.inference
    headroom = inference.headroom.in_servers(cluster.inference.servers)
    oracle = inference.forecast.predictor == ORACLE
    return ev.ClusterDeclared(
        0.0,
        (*_servers(cluster.training, Pool.TRAINING, "T"), *_servers(cluster.inference, Pool.INFERENCE, "I")),
        Accounting(cluster.accounting),
        resize_s=simulation.resize_s,
        restart_s=simulation.restart_s,
        vacate_s=simulation.vacate_s,
        # An oracle makes no errors that a headroom could cover.
        headroom_servers=0 if oracle and not inference.headroom.is_fixed else headroom,
        reclaim_within_s=inference.deadline,
        guaranteed=tuple((name, project.guaranteed) for name, project in cluster.projects.items()),
        confirms_loans=inference.drain > 0.0,
        confirms_returns=inference.load > 0.0,
        load_s=inference.load,
        least_kept_servers=inference.min_servers,
        most_lent_servers=inference.max_lent,
    )


def _servers(pool: PoolConfig, owner: Pool, prefix: str) -> Iterator[ServerSpec]:
    for name, gpu_type in zip(pool.server_names(prefix), pool.server_gpu_types(), strict=True):
        yield ServerSpec(name, owner, gpu_type, pool.gpus_per_server, pool.speed_of(gpu_type))


@lru_cache(maxsize=4)
def _load(name: str, window: tuple[float, float] | None, limit: int | None) -> Trace:
    return load_trace(name, window=window, limit=limit)


def _read_trace(jobs: JobsConfig) -> Trace:
    trace = assign_scenario(_load(jobs.trace, jobs.window, jobs.limit), jobs.scenario, jobs.seed)
    wrong = jobs.estimates
    if wrong is None:
        return trace
    return perturb_estimates(
        trace, share=wrong.wrong, error=wrong.error.share or 0.0, missing=wrong.missing, seed=jobs.seed
    )


def _from_trace(
    job: TraceJob,
    number: int,
    checkpoint_s: float | None,
    curve: Speedup,
    efficiency: float,
    experiment: Experiment,
) -> JobSpec:
    estimate_s = (
        (job.duration_s if job.estimate_s is None else job.estimate_s) if job.estimate_known else None
    )
    min_workers = job.min_workers or job.gpus
    return JobSpec(
        job.job_id,
        number,
        job.submit_s,
        min_workers,
        job.max_workers or min_workers,
        job.gpus_per_worker or 1,
        job.sizes or (),
        estimate_s,
        job.priority or 0,
        job.user or "",
        job.project or "",
        job.model or "",
        job.gpu_types or (),
        bool(job.fungible) or _accepts_loaned(job.gpu_types or (), experiment),
        bool(job.heterogeneous),
        efficiency,
        checkpoint_s if job.checkpoint_s is None else job.checkpoint_s,
        curve,
    )


def _from_inline(
    job: InlineJob, number: int, checkpoint_s: float | None, curve: Speedup, experiment: Experiment
) -> JobSpec:
    gpu_types = tuple((job.gpu_types or {}).items())
    efficiency = experiment.simulation.mixed_efficiency
    return JobSpec(
        job.id,
        number,
        job.submit,
        job.min_workers,
        job.max_workers,
        job.gpus_per_worker,
        job.sizes or (),
        job.duration_s if job.estimate is None else job.estimate,
        job.priority,
        job.user or "",
        job.project or "",
        "",
        gpu_types,
        job.fungible or _accepts_loaned(gpu_types, experiment),
        job.heterogeneous,
        0.7 if efficiency is None else efficiency,
        checkpoint_s if job.checkpoint is None else _checkpoint_s(job.checkpoint),
        job.speedup.curve() if job.speedup else curve,
    )


def _accepts_loaned(gpu_types: Sequence[tuple[str, float]], experiment: Experiment) -> bool:
    """A job that names two or more types, one of them the inference pool's, is fungible by that
    (contracts).
    """
    inference = set(experiment.cluster.inference.server_gpu_types())
    return len(gpu_types) > 1 and any(kind in inference for kind, _ in gpu_types)


def _checkpoint_s(value: str | float | None) -> float | None:
    return 0.0 if value == "continuous" else None if value is None or isinstance(value, str) else value


def _failures(
    experiment: Experiment, workload: Workload, declared: ev.ClusterDeclared
) -> Iterator[ev.Event] | None:
    """Random failures, until the last job could have ended in peace."""
    simulation = experiment.simulation
    if simulation.failures is None:
        return None
    longest_s = max(workload.durations_s.values(), default=0.0)
    last_s = workload.specs[-1].submit_s if workload.specs else 0.0
    return random_failures(
        [server.server_id for server in declared.servers],
        every_s=simulation.failures.every,
        lasting_s=simulation.failures.lasting,
        seed=simulation.seed,
        until_s=last_s + longest_s if simulation.until is None else simulation.until,
    )


def _script(events: Sequence[ScriptedEvent], workload: Workload) -> list[ev.Event]:
    """The events in the order of time; a limit that an event doesn't name stays as the one before it left
    it.
    """
    specs = {spec.job_id: spec for spec in workload.specs}
    script: list[ev.Event] = []
    for event in sorted(events, key=lambda event: event.at):
        if event.server is not None:
            script.append(_server_event(event, event.server))
            continue
        spec = specs.get(event.job or "")
        if spec is None:
            raise InputError(
                "an event names a job that isn't there",
                field="events.job",
                found=event.job,
                nearest=nearest_word(event.job or "", specs),
            )
        if event.cancel:
            script.append(ev.CancelRequested(event.at, spec.job_id))
            continue
        spec = specs[spec.job_id] = replace(
            spec,
            min_workers=event.min_workers or spec.min_workers,
            max_workers=event.max_workers or spec.max_workers,
        )
        _check_limits(spec)
        script.append(ev.LimitsChanged(event.at, spec.job_id, spec.min_workers, spec.max_workers))
    return script


def _server_event(event: ScriptedEvent, server_id: str) -> ev.Event:
    match event.state:
        case "down":
            return ev.ServerLost(event.at, server_id)
        case "up":
            return ev.ServerReturned(event.at, server_id)
        case _:
            return ev.ServerDrained(event.at, server_id, event.state == "drain")


def _check_limits(spec: JobSpec) -> None:
    if spec.min_workers > spec.max_workers:
        raise InputError(
            f"an event leaves job {spec.job_id} with min_workers above max_workers",
            field="events.min_workers",
            found=spec.min_workers,
            expected=f"at most {spec.max_workers}",
        )
    if not allowed_size(spec.sizes, spec.min_workers):
        raise InputError(
            f"an event gives job {spec.job_id} a gang that is none of its sizes",
            field="events.min_workers",
            found=spec.min_workers,
            expected=" | ".join(map(str, spec.sizes)),
        )
