"""Where results go: checked before the first simulation, written beside the target, put in place at the very
end.

A simulation may take an hour, so a place that can't be written has to be found out first, and one that is
interrupted must not leave half a result that looks like a whole one. Files appear by renaming. A folder does
too, unless `force` lets it go into a folder that has things in it: then each file replaces its older
namesake and nothing else is touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from aryl.errors import InputError


class Staging:
    """The outputs of one command. Leaving the block without `commit` removes every trace of them.

    `folder` and `report` are where to write now, or None where nothing was asked for; `journals` likewise,
    one for each that was asked for. Raises `InputError` on entering if one of the places can't be written.
    """

    def __init__(
        self,
        *,
        out: Path | None = None,
        journals: Sequence[Path] = (),
        report: Path | None = None,
        force: bool = False,
    ) -> None:
        self._out, self._force = out, force
        self._journals, self._report = journals, report
        self._moves: list[tuple[Path, Path]] = []
        self._made: list[Path] = []
        self.folder: Path | None = None
        self.journals: list[Path] = []
        self.report: Path | None = None

    def __enter__(self) -> Self:
        try:
            if self._out is not None:
                self.folder = self._stage_folder(self._out)
            self.journals = [self._stage_file("--journal", journal) for journal in self._journals]
            self.report = self._stage_file("--report", self._report) if self._report else None
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clean_up()

    def commit(self) -> None:
        """Put everything in place."""
        if self._out is not None and self.folder is not None:
            _put_folder(self.folder, self._out)
        for staged, target in self._moves:
            os.replace(staged, target)
        self._moves.clear()
        self._made.clear()

    def _stage_folder(self, out: Path) -> Path:
        if out.exists() and not out.is_dir():
            raise InputError("is a file", file="--out", found=str(out), expected="a folder")
        if out.is_dir() and any(out.iterdir()) and not self._force:
            raise InputError(
                "the folder is not empty", file="--out", found=str(out), expected="a new folder, or --force"
            )
        try:
            self._make_parents(out)
            staged = _beside(out)
            staged.mkdir()
        except OSError as error:
            raise _cannot_write("--out", out, error) from None
        return staged

    def _stage_file(self, flag: str, path: Path) -> Path:
        if (inside := self._inside_out(path)) is not None:
            inside.parent.mkdir(parents=True, exist_ok=True)
            return inside
        check_file(flag, path)
        staged = _beside(path)
        try:
            self._make_parents(path)
            staged.touch(exist_ok=False)
        except OSError as error:
            raise _cannot_write(flag, path, error) from None
        self._moves.append((staged, path))
        return staged

    def _inside_out(self, path: Path) -> Path | None:
        if (
            self._out is None
            or self.folder is None
            or not path.absolute().is_relative_to(self._out.absolute())
        ):
            return None
        return self.folder / path.absolute().relative_to(self._out.absolute())

    def _make_parents(self, path: Path) -> None:
        missing = [parent for parent in path.absolute().parents if not parent.exists()]
        for parent in reversed(missing):
            parent.mkdir()
            self._made.append(parent)

    def _clean_up(self) -> None:
        for staged, _ in self._moves:
            staged.unlink(missing_ok=True)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        for parent in reversed(self._made):
            with suppress(OSError):  # somebody else has put something there
                parent.rmdir()
        self._moves.clear()
        self._made.clear()


def _beside(path: Path) -> Path:
    path = path.absolute()
    return path.with_name(f".{path.name}.part-{os.getpid()}")


def check_file(flag: str, path: Path) -> None:
    """Raise `InputError` unless `path` is a file or nothing yet."""
    # Renaming over a device or a pipe would replace it with a file.
    if path.exists() and not path.is_file():
        raise InputError(
            "not a file", file=flag, found=str(path), expected="a new file or an old one to replace"
        )


def _put_folder(staged: Path, out: Path) -> None:
    if out.is_dir() and any(out.iterdir()):
        for file in sorted(staged.rglob("*")):
            target = out / file.relative_to(staged)
            if file.is_dir():
                target.mkdir(exist_ok=True)
            else:
                os.replace(file, target)
        return
    os.replace(staged, out)


def _cannot_write(flag: str, path: Path, error: OSError) -> InputError:
    return InputError(f"can't be written: {error.strerror}", file=flag, found=str(path))
