"""Without the extras the simulator works, and what needs one says which.

Each test runs in a process of its own, in which the packages of the extras can't be found.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_EXTRAS = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("highspy", "plotly"):
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
from aryl.cli.main import main
sys.argv[0] = "aryl"
main()
"""

# The second server is called back while a job that can't shrink runs on it.
EXPERIMENT = """
cluster: {training: {servers: 1}, inference: {servers: 1, gpu_type: V100, speed: 1}}
jobs:
  - {id: A, workers: 8, duration: 1h, fungible: true}
  - {id: B, workers: 8, duration: 1h, fungible: true}
inference: {points: [[0, 0], [30m, 1]], headroom: 0}
policies: [aryl]
"""


def aryl(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "tiny.yaml").write_text(EXPERIMENT, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_simulation_needs_no_extra(tmp_path: Path) -> None:
    done = aryl(tmp_path, "simulate", "tiny.yaml", "-o", "csv")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("aryl,")


@pytest.mark.parametrize(
    ("flags", "extra"),
    [
        (("--report", "page.html"), "aryl[report]"),
        (("--out", "results"), "aryl[report]"),
        (("--policy", "aryl:reclaim=exact"), "aryl[exact]"),
    ],
)
def test_what_needs_an_extra_says_so_and_writes_nothing(
    tmp_path: Path, flags: tuple[str, ...], extra: str
) -> None:
    done = aryl(tmp_path, "simulate", "tiny.yaml", *flags)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert extra in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]
