"""What has a name, and where its files are on this machine.

The package carries none of the public files. It finds them in the folders that `ARYL_DATA` names (several
are separated as in `PATH`), then in the user's cache, where `aryl trace fetch` puts them. Two small samples
that we drew ourselves come with the package.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from aryl.errors import InputError, nearest_word
from aryl.traces.published import ENTRIES, DataFile, Entry


def cache_folder() -> Path:
    """Where fetched files are kept: `$XDG_CACHE_HOME/aryl`, by default `~/.cache/aryl`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aryl"


def data_folders() -> tuple[Path, ...]:
    """The folders that are searched, in order: those of `ARYL_DATA`, then the cache."""
    named = (Path(part) for part in os.environ.get("ARYL_DATA", "").split(os.pathsep) if part)
    return (*named, cache_folder())


def bundled_path(file: str) -> Path:
    """A file that comes with the package."""
    return Path(str(resources.files("aryl.traces") / "data" / file))


def find_entry(name: str, kind: str | None = None) -> Entry | None:
    """The entry of that name (and, if given, kind), or None."""
    return next((entry for entry in ENTRIES if entry.name == name and kind in (None, entry.kind)), None)


def locate(file: DataFile, folders: Sequence[Path] | None = None) -> Path | None:
    """Where the file is on this machine, plain or gzipped, or None."""
    for folder in data_folders() if folders is None else folders:
        for candidate in (folder / file.path, folder / f"{file.path}.gz"):
            if candidate.is_file():
                return candidate
    return None


def paths_of(entry: Entry) -> list[Path]:
    """The entry's files on this machine.

    Raises:
        InputError: one isn't there; the error says where it was looked for and how to fetch it.
    """
    if entry.bundled is not None:
        return [bundled_path(entry.bundled)]
    found = [locate(file) for file in entry.files]
    for file, path in zip(entry.files, found, strict=True):
        if path is None:
            looked = ", ".join(str(folder / file.path) for folder in data_folders())
            raise InputError(
                f"the {entry.kind} '{entry.name}' is not on this machine: there is no {looked}",
                expected=f"'aryl trace fetch {entry.name}' to have been run, or ARYL_DATA to name the folder",
            )
    return [path for path in found if path is not None]


def resolve(name_or_path: str, kind: str) -> tuple[Entry | None, list[Path]]:
    """What a name or a path stands for: the entry (None for a path) and the files to read, in order.

    A path to something that exists wins over a name only if no entry of that kind has the name.

    Raises:
        InputError: it is neither, or an entry of the other kind, or its files aren't on this machine.
    """
    entry = find_entry(name_or_path, kind)
    if entry is not None:
        return entry, paths_of(entry)
    path = Path(name_or_path)
    if path.is_file():
        return None, [path]
    if path.is_dir():
        files = sorted(path.glob("*.csv"))
        if files:
            return None, files
        raise InputError("is a folder without CSV files", file=name_or_path)
    other = find_entry(name_or_path)
    if other is not None:
        raise InputError(f"'{name_or_path}' is a {other.kind}, not a {kind}")
    names = [entry.name for entry in ENTRIES if entry.kind == kind]
    # Of the ten clusters the first stands for all; a list of them would hide the other names.
    shown = ", ".join(name for name in names if not name.startswith("itp/") or name.endswith("01"))
    raise InputError(
        f"there is no {kind} and no file of this name",
        found=name_or_path,
        expected=f"a path or one of {shown}",
        nearest=nearest_word(name_or_path, names),
    )
