"""What lies in the supervisor's folder, and where its sockets are.

A socket's path may have 107 bytes, and workers in any language are to use it, so that in a deep folder the
sockets lie in a private folder for temporary files instead. `address.json` says where.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

LOG = "supervisor.log"
# The exit code of a supervisor that finds another one on its folder.
ANOTHER_RUNS = 3
_LOCK = "lock"
_FENCE = "fence"
_IDENTITY = "identity"
_ADDRESS = "address.json"
_MAX_SOCKET_PATH_BYTES = 100


def make_private(directory: Path) -> None:
    """Make a folder that only its owner can enter, or make it so. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)


def write_small(path: Path, text: str) -> None:
    """Replace a small file so that it survives a crash at any moment. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


@dataclass(frozen=True, slots=True)
class Address:
    """The paths of the sockets. `folder` is the temporary folder they lie in, or empty."""

    requests: str
    reports: str
    folder: str = ""

    @staticmethod
    def read(directory: Path) -> Address | None:
        """Where the supervisor of `directory` says it is, or None."""
        try:
            got = json.loads((directory / _ADDRESS).read_text(encoding="utf-8"))
            return Address(str(got["requests"]), str(got["reports"]), str(got["folder"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def choose(directory: Path) -> Address:
        """New paths, with nothing at them. Raises OSError."""
        old = Address.read(directory)
        if old is not None:
            old.remove(directory)
        folder = ""
        if len(os.fsencode(directory / "requests.sock")) > _MAX_SOCKET_PATH_BYTES:
            folder = tempfile.mkdtemp(prefix="aryl-")
        base = Path(folder) if folder else directory
        for name in ("requests.sock", "reports.sock"):
            (base / name).unlink(missing_ok=True)
        return Address(str(base / "requests.sock"), str(base / "reports.sock"), folder)

    def write(self, directory: Path) -> None:
        """Publish. Raises OSError."""
        text = json.dumps({"requests": self.requests, "reports": self.reports, "folder": self.folder})
        write_small(directory / _ADDRESS, text)

    def remove(self, directory: Path) -> None:
        """Take the sockets away."""
        (directory / _ADDRESS).unlink(missing_ok=True)
        Path(self.requests).unlink(missing_ok=True)
        Path(self.reports).unlink(missing_ok=True)
        if self.folder and Path(self.folder).name.startswith("aryl-"):
            shutil.rmtree(self.folder, ignore_errors=True)


def take_lock(directory: Path) -> int | None:
    """The descriptor that holds the folder's lock, or None if somebody else has it. Raises OSError."""
    handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def read_fence(directory: Path) -> int:
    """The highest fencing token that was ever seen here, 0 at first. Raises OSError or ValueError: to guess
    would let an old daemon back in.
    """
    try:
        return int((directory / _FENCE).read_text(encoding="ascii"))
    except FileNotFoundError:
        return 0


def write_fence(directory: Path, fence: int) -> None:
    """Remember it. Raises OSError."""
    write_small(directory / _FENCE, str(fence))


def identity(directory: Path) -> str:
    """A word that no other folder has; by it the supervisor knows what is its own. Raises OSError."""
    path = directory / _IDENTITY
    try:
        word = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        word = ""
    if not word:
        word = secrets.token_hex(8)
        write_small(path, word)
    return word
