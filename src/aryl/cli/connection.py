"""How the commands for a live cluster find their server, and what they have in common.

httpx and the client are imported when a command runs. Completion asks the server, too; it must never be slow
or print anything, so it gives up after a second and then completes nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aryl.cli.output import OutputFormat
from aryl.errors import ArylError, InputError, NotFoundError, nearest_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aryl.client import ArylClient

COMPLETION_TIMEOUT_S = 1.0
MOST_COMPLETIONS = 200

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Address of the control plane. Default: ARYL_SERVER, or http://127.0.0.1:8642.",
        rich_help_panel="Connection",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A file with the token. Default: the token in ARYL_TOKEN.",
        rich_help_panel="Connection",
    ),
]
Output = Annotated[OutputFormat, typer.Option("-o", "--output", help="Format.")]
Watch = Annotated[bool, typer.Option("--watch", help="Go on showing it as it changes, until Ctrl-C.")]


def connect(server: str | None, token_file: Path | None) -> ArylClient:
    """A client of the server that the flags and the environment name. Raises InputError."""
    if find_spec("httpx") is None:
        raise InputError("this command talks to a server", expected="pip install 'aryl[client]' first")
    from aryl.client import ArylClient

    return ArylClient(server, token=None if token_file is None else _token(token_file))


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "not a text file"
        raise InputError(f"the token can't be read: {reason}", file=str(file)) from None
    if not token:
        raise InputError("is empty", file=str(file), expected="a token")
    return token


@contextmanager
def connected(server: str | None, token_file: Path | None, *names: str) -> Iterator[ArylClient]:
    """`connect` for a command about the jobs or servers `names`: an unknown one gets the nearest known one.

    The API doesn't say it, since it doesn't tell an unknown job from one that isn't for these eyes.
    """
    with connect(server, token_file) as client:
        try:
            yield client
        except NotFoundError as error:
            unknown = next((name for name in names if name in str(error)), None)
            nearest = None if unknown is None else _nearest(unknown, client)
            raise NotFoundError(f"{error}; did you mean '{nearest}'?" if nearest else str(error)) from None


def _nearest(name: str, client: ArylClient) -> str | None:
    """The job or server whose name is most like `name`; None if there is one of that very name."""
    try:
        known = [job.job_id for job in client.job_page(limit=MOST_COMPLETIONS).jobs]
        known += [server.server for server in client.servers()]
    except ArylError:
        return None
    return None if name in known else nearest_word(name, known)


def as_seconds(text: str | None, flag: str) -> float | None:
    """The seconds in a flag such as `10m`. Raises InputError."""
    from aryl.files.units import UnitError, seconds

    if text is None:
        return None
    try:
        return seconds(text)
    except UnitError as error:
        raise InputError("not a time", field=flag, found=text, expected=error.expected) from None


def complete_job(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of jobs, with what they do."""
    return _completed(
        ctx,
        incomplete,
        lambda client: [
            (job.job_id, f"{job.state.value.lower()}, {job.project or 'no project'}")
            for job in client.job_page(limit=MOST_COMPLETIONS).jobs
        ],
    )


def complete_live_job(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of jobs that aren't over."""
    over = ("succeeded,", "failed,", "cancelled,")
    return [(job_id, text) for job_id, text in complete_job(ctx, incomplete) if not text.startswith(over)]


def complete_server(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of servers, with their pools."""
    return _completed(
        ctx,
        incomplete,
        lambda client: [
            (server.server, f"{server.pool.value}, {server.tenure.value}") for server in client.servers()
        ],
    )


def _completed(
    ctx: typer.Context, incomplete: str, ask: Callable[[ArylClient], list[tuple[str, str]]]
) -> list[tuple[str, str]]:
    try:
        from aryl.client import ArylClient

        file = ctx.params.get("token_file")
        token = _token(Path(file)) if file else None
        with ArylClient(
            ctx.params.get("server"), token=token, timeout_s=COMPLETION_TIMEOUT_S, retries=0
        ) as client:
            return [(name, text) for name, text in ask(client) if name.startswith(incomplete)]
    except Exception:
        # Whatever is wrong, the command itself will say it; here it would end up in the middle of a prompt.
        return []
