"""`aryl policy list` and `aryl demo`: what somebody sees who tries Aryl for the first time."""

from __future__ import annotations

import csv
import io
import json

import pytest

from aryl.cli.demo import verdict
from aryl.cli.main import run_command
from aryl.policies.catalogue import SPELLINGS, policy_table


def test_the_policies_are_listed_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "list", "-o", "json"]) == 0
    policies = {policy["name"]: policy for policy in json.loads(capsys.readouterr().out)["policies"]}
    assert list(policies) == [policy.name for policy in policy_table()]
    assert policies["fifo"]["preempts"] == "no"
    assert policies["srtf"]["options"] == []
    options = {option["name"]: option for option in policies["aryl"]["options"]}
    assert options["reclaim"]["default"] == "server-fraction"
    assert "exact" in options["reclaim"]["meaning"]
    assert "order" not in {option["name"] for option in policies["aryl-las"]["options"]}


def test_the_table_of_policies_also_explains_options_and_spellings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["policy", "list"]) == 0
    printed = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    heads = [line for line in lines if line.startswith(("policy ", "option ", "spelling "))]
    assert heads == ["policy preempts what it does source", "option default meaning of", "spelling meaning"]
    for policy in policy_table():
        assert f"{policy.name} {policy.preempts} {policy.summary} {policy.source}" in lines
        for option in policy.options:
            row = f"{option.name} {option.default} {option.meaning} "
            (line,) = [line for line in lines if line.startswith(row)]
            assert policy.name in line.removeprefix(row).split(", ")
    for spelling, meaning in SPELLINGS:
        assert f"{spelling} {meaning}" in lines


def test_the_policies_as_csv_have_a_row_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "list", "-o", "csv"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "name,summary,source,preempts,options"
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(printed))}
    assert list(rows) == [policy.name for policy in policy_table()]
    assert rows["fifo"]["options"] == "scatter"


def test_the_demo_says_in_a_sentence_what_each_half_gave(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["demo"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("demo: synthetic jobs on 22 training and 26 inference servers")
    *table, sentence = printed.out.splitlines()
    jct: dict[str, str] = {}
    for line in table:
        cells = [cell.strip() for cell in line.split("   ") if cell.strip()]
        if cells and cells[0] in {"fifo", "aryl:loaning", "aryl:scaling", "aryl"}:
            # Every job ends under every policy, or the means would be of different jobs.
            assert cells[1:3] == ["1,500", "0"]
            jct[cells[0]] = cells[5].partition(" / ")[0]
    # The means in the sentence are those of the table.
    assert sentence.startswith(f"The average job took {jct['fifo']} under fifo, ")
    assert f" {jct['aryl:loaning']} with lending idle inference servers (" in sentence
    assert f" {jct['aryl:scaling']} with resizing elastic jobs (" in sentence
    assert f" {jct['aryl']} with both (" in sentence
    # What the paper is about: each half helps, and so do both.
    assert sentence.count("less)") == 3


def test_the_sentence_of_the_demo_compares_with_the_first_policy() -> None:
    def run(policy: str, mean_s: float) -> dict[str, object]:
        return {"policy": policy, "jct_s": {"mean": mean_s}}

    others = [run("aryl:loaning", 3600.0), run("aryl:scaling", 9000.0), run("aryl", 1800.0)]
    assert verdict([run("fifo", 7200.0), *others]) == (
        "The average job took 2 h under fifo, 60 min with lending idle inference servers (50% less), "
        "2.5 h with resizing elastic jobs (25% more), 30 min with both (75% less)."
    )
    assert verdict([run("fifo", float("nan"))]) == "No job finished, so there is nothing to compare."
