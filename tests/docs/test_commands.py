"""Every command of the README and of docs/ is run, and what the pages show of its output is compared.

A page is a session: its blocks run in order in one empty folder. "Save this as `NAME`:" before a block
writes the block to that file first. In a ```console block the lines with a prompt are commands and the others
what they print; each of these lines has to come, in order, from stdout or from stderr, however blanks are
spaced. `$ echo $?` states the exit code of the command before it; without it the code has to be 0. A line
`...` stands for any lines, and `...` within a line for any text. When something happened is never compared:
`20:43:54`, `in 27.1 s`, `12.4 s ago`, and `4.5 s` at the beginning of a line.

Three comments right before a block change what happens to it. `<!-- not run: REASON -->`: it isn't run, and
has to be listed in NOT_RUN below. `<!-- needs data: REASON -->`: it is run only where ARYL_DATA names the
public traces. `<!-- serves: UNTIL -->`: its command, an `aryl serve`, goes on while the rest of the page is
run, or until the next one takes its place; it listens on a free port, which ARYL_SERVER names.

`UPDATE_DOCS=1 pytest tests/docs/test_commands.py` writes what the commands print today into the pages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from tests.docs.serving import PAGE, PageServer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DATA = os.environ.get("ARYL_DATA", "")
UPDATE = bool(os.environ.get("UPDATE_DOCS"))

# What isn't run, by page. To add a line here is to say that nothing checks that command.
NOT_RUN = {
    ("README.md", "make demo"),
    ("README.md", "make test"),
    ("README.md", "pip install '.[all]'"),
    ("README.md", "aryl trace fetch itp"),
    ("README.md", "aryl trace fetch nyc_taxi"),
    ("CONTRIBUTING.md", "make test"),
    ("docs/how-to/bring-your-own-trace.md", "aryl trace fetch itp"),
    ("docs/how-to/sweep-with-ray.md", "ray start --head --port=6379"),
    ("docs/how-to/sweep-with-ray.md", "ray start --address=10.0.0.1:6379"),
    ("docs/how-to/sweep-with-ray.md", "aryl simulate sweep.yaml --on ray --ray-address 10.0.0.1:6379"),
    (
        "docs/explanation/evaluation.md",
        "python -m benchmarks.evaluation --write docs/explanation/evaluation.md",
    ),
    (
        "docs/explanation/forecasting.md",
        "python -m benchmarks.loan_rules --write docs/explanation/forecasting.md",
    ),
    ("docs/explanation/testbed.md", "make testbed"),
    ("docs/explanation/testbed.md", "python -m benchmarks.testbed --jobs 60 --minutes 4"),
    ("docs/how-to/lend-from-ray-serve.md", "serve start --proxy-location HeadOnly"),
    ("docs/how-to/lend-from-ray-serve.md", "serve run app:build --name chat most=12 &"),
    (
        "docs/how-to/lend-from-ray-serve.md",
        "python load.py http://127.0.0.1:8000/ --points 0:60,60:5,240:5,300:60 --line --for 400",
    ),
    ("docs/explanation/ray-performance.md", "make ray-figures"),
    ("docs/explanation/live-performance.md", "make bench"),
    ("docs/explanation/live-performance.md", "python -m benchmarks.live_load"),
    ("docs/explanation/performance.md", "make bench"),
    ("docs/explanation/performance.md", "python -m benchmarks.engine --profile"),
}

BLOCK = re.compile(
    r"(?:<!-- (?P<mark>not run|needs data|serves): (?P<why>[^\n]+?) -->\n+)?"
    r"(?:[^\n]*Save this as `(?P<file>[^`]+)`[^\n]*:\n+)?"
    r"```(?P<kind>\w+)\n(?P<body>.*?)```",
    re.DOTALL,
)


# When something happened: no two runs agree on it.
MOMENT = re.compile(
    r"^\s*\d+\.\d s {2}|\b\d\d:\d\d:\d\d\b|\b(?:in|after) [\d.]+ (?:ms|s|min)\b|[\d.]+ (?:ms|s|min) ago"
)


@dataclass
class Command:
    """A command, the lines shown of its output and the exit code stated."""

    line: str
    output: list[str] = field(default_factory=list)
    exit_code: int = 0


def commands_in(body: str) -> list[Command]:
    """The commands of a console block."""
    commands: list[Command] = []
    for line in body.replace("\\\n", "\\\n$+ ").splitlines():
        if line.startswith("$+ "):
            commands[-1].line += "\n" + line[3:]
        elif line.startswith("$ "):
            commands.append(Command(line[2:]))
        elif line.strip():
            commands[-1].output.append(line)
    for command, following in pairwise(commands):
        if following.line == "echo $?":
            command.exit_code = int(following.output[0])
    return [command for command in commands if command.line != "echo $?"]


def name_of(page: Path) -> str:
    """The page as it is listed."""
    return page.relative_to(ROOT).as_posix()


def blanks_folded(line: str) -> str:
    """A line that differs only in the spacing of a table, or in a moment, is the same line."""
    return re.sub(r"\s+|─+", " ", MOMENT.sub("@ ", line)).strip()


def position(wanted: str, lines: list[str]) -> int | None:
    """Where a line is that reads as `wanted`, in which `...` stands for any text."""
    if "..." not in wanted:
        return lines.index(wanted) if wanted in lines else None
    pattern = re.compile(".*".join(re.escape(part) for part in wanted.split("...")))
    return next((index for index, line in enumerate(lines) if pattern.fullmatch(line)), None)


def missing_line(shown: list[str], printed: list[str]) -> str | None:
    """The first shown line that isn't printed, in order, on one of the two streams."""
    streams = [[blanks_folded(line) for line in text.splitlines()] for text in printed]
    for line in shown:
        wanted = blanks_folded(line)
        if wanted in ("...", ""):
            continue
        for stream in streams:
            index = position(wanted, stream)
            if index is not None:
                del stream[: index + 1]
                break
        else:
            return line
    return None


def environment_in(folder: Path, server_url: str) -> dict[str, str]:
    """What a command of a page finds in its environment."""
    bin_folder = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(folder / "cache"),
        PAGE: str(folder),
    }
    for name in ("ARYL_SERVER", "ARYL_TOKEN"):
        environment.pop(name, None)
    return {**environment, "ARYL_SERVER": server_url} if server_url else environment


def run(command: Command, folder: Path, server: PageServer) -> list[str]:
    """Run a command as a shell would, and return what it printed on stdout and stderr."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.line],
        cwd=folder,
        env=environment_in(folder, server.url),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == command.exit_code, f"$ {command.line}\n{done.stdout}{done.stderr}"
    return [done.stdout, done.stderr]


def updated(body: str, command: Command, printed: list[str]) -> str:
    """The block with the output of a command replaced by what it prints today."""
    shown = "\n".join(command.output)
    # Messages come first, as they do on a terminal, where stdout isn't held back.
    today = "\n".join(line.rstrip() for line in "".join(reversed(printed)).splitlines() if line.strip())
    start = body.index(command.line) + len(command.line)
    return body[:start] + body[start:].replace(shown, today, 1)


def play(page: Path, folder: Path, *, with_data: bool) -> int:
    """Run a page; returns how many commands were run."""
    server = PageServer(folder)
    try:
        return play_with(server, page, folder, with_data=with_data)
    finally:
        server.close()


def play_with(server: PageServer, page: Path, folder: Path, *, with_data: bool) -> int:
    """Run a page with this server."""
    text, count = page.read_text(encoding="utf-8"), 0
    (folder / "examples").symlink_to(ROOT / "examples")
    for block in BLOCK.finditer(text):
        if block["file"]:
            (folder / block["file"]).write_text(block["body"], encoding="utf-8")
        if block["kind"] != "console" or block["mark"] == "not run":
            continue
        if (block["mark"] == "needs data") != with_data:
            continue
        new = block["body"]
        for command in commands_in(block["body"]):
            if block["mark"] == "serves":
                printed = [server.start(command.line, environment_in(folder, ""))]
            else:
                printed = run(command, folder, server)
            count += 1
            absent = missing_line(command.output, printed)
            if absent is None:
                continue
            wrong = f"{name_of(page)}: $ {command.line}\nno longer prints: {absent}\nbut:\n"
            assert UPDATE, wrong + "\n".join(printed)
            assert not any("..." in line for line in command.output), wrong + "\n".join(printed)
            new = updated(new, command, printed)
        if new != block["body"]:
            page.write_text(page.read_text(encoding="utf-8").replace(block["body"], new, 1), encoding="utf-8")
    return count


def pages_with(mark: str | None) -> list[Path]:
    """The pages that have console blocks with this mark."""
    return [
        page
        for page in PAGES
        if any(
            block["kind"] == "console" and block["mark"] == mark
            for block in BLOCK.finditer(page.read_text(encoding="utf-8"))
        )
    ]


@pytest.mark.parametrize("page", pages_with(None), ids=name_of)
def test_the_commands_of_a_page_do_what_it_shows(page: Path, tmp_path: Path) -> None:
    assert play(page, tmp_path, with_data=False) > 0


@pytest.mark.skipif(not DATA, reason="ARYL_DATA does not name a folder with the public traces")
@pytest.mark.parametrize("page", pages_with("needs data"), ids=name_of)
def test_the_commands_that_need_public_traces_do_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    assert play(page, tmp_path, with_data=True) > 0


def test_nothing_else_is_left_out() -> None:
    left_out = {
        (name_of(page), command.line)
        for page in PAGES
        for block in BLOCK.finditer(page.read_text(encoding="utf-8"))
        if block["mark"] == "not run"
        for command in commands_in(block["body"])
    }
    assert left_out == NOT_RUN


def test_every_block_with_a_prompt_is_a_console_block() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = [block["body"] for block in BLOCK.finditer(text) if block["kind"] == "console"]
        prompts = sum(len(re.findall(r"^\$ ", body, re.MULTILINE)) for body in blocks)
        assert prompts == len(re.findall(r"^\s*\$ ", text, re.MULTILINE)), name_of(page)
        assert not re.search(r"^```(bash|sh|shell)$", text, re.MULTILINE), name_of(page)


def test_a_line_that_is_not_printed_is_found() -> None:
    assert missing_line(["a   b", "...", "d"], ["a b\nc\nd\n", ""]) is None
    assert missing_line(["b", "a"], ["a\nb\n", ""]) == "a"
    assert missing_line(["e"], ["a\n", "w\ne\n"]) is None


def test_within_a_line_dots_stand_for_any_text_and_moments_are_not_compared() -> None:
    assert missing_line(["a ... z", "20:43:54  lent"], ["a b z\n09:10:11 lent\n"]) is None
    assert missing_line(["  4.5 s  I1 is lent"], ["12.0 s  I1 is lent\n"]) is None
    assert missing_line(["a ... z"], ["a b y\n"]) == "a ... z"
    assert missing_line(["59 s / 0 s"], ["58 s / 0 s\n"]) == "59 s / 0 s"
