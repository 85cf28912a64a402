"""What a new daemon makes of what it finds: the journal's word against the supervisor's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.backends.fake_supervisor import FakeSupervisor

from aryl.backends.local import LocalBackend
from aryl.backends.port import (
    Fact,
    Gang,
    GangFailed,
    GangResized,
    GangStopped,
    GangUp,
    Launcher,
    Phase,
    Program,
    ServerDown,
    ServerUp,
    WorkersGone,
)
from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor.protocol import WorkerKey, WorkerState
from aryl.core.model import Slot

PROGRAM = Program(("true",), "/", notice_signal="USR1")
SERVERS = {"T1": (0, 1, 2, 3), "T2": (0, 1, 2, 3)}


def gang(*slots: Slot, revision: int = 0, **more: object) -> Gang:
    return replace(Gang("job", 1, revision, slots, PROGRAM, launched=True), **more)  # type: ignore[arg-type]


def on(server_id: str, workers: int) -> Slot:
    return Slot(server_id, workers, 0, 1)


class Daemons:
    """One daemon after the other on one supervisor. `facts` are those of the last one."""

    def __init__(self, folder: Path) -> None:
        self.supervisor = FakeSupervisor()
        self.facts: list[Fact] = []
        self.backend: LocalBackend | None = None
        self._folder = folder

    def start(self, gangs: Sequence[Gang] = ()) -> LocalBackend:
        """The last one dies, and the next one takes over."""
        self.close()
        self.facts = []
        self.backend = LocalBackend(self._folder, SERVERS)
        self.backend.open(1, gangs, self.facts.append)
        return self.backend

    def close(self) -> None:
        if self.backend is not None:
            self.backend.close()

    def run_all(self) -> None:
        for status in self.supervisor.alive:
            self.supervisor.run(status.key)

    def told(self, *kinds: type[Fact]) -> list[Fact]:
        return [fact for fact in self.facts if isinstance(fact, kinds)]

    def ranks(self, generation: int) -> list[int]:
        """The ranks of a generation that live."""
        return [one.key.rank for one in self.supervisor.alive if one.key.generation == generation]

    def lose_all(self) -> None:
        """The supervisor died; a new one is killing what is left."""
        for status in self.supervisor.alive:
            self.supervisor.statuses[status.key] = replace(status, orphan=True)

    def bury(self, key: WorkerKey) -> None:
        """An orphan is gone."""
        status = replace(self.supervisor.statuses[key], orphan=False, state=WorkerState.LOST)
        self.supervisor._become(status, started=False)


@pytest.fixture
def daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemons]:
    made = Daemons(tmp_path)
    monkeypatch.setattr(SupervisorClient, "connect", made.supervisor.connect)
    yield made
    made.close()


def test_a_stop_that_was_over_while_nobody_was_there_is_told(daemons: Daemons) -> None:
    running = gang(on("T1", 2))
    daemons.start().launch(running)
    daemons.run_all()
    assert daemons.backend is not None
    daemons.backend.stop("job", 1, save=True)
    daemons.close()
    for status in daemons.supervisor.alive:
        daemons.supervisor.end(status.key, 75)
    daemons.start([gang(phase=Phase.STOPPING, leaving=(on("T1", 2),))])
    assert [fact.saved for fact in daemons.facts if isinstance(fact, GangStopped)] == [True]


def test_a_resize_whose_workers_had_left_while_nobody_was_there_goes_on(daemons: Daemons) -> None:
    daemons.start().launch(gang(on("T1", 2), on("T2", 2)))
    daemons.run_all()
    smaller = gang(on("T1", 2), revision=1, leaving=(on("T2", 2),))
    assert daemons.backend is not None
    daemons.backend.resize(smaller)
    daemons.close()
    for status in daemons.supervisor.alive:
        daemons.supervisor.end(status.key, 75)
    daemons.start([smaller])
    assert daemons.ranks(1) == [0, 1]
    assert [fact.slots for fact in daemons.facts if isinstance(fact, WorkersGone)] == [(Slot("T2", 0, 2, 1),)]
    daemons.run_all()
    assert [fact.revision for fact in daemons.facts if isinstance(fact, GangResized)] == [1]


def test_two_resizes_of_which_the_journal_saw_no_end_free_all_that_left(daemons: Daemons) -> None:
    daemons.start().launch(gang(on("T1", 1), on("T2", 3)))
    daemons.run_all()
    first = gang(on("T1", 1), on("T2", 1), revision=1, leaving=(on("T2", 2),))
    daemons.start([first])
    for status in daemons.supervisor.alive:
        daemons.supervisor.end(status.key, 75)
    daemons.run_all()  # the second generation is up, and the journal doesn't know
    second = gang(on("T1", 1), revision=2, leaving=(on("T2", 3),))
    daemons.start([second])
    assert daemons.told(WorkersGone) == []
    for status in daemons.supervisor.alive:
        daemons.supervisor.end(status.key, 75)
    assert [fact.slots for fact in daemons.facts if isinstance(fact, WorkersGone)] == [(Slot("T2", 0, 3, 1),)]


def test_who_left_for_a_generation_that_runs_is_gone(daemons: Daemons) -> None:
    daemons.start().launch(gang(on("T1", 1), on("T2", 1)))
    daemons.run_all()
    smaller = gang(on("T1", 1), revision=1, leaving=(on("T2", 1),))
    daemons.start([smaller])
    for status in daemons.supervisor.alive:
        daemons.supervisor.end(status.key, 75)
    daemons.run_all()
    # The daemon died before the journal had any of this.
    daemons.start([smaller])
    assert [fact.slots for fact in daemons.facts if isinstance(fact, WorkersGone)] == [(Slot("T2", 0, 1, 1),)]
    assert len(daemons.told(GangResized)) == 1


def test_a_gang_of_which_only_a_part_was_started_is_started_again_as_a_whole(daemons: Daemons) -> None:
    launching = replace(gang(on("T1", 3)), launched=False)
    daemons.start().launch(launching)
    daemons.run_all()
    daemons.close()
    # The request for the last one never arrived.
    del daemons.supervisor.statuses[WorkerKey("job", 1, 0, 2)]
    daemons.start([launching])
    assert daemons.told(GangUp) == []
    for status in daemons.supervisor.alive:
        assert status.told_to_stop
        daemons.supervisor.end(status.key, 75)
    assert daemons.ranks(1) == [0, 1, 2]
    daemons.run_all()
    assert len(daemons.told(GangUp)) == 1


def test_workers_that_died_with_their_supervisor_are_lost_with_their_server_and_nobody_failed(
    daemons: Daemons,
) -> None:
    running = gang(on("T1", 2))
    daemons.start().launch(running)
    daemons.run_all()
    daemons.lose_all()
    backend = daemons.start([running])
    # The other server has lost nothing.
    assert [
        (type(fact), fact.server_id) for fact in daemons.facts if isinstance(fact, ServerDown | ServerUp)
    ] == [
        (ServerDown, "T1"),
        (ServerUp, "T2"),
    ]
    daemons.facts.clear()
    first, second = (status.key for status in daemons.supervisor.alive)
    daemons.bury(first)
    backend.stop("job", 1, save=False)
    assert daemons.facts == []  # a GPU is still held
    daemons.bury(second)
    assert [type(fact) for fact in daemons.facts] == [GangStopped, ServerUp]
    assert daemons.told(GangFailed) == []


def test_a_gang_of_which_some_are_done_and_the_others_are_lost_has_not_finished(daemons: Daemons) -> None:
    running = gang(on("T1", 2))
    daemons.start().launch(running)
    daemons.run_all()
    daemons.supervisor.end(WorkerKey("job", 1, 0, 0), 0)
    daemons.lose_all()
    backend = daemons.start([running])
    backend.stop("job", 1, save=False)
    daemons.bury(WorkerKey("job", 1, 0, 1))
    assert [fact.saved for fact in daemons.facts if isinstance(fact, GangStopped)] == [False]


def test_a_gang_that_was_resized_before_it_was_started_is_started(daemons: Daemons) -> None:
    resized = gang(on("T1", 1), revision=1, leaving=(on("T2", 2),), launched=False)
    daemons.start([resized])
    assert [fact.slots for fact in daemons.facts if isinstance(fact, WorkersGone)] == [(Slot("T2", 0, 2, 1),)]
    assert daemons.ranks(0) == [0]
    daemons.run_all()
    assert [type(fact) for fact in daemons.told(GangUp, GangResized)] == [GangUp, GangResized]


@pytest.mark.parametrize("launcher", [Launcher.PROCESS, Launcher.TORCHFT])
def test_a_worker_finds_no_notice_that_was_meant_for_one_that_never_started(
    daemons: Daemons, tmp_path: Path, launcher: Launcher
) -> None:
    launching = gang(on("T1", 1), launched=False, program=replace(PROGRAM, launcher=launcher))
    notice = tmp_path / "jobs" / "job" / "run" / "1-0" / "notice-0"
    notice.parent.mkdir(parents=True)
    notice.touch()
    daemons.start([launching])
    assert 0 in daemons.ranks(0)
    assert not notice.exists()


def test_a_gang_that_was_to_start_on_a_lost_server_is_not_started_there(daemons: Daemons) -> None:
    running = gang(on("T1", 2))
    launching = replace(gang(on("T1", 1), on("T2", 1)), job_id="other", launched=False)
    daemons.start().launch(running)
    daemons.run_all()
    daemons.lose_all()
    backend = daemons.start([running, launching])
    assert {status.key.job_id for status in daemons.supervisor.alive} == {"job"}
    daemons.facts.clear()
    for status in daemons.supervisor.alive:
        daemons.bury(status.key)
    backend.stop("job", 1, save=False)
    assert daemons.told(ServerUp) == []
    backend.stop("other", 1, save=False)
    assert [type(fact) for fact in daemons.facts] == [GangStopped, GangStopped, ServerUp]


def test_a_server_is_not_lost_again_when_the_journal_knows_that_it_was(daemons: Daemons) -> None:
    running = gang(on("T1", 1), on("T2", 1))
    daemons.start().launch(running)
    daemons.run_all()
    daemons.lose_all()
    for status in daemons.supervisor.alive:
        daemons.bury(status.key)
    daemons.start([gang(phase=Phase.STOPPING)])
    assert [type(fact) for fact in daemons.facts] == [ServerUp, ServerUp, GangStopped]
