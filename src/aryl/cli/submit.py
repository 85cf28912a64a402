"""`aryl submit`: a job file, with flags on top, goes to the control plane.

The id alone goes to stdout, so that `id=$(aryl submit job.yaml)` works, unless something else is asked for.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aryl.cli.connection import Output, Server, TokenFile, connect
from aryl.cli.live_output import clock, document, from_now, job_row, one_job_table, show_view
from aryl.cli.output import OutputFormat, examples, note, plain_table
from aryl.errors import InputError, UnreachableError

if TYPE_CHECKING:
    from aryl.client import ArylClient
    from aryl.wire.job_file import JobFile
    from aryl.wire.views import DryRunView, JobView

SUBMIT_EPILOG = examples(
    "aryl submit job.yaml",
    "aryl submit job.yaml --dry-run",
    "aryl submit job.yaml --workers 2..8 --env EPOCHS=10 --set checkpoint.grace=60s",
    "id=$(aryl submit job.yaml) && aryl job wait $id",
    "aryl submit job.yaml --follow",
)


def submit(
    file: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="A job file.")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say whether and when it would start.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Another name; the id begins with it.")] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="N|MIN..MAX", help="Another number of workers, such as 4 or 2..8.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Another project.")] = None,
    priority: Annotated[int | None, typer.Option(help="Another priority.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Sets a variable of the workers; may be repeated."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of the file, such as max_failures=5."),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Submit once, however often this is repeated with the same key."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end; exit code 0 only if it succeeds.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="As --wait, and print its log on stdout instead of its id.")
    ] = False,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Submit a job. Prints its id."""
    if dry_run and (wait or follow):
        raise InputError("with --dry-run there is no job", expected="no --wait and no --follow")
    if follow and output is not OutputFormat.table:
        raise InputError("--follow prints the log", expected="--wait with -o")
    job = job_from(
        file,
        name=name,
        workers=workers,
        project=project,
        priority=priority,
        env=env or [],
        settings=settings or [],
    )
    with connect(server, token_file) as client:
        if dry_run:
            _show_dry_run(_tried(client, file, job), output)
            return
        view = _sent(client, file, job, idempotency_key)
        note(f"submitted {view.job_id}")
        if output is OutputFormat.table and not follow:
            print(view.job_id, flush=True)
        if wait or follow:
            view = _end_of(client, view, follow=follow)
    if output is not OutputFormat.table:
        show_view(view, [job_row(view)], one_job_table(view), output)
    if wait or follow:
        from aryl.cli.follow import exit_with_success

        exit_with_success([view])


def job_from(
    file: Path,
    *,
    name: str | None,
    workers: str | None,
    project: str | None,
    priority: int | None,
    env: list[str],
    settings: list[str],
) -> JobFile:
    """The job of a file with the flags on top. Raises InputError that names the line or the flag."""
    from aryl.wire.job_file import load_job_file

    flags: dict[str, str] = {}
    for setting in settings:
        flags[setting] = f"--set {setting}"
    # In quotes, so that a name or a value that looks like a number stays the text that it is.
    for key, text in (("name", name), ("project", project)):
        if text is not None:
            flags[f"{key}={json.dumps(text)}"] = f"--{key} {text}"
    if workers is not None:
        flags[f"workers={_limits(workers)}"] = f"--workers {workers}"
    if priority is not None:
        flags[f"priority={priority}"] = f"--priority {priority}"
    for pair in env:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise InputError("not a variable", field="--env", found=pair, expected="KEY=VALUE")
        flags[f"env.{key}={json.dumps(value)}"] = f"--env {pair}"
    try:
        return load_job_file(file, list(flags))
    except InputError as error:
        error.file = flags.get((error.file or "").removeprefix("--set "), error.file)
        raise InputError(
            error.message,
            file=error.file,
            line=error.line,
            field=error.field,
            found=error.found,
            expected=error.expected,
            nearest=error.nearest,
        ) from None


def _limits(text: str) -> str:
    least, dots, most = (part.strip() for part in text.partition(".."))
    if not least.isdecimal() or (dots and not most.isdecimal()):
        raise InputError(
            "not a number of workers", field="--workers", found=text, expected="a number or a range like 2..8"
        )
    return f"[{least}, {most}]" if dots else least


def _sent(client: ArylClient, file: Path, job: JobFile, idempotency_key: str | None) -> JobView:
    from aryl.client.transport import LostAnswerError

    key = idempotency_key or uuid.uuid4().hex
    try:
        return client.submit(job, key)
    except InputError as error:
        raise InputError(str(error), file=str(file)) from None
    except LostAnswerError as error:
        raise UnreachableError(
            f"{error}; it may have been accepted: --idempotency-key {key} repeats it without a second job"
        ) from None


def _tried(client: ArylClient, file: Path, job: JobFile) -> DryRunView:
    try:
        return client.dry_run(job)
    except InputError as error:
        raise InputError(str(error), file=str(file)) from None


def _show_dry_run(view: DryRunView, output: OutputFormat) -> None:
    if output is OutputFormat.table:
        print(_verdict(view))
    else:
        show_view(view, [document(view)], plain_table([], []), output)
    if view.verdict == "never":
        raise typer.Exit(InputError.exit_code)


def _verdict(view: DryRunView) -> str:
    if view.verdict != "later" or view.starts is None:
        return view.text
    return f"{view.text} Expected start: {clock(view.starts)} ({from_now(view.starts)})."


def _end_of(client: ArylClient, job: JobView, *, follow: bool) -> JobView:
    from aryl.cli.follow import follow_job, state_line, wait_for_end

    if not follow:
        return wait_for_end(client, [job.job_id], None)[0]
    ended = follow_job(client, job.job_id)
    note(state_line(ended))
    return ended
