"""The folders of a job on this machine: made when they are needed, and looked at again before each start.

They are within the reach of the job's user, who may have put something else in the place of one since the job
was accepted: a file, or a link that leads elsewhere. That is the end of the attempt, and nothing that the
daemon stumbles over.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from aryl.backends.port import Gang
from aryl.errors import ArylError
from aryl.wire.job_file_fields import is_inside


class Folders:
    """`state` is the folder of all that is kept; `roots` are those where jobs may work, None: anywhere.

    What is asked for exists afterwards; every method raises ArylError if it can't.
    """

    def __init__(self, state: Path, roots: Sequence[str] | None) -> None:
        self._jobs = state / "jobs"
        self._roots = roots

    def run(self, gang: Gang, generation: int) -> Path:
        """What the ranks of a gang start share."""
        return _made(self._jobs / gang.job_id / "run" / f"{gang.attempt}-{generation}")

    def log(self, gang: Gang, name: str) -> Path:
        """The file that a process of an attempt prints into; only its folder exists."""
        return _made(self._jobs / gang.job_id / f"attempt-{gang.attempt}") / f"{name}.log"

    def checkpoints(self, gang: Gang) -> Path:
        """Where the job saves. Its working folder is looked at as well, since this comes before a start."""
        self._check(gang.program.workdir)
        chosen = gang.program.checkpoint_dir
        own = self._jobs / gang.job_id / "checkpoint"
        if not chosen or Path(chosen) == own:
            return _made(own)
        self._check(chosen)
        return _made(Path(chosen))

    def _check(self, folder: str) -> None:
        if self._roots is None:
            return
        real = os.path.realpath(folder)
        if not any(is_inside(real, os.path.realpath(root)) for root in self._roots):
            raise ArylError(f"the folder {folder} leads out of the folders where jobs may work")


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArylError(f"the folder {folder} can't be made: {error.strerror}") from None
    return folder
