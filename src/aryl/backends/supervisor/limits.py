"""Limits of memory and CPUs, by control groups where this process may make them.

Version 2 is used where the memory controller can be handed down from the supervisor's own group or from the
one above it (a service with `Delegate=yes` and a subgroup for the daemon); else version 1, below the
supervisor's own groups. Groups of the machine that belong to others are never touched. Whatever can't be had
is left out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_PERIOD_US = 100_000
_MIN_QUOTA_US = 1_000


@dataclass(frozen=True, slots=True)
class Group:
    """The control groups of one worker: one folder in version 2, one for each controller in version 1."""

    folders: tuple[str, ...]

    def join(self, pid: int) -> None:
        """Put a process in, with all that it will start. Raises OSError."""
        for folder in self.folders:
            _write(Path(folder, "cgroup.procs"), str(pid))

    def members(self) -> set[int]:
        """The processes in it."""
        found: set[int] = set()
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError):
                found.update(map(int, Path(folder, "cgroup.procs").read_text(encoding="ascii").split()))
        return found

    def memory_kills(self) -> int:
        """How many of its processes the limit of memory has killed."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError, ValueError):
                    for line in Path(folder, name).read_text(encoding="ascii").splitlines():
                        word, _, number = line.partition(" ")
                        if word == "oom_kill":
                            return int(number)
        return 0

    def remove(self) -> bool:
        """Remove the folders. False while something is left in them."""
        gone = True
        for folder in self.folders:
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                gone = False
        return gone


class Limits:
    """Makes the groups of workers. `kind` is `cgroup-v2`, `cgroup-v1` or `none`."""

    def __init__(self, kind: str, parents: Sequence[Path]) -> None:
        self.kind = kind
        self._parents = tuple(parents)

    @classmethod
    def find(
        cls,
        identity: str,
        mounts: str | None = None,
        groups: str | None = None,
    ) -> Limits:
        """What this process may do here. `mounts` and `groups` stand for /proc/self/mountinfo and
        /proc/self/cgroup.
        """
        try:
            mounts = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
            groups = Path("/proc/self/cgroup").read_text() if groups is None else groups
        except OSError:
            return cls("none", ())
        own = _own_folders(mounts, groups)
        name = f"aryl-{identity}"
        if "" in own:
            for above in _candidates(own[""]):
                parent = _make_v2(above, name)
                if parent is not None:
                    return cls("cgroup-v2", (parent,))
        if "memory" in own:
            memory = _place_v1(own["memory"].folder, name, "memory.limit_in_bytes")
            if memory is not None:
                cpu = _place_v1(own["cpu"].folder, name, "cpu.cfs_quota_us") if "cpu" in own else None
                # Both controllers may be mounted as one.
                return cls("cgroup-v1", (memory,) if cpu in (None, memory) else (memory, cpu))
        return cls("none", ())

    def make(self, name: str, memory_bytes: int, cpus: float) -> Group | None:
        """The group of a worker that has limits, or None if there are none to set. Raises OSError."""
        if not self._parents or not (memory_bytes or cpus):
            return None
        group = Group(tuple(str(parent / name) for parent in self._parents))
        try:
            for folder in group.folders:
                Path(folder).mkdir(parents=True, exist_ok=True)
                if memory_bytes:
                    _limit_memory(Path(folder), memory_bytes)
                if cpus:
                    _limit_cpus(Path(folder), cpus)
        except OSError:
            group.remove()
            raise
        return group

    def remove(self) -> None:
        """Remove all that is empty, also what an earlier supervisor of this folder left."""
        for parent in self._parents:
            with contextlib.suppress(OSError):
                left = [entry.path for entry in os.scandir(parent) if entry.is_dir()]
                Group((*left, str(parent))).remove()


@dataclass(frozen=True, slots=True)
class _Own:
    """The group of this process under one mount."""

    folder: Path
    mount: Path


def _own_folders(mounts: str, groups: str) -> dict[str, _Own]:
    """The supervisor's own groups by controller; version 2 is the empty name."""
    paths: dict[str, str] = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    own: dict[str, _Own] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mount = before.split(" ")[3:5]
        names: Iterable[str] = ("",) if kind == "cgroup2" else ()
        if kind == "cgroup":
            names = set(options.split(" ")[-1].split(",")) & set(paths)
        for name in names:
            # The mount may show only a part of the tree, beginning at `root`.
            path = os.path.relpath(paths.get(name, "/"), root)
            if not path.startswith(".."):
                own.setdefault(name, _Own(Path(os.path.normpath(os.path.join(mount, path))), Path(mount)))
    return own


def _candidates(own: _Own) -> list[Path]:
    """Where a group may be made: in the own one, or beside it, unless that is the system's."""
    above = own.folder.parent
    beside = own.mount not in (own.folder, above) and above.suffix != ".slice"
    return [own.folder, above] if beside else [own.folder]


def _make_v2(above: Path, name: str) -> Path | None:
    parent = above / name
    try:
        if not _hand_down(above):
            return None
        parent.mkdir(exist_ok=True)
        if _hand_down(parent):
            return parent
    except OSError:
        pass
    with contextlib.suppress(OSError):
        parent.rmdir()
    return None


def _hand_down(folder: Path) -> bool:
    """Whether groups in `folder` can limit memory. CPUs too, if that can be had. Raises OSError."""
    for controller in ("memory", "cpu"):
        if controller not in (folder / "cgroup.subtree_control").read_text().split():
            # Refused as long as processes are in the folder itself.
            with contextlib.suppress(OSError):
                _write(folder / "cgroup.subtree_control", f"+{controller}")
    return "memory" in (folder / "cgroup.subtree_control").read_text().split()


def _place_v1(above: Path, name: str, limit: str) -> Path | None:
    """Where groups can be made. The folder itself is made when the first worker with limits comes."""
    return above / name if (above / limit).exists() and os.access(above, os.W_OK | os.X_OK) else None


def _limit_memory(folder: Path, memory_bytes: int) -> None:
    if (folder / "memory.max").exists():
        _write(folder / "memory.max", str(memory_bytes))
        with contextlib.suppress(OSError):
            _write(folder / "memory.swap.max", "0")
        with contextlib.suppress(OSError):
            _write(folder / "memory.oom.group", "1")
    elif (folder / "memory.limit_in_bytes").exists():
        # The limit of memory and swap together can't be below the one of memory: lower them in this order.
        _write(folder / "memory.limit_in_bytes", str(memory_bytes))
        with contextlib.suppress(OSError):
            _write(folder / "memory.memsw.limit_in_bytes", str(memory_bytes))


def _limit_cpus(folder: Path, cpus: float) -> None:
    quota_us = max(_MIN_QUOTA_US, round(cpus * _PERIOD_US))
    if (folder / "cpu.max").exists():
        _write(folder / "cpu.max", f"{quota_us} {_PERIOD_US}")
    elif (folder / "cpu.cfs_quota_us").exists():
        _write(folder / "cpu.cfs_period_us", str(_PERIOD_US))
        _write(folder / "cpu.cfs_quota_us", str(quota_us))


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="ascii") as file:
        file.write(text)
