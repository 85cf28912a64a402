"""Downloads a published trace or curve into the user's cache, once, and only if it is what we know it to be.

A file counts by its checksum alone: one that arrives changed is thrown away, and so is half of one. Several
files of one archive are taken from one download. Nothing is written before all of it has been verified.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path

from aryl.errors import ArylError, InputError, nearest_word
from aryl.traces.catalogue import cache_folder, find_entry, locate
from aryl.traces.published import ENTRIES, DataFile, Entry
from aryl.whole_files import atomic_path

_CHUNK = 1 << 16
_TIMEOUT_S = 30.0

Progress = Callable[[int, int | None], None]
"""Called with the bytes received so far and the bytes expected (None if the server doesn't say)."""


def fetch_entry(entry: Entry, *, folder: Path | None = None, progress: Progress | None = None) -> list[Path]:
    """Downloads the entry's files that aren't in the folder yet, and returns where all of them are.

    Args:
        entry: of the catalogue.
        folder: where to put them; the user's cache by default.
        progress: told how far a download is.

    Raises:
        ArylError: the address can't be reached, or what is there is not the file that was published.
    """
    target = cache_folder() if folder is None else folder
    missing = [file for file in entry.files if not _is_there(file, target)]
    contents: dict[str, bytes] = {}
    for url in dict.fromkeys(file.url for file in missing):
        wanted = [file for file in missing if file.url == url]
        contents |= _verified(url, _download(url, progress), wanted)
    for file in missing:
        path = target / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, force=True) as temporary:
            temporary.write_bytes(contents[file.path])
    return [target / file.path for file in entry.files]


def entry_to_fetch(name: str) -> Entry:
    """The entry of that name.

    Raises:
        InputError: nothing has the name.
    """
    entry = find_entry(name)
    if entry is None:
        names = [each.name for each in ENTRIES]
        raise InputError(
            "nothing in the catalogue has this name",
            found=name,
            expected="a name that 'aryl trace list' shows",
            nearest=nearest_word(name, names),
        )
    return entry


def _is_there(file: DataFile, folder: Path) -> bool:
    path = locate(file, [folder])
    return path is not None and _sha256(_plain(path.read_bytes())) == file.sha256


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _plain(content: bytes) -> bytes:
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def _download(url: str, progress: Progress | None) -> bytes:
    received = io.BytesIO()
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            size = answer.headers.get("Content-Length")
            expected = int(size) if size and size.isdigit() else None
            while chunk := answer.read(_CHUNK):
                received.write(chunk)
                if progress is not None:
                    progress(received.tell(), expected)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ArylError(f"{url}: can't be fetched: {reason}") from None
    if expected is not None and received.tell() < expected:
        raise ArylError(f"{url}: can't be fetched: only {received.tell()} of {expected} bytes arrived")
    return received.getvalue()


def _verified(url: str, content: bytes, wanted: list[DataFile]) -> dict[str, bytes]:
    """The wanted files by their path, each found by its checksum."""
    try:
        offered = _members(content) if url.endswith((".tar.gz", ".tgz")) else [_plain(content)]
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ArylError(f"{url}: the archive is damaged: {error}") from None
    by_sum = {_sha256(each): each for each in offered}
    for file in wanted:
        if file.sha256 not in by_sum:
            found = next(iter(by_sum), "nothing") if len(by_sum) == 1 else f"{len(by_sum)} other files"
            raise ArylError(
                f"{url}: not the published {file.path}: expected SHA-256 {file.sha256}, found {found}; "
                "nothing was written"
            )
    return {file.path: by_sum[file.sha256] for file in wanted}


def _members(content: bytes) -> list[bytes]:
    members = []
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                members.append(_plain(stream.read()))
    return members
