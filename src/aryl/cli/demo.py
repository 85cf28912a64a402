"""`aryl demo`: synthetic jobs under four policies, and in a sentence what lending and resizing did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aryl.cli.output import OutputFormat, note, number

if TYPE_CHECKING:
    from aryl.sim.experiment import Experiment

POLICIES = ("fifo", "aryl:loaning", "aryl:scaling", "aryl")
# The bundled trace was drawn for so many training servers; the inference pool keeps the paper's proportion.
TRAINING_SERVERS, INFERENCE_SERVERS = 22, 26


def demo_experiment(seed: int = 1) -> Experiment:
    """The bundled jobs and demand on a small cluster, under FIFO, both halves of Aryl and all of it."""
    from aryl.sim.experiment_file import experiment_from_mapping

    return experiment_from_mapping(
        {
            "name": "demo",
            "cluster": {
                "training": {"servers": TRAINING_SERVERS},
                "inference": {"servers": INFERENCE_SERVERS},
            },
            "jobs": {"trace": "synthetic-small", "scenario": "basic", "seed": seed},
            "inference": {"curve": "synthetic-day"},
            "policies": list(POLICIES),
            "simulation": {"seed": seed},
        },
        source="the demo",
    )


def demo(
    seed: Annotated[int, typer.Option(help="For what the scenario fills in.")] = 1,
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="Format.")] = OutputFormat.table,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page that compares.")
    ] = None,
    live: Annotated[bool, typer.Option(help="Show the live half, with a daemon and real processes.")] = True,
    simulated: Annotated[bool, typer.Option(help="Show the simulated half.")] = True,
) -> None:
    """See it work: first live, with real processes on this machine, then four policies on synthetic jobs.

    Live, a daemon lends two emulated inference servers while their load is low and takes them back; a job
    grows and shrinks with them and loses no step. Simulated, FIFO is compared with lending, with resizing and
    with both. Together less than two minutes.
    """
    from aryl.cli.simulate import run_experiment

    if live:
        from aryl.cli.live_demo import run_live_demo

        run_live_demo(print if output is OutputFormat.table else note)
    if not simulated:
        return
    note(
        f"demo: synthetic jobs on {TRAINING_SERVERS} training and {INFERENCE_SERVERS} inference servers, "
        f"{len(POLICIES)} policies"
    )
    summaries = run_experiment(demo_experiment(seed), output=output, report=report)
    if output is OutputFormat.table:
        print(verdict(summaries))


def verdict(summaries: Sequence[Mapping[str, Any]]) -> str:
    """What the figures say: the mean JCT of each policy against the first one's."""
    from aryl.files.units import human_seconds

    first, *others = summaries
    base_s = number(first, "jct_s", "mean")
    words = {
        "aryl:loaning": "lending idle inference servers",
        "aryl:scaling": "resizing elastic jobs",
        "aryl": "both",
    }
    parts: list[str] = []
    for run in others:
        jct_s = number(run, "jct_s", "mean")
        name = words.get(str(run.get("policy")), str(run.get("policy")))
        if base_s > 0 and not math.isnan(jct_s):
            change = 1 - jct_s / base_s
            side = "less" if change >= 0 else "more"
            parts.append(f"{human_seconds(jct_s)} with {name} ({abs(change):.0%} {side})")
    if not parts:
        return "No job finished, so there is nothing to compare."
    return (
        f"The average job took {human_seconds(base_s)} under {first.get('policy')}, " + ", ".join(parts) + "."
    )
