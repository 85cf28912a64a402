"""Splitting a list of policies, where a policy's own options may contain commas too.

`fifo,aryl:loaning,reclaim=count,sjf` is three policies. The rule: a semicolon always separates; a comma
separates unless the policy before it has a colon and what follows it is not the name of a known policy, in
which case it separates two options of that policy. A misspelt policy after options is thus reported as an
unknown option, with the options that exist; repeating the flag, or a semicolon, leaves nothing to decide.
"""

from __future__ import annotations

from collections.abc import Collection


def split_policies(text: str, known: Collection[str] | None = None) -> list[str]:
    """The policy specs in `text`, in order, without blanks.

    `known` defaults to the names in the catalogue.
    """
    names = _catalogue_names() if known is None else known
    specs: list[str] = []
    for group in text.split(";"):
        fresh = True
        for raw in group.split(","):
            piece = raw.strip()
            if not piece:
                continue
            if not fresh and ":" in specs[-1] and piece.partition(":")[0] not in names:
                specs[-1] += f",{piece}"
            else:
                specs.append(piece)
            fresh = False
    return specs


def _catalogue_names() -> frozenset[str]:
    from aryl.policies.catalogue import policy_table

    return frozenset(policy.name for policy in policy_table())
