"""`aryl server`: the servers of a live cluster, and taking them out of use and back."""

from __future__ import annotations

from typing import Annotated

import typer

from aryl.cli.connection import Output, Server, TokenFile, Watch, as_seconds, complete_server, connected
from aryl.cli.live_output import server_table, show_servers
from aryl.cli.output import OutputFormat, examples, note

server_app = typer.Typer(no_args_is_help=True, help="The servers of a live cluster.")

Name = Annotated[
    str, typer.Argument(metavar="SERVER", help="The name of a server.", autocompletion=complete_server)
]


@server_app.callback()
def _server() -> None:
    """The servers of a live cluster: list them, empty them for repairs, take them into use again."""


@server_app.command("list", epilog=examples("aryl server list", "aryl server list --watch"))
def list_servers(
    *,
    watching: Watch = False,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """List the servers: whose they are, what is free, and which jobs run on them."""
    with connected(server, token_file) as client:
        from aryl.wire.views import ServerList

        def look() -> ServerList:
            return ServerList(servers=client.servers())

        if watching:
            from aryl.cli.watch import watch

            watch(look, show_servers, server_table, lambda servers: servers, output)
        else:
            show_servers(look(), output)


@server_app.command(epilog=examples("aryl server drain T3", "aryl server drain T3 --deadline 10m"))
def drain(
    name: Name,
    *,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Be empty by then, such as 10m or 0; jobs may finish if there is none."
        ),
    ] = None,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Let a server take no new workers, and empty it."""
    from aryl.wire.views import ServerList

    deadline_s = as_seconds(deadline, "--deadline")
    with connected(server, token_file, name) as client:
        view = client.drain(name, deadline_s)
    note(f"{name}: draining" + ("" if view.used_gpus or view.leaving_gpus else "; it is empty"))
    show_servers(ServerList(servers=[view]), output)


@server_app.command(epilog=examples("aryl server undrain T3"))
def undrain(
    name: Name,
    *,
    output: Output = OutputFormat.table,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Let a drained, quarantined or suspect server take work again."""
    from aryl.wire.views import ServerList

    with connected(server, token_file, name) as client:
        view = client.undrain(name)
    note(f"{name}: takes work again")
    show_servers(ServerList(servers=[view]), output)
