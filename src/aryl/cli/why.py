"""`aryl why`: one paragraph about why a job waits, or what it does instead of waiting."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from aryl.cli.connection import Output, Server, TokenFile, complete_job, connected
from aryl.cli.live_output import NOBODYS, clock, document, from_now, show_view
from aryl.cli.output import OutputFormat, console, examples, plain_table

if TYPE_CHECKING:
    from aryl.wire.views import HistoryEntry, JobHistory, WhyView

PREEMPTED = "preempted"
WHY_EPILOG = examples("aryl why resnet-17", "aryl why resnet-17 -o json")


def why(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job.", autocompletion=complete_job)],
    *,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Say why a job waits, what is in its way, when it should start, and why it was last preempted."""
    with connected(server, token_file, job) as client:
        view = client.why(job)
        history = client.history(job) if output is OutputFormat.table else None
    if history is None:
        show_view(
            view,
            [{**document(view), "behind": [name or NOBODYS for name in view.behind]}],
            plain_table([], []),
            output,
        )
        return
    out = console()
    text = paragraph(view, history)
    print(textwrap.fill(text, out.width, break_on_hyphens=False) if out.is_terminal else text)


def paragraph(view: WhyView, history: JobHistory, now: float | None = None) -> str:
    """The server's words, which say what is needed, free and in the way, and what only local time and the
    history tell. `now` is in seconds since the epoch, by default the time."""
    parts = [f"{view.job_id} ({view.state.value}): {view.text}"]
    if view.starts is not None:
        parts.append(f"Expected start: {clock(view.starts, now)} ({from_now(view.starts, now)}).")
    last = next((entry for entry in reversed(history.entries) if entry.kind == PREEMPTED), None)
    if last is not None:
        parts.append(_preemption(last, now))
    return " ".join(parts)


def _preemption(entry: HistoryEntry, now: float | None) -> str:
    text = f"It was last preempted at {clock(entry.at, now)} ({from_now(entry.at, now)})"
    if entry.beneficiary:
        text += f" for {entry.beneficiary}"
    text += f": {entry.text or entry.cause or 'the cause is unknown'}".removesuffix(".")
    if entry.alternatives:
        weighed = [f"{other.what or NOBODYS} at a cost of {other.cost:g}" for other in entry.alternatives]
        text += f"; weighed against {', '.join(weighed)}"
    return text + "."
