"""`aryl policy`: what policies there are and what their options mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from aryl.cli.output import OutputFormat, console, plain_table, print_csv, print_json

if TYPE_CHECKING:
    from aryl.policies.catalogue import OptionInfo, PolicyInfo

policy_app = typer.Typer(no_args_is_help=True, help="The scheduling policies.")


@policy_app.callback()
def _policy() -> None:
    """The scheduling policies."""


@policy_app.command("list")
def list_policies(
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="Format.")] = OutputFormat.table,
) -> None:
    """List the policies, their sources, their options and how variants are spelled."""
    from aryl.policies.catalogue import SPELLINGS, policy_table

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
        out = console()
        out.print(
            plain_table(
                ["policy", "preempts", "what it does", "source"],
                [[policy.name, policy.preempts, policy.summary, policy.source] for policy in policies],
            )
        )
        out.print(
            plain_table(
                ["option", "default", "meaning", "of"],
                [
                    [option.name, option.default, option.meaning, ", ".join(names)]
                    for option, names in _options(policies).items()
                ],
            )
        )
        out.print(plain_table(["spelling", "meaning"], [[*pair] for pair in SPELLINGS]))


def _options(policies: Sequence[PolicyInfo]) -> dict[OptionInfo, list[str]]:
    """Each option with the policies that have it."""
    found: dict[OptionInfo, list[str]] = {}
    for policy in policies:
        for option in policy.options:
            found.setdefault(option, []).append(policy.name)
    return found
