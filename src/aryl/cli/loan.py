"""`aryl loan`: which inference servers are lent to training; lending, reclaiming and reporting by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from aryl.cli.connection import Output, Server, TokenFile, Watch, as_seconds, complete_server, connected
from aryl.cli.live_output import loan_table, loans_key, show_loans
from aryl.cli.output import OutputFormat, examples, note

loan_app = typer.Typer(no_args_is_help=True, help="Inference servers lent to training.")


@loan_app.callback()
def _loan() -> None:
    """Inference servers lent to training: list the loans, lend a server, take one back, say that it serves
    again.
    """


@loan_app.command("list", epilog=examples("aryl loan list", "aryl loan list --watch"))
def list_loans(
    *,
    watching: Watch = False,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """List the loans, newest first, and say what the inference side needs."""
    with connected(server, token_file) as client:
        if watching:
            from aryl.cli.watch import watch

            watch(client.loans, show_loans, loan_table, loans_key, output)
        else:
            show_loans(client.loans(), output)


@loan_app.command(epilog=examples("aryl loan give I4"))
def give(
    name: Annotated[
        str,
        typer.Argument(metavar="SERVER", help="An inference server.", autocompletion=complete_server),
    ],
    *,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Lend an inference server to training."""
    with connected(server, token_file, name) as client:
        loans = client.give(name)
    note(f"{name}: on loan")
    show_loans(loans, output)


@loan_app.command(
    epilog=examples("aryl loan reclaim", "aryl loan reclaim I4", "aryl loan reclaim I4 --deadline 5m")
)
def reclaim(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SERVER]",
            help="A server on loan. Default: the one whose return does the least harm.",
            autocompletion=complete_server,
        ),
    ] = None,
    *,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="Have it back by then, such as 5m.")
    ] = None,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Take a server back from training."""
    deadline_s = as_seconds(deadline, "--deadline")
    with connected(server, token_file, name or "") as client:
        loans = client.reclaim(name, deadline_s)
    note(f"{name}: asked back" if name else "a server is asked back")
    show_loans(loans, output)


@loan_app.command(epilog=examples("aryl loan ready I4"))
def ready(
    name: Annotated[
        str,
        typer.Argument(metavar="SERVER", help="A server that came home.", autocompletion=complete_server),
    ],
    *,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Say that a server which came home serves inference again."""
    with connected(server, token_file, name) as client:
        loans = client.report_ready(name)
    note(f"{name}: in service")
    show_loans(loans, output)
