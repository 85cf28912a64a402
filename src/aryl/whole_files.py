"""Writes files so that a reader sees the old or the new one, never a half, and nothing is lost unasked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aryl.errors import ArylError, InputError


@contextmanager
def atomic_path(path: Path, *, force: bool = False) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place if the block succeeds and goes if it doesn't.

    Raises:
        InputError: `path` exists and `force` isn't set, or its folder doesn't exist.
        ArylError: the file can't be written.
    """
    if path.is_dir():
        raise InputError("is a folder", file=str(path), expected="the name of a file")
    if path.exists() and not force:
        raise InputError("already exists", file=str(path), expected="a new name, or --force to overwrite it")
    if not path.parent.is_dir():
        raise InputError("the folder does not exist", file=str(path), found=str(path.parent))
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise ArylError(f"{path}: can't be written: {error.strerror or error}") from None
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        raise ArylError(f"{path}: can't be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, parts: Iterable[str]) -> None:
    """Write a text file in UTF-8, in place of an older one. Raises as `atomic_path` does."""
    with (
        atomic_path(path, force=True) as temporary,
        temporary.open("w", encoding="utf-8", newline="\n") as file,
    ):
        file.writelines(parts)
