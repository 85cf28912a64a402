"""`aryl policy`: what policies there are and what their options mean."""

from __future__ import annotations

from typing import Annotated

import typer

from aryl.cli.output import OutputFormat, console, plain_table, print_csv, print_json

policy_app = typer.Typer(no_args_is_help=True, help="The scheduling policies.")


@policy_app.callback()
def _policy() -> None:
    """The scheduling policies."""


@policy_app.command("list")
def list_policies(
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="Format.")] = OutputFormat.table,
) -> None:
    """List the policies, their sources and their options."""
    from aryl.policies.catalogue import policy_table

    policies = policy_table()
    rows = [
        {
            "name": policy.name,
            "summary": policy.summary,
            "source": policy.source,
            "preempts": policy.preempts,
            "options": [
                {"name": option.name, "default": option.default, "meaning": option.meaning}
                for option in policy.options
            ],
        }
        for policy in policies
    ]
    if output is OutputFormat.json:
        print_json({"policies": rows})
    elif output is OutputFormat.csv:
        print_csv(
            [
                {**row, "options": " ".join(option.name for option in policy.options)}
                for row, policy in zip(rows, policies, strict=True)
            ]
        )
    else:
        console().print(
            plain_table(
                ["policy", "preempts", "what it does", "source", "options (default)"],
                [
                    [
                        policy.name,
                        policy.preempts,
                        policy.summary,
                        policy.source,
                        ", ".join(f"{option.name} ({option.default})" for option in policy.options),
                    ]
                    for policy in policies
                ],
            )
        )
