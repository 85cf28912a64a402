"""The rules of the house that no other tool checks: sizes, words, versions, import rules, what is skipped."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import yaml

import aryl

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
MOST_LINES = 400

# Put together here, so that this file isn't the one that breaks the rule.
FORBIDDEN = [
    "/" + "work/",
    "/" + "farm/",
    "/" + "home/",
    "/" + "root/",
    "pypi" + ".org",
    "python" + "hosted",
    "npmjs" + ".org",
    "debian" + ".org",
    "proxy." + "golang",
]
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b|pragma: no cover")


def files_of_the_project() -> list[Path]:
    """What is tracked or about to be; in an unpacked archive, all files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.parts)]
    return [path for path in paths if path.is_file()]


def texts() -> dict[str, str]:
    """The text of each file of the project, by its name."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files_of_the_project()
    }


def test_imports_go_one_way_and_decisions_are_pure() -> None:
    done = subprocess.run(
        [str(BIN / "lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_no_source_file_is_over_400_lines() -> None:
    lengths = {name: text.count("\n") for name, text in texts().items() if re.match(r"src/.*\.py$", name)}
    assert len(lengths) > 50
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_no_two_test_files_have_one_name() -> None:
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_nothing_of_a_workplace_or_a_package_registry_is_in_the_project() -> None:
    found = [(name, word) for name, text in texts().items() for word in FORBIDDEN if word in text]
    assert found == []


def test_no_source_file_has_leftovers() -> None:
    sources = {name: text for name, text in texts().items() if name.startswith("src/")}
    assert [name for name, text in sources.items() if LEFTOVERS.search(text)] == []


def test_only_what_needs_public_data_is_skipped() -> None:
    calls = [
        (name, call[0])
        for name, text in texts().items()
        if re.match(r"tests/.*\.py$", name) and name != "tests/house/test_house.py"
        for call in re.finditer(r"(?:mark\.skip(?:if)?|pytest\.skip|mark\.xfail)\b.*?\n?.*?\)", text)
    ]
    assert calls
    assert [call for call in calls if "ARYL_DATA" not in call[1]] == []


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert project["version"] == aryl.__version__ == str(citation["version"])
    assert f"## {aryl.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_citation_names_the_paper_and_its_authors() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == "Apache-2.0"
    paper = citation["preferred-citation"]
    assert paper["url"].endswith("2202.07896")
    assert [author["family-names"] for author in paper["authors"]] == [
        "Li",
        "Xu",
        "Zhu",
        "Liu",
        "Guo",
        "Wang",
    ]


def test_the_licence_is_the_whole_apache_licence() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_every_package_says_what_it_is_for() -> None:
    empty = [
        name
        for name, text in texts().items()
        if re.match(r"src/aryl/.*__init__\.py$", name) and not text.startswith('"""')
    ]
    assert empty == []
