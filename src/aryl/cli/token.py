"""`aryl token`: who may use a live cluster. Works on the store itself, where the control plane runs, since
the first token has to come from somewhere.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aryl.cli.connection import Output
from aryl.cli.live_output import clock
from aryl.cli.output import OutputFormat, console, examples, note, plain_table, print_csv, print_json
from aryl.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aryl.live.store import Store

token_app = typer.Typer(no_args_is_help=True, help="Who may use a live cluster.")

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store, such as sqlite:///aryl-state/aryl.db. Default: that of 'aryl serve' here.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The configuration of 'aryl serve'; it names the store."),
]


class TokenRole(str, Enum):  # noqa: UP042 - Typer shows the plain words of a str enum
    """What the bearer of a token may do; each may do what those before may."""

    viewer = "viewer"
    user = "user"
    operator = "operator"
    admin = "admin"


@token_app.callback()
def _token() -> None:
    """Who may use a live cluster: make, list and revoke tokens, where the control plane runs."""


@token_app.command(
    epilog=examples(
        "aryl token create alice --role user --project vision",
        "aryl token create ops --role operator --config aryl.yaml > ops.token",
    )
)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is.")],
    *,
    role: Annotated[TokenRole, typer.Option(help="What its bearer may do.")] = TokenRole.user,
    project: Annotated[
        str | None, typer.Option(metavar="NAME", help="The project of a viewer or user.")
    ] = None,
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="A viewer or user of all projects.")
    ] = False,
    store: StoreUrl = None,
    config: ConfigFile = None,
) -> None:
    """Make a token and print its secret, once, on stdout."""
    if not name.strip() or not name.isprintable():
        raise InputError("not a name", field="NAME", found=name, expected="a word such as alice")
    limited = role in (TokenRole.viewer, TokenRole.user)
    if limited and (project is None) is not all_projects:
        raise InputError(
            f"of which project is this {role.value}?", expected="--project NAME or --all-projects"
        )
    if not limited and project is not None:
        raise InputError(f"an {role.value} acts for all projects", expected="no --project")
    with _opened(store, config) as opened:
        from aryl.live.control import Role

        secret = opened.add_token(name, Role[role.name.upper()], project)
    print(secret)
    note(f"{name}: this is the only time that the token is shown")


@token_app.command("list", epilog=examples("aryl token list --config aryl.yaml"))
def list_tokens(
    *, output: Output = OutputFormat.table, store: StoreUrl = None, config: ConfigFile = None
) -> None:
    """List the tokens, those that were revoked among them. The secrets aren't kept."""
    with _opened(store, config) as opened:
        tokens = opened.tokens()
    rows: list[dict[str, Any]] = [
        {
            "name": token.name,
            "role": token.role.name.lower(),
            "project": token.project,
            "created": token.created,
            "revoked": token.revoked,
        }
        for token in tokens
    ]
    if output is OutputFormat.json:
        print_json({"tokens": rows})
    elif output is OutputFormat.csv:
        print_csv(rows)
    else:
        cells = [
            [row["name"], row["role"], row["project"] or "all", clock(row["created"]), clock(row["revoked"])]
            for row in rows
        ]
        console().print(plain_table(["name", "role", "project", "created", "revoked"], cells))


@token_app.command(epilog=examples("aryl token revoke alice --config aryl.yaml"))
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is.")],
    *,
    store: StoreUrl = None,
    config: ConfigFile = None,
) -> None:
    """Revoke a token; the server refuses it within seconds."""
    with _opened(store, config) as opened:
        opened.revoke(name)
    note(f"{name}: revoked")


@contextmanager
def _opened(store: str | None, config: Path | None) -> Iterator[Store]:
    if store is not None and config is not None:
        raise InputError("which store?", expected="either --store URL or --config FILE")
    if find_spec("sqlalchemy") is None or find_spec("alembic") is None:
        raise InputError("this command opens the store", expected="pip install 'aryl[serve]' first")
    from aryl.live.store import Store

    opened = Store.open(_store_of(config) if store is None else store)
    try:
        yield opened
    finally:
        opened.close()


def _store_of(config: Path | None) -> str:
    """The store of `aryl serve` with this configuration. The first token comes before the first start, so
    its folder may have to be made.
    """
    from aryl.live.config import load_serve_config

    loaded = load_serve_config(config)
    if config is not None:
        Path(loaded.state).mkdir(mode=0o700, parents=True, exist_ok=True)
    return loaded.store
