"""One experiment and one seed give the same journal byte for byte, whatever the hash seed of the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# The policy draws at random, and the jobs are drawn too, so that there is something to go wrong.
COMMAND = (
    "simulate --trace synthetic-small --limit 150 --scenario basic --seed 3 --training-servers 5 "
    "--curve synthetic-day --inference-servers 8 --policy aryl:reclaim=random --journal journal.jsonl"
)


def test_the_hash_seed_does_not_matter(tmp_path: Path) -> None:
    journals = set()
    for hash_seed in ("0", "1", "2"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        subprocess.run(
            [str(Path(sys.executable).parent / "aryl"), *COMMAND.split()],
            cwd=folder,
            env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
            capture_output=True,
            check=True,
        )
        journals.add((folder / "journal.jsonl").read_bytes())
    (journal,) = journals
    assert journal.count(b'"Reclaim"') > 0
