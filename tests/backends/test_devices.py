"""Which GPU indices are given out, and how a real GPU is seen to be busy, or gone."""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.backends.fake_supervisor import FakeSupervisor
from tests.live.cluster import eventually

from aryl.backends.devices import Devices, Nvml
from aryl.backends.gangs import backend as gang_backend
from aryl.backends.local import LocalBackend
from aryl.backends.port import Fact, Gang, GangFailed, GangSucceeded, Program, ServerDown, ServerUp
from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor.protocol import WorkerKey
from aryl.core.model import Slot
from aryl.errors import ArylError, InputError


# The names of the library.
# ruff: noqa: N802
class FakeNvml(types.ModuleType):
    """The driver's library, on a machine with so many GPUs. `busy`, `broken` and `mute` are GPU numbers."""

    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_GPU_IS_LOST = 15

    class NVMLError(Exception):
        """As the real one: with a number."""

        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self, count: int) -> None:
        super().__init__("pynvml")
        self.count = count
        self.busy: set[int] = set()
        self.broken: set[int] = set()
        self.mute: set[int] = set()  # can't tell its utilisation, which says nothing
        self.driver = True

    def nvmlInit(self) -> None:
        if not self.driver:
            raise self.NVMLError(9)

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"gpu {index}"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[object]:
        self._answer(handle)
        return [object()] if self._number(handle) in self.busy else []

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> int:
        self._answer(handle)
        if self._number(handle) in self.mute:
            raise self.NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return 0

    def nvmlDeviceGetName(self, handle: str) -> str | bytes:
        return b"Tesla V100" if self._number(handle) == 0 else "Tesla T4"

    @staticmethod
    def _number(handle: str) -> int:
        return int(handle.removeprefix("gpu "))

    def _answer(self, handle: str) -> None:
        if self._number(handle) in self.broken:
            raise self.NVMLError(self.NVML_ERROR_GPU_IS_LOST)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(4)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


INDICES = {"T1": (0, 1), "I1": (3, 2)}


def test_the_lowest_free_indices_are_given_in_the_order_of_the_configuration() -> None:
    devices = Devices({"T1": (0, 1, 2, 3), "I1": (7, 5)})
    assert devices.take("T1", 2) == (0, 1)
    assert devices.take("T1", 1) == (2,)
    devices.release("T1", (1,))
    assert devices.take("T1", 2) == (1, 3)
    assert devices.take("I1", 1) == (7,)
    assert devices.take("I1", 0) == ()


def test_more_than_are_free_are_not_given_and_nothing_is_held_for_it() -> None:
    devices = Devices({"T1": (0, 1)})
    devices.take("T1", 1)
    with pytest.raises(ArylError, match=r"^server T1 has 1 free GPUs, 2 are needed$"):
        devices.take("T1", 2)
    assert devices.take("T1", 1) == (1,)


def test_what_is_found_running_holds_its_gpus_until_all_is_forgotten() -> None:
    devices = Devices({"T1": (0, 1, 2)})
    devices.hold("T1", (1,))
    devices.hold("gone", (5,))  # of a server that the configuration has no more
    devices.release("gone", (5,))
    assert devices.take("T1", 2) == (0, 2)
    devices.forget_all()
    assert devices.take("T1", 3) == (0, 1, 2)


@given(st.lists(st.integers(-4, 4).filter(bool), max_size=30))
def test_no_index_is_ever_held_twice(orders: list[int]) -> None:
    devices, held = Devices({"T1": tuple(range(8))}), list[tuple[int, ...]]()
    for count in orders:
        if count < 0:
            if held:
                devices.release("T1", held.pop(-count % len(held)))
        elif sum(map(len, held)) + count <= 8:
            held.append(devices.take("T1", count))
        else:
            with pytest.raises(ArylError):
                devices.take("T1", count)
        flat = [index for some in held for index in some]
        assert len(flat) == len(set(flat))


def test_emulated_gpus_are_always_idle_and_always_there() -> None:
    devices = Devices(INDICES)
    assert devices.idle((0, 1, 99))
    assert list(devices.changes()) == []
    assert devices.up() == ["T1", "I1"]


def test_a_gpu_that_this_machine_does_not_have_is_refused(driver: FakeNvml) -> None:
    driver.count = 3
    with pytest.raises(InputError) as caught:
        Devices(INDICES, Nvml())
    assert str(caught.value) == (
        "devices.I1: server I1 is to have GPU 3, and this machine has 3; expected numbers from 0 to 2"
    )
    driver.count = 4
    Devices(INDICES, Nvml())


def test_gpus_are_idle_when_no_process_computes_on_any_of_them(driver: FakeNvml) -> None:
    devices = Devices(INDICES, Nvml())
    assert devices.idle((0, 1))
    driver.busy = {1}
    assert not devices.idle((0, 1))
    assert devices.idle((0,))
    assert devices.idle(())
    # Of one that doesn't answer nobody knows.
    driver.broken = {0}
    assert not devices.idle((0,))


def test_a_server_is_down_when_one_gpu_stops_answering_and_up_when_all_answer_again(
    driver: FakeNvml,
) -> None:
    devices = Devices(INDICES, Nvml())
    driver.mute = {0, 1, 2, 3}
    assert list(devices.changes()) == []
    driver.broken = {2}
    assert list(devices.changes()) == [("I1", False)]
    assert list(devices.changes()) == []
    assert devices.up() == ["T1"]
    driver.broken = {3, 0}
    assert list(devices.changes()) == [("T1", False)]
    driver.broken = {0}
    assert list(devices.changes()) == [("I1", True)]
    driver.broken = set()
    assert list(devices.changes()) == [("T1", True)]
    assert devices.up() == ["T1", "I1"]


def test_names_are_texts_whatever_the_library_says(driver: FakeNvml) -> None:
    assert [Nvml().name(index) for index in (0, 1)] == ["Tesla V100", "Tesla T4"]


def test_a_machine_without_a_driver_is_an_error_in_the_input(driver: FakeNvml) -> None:
    driver.driver = False
    with pytest.raises(InputError) as caught:
        Nvml()
    assert str(caught.value) == (
        "gpus: no GPU driver answers (error 9); expected a machine with NVIDIA GPUs, or 'gpus: emulated'"
    )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(InputError, match=r"^gpus: real GPUs need the package nvidia-ml-py; expected pip "):
        Nvml()


class OnGpus:
    """The local backend on the GPUs of this machine, with workers that do as the test says."""

    def __init__(self, folder: Path) -> None:
        self.supervisor = FakeSupervisor()
        self.facts: list[Fact] = []
        self.backend = LocalBackend(folder, INDICES, nvml=Nvml())

    def told(self, kind: type[Fact]) -> list[Fact]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def launch(self, job_id: str, *slots: Slot) -> WorkerKey:
        """Start a gang, and let all of it run; its first worker."""
        self.backend.launch(Gang(job_id, 1, 0, slots, Program(("true",), "/")))
        for status in self.supervisor.alive:
            self.supervisor.run(status.key)
        return WorkerKey(job_id, 1, 0, 0)


@pytest.fixture
def machine(tmp_path: Path, driver: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnGpus]:
    monkeypatch.setattr(gang_backend, "TICK_S", 0.01)
    monkeypatch.setattr(gang_backend, "LOOK_EVERY_S", 0.01)
    made = OnGpus(tmp_path)
    monkeypatch.setattr(SupervisorClient, "connect", made.supervisor.connect)
    made.backend.open(1, (), made.facts.append)
    yield made
    made.backend.close()


def test_a_worker_that_is_gone_holds_its_gpu_until_nothing_computes_there(
    machine: OnGpus, driver: FakeNvml
) -> None:
    key = machine.launch("a", Slot("T1", 2, 0, 1))
    assert machine.supervisor.specs[key].env["CUDA_VISIBLE_DEVICES"] == "0,1"
    driver.busy = {1}
    for rank in (0, 1):
        machine.supervisor.end(WorkerKey("a", 1, 0, rank), 0)
    time.sleep(0.1)
    assert machine.told(GangSucceeded) == []
    machine.backend.launch(Gang("b", 1, 0, (Slot("T1", 2, 0, 1),), Program(("true",), "/")))
    # Whoever were to come now would find the GPU taken.
    assert WorkerKey("b", 1, 0, 0) not in machine.supervisor.specs
    driver.busy = set()
    eventually(lambda: machine.told(GangSucceeded) or None, "the exit is never told")
    key = machine.launch("c", Slot("T1", 2, 0, 1))
    assert machine.supervisor.specs[key].gpus == (0,)


def test_a_gpu_that_stops_answering_takes_its_server_down_until_it_answers_again(
    machine: OnGpus, driver: FakeNvml
) -> None:
    assert [fact.server_id for fact in machine.told(ServerUp) if isinstance(fact, ServerUp)] == ["T1", "I1"]
    machine.facts.clear()
    driver.broken = {3}
    down = eventually(lambda: machine.told(ServerDown) or None, "nobody notices")
    assert [fact.server_id for fact in down if isinstance(fact, ServerDown)] == ["I1"]
    driver.broken = set()
    up = eventually(lambda: machine.told(ServerUp) or None, "nobody notices")
    assert [fact.server_id for fact in up if isinstance(fact, ServerUp)] == ["I1"]


def test_real_gpus_are_seen_by_their_own_numbers(machine: OnGpus) -> None:
    key = machine.launch("a", Slot("I1", 1, 0, 2))
    spec = machine.supervisor.specs[key]
    assert (spec.env["CUDA_VISIBLE_DEVICES"], spec.gpus) == ("3,2", (3, 2))


def test_a_gang_that_finds_no_room_on_its_second_server_holds_nothing_on_its_first(machine: OnGpus) -> None:
    """The journal and the machine disagree; that is the gang's end, and nobody else's."""
    machine.launch("a", Slot("T1", 2, 0, 1), Slot("I1", 3, 0, 1))
    assert len(machine.told(GangFailed)) == 1
    key = machine.launch("b", Slot("T1", 1, 0, 2))
    assert machine.supervisor.specs[key].gpus == (0, 1)
