"""Options that several commands have, so that each is described once."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from aryl.cli.output import OutputFormat


class Scenario(str, Enum):  # noqa: UP042 - Typer shows the plain words of a str enum
    """What fills in what a trace doesn't say."""

    basic = "basic"
    advanced = "advanced"
    heterogeneous = "heterogeneous"
    ideal = "ideal"


TraceName = Annotated[str | None, typer.Option(help="Jobs: a name from 'aryl trace list' or a file.")]
CurveName = Annotated[str | None, typer.Option(help="Inference demand: a name or a file.")]
TrainingServers = Annotated[int | None, typer.Option(help="Servers of the training pool.")]
InferenceServers = Annotated[int | None, typer.Option(help="Servers of the inference pool.")]
GpusPerServer = Annotated[int | None, typer.Option(help="GPUs of a server, in both pools.")]
FilledIn = Annotated[Scenario | None, typer.Option(help="Fills in what the trace doesn't say.")]
Limit = Annotated[int | None, typer.Option(metavar="JOBS", help="Take the first so many jobs.")]
Window = Annotated[
    str | None, typer.Option(metavar="START,END", help="Take the jobs of this time, such as 14d,29d.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key of the file, such as simulation.interval=60."),
]
Output = Annotated[OutputFormat, typer.Option("-o", "--output", help="Format.")]
InParallel = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Runs at the same time. Default: one for each CPU.")
]
