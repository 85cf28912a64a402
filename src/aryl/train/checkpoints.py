"""Checkpoints in a folder, one a step, whole or not there at all.

A checkpoint is written under another name in the same folder, forced to disk, renamed, and the folder forced
to disk too: whoever looks sees only finished ones, whatever was killed when. It is a file or a folder, as the
program likes. The newest few are kept.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

KEEP = 3
_NAME = re.compile(r"step-(\d+)")
_PARTIAL = "partial-"  # no dot before it: torch refuses to write to such names
_STALE_S = 86_400.0  # what a killed worker left half-written is removed a day later


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A finished checkpoint: the state after `step`."""

    step: int
    path: Path


class Checkpoints:
    """The checkpoints in `folder`, of which the newest `keep` are kept."""

    def __init__(self, folder: Path, keep: int = KEEP) -> None:
        self.folder = folder
        self._keep = max(1, keep)

    def save(self, step: int, write: Callable[[Path], object] | bytes) -> Checkpoint:
        """Save the state after `step`: bytes, or a function that writes a file or a folder at the path it is
        given. A step that is there already is left as it is.

        Raises OSError if it can't be written, and whatever `write` raises; nothing is left behind then.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        place = Checkpoint(step, self.folder / f"step-{step:010d}")
        if place.path.exists():
            return place
        partial = self.folder / f"{_PARTIAL}{step}-{uuid.uuid4().hex}"
        try:
            if isinstance(write, bytes):
                partial.write_bytes(write)
            else:
                write(partial)
            _force_to_disk(partial)
            _put(partial, place.path)
        finally:
            _remove(partial)
        _force_to_disk(self.folder, deep=False)
        self._tidy()
        return place

    def all(self) -> list[Checkpoint]:
        """All that are there, oldest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        matches = [match for match in map(_NAME.fullmatch, names) if match is not None]
        return sorted(
            (Checkpoint(int(match[1]), self.folder / match[0]) for match in matches), key=lambda c: c.step
        )

    def latest(self) -> Checkpoint | None:
        """The newest; None if there is none."""
        found = self.all()
        return found[-1] if found else None

    def _tidy(self) -> None:
        for old in self.all()[: -self._keep]:
            _remove(old.path)
        for partial in self.folder.glob(f"{_PARTIAL}*"):
            try:
                stale = time.time() - partial.lstat().st_mtime > _STALE_S
            except FileNotFoundError:  # another worker's, just renamed
                continue
            if stale:
                _remove(partial)


def _put(partial: Path, path: Path) -> None:
    try:
        partial.replace(path)
    except OSError:
        # A folder doesn't replace another. Several workers may save the same step; the first did.
        if not path.exists():
            raise


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _force_to_disk(path: Path, *, deep: bool = True) -> None:
    if deep and path.is_dir():
        for inner in path.iterdir():
            _force_to_disk(inner)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
