"""What the supervisor remembers on disk: one append-only file, the last line of each worker counts.

A line is written before anybody is told what it says. Lines with an end are synced to the disk, so that exit
codes survive also the machine; the others need only survive the process. A half line, left by a full disk or
a crash, is skipped on reading.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from aryl.backends.supervisor.protocol import (
    Json,
    ProtocolError,
    WorkerKey,
    WorkerStatus,
    as_int,
    as_list,
    as_object,
    as_text,
    decode_line,
    encode_line,
    key_from_json,
    key_to_json,
)
from aryl.backends.supervisor.status import status_from_json, status_to_json

_FILE = "records.jsonl"
# The file is written anew when it has this many lines that no longer count, and more of them than others.
_SPARE_LINES = 2000


@dataclass(frozen=True, slots=True)
class Record:
    """A worker, what tells its first process from all others, and where its limits are kept."""

    status: WorkerStatus
    start_ticks: int = 0
    boot: str = ""
    cgroups: tuple[str, ...] = ()


class Records:
    """The file of one folder. Opening it reads it: `kept` holds what counts. Raises OSError."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self.kept = self._read()
        self._lines = 0
        self._pending = bytearray()
        self._sync = False
        self._torn = False
        self._handle = -1
        self._rewrite()

    def put(self, record: Record) -> None:
        """Remember, with the next `commit`."""
        self.kept[record.status.key] = record
        self._sync = self._sync or record.status.state.ended
        self._append(_to_json(record))

    def drop(self, key: WorkerKey) -> None:
        """Forget, with the next `commit`."""
        if self.kept.pop(key, None) is not None:
            self._append({"forget": key_to_json(key)})

    def commit(self) -> bool:
        """Write what is pending. False if that fails; it is tried again next time."""
        if not self._pending:
            return True
        try:
            if self._lines > _SPARE_LINES + 2 * len(self.kept):
                self._rewrite()
                return True
            data = (b"\n" if self._torn else b"") + bytes(self._pending)
            self._torn = True  # until all of it is written
            while data:
                data = data[os.write(self._handle, data) :]
            if self._sync:
                os.fdatasync(self._handle)
        except OSError:
            return False
        self._torn = self._sync = False
        self._pending.clear()
        return True

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def _append(self, value: Json) -> None:
        self._pending += encode_line(value)
        self._lines += 1

    def _rewrite(self) -> None:
        part = self._path.with_suffix(".part")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            data = b"".join(encode_line(_to_json(record)) for record in self.kept.values())
            while data:
                data = data[os.write(handle, data) :]
            os.fsync(handle)
            os.replace(part, self._path)
        except OSError:
            os.close(handle)
            raise
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self._lines = handle, len(self.kept)
        self._torn = self._sync = False
        self._pending.clear()

    def _read(self) -> dict[WorkerKey, Record]:
        kept: dict[WorkerKey, Record] = {}
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return kept
        for line in lines:
            with contextlib.suppress(ProtocolError):
                got = decode_line(line)
                if "forget" in got:
                    kept.pop(key_from_json(got["forget"]), None)
                else:
                    record = _from_json(got)
                    kept[record.status.key] = record
        return kept


def _to_json(record: Record) -> Json:
    return {
        "worker": status_to_json(record.status),
        "start_ticks": record.start_ticks,
        "boot": record.boot,
        "cgroups": list(record.cgroups),
    }


def _from_json(got: Json) -> Record:
    return Record(
        status_from_json(as_object(got.get("worker"), "worker")),
        as_int(got.get("start_ticks"), "start_ticks"),
        as_text(got.get("boot"), "boot"),
        tuple(as_text(path, "cgroups") for path in as_list(got.get("cgroups"), "cgroups")),
    )
