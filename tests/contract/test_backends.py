"""What the live driver relies on, whatever runs the workers: every `Backend` must pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.backends import ENDS_BADLY, ENDS_WELL, WAITS, Stand, gang, on_ray, real, simulated

from aryl.backends.port import (
    GangFailed,
    GangResized,
    GangStopped,
    GangSucceeded,
    GangUp,
    Phase,
    WorkersGone,
)
from aryl.core.model import Slot

Make = Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[Stand]]
ON_RAY = "on Ray"


@pytest.fixture(
    params=[
        pytest.param(simulated, id="simulated"),
        pytest.param(real, id="real processes"),
        pytest.param(ON_RAY, id=ON_RAY, marks=pytest.mark.xdist_group("ray")),
    ]
)
def stand(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    if request.param == ON_RAY:
        making: AbstractContextManager[Stand] = on_ray(tmp_path, request.getfixturevalue("six_servers"))
    else:
        make: Make = request.param
        making = make(tmp_path, monkeypatch)
    with making as ready:
        yield ready


def on(server_id: str, workers: int) -> Slot:
    return Slot(server_id, workers, 0, 1)


def test_a_gang_is_up_once_and_succeeds_when_all_its_workers_do(stand: Stand) -> None:
    backend = stand.open()
    backend.launch(gang(ENDS_WELL, on("T1", 2), on("T2", 1)))
    stand.hear(GangUp)
    assert stand.hear(GangSucceeded).attempt == 1
    assert stand.count(GangUp) == stand.count(GangSucceeded) == 1


def test_an_order_that_comes_twice_is_carried_out_once(stand: Stand) -> None:
    backend = stand.open()
    first = gang(WAITS, on("T1", 2))
    backend.launch(first)
    stand.hear(GangUp)
    before = stand.pids()
    backend.launch(first)
    backend.resize(first)
    assert stand.pids() == before
    backend.stop("a", 1, save=True)
    backend.stop("a", 1, save=True)
    stand.hear(GangStopped)
    assert stand.count(GangStopped) == 1


def test_a_gang_that_is_told_to_stop_says_whether_it_saved(stand: Stand) -> None:
    backend = stand.open()
    backend.launch(gang(WAITS, on("T1", 2)))
    stand.hear(GangUp)
    backend.stop("a", 1, save=True)
    assert stand.hear(GangStopped).saved
    assert stand.pids() == []


def test_a_worker_that_ends_badly_takes_the_gang_with_it_and_names_its_server(stand: Stand) -> None:
    backend = stand.open()
    backend.launch(gang(ENDS_BADLY, on("T2", 1)))
    failed = stand.hear(GangFailed)
    assert (failed.servers, failed.reason) == (("T2",), "worker 0 on T2 exited with 3")
    assert stand.pids() == []


def test_a_resize_tells_who_is_gone_and_when_the_gang_stands(stand: Stand) -> None:
    backend = stand.open()
    backend.launch(gang(WAITS, on("T1", 2), on("T2", 2)))
    stand.hear(GangUp)
    backend.resize(gang(WAITS, on("T1", 1), revision=1))
    gone = stand.hear(WorkersGone)
    assert {(slot.server_id, slot.workers) for slot in gone.slots} == {("T1", 1), ("T2", 2)}
    assert stand.hear(GangResized).revision == 1
    assert len(stand.pids()) == 1
    backend.resize(gang(WAITS, on("T1", 1), on("T2", 4), revision=2))
    stand.hear(GangResized, lambda fact: fact.revision == 2)
    assert len(stand.pids()) == 5


def test_the_next_daemon_adopts_what_runs(stand: Stand) -> None:
    running = gang(WAITS, on("T1", 3))
    stand.open().launch(running)
    stand.hear(GangUp)
    before = stand.pids()
    backend = stand.open(replace(running, launched=True))
    assert stand.pids() == before
    backend.stop("a", 1, save=True)
    assert stand.hear(GangStopped).saved


def test_the_next_daemon_carries_out_what_was_only_promised(stand: Stand) -> None:
    stand.open()
    stand.open(gang(WAITS, on("T1", 2)))
    stand.hear(GangUp)
    assert len(stand.pids()) == 2
    stand.open(replace(gang(WAITS, on("T1", 1), on("T2", 2), revision=1), launched=True))
    stand.hear(GangResized, lambda fact: fact.revision == 1)
    assert len(stand.pids()) == 3
    stand.open(replace(gang(WAITS, revision=1, phase=Phase.STOPPING)))
    assert stand.hear(GangStopped).saved


def test_the_next_daemon_ends_what_nobody_asked_for(stand: Stand) -> None:
    stand.open().launch(gang(WAITS, on("T1", 2)))
    stand.hear(GangUp)
    stand.open()
    backend = stand.backend
    assert backend is not None
    backend.launch(gang(WAITS, on("T2", 1), attempt=2))
    stand.hear(GangUp, lambda fact: fact.attempt == 2)
    from tests.live.cluster import eventually

    eventually(lambda: len(stand.pids()) == 1, "the stranger lives on")


def test_the_next_daemon_hears_of_ends_that_nobody_heard(stand: Stand) -> None:
    ending = gang(ENDS_WELL, on("T1", 1))
    stand.open().launch(ending)
    stand.hear(GangSucceeded)
    stand.facts.clear()
    stand.open(replace(ending, launched=True))
    stand.hear(GangSucceeded)
    assert stand.backend is not None
    stand.backend.forget("a", 1)
