"""How the workers of a gang agree, through small files in the folder they share, and never wait to do so.

**On a step.** Who proposes writes "at step k + margin" under a name that can be taken only once; the first
wins and all read the same answer. Why nobody can have passed that step already: in data-parallel training a
step ends with a collective, which no worker leaves before all have entered it. While a worker asks about step
k it has not entered the collective of step k + 1, so no other worker has left that one, so none has asked
about step k + 1 yet. A margin of one is enough; two leaves room for programs that wait for the collective of
a step only during the next one.

**On values.** A program that has no collectives of its own exchanges small values through files (`exchange`),
which puts its workers into the same lockstep.

All this needs a folder in which a file that one worker made is seen by all others at once: on the same
machine it is, on a network file system only without caching of names and attributes.

A file is written beside its place and then linked there, so it is whole when it can be seen, and there is
only one.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

MARGIN_STEPS = 2
_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.02


class Agreements:
    """The agreements of one generation of a gang; `era` keeps those of other generations apart."""

    def __init__(self, folder: Path, era: str, rank: int, size: int) -> None:
        self._folder = folder
        self._era = era
        self._rank = rank
        self._size = size
        self._meetings = 0

    def step(self, name: str) -> int | None:
        """The step agreed under `name`; None while there is none."""
        try:
            return int(self._path(name).read_text(encoding="ascii"))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def propose(self, name: str, step: int) -> int:
        """Propose `step`; returns the step that stands, which is another worker's if that was first.

        Raises OSError if the folder can't be written.
        """
        if not publish(self._path(name), str(step).encode("ascii")):
            agreed = self.step(name)
            return step if agreed is None else agreed
        return step

    def exchange(self, value: Any, timeout_s: float | None = None) -> list[Any]:
        """Give `value` (JSON) to all workers of the gang and return everybody's, in order of rank.

        Raises TimeoutError if somebody doesn't come within `timeout_s`, OSError if the folder can't be
        written.
        """
        meeting = self._meetings
        self._meetings += 1
        publish(self._path(f"meet-{meeting}-{self._rank}"), json.dumps(value).encode())
        values = [self._await(meeting, rank, timeout_s) for rank in range(self._size)]
        # All have come to this meeting, so all have left the one before it, and nobody reads its files again.
        self._path(f"meet-{meeting - 1}-{self._rank}").unlink(missing_ok=True)
        return values

    def _await(self, meeting: int, rank: int, timeout_s: float | None) -> Any:
        path = self._path(f"meet-{meeting}-{rank}")
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                return json.loads(path.read_bytes())
            except FileNotFoundError:
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    msg = f"worker {rank} did not come to meeting {meeting} within {timeout_s} s"
                    raise TimeoutError(msg) from None
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}-{self._era}"


def publish(path: Path, content: bytes) -> bool:
    """Let `path` appear with `content`, whole; False if it is there already.

    Raises OSError if the folder can't be written.
    """
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    partial.write_bytes(content)
    try:
        os.link(partial, path)
    except FileExistsError:
        return False
    finally:
        partial.unlink()
    return True
