"""From the flags of `aryl simulate` to an experiment source: the file, or defaults, with the flags on top."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aryl.cli.output import note
from aryl.errors import InputError

if TYPE_CHECKING:
    from aryl.sim.experiment_file import ExperimentSource

# The load at which a cluster that nobody has sized is sized: busy enough for policies to differ.
DEFAULT_LOAD = 0.95
# Inference servers per training server in the setting of the paper (section 1): 520 to 443.
INFERENCE_PER_TRAINING = 520 / 443
DEFAULT_GPUS_PER_SERVER = 8


@dataclass(frozen=True)
class Flags:
    """The flags as given; None or empty where they weren't."""

    trace: str | None = None
    curve: str | None = None
    policies: Sequence[str] = ()
    training_servers: int | None = None
    inference_servers: int | None = None
    gpus_per_server: int | None = None
    scenario: str | None = None
    seed: int | None = None
    limit: int | None = None
    window: str | None = None
    settings: Sequence[str] = field(default_factory=list)


def source_from(file: Path | None, flags: Flags) -> ExperimentSource:
    """The experiment as written in `file` and by `flags`, not validated yet. Raises `InputError`."""
    from aryl.files.faults import Place
    from aryl.sim.experiment_file import ExperimentSource, apply_setting, read_source

    source = ExperimentSource({"cluster": {"training": {}}}) if file is None else read_source(file)
    if flags.trace is not None:
        # A file's inline list gives way to the trace as a whole.
        jobs = source.data.get("jobs")
        old = jobs if isinstance(jobs, dict) else {}
        source = source.set("jobs", {**old, "trace": flags.trace}, Place("--trace"))
    if flags.curve is not None:
        source = source.without("inference.points").set("inference.curve", flags.curve, Place("--curve"))
    if flags.policies:
        source = source.set("policies", _policies(flags.policies), Place("--policy"))
    for key, value, flag in _plain_flags(source, flags):
        source = source.set(key, value, Place(flag))
    for setting in flags.settings:
        source = apply_setting(source, setting)
    if file is None:
        source = _with_sizes(source)
    return source


def _plain_flags(source: ExperimentSource, flags: Flags) -> list[tuple[str, Any, str]]:
    from_trace = isinstance(source.data.get("jobs", {}), dict)
    settings: list[tuple[str, Any, str]] = [
        ("cluster.training.servers", flags.training_servers, "--training-servers"),
        ("cluster.inference.servers", flags.inference_servers, "--inference-servers"),
        ("cluster.training.gpus_per_server", flags.gpus_per_server, "--gpus-per-server"),
        ("cluster.inference.gpus_per_server", flags.gpus_per_server, "--gpus-per-server"),
        ("jobs.scenario", flags.scenario, "--scenario"),
        ("jobs.seed", flags.seed if from_trace else None, "--seed"),
        ("simulation.seed", flags.seed, "--seed"),
        ("jobs.limit", flags.limit, "--limit"),
        ("jobs.window", flags.window.split(",") if flags.window is not None else None, "--window"),
    ]
    return [setting for setting in settings if setting[1] is not None]


def _policies(texts: Sequence[str]) -> list[str]:
    from aryl.sim.policy_list import split_policies

    return [policy for text in texts for policy in split_policies(text)]


def _with_sizes(source: ExperimentSource) -> ExperimentSource:
    """Sizes for a cluster that no file describes, so that a trace alone is enough to see something."""
    from aryl.files.faults import Place

    if not isinstance(source.data.get("jobs"), list) and not (source.data.get("jobs") or {}).get("trace"):
        raise InputError(
            "no jobs to simulate",
            expected="an experiment file or --trace NAME, such as synthetic-small; see 'aryl trace list'",
        )
    cluster = source.data["cluster"]
    training, inference = cluster.get("training") or {}, cluster.get("inference") or {}
    described = {"servers", "names", "gpu_types"}
    if isinstance(training, dict) and not described & set(training) and isinstance(source.data["jobs"], dict):
        servers = _servers_for(source, training.get("gpus_per_server", DEFAULT_GPUS_PER_SERVER))
        note(
            f"cluster: {servers} training servers, enough for the jobs at {DEFAULT_LOAD:.0%} load; "
            "--training-servers sets another number"
        )
        source = source.set("cluster.training.servers", servers, Place("--training-servers"))
    demand = source.data.get("inference") or {}
    if "curve" in demand and isinstance(inference, dict) and not described & set(inference):
        training_servers = source.data["cluster"]["training"].get("servers")
        if isinstance(training_servers, int):
            servers = max(1, round(training_servers * INFERENCE_PER_TRAINING))
            note(f"cluster: {servers} inference servers; --inference-servers sets another number")
            source = source.set("cluster.inference.servers", servers, Place("--inference-servers"))
    return source


def _servers_for(source: ExperimentSource, gpus_per_server: Any) -> int:
    from aryl.sim.experiment import JobsConfig
    from aryl.sim.experiment_file import ExperimentSource
    from aryl.traces.load import load_trace

    # Checked first, for load_trace takes a window in seconds and a message should name what is wrong.
    cluster = {"training": {"servers": 1, "gpus_per_server": gpus_per_server}}
    checked = ExperimentSource({"cluster": cluster, "jobs": source.data["jobs"]}, source.places).build()
    assert isinstance(checked.jobs, JobsConfig)
    trace = load_trace(checked.jobs.trace, window=checked.jobs.window, limit=checked.jobs.limit)
    work_gpu_s = sum(job.gpus * job.duration_s for job in trace.jobs)
    span_s = max(trace.jobs[-1].submit_s - trace.jobs[0].submit_s, *(job.duration_s for job in trace.jobs))
    gpus = max(work_gpu_s / span_s / DEFAULT_LOAD, *(job.gpus for job in trace.jobs))
    return math.ceil(gpus / checked.cluster.training.gpus_per_server)
