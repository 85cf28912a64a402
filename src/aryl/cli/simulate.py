"""`aryl simulate`: an experiment from a file, from flags or from both, run under each of its policies.

Flags are laid over the file before anything is checked, so that a flag may complete a file and an error
names whichever of both is to blame. Everything that can be refused is refused before the first simulation.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aryl.cli.output import OutputFormat, note, print_runs, warn
from aryl.cli.run_options import (
    CurveName,
    FilledIn,
    GpusPerServer,
    InferenceServers,
    InParallel,
    Limit,
    Output,
    Settings,
    TraceName,
    TrainingServers,
    Window,
)
from aryl.errors import InputError

if TYPE_CHECKING:
    from aryl.cli.parallel import Task
    from aryl.sim.experiment import Experiment
    from aryl.sim.sweep import SweepPoint


class Engine(str, Enum):  # noqa: UP042 - as above
    """What the runs of a sweep are spread over."""

    processes = "processes"
    ray = "ray"


def simulate(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE.yaml]", help="An experiment in YAML. Flags take precedence over it."),
    ] = None,
    *,
    trace: TraceName = None,
    curve: CurveName = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="P[,P...]",
            help="Policies; may be repeated. 'aryl:loaning,reclaim=count' is one policy with two options.",
        ),
    ] = None,
    training_servers: TrainingServers = None,
    inference_servers: InferenceServers = None,
    gpus_per_server: GpusPerServer = None,
    scenario: FilledIn = None,
    seed: Annotated[int | None, typer.Option(help="For everything that is drawn at random.")] = None,
    limit: Limit = None,
    window: Window = None,
    settings: Settings = None,
    output: Output = OutputFormat.table,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write all results into this folder.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --out replace files in a folder.")] = False,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write every event, one JSON object a line; one file for each run."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page that compares.")
    ] = None,
    jobs_in_parallel: InParallel = None,
    on: Annotated[
        Engine, typer.Option(help="Runs in processes here, or on the CPUs of a Ray cluster.")
    ] = Engine.processes,
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="HOST:PORT of a Ray cluster's head, or ray://HOST:PORT. Default: RAY_ADDRESS, else a Ray "
            "of its own on this machine.",
        ),
    ] = None,
) -> None:
    """Simulate jobs on two pools of servers under one or several policies."""
    from aryl.cli.settings import Flags, source_from

    cluster = _ray_cluster(on, ray_address)
    source = source_from(
        file,
        Flags(
            trace=trace,
            curve=curve,
            policies=policy or [],
            training_servers=training_servers,
            inference_servers=inference_servers,
            gpus_per_server=gpus_per_server,
            scenario=scenario.value if scenario else None,
            seed=seed,
            limit=limit,
            window=window,
            settings=settings or [],
        ),
    )
    run_experiment(
        source.build(),
        output=output,
        out=out,
        force=force,
        journal=journal,
        report=report,
        processes=jobs_in_parallel,
        ray_address=cluster,
    )


def _ray_cluster(on: Engine, address: str | None) -> str | None:
    """Where the runs go; None: into processes here. Raises InputError for what can't work."""
    if on is Engine.processes:
        if address is not None:
            raise InputError("is for runs on Ray", file="--ray-address", expected="--on ray as well")
        return None
    from aryl.backends.ray.sweep import LOCAL, check_address

    if find_spec("ray") is None:
        raise InputError("needs Ray", file="--on", found="ray", expected="pip install 'aryl[ray]' first")
    flag = "RAY_ADDRESS" if address is None else "--ray-address"
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    check_address(address, flag)
    return address


def run_experiment(
    experiment: Experiment,
    *,
    output: OutputFormat,
    out: Path | None = None,
    force: bool = False,
    journal: Path | None = None,
    report: Path | None = None,
    processes: int | None = None,
    ray_address: str | None = None,
) -> list[dict[str, Any]]:
    """Run an experiment with its sweep, write and print the results, and return the summaries.

    `processes` at the same time; in processes of this machine, or on the Ray cluster at `ray_address`.
    """
    from aryl.cli.parallel import Task, run_all
    from aryl.cli.progress import Bars
    from aryl.cli.staging import Staging
    from aryl.policies.catalogue import parse_policy
    from aryl.report.page import write_page
    from aryl.sim.sweep import expand_sweep, label_text

    if (out or report) and find_spec("plotly") is None:
        flag = "--out" if out else "--report"
        raise InputError("the pages need plotly", file=flag, expected="pip install 'aryl[report]' first")
    points = expand_sweep(experiment)
    for _, point in points:
        for policy in point.policies:
            parse_policy(policy)
    warn_about_demand([point for _, point in points])
    labels = run_labels(points)
    journals = journal_paths(journal, labels)
    with Staging(out=out, journals=journals, report=report, force=force) as staging:
        runs = [(label, point, policy) for label, point in points for policy in point.policies]
        tasks = [
            Task(
                f"{policy} {label_text(label)}".strip(),
                point,
                policy,
                journal=staging.journals[index] if staging.journals else None,
                schedule=out is not None,
            )
            for index, (label, point, policy) in enumerate(runs)
        ]
        with Bars([task.label for task in tasks]) as bars:
            if ray_address is None:
                count = processes or default_processes(experiment, len(tasks))
                results = run_all(tasks, count, bars.report)
            else:
                from aryl.cli.sweep_on_ray import run_all_on_ray

                results = run_all_on_ray(tasks, ray_address, at_once=processes, report=bars.report, tell=note)
        summaries: list[dict[str, Any]] = [
            {**result.summary, **({"sweep": label} if label else {})}
            for result, (label, _, _) in zip(results, runs, strict=True)
        ]
        if staging.folder is not None:
            write_folder(experiment, results, summaries, labels, staging.folder)
        if staging.report is not None:
            write_page([result.outcome for result in results], staging.report)
        staging.commit()
    tell_about(tasks, summaries)
    print_runs(summaries, output)
    for flag, path in (("results", out), ("report", report)):
        if path is not None:
            note(f"{flag}: {path}")
    return summaries


def warn_about_demand(points: Sequence[Experiment]) -> None:
    """Say on stderr if inference servers or inference demand are of no use, because the other is missing."""
    demand = any(point.inference.curve or point.inference.points for point in points)
    lendable = any(point.cluster.inference.servers for point in points)
    if demand and not lendable:
        warn("no inference servers: the inference demand has no effect; --inference-servers sets them")
    if lendable and not demand:
        warn("no --curve and no inference.points: the inference pool counts as fully busy, nothing is lent")


def default_processes(experiment: Experiment, runs: int) -> int:
    """One process for each CPU; for an inline list only this one, which is done before others would start."""
    from aryl.sim.experiment import JobsConfig

    if not isinstance(experiment.jobs, JobsConfig):
        return 1
    return max(
        1,
        min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, runs),
    )


def run_labels(points: Sequence[SweepPoint]) -> list[str]:
    """A name for each run that can be a folder: the policy, below the swept values where there is a sweep.

    A single run has the empty name.
    """
    from aryl.sim.sweep import label_text

    several_policies = any(len(point.policies) > 1 for _, point in points)
    names: list[str] = []
    for label, point in points:
        for policy in point.policies:
            parts = [_safe(label_text(label))] if label else []
            if several_policies or (not label and len(points) > 1):
                parts.append(_safe(policy))
            name = "/".join(parts)
            again = sum(1 for other in names if other == name or other.startswith(f"{name}~"))
            names.append(f"{name}~{again + 1}" if again else name)
    return names


def _safe(text: str) -> str:
    kept = "".join(char if char.isalnum() or char in "._=+-" else "-" for char in text.replace(" ", "_"))
    return kept[:120].lstrip(".") or "run"


def journal_paths(journal: Path | None, labels: Sequence[str]) -> list[Path]:
    """One journal a run: the path itself or, for several runs, with the run's name before its suffix."""
    from aryl.cli.staging import check_file

    if journal is None:
        return []
    check_file("--journal", journal)
    if len(labels) == 1:
        return [journal]
    return [
        journal.with_name(f"{journal.stem}.{label.replace('/', '.')}{journal.suffix}") for label in labels
    ]


def write_folder(
    experiment: Experiment,
    results: Sequence[Any],
    summaries: Sequence[dict[str, Any]],
    labels: Sequence[str],
    folder: Path,
) -> None:
    """Write each run's files, the experiment as it was run, flags included, and all summaries."""
    import json

    import yaml

    from aryl.cli.output import without_nan
    from aryl.report.files import write_run
    from aryl.sim.experiment_file import to_mapping

    def write_summary(runs: Sequence[dict[str, Any]], target: Path) -> None:
        text = json.dumps({"runs": without_nan(list(runs))}, indent=2, ensure_ascii=False) + "\n"
        (target / "summary.json").write_text(text, encoding="utf-8")

    for result, summary, label in zip(results, summaries, labels, strict=True):
        target = folder / label if label else folder
        target.mkdir(parents=True, exist_ok=True)
        write_run(result.outcome, target)
        # The same object as on stdout, whether there are many runs or one, and with the swept values.
        write_summary([summary], target)
    write_summary(summaries, folder)
    text = yaml.safe_dump(to_mapping(experiment), sort_keys=False, allow_unicode=True)
    (folder / "experiment.yaml").write_text(text, encoding="utf-8")


def tell_about(tasks: Sequence[Task], summaries: Sequence[dict[str, Any]]) -> None:
    """Say on stderr which runs refused jobs that can never fit, and what else is to be noted."""
    for task, summary in zip(tasks, summaries, strict=True):
        if refused := summary["rejected"]:
            jobs, were = ("job", "was") if refused == 1 else ("jobs", "were")
            warn(f"{task.label}: {refused} {jobs} can never fit into the cluster and {were} refused")
    # Most remarks are about how to read a figure, and true of several runs.
    for remark in dict.fromkeys(remark for summary in summaries for remark in summary.get("notes") or ()):
        note(f"note: {remark}")
