"""`aryl job`: the jobs of a live cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from aryl.cli.connection import (
    Output,
    Server,
    TokenFile,
    Watch,
    as_seconds,
    complete_job,
    complete_live_job,
    connected,
)
from aryl.cli.live_output import job_table, jobs_key, show_attempts, show_history, show_job, show_jobs
from aryl.cli.output import OutputFormat, examples, note
from aryl.errors import ArylError, InputError, nearest_word

if TYPE_CHECKING:
    from aryl.client import ArylClient
    from aryl.core.model import JobState
    from aryl.wire.views import JobList, JobView

job_app = typer.Typer(no_args_is_help=True, help="The jobs of a live cluster.")

Job = Annotated[str, typer.Argument(metavar="JOB", help="The id of a job.", autocompletion=complete_job)]
LiveJob = Annotated[
    str,
    typer.Argument(metavar="JOB", help="The id of a job that isn't over.", autocompletion=complete_live_job),
]

# Spelled out, since the engine's own list would be loaded for every `--help`; a test holds the two together.
STATES = (
    "pending",
    "starting",
    "running",
    "resizing",
    "preempting",
    "succeeded",
    "failed",
    "cancelling",
    "cancelled",
)


@job_app.callback()
def _job() -> None:
    """The jobs of a live cluster: list, inspect, follow, wait for, resize, cancel."""


def _complete_state(incomplete: str) -> list[str]:
    return [state for state in STATES if state.startswith(incomplete.lower())]


def _state(text: str | None) -> JobState | None:
    from aryl.core.model import JobState

    if text is None:
        return None
    if text.lower() not in STATES:
        raise InputError(
            "not a state of a job",
            field="--state",
            found=text,
            expected=", ".join(STATES),
            nearest=nearest_word(text.lower(), STATES),
        )
    return JobState(text.upper())


@job_app.command(
    "list",
    epilog=examples(
        "aryl job list --state pending", "aryl job list --mine --watch", "aryl job list --limit 0 -o csv"
    ),
)
def list_jobs(
    *,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help=f"One of {', '.join(STATES)}.", autocompletion=_complete_state),
    ] = None,
    project: Annotated[str | None, typer.Option(metavar="NAME", help="Jobs of this project.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Jobs that I have submitted.")] = False,
    limit: Annotated[int, typer.Option(metavar="JOBS", min=0, help="The newest so many; 0 for all.")] = 100,
    watching: Watch = False,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """List jobs, newest first."""
    wanted = _state(state)
    with connected(server, token_file) as client:
        user = client.whoami().name if mine else None

        def look() -> JobList:
            return _some_jobs(client, wanted, project, user, limit)

        if watching:
            from aryl.cli.watch import watch

            watch(look, show_jobs, job_table, jobs_key, output)
            return
        jobs = look()
    show_jobs(jobs, output)
    if jobs.next is not None:
        note(f"there are more than these {len(jobs.jobs)}; --limit 0 lists all")


def _some_jobs(
    client: ArylClient, state: JobState | None, project: str | None, user: str | None, limit: int
) -> JobList:
    """The newest `limit` jobs, with the cursor of the next ones if there are more."""
    from aryl.client.client import PAGE
    from aryl.wire.views import JobList

    jobs: list[JobView] = []
    cursor: str | None = None
    while True:
        size = min(PAGE, limit - len(jobs)) if limit else PAGE
        page = client.job_page(state=state, project=project, user=user, limit=size, cursor=cursor)
        jobs += page.jobs
        cursor = page.next
        if cursor is None or (limit and len(jobs) >= limit):
            return JobList(jobs=jobs, next=cursor)


@job_app.command(epilog=examples("aryl job get resnet-17", "aryl job get resnet-17 -o json"))
def get(
    job: Job,
    *,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Show all that is known of a job."""
    with connected(server, token_file, job) as client:
        show_job(client.job(job), output)


@job_app.command(
    epilog=examples(
        "aryl job logs resnet-17 --tail 20", "aryl job logs resnet-17 -f", "aryl job logs resnet-17 --rank 3"
    )
)
def logs(
    job: Job,
    *,
    attempt: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Of this attempt. Default: the last one.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option(metavar="R", min=0, help="Of this worker. Default: the first one.")
    ] = None,
    tail: Annotated[int | None, typer.Option(metavar="N", min=0, help="Only the last N lines.")] = None,
    follow: Annotated[
        bool,
        typer.Option("-f", "--follow", help="Go on until the job, or the given attempt, is over."),
    ] = False,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Print what a worker of a job has printed."""
    from aryl.cli.follow import follow_job, print_lines

    with connected(server, token_file, job) as client:
        if follow and attempt is None:
            follow_job(client, job, rank=rank, tail=tail)
        else:
            print_lines(client.logs(job, attempt=attempt, rank=rank, tail=tail, follow=follow))


@job_app.command(epilog=examples("aryl job wait resnet-17", "aryl job wait resnet-17 bert-18 --timeout 2h"))
def wait(
    jobs: Annotated[
        list[str], typer.Argument(metavar="JOB...", help="Ids of jobs.", autocompletion=complete_live_job)
    ],
    *,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give up after this time, such as 10m.")
    ] = None,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Wait until jobs are over. Exit code 0: all succeeded; 1: one failed or was cancelled; 124: gave up."""
    from aryl.cli.follow import exit_with_success, wait_for_end
    from aryl.wire.views import JobList

    timeout_s = as_seconds(timeout, "--timeout")
    with connected(server, token_file, *jobs) as client:
        ended = wait_for_end(client, jobs, timeout_s)
    if output is not OutputFormat.table:
        show_jobs(JobList(jobs=ended), output)
    exit_with_success(ended)


@job_app.command(
    epilog=examples("aryl job resize resnet-17 --max 16", "aryl job resize resnet-17 --min 2 --max 4")
)
def resize(
    job: LiveJob,
    *,
    min_workers: Annotated[
        int | None, typer.Option("--min", metavar="N", min=1, help="Workers that it needs to run at all.")
    ] = None,
    max_workers: Annotated[
        int | None, typer.Option("--max", metavar="N", min=1, help="The most workers that it can use.")
    ] = None,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Change how many workers a job may have; a limit that is left out stays."""
    if min_workers is None and max_workers is None:
        raise InputError("nothing to change", expected="--min, --max or both")
    with connected(server, token_file, job) as client:
        show_job(client.resize(job, min_workers=min_workers, max_workers=max_workers), output)


@job_app.command(epilog=examples("aryl job cancel resnet-17", "aryl job cancel -y resnet-17 bert-18"))
def cancel(
    jobs: Annotated[
        list[str], typer.Argument(metavar="JOB...", help="Ids of jobs.", autocompletion=complete_live_job)
    ],
    *,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Don't ask, as in a script.")] = False,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Cancel jobs. On a terminal it asks first."""
    from aryl.wire.views import JobList

    if not yes and sys.stdin.isatty():
        typer.confirm(f"Cancel {', '.join(jobs)}?", abort=True, err=True)
    cancelled: list[JobView] = []
    errors: list[ArylError] = []
    with connected(server, token_file, *jobs) as client:
        for job_id in dict.fromkeys(jobs):
            try:
                view = client.cancel(job_id)
            except ArylError as error:
                # One wrong id among several is no reason to let the others run on.
                errors.append(error)
                continue
            note(f"{job_id}: {view.state.value}")
            cancelled.append(view)
        if output is not OutputFormat.table:
            show_jobs(JobList(jobs=cancelled), output)
        for other in errors[:-1]:
            note(f"error: {other}")
        if errors:
            raise errors[-1]


@job_app.command(epilog=examples("aryl job history resnet-17", "aryl job history resnet-17 -o json"))
def history(
    job: Job,
    *,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """List what has happened to a job, why, and what each preemption was weighed against."""
    with connected(server, token_file, job) as client:
        show_history(client.history(job), output)


@job_app.command(epilog=examples("aryl job attempts resnet-17"))
def attempts(
    job: Job,
    *,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """List the workers of all attempts that have left a log."""
    with connected(server, token_file, job) as client:
        show_attempts(client.attempts(job), output)
