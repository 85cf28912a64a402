"""Which GPU indices a server has, and who holds them.

An emulated server has the indices 0 to n-1. A real one has those that the configuration names, and an index
is given out only when NVML sees no process on it any more: a process that is gone may leave its GPU busy for
a moment, and the next worker would run out of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType

from aryl.errors import ArylError, InputError


class Devices:
    """The GPU indices of all servers. Not thread-safe: its owner has a lock."""

    def __init__(self, indices: Mapping[str, Sequence[int]], nvml: Nvml | None = None) -> None:
        self._indices = {server_id: tuple(some) for server_id, some in indices.items()}
        self._held: dict[str, set[int]] = {server_id: set() for server_id in self._indices}
        self._down: set[str] = set()
        self._nvml = nvml
        if nvml is not None:
            self.check(nvml.count)

    def add(self, server_id: str, gpus: int) -> None:
        """A server with this many GPUs. One that comes back may have another number of them."""
        if len(self._indices.get(server_id, ())) != gpus:
            self._indices[server_id] = tuple(range(gpus))
            self._held.setdefault(server_id, set())

    def all(self) -> list[str]:
        """All servers that are known."""
        return list(self._indices)

    def take(self, server_id: str, count: int) -> tuple[int, ...]:
        """Hold `count` free indices of a server, lowest first. Raises ArylError if there are too few."""
        if server_id not in self._indices:
            raise ArylError(f"there is no server {server_id}")
        held = self._held[server_id]
        free = [index for index in self._indices[server_id] if index not in held]
        if len(free) < count:
            raise ArylError(f"server {server_id} has {len(free)} free GPUs, {count} are needed")
        taken = tuple(free[:count])
        held.update(taken)
        return taken

    def hold(self, server_id: str, indices: Iterable[int]) -> None:
        """Note what a worker that was found running holds."""
        self._held.setdefault(server_id, set()).update(indices)

    def release(self, server_id: str, indices: Iterable[int]) -> None:
        """Let go of indices."""
        self._held.setdefault(server_id, set()).difference_update(indices)

    def check(self, count: int) -> None:
        """Raise InputError for an index that this machine, with `count` GPUs, doesn't have."""
        for server_id, indices in self._indices.items():
            for index in indices:
                if index >= count:
                    raise InputError(
                        f"server {server_id} is to have GPU {index}, and this machine has {count}",
                        field=f"devices.{server_id}",
                        expected=f"numbers from 0 to {count - 1}",
                    )

    def changes(self) -> Iterator[tuple[str, bool]]:
        """Servers of which a GPU no longer answers, or all answer again (True), since the last time."""
        if self._nvml is None:
            return
        for server_id, indices in self._indices.items():
            up = all(self._nvml.healthy(index) for index in indices)
            if up is (server_id in self._down):
                self._down.symmetric_difference_update({server_id})
                yield server_id, up

    def up(self) -> list[str]:
        """Servers whose GPUs answer, as far as is known."""
        return [server_id for server_id in self._indices if server_id not in self._down]

    def idle(self, indices: Iterable[int]) -> bool:
        """Whether nothing runs on these GPUs any more, as far as anybody can see."""
        return self._nvml is None or not any(self._nvml.busy(index) for index in indices)

    def forget_all(self) -> None:
        """Nobody holds anything, as far as is known."""
        for held in self._held.values():
            held.clear()


class Nvml:
    """The GPUs of this machine, as the driver sees them. Raises InputError where there is none."""

    def __init__(self) -> None:
        self._nvml = _load()
        self.count = int(self._nvml.nvmlDeviceGetCount())
        self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(self.count)]

    def busy(self, index: int) -> bool:
        """Whether a process computes on a GPU."""
        try:
            return bool(self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handles[index]))
        except self._nvml.NVMLError:
            return True

    def healthy(self, index: int) -> bool:
        """Whether a GPU still answers."""
        try:
            self._nvml.nvmlDeviceGetUtilizationRates(self._handles[index])
        except self._nvml.NVMLError as error:
            return error.value == self._nvml.NVML_ERROR_NOT_SUPPORTED  # type: ignore[no-any-return]
        return True

    def name(self, index: int) -> str:
        """The GPU's product name."""
        name = self._nvml.nvmlDeviceGetName(self._handles[index])
        return name.decode() if isinstance(name, bytes) else str(name)


def _load() -> ModuleType:
    try:
        import pynvml
    except ImportError:
        raise InputError(
            "real GPUs need the package nvidia-ml-py", field="gpus", expected="pip install 'aryl[serve]'"
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise InputError(
            f"no GPU driver answers ({error})",
            field="gpus",
            expected="a machine with NVIDIA GPUs, or 'gpus: emulated'",
        ) from None
    module: ModuleType = pynvml
    return module
