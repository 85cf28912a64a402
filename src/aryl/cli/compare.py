"""`aryl compare`: policies on the same jobs, job by job, and who pays for a better mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aryl.cli.output import OutputFormat, console, examples, note, number, plain_table, print_csv, print_json
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
from aryl.cli.simulate import default_processes, tell_about, warn_about_demand
from aryl.errors import InputError

if TYPE_CHECKING:
    from aryl.report.outcome import Outcome
    from aryl.report.paired import Pairing

COMPARE_EPILOG = examples(
    "aryl compare fifo aryl --trace philly --limit 5000",
    "aryl compare fifo srtf aryl --file cluster.yaml --seeds 1,2,3",
    "aryl compare aryl aryl:loaning,reclaim=count --trace itp --curve nyc_taxi --scenario basic -o json",
)


def compare(
    policies: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C...]", help="Policies; the first is what the others are compared with."
        ),
    ],
    *,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE.yaml", help="An experiment in YAML; its own policies are left out."),
    ] = None,
    trace: TraceName = None,
    curve: CurveName = None,
    training_servers: TrainingServers = None,
    inference_servers: InferenceServers = None,
    gpus_per_server: GpusPerServer = None,
    scenario: FilledIn = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N[,N...]", help="One run of each policy for each of these seeds.")
    ] = None,
    limit: Limit = None,
    window: Window = None,
    settings: Settings = None,
    output: Output = OutputFormat.table,
    jobs_in_parallel: InParallel = None,
) -> None:
    """Run policies on the same jobs and compare them job by job: how much they differ and how sure that is,
    by size and by user; and how evenly each treats its jobs.
    """
    from aryl.cli.parallel import Task, run_all
    from aryl.cli.progress import Bars
    from aryl.cli.settings import Flags, source_from
    from aryl.files.faults import Place
    from aryl.policies.catalogue import parse_policy

    if len(policies) < 2:
        raise InputError("needs two policies or more", found=" ".join(policies), expected="such as fifo aryl")
    for policy in policies:
        parse_policy(policy)
    flags = Flags(
        trace=trace,
        curve=curve,
        training_servers=training_servers,
        inference_servers=inference_servers,
        gpus_per_server=gpus_per_server,
        scenario=scenario.value if scenario else None,
        limit=limit,
        window=window,
        settings=settings or [],
    )
    source = source_from(file, flags).set("policies", list(policies), Place("A B [C...]"))
    points = []
    for seed in _seeds(seeds):
        seeded = source
        if seed is not None:
            seeded = seeded.set("simulation.seed", seed, Place("--seeds"))
            if isinstance(source.data.get("jobs"), dict):
                seeded = seeded.set("jobs.seed", seed, Place("--seeds"))
        points.append(seeded.build())
    if points[0].sweep:
        raise InputError("compares policies at one point", field="sweep", expected="a file without a sweep")
    warn_about_demand(points)
    tasks = [
        Task(f"{policy} seed {point.simulation.seed}" if len(points) > 1 else policy, point, policy)
        for policy in policies
        for point in points
    ]
    with Bars([task.label for task in tasks]) as bars:
        count = jobs_in_parallel or default_processes(points[0], len(tasks))
        results = run_all(tasks, count, bars.report)
    tell_about(tasks, [result.summary for result in results])
    outcomes = [result.outcome for result in results]
    runs = [outcomes[at : at + len(points)] for at in range(0, len(outcomes), len(points))]
    _print(list(policies), runs, output)


def _seeds(text: str | None) -> list[int | None]:
    if text is None:
        return [None]
    seeds: list[int | None] = []
    for piece in text.split(","):
        if not piece.strip().isdecimal() or int(piece) in seeds:
            raise InputError("not seeds", file="--seeds", found=text, expected="whole numbers such as 1,2,3")
        seeds.append(int(piece))
    return seeds


def _print(policies: Sequence[str], runs: Sequence[Sequence[Outcome]], output: OutputFormat) -> None:
    from aryl.report.paired import pair_up

    paired = [
        (policy, pair_up(runs[0], theirs)) for policy, theirs in zip(policies[1:], runs[1:], strict=True)
    ]
    summaries = [outcome.summary() for of_policy in runs for outcome in of_policy]
    if output is OutputFormat.table:
        _tables(policies, runs, paired)
        return
    rows: list[dict[str, Any]] = [
        {
            "first": policies[0],
            "second": policy,
            "by": by,
            "group": one.group,
            "jobs": one.jobs,
            "first_jct_s": one.first_s,
            "second_jct_s": one.second_s,
            "difference_s": one.difference_s,
            "low_s": one.low_s,
            "high_s": one.high_s,
            "better": one.better,
            "worse": one.worse,
        }
        for policy, groups in paired
        for by, group in zip(("all", "size", "user"), groups, strict=True)
        for one in group
    ]
    if output is OutputFormat.json:
        print_json({"runs": summaries, "pairs": rows})
    else:
        print_csv(rows)


def _text(value: float, form: str, unit: str = "") -> str:
    return "-" if math.isnan(value) else f"{value:{form}}{unit}"


def _tables(
    policies: Sequence[str],
    runs: Sequence[Sequence[Outcome]],
    paired: Sequence[tuple[str, tuple[list[Pairing], list[Pairing], list[Pairing]]]],
) -> None:
    from aryl.report.paired import CONFIDENCE

    out = console()
    means = [_mean(of_policy) for of_policy in runs]
    out.print(
        plain_table(
            [
                "policy",
                "JCT mean",
                "p99",
                "over bound",
                "queuing mean",
                "p99",
                "usage",
                "preemptions",
                "resizes",
            ],
            [
                [
                    policy,
                    _text(mean["jct_s.mean"], ",.0f", " s"),
                    _text(mean["jct_s.p99"], ",.0f", " s"),
                    _text(_over_bound(mean), ".3f"),
                    _text(mean["queuing_s.mean"], ",.0f", " s"),
                    _text(mean["queuing_s.p99"], ",.0f", " s"),
                    f"{mean['usage.overall']:.1%}",
                    f"{mean['preemptions']:,.0f}",
                    f"{mean['resizes']:,.0f}",
                ]
                for policy, mean in zip(policies, means, strict=True)
            ],
        )
    )
    out.print(
        plain_table(
            [
                "policy",
                "even speed (Jain)",
                "of users",
                "slowdown p99",
                "worst",
                "longest wait",
                "of 32 GPUs up",
            ],
            [
                [
                    policy,
                    _text(mean["fairness.jain"], ".3f"),
                    _text(mean["fairness.jain_users"], ".3f"),
                    _text(mean["fairness.slowdown_p99"], ",.1f"),
                    _text(mean["fairness.slowdown_worst"], ",.0f"),
                    _text(mean["fairness.longest_wait_s"], ",.0f", " s"),
                    _text(mean["fairness.longest_wait_large_s"], ",.0f", " s"),
                ]
                for policy, mean in zip(policies, means, strict=True)
            ],
        )
    )
    for policy, groups in paired:
        out.print(
            plain_table(
                [f"{policy} against {policies[0]}", "jobs", "JCT", "difference", "", "better", "worse"],
                [
                    [
                        one.group,
                        f"{one.jobs:,}",
                        f"{one.first_s:,.0f} -> {one.second_s:,.0f} s",
                        f"{one.difference_s:+,.0f} s",
                        f"{one.low_s:+,.0f} to {one.high_s:+,.0f} s",
                        f"{one.better:.0%}",
                        f"{one.worse:.0%}",
                    ]
                    for group in groups
                    for one in group
                    if one.jobs
                ],
            )
        )
    runs_each = f"means of {len(runs[0])} runs each; " if len(runs[0]) > 1 else ""
    note(f"{runs_each}intervals: {CONFIDENCE:.0%}, from days of jobs drawn again")
    if not math.isnan(gain := _over_bound(means[0])):
        note(f"no scheduler's mean JCT is less than that of {policies[0]} by a factor above {gain:.3f}")


def _over_bound(mean: dict[str, float]) -> float:
    """The mean JCT over its bound; NaN where there is none."""
    return mean["jct_s.mean"] / mean["jct_bound_s"] if mean["jct_bound_s"] else math.nan


def _mean(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Means over runs of the figures of their summaries."""
    from statistics import fmean

    from aryl.cli.output import flat

    rows = [flat(outcome.summary()) for outcome in outcomes]
    return {
        key: fmean(number(row, key) for row in rows)
        for key, value in rows[0].items()
        if value is None or isinstance(value, int | float)
    }
