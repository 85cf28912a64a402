"""The pages agree with the code and with each other: links, options, policies and worked examples."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from aryl.policies.catalogue import OptionInfo, PolicyInfo, policy_table
from aryl.policies.knapsack import Group, solve_by_dynamic_programme
from aryl.policies.reclaim_greedy import cost_of, solve
from aryl.policies.reclaim_problem import (
    Board,
    FlexibleShare,
    ReclaimInstance,
    ReclaimJob,
    ReclaimServer,
    Rule,
)

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """The headings of a page as a link names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    below = f"\n{page.read_text(encoding='utf-8')}".split(f"\n{heading}\n", 1)[1]
    lines = re.findall(r"(?:^\|.*\|\n)+", below, re.MULTILINE)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_internal_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        assert aim.exists(), target
        assert not anchor or anchor in anchors(aim), target


def test_every_page_can_be_reached_from_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


COMMANDS = [
    *("simulate", "demo", "policy list", "serve", "submit", "why"),
    *(f"job {verb}" for verb in ("list", "get", "logs", "wait", "resize", "cancel", "history", "attempts")),
    *("server list", "server drain", "server undrain"),
    *(f"loan {verb}" for verb in ("list", "give", "reclaim", "ready")),
    *("token create", "token list", "token revoke"),
    *("forecast list", "forecast train", "forecast evaluate"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_the_reference(command: str) -> None:
    shown = subprocess.run(
        [str(Path(sys.executable).parent / "aryl"), *command.split(), "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "COLUMNS": "200"},
    ).stdout
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown))
    assert len(options) >= 2
    page = (DOCS / "reference" / "cli.md").read_text("utf-8")
    assert options - set(re.findall(r"--[a-z][a-z-]+", page)) == set()
    assert f"aryl {command.split(maxsplit=1)[0]}" in page


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if re.match("submit|why|job|server |loan", command)]
)
def test_every_command_for_a_live_cluster_has_a_row(command: str) -> None:
    page = (DOCS / "reference" / "cli.md").read_text("utf-8")
    assert re.search(rf"^\| `aryl {command}[` ]", page, re.MULTILINE)


def policy_row(policy: PolicyInfo) -> str:
    """The row that a policy has in the reference."""
    return f"| `{policy.name}` | {policy.summary} | {policy.preempts} | {policy.source} |"


def option_row(option: OptionInfo) -> str:
    """The row that an option has in the reference."""
    words = option.name.replace(" | ", "`, `")
    return f"| `{words}` | {option.default} | {option.meaning.replace('|', '·')} |"


def test_every_policy_and_option_is_in_the_reference() -> None:
    lines = (DOCS / "reference" / "policies.md").read_text(encoding="utf-8").splitlines()
    expected = [policy_row(policy) for policy in policy_table()]
    expected += list(
        dict.fromkeys(option_row(option) for policy in policy_table() for option in policy.options)
    )
    assert [row for row in expected if row not in lines] == []
    names = {re.match(r"\| `([^`]+)`", row)[1] for row in expected}  # type: ignore[index]
    found = {match[1] for line in lines if (match := re.match(r"\| `([^`]+)`", line))}
    assert found - names == {str(rule) for rule in Rule}


def reclaim_example() -> tuple[ReclaimInstance, list[str], list[float]]:
    """The example of the page: its instance, the jobs' names and the costs that it states."""
    page = DOCS / "explanation" / "lending-and-reclaiming.md"
    table = rows(page, "## An example")
    jobs = list(dict.fromkeys(re.findall(r"\b([A-Z]) \d", " ".join(row[1] + " " + row[2] for row in table))))
    held = {
        (server, kind): {jobs.index(job): int(gpus) for job, gpus in re.findall(r"\b([A-Z]) (\d+)", cell)}
        for server, base, flexible, _ in table
        for kind, cell in (("base", base), ("flexible", flexible))
    }
    servers = [
        ReclaimServer(
            row[0],
            held[row[0], "base"],
            {job: FlexibleShare(gpus, gpus) for job, gpus in held[row[0], "flexible"].items()},
        )
        for row in table
    ]
    facts = []
    for number, job in enumerate(jobs):
        base = [server.base[number] for server in servers if number in server.base]
        flexible = sum(server.flexible[number].gpus for server in servers if number in server.flexible)
        facts.append(ReclaimJob(job, len(base), sum(base), sum(base) + flexible, 0.0))
    return ReclaimInstance(servers, facts), jobs, [float(row[3]) for row in table]


def test_the_preemption_costs_of_the_example_are_what_the_scheduler_computes() -> None:
    instance, _, stated = reclaim_example()
    board, cost = Board(instance), cost_of(Rule.SERVER_FRACTION)
    assert [round(cost(board, place), 3) for place in range(len(stated))] == stated


@pytest.mark.parametrize("rule", [Rule.SERVER_FRACTION, Rule.COUNT])
def test_the_example_of_reclaiming_ends_as_the_page_says(rule: Rule) -> None:
    instance, jobs, _ = reclaim_example()
    answer = solve(instance, 3, rule)
    returned = ", ".join(instance.servers[place].name for place in answer.servers_to_return)
    count = len(answer.jobs_to_preempt)
    words = {1: "one job", 2: "two jobs"}[count]
    page = (DOCS / "explanation" / "lending-and-reclaiming.md").read_text(encoding="utf-8")
    assert f"**{returned}: {words} preempted.**" in page or f"**{returned}: {words} preempted**" in page
    assert [jobs[job] for job in answer.jobs_to_preempt] == (["P"] if count == 1 else ["Q", "R"])
    assert answer.collateral_gpus == (6 if count == 1 else 0)


def test_the_example_of_the_knapsack_is_what_the_scheduler_computes() -> None:
    table = [
        [float(cell) for cell in row]
        for row in rows(DOCS / "explanation" / "elastic-scaling.md", "## Phase 2: what is left")
    ]
    left_s, base = (240.0, 120.0), (2, 1)
    groups = []
    for job in (0, 1):
        stated = [row[1 + job] for row in table]
        computed = [left_s[job] * (1 - base[job] / (base[job] + row[0])) for row in table]
        assert stated == pytest.approx(computed)
        groups.append(Group([int(row[0]) for row in table], stated))
    answer = solve_by_dynamic_programme(groups, 4)
    assert [item + 1 for item in answer.items] == [3, 1]
    assert answer.value == 204.0
