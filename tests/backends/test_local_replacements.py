"""Which workers of an elastic gang are replaced when they end badly, and which take the gang with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.backends.fake_supervisor import FakeSupervisor

from aryl.backends.gangs.elastic import LIGHTHOUSE_RANK
from aryl.backends.local import LocalBackend
from aryl.backends.port import Fact, Gang, GangFailed, Launcher, Program, WorkerReplaced
from aryl.backends.supervisor.client import SupervisorClient
from aryl.core.model import Slot

PROGRAM = Program(("true",), "/", launcher=Launcher.TORCHFT, notice_signal="USR1")
GANG = Gang("job", 1, 0, (Slot("T1", 2, 0, 1),), PROGRAM, launched=True)


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> FakeSupervisor:
    made = FakeSupervisor()
    monkeypatch.setattr(SupervisorClient, "connect", made.connect)
    return made


@pytest.fixture
def facts() -> list[Fact]:
    return []


@pytest.fixture
def backend(supervisor: FakeSupervisor, tmp_path: Path, facts: list[Fact]) -> Iterator[LocalBackend]:
    """Two workers have been there for long when this daemon takes over; a third has just joined them."""
    servers = {"T1": (0, 1, 2, 3)}
    first = LocalBackend(tmp_path, servers)
    first.open(1, (), facts.append)
    first.launch(GANG)
    first.close()
    for key in tuple(supervisor.statuses):
        supervisor.run(key)
        supervisor.statuses[key] = replace(supervisor.statuses[key], started_unix_s=1.0)
    facts.clear()
    backend = LocalBackend(tmp_path, servers)
    backend.open(2, [GANG], facts.append)
    backend.resize(replace(GANG, revision=1, slots=(Slot("T1", 2, 1, 1),)))
    for status in supervisor.alive:
        supervisor.run(status.key)
    yield backend
    backend.close()


def end(supervisor: FakeSupervisor, rank: int) -> None:
    (key,) = (status.key for status in supervisor.alive if status.key.rank == rank)
    supervisor.end(key, None, 9)


def ranks(supervisor: FakeSupervisor) -> list[int]:
    return sorted(status.key.rank for status in supervisor.alive if status.key.rank != LIGHTHOUSE_RANK)


@pytest.mark.usefixtures("backend")
def test_one_that_was_there_for_long_is_replaced_though_another_has_just_joined(
    supervisor: FakeSupervisor, facts: list[Fact]
) -> None:
    end(supervisor, 0)
    assert ranks(supervisor) == [1, 2, 3]
    assert [fact.server_id for fact in facts if isinstance(fact, WorkerReplaced)] == ["T1"]


@pytest.mark.usefixtures("backend")
def test_one_that_ends_at_once_would_do_so_again_and_takes_the_gang_with_it(
    supervisor: FakeSupervisor, facts: list[Fact]
) -> None:
    end(supervisor, 2)
    for rank in (0, 1):
        end(supervisor, rank)
    assert ranks(supervisor) == []
    assert not any(isinstance(fact, WorkerReplaced) for fact in facts)
    (failed,) = (fact for fact in facts if isinstance(fact, GangFailed))
    assert failed.ran_s < 60.0  # it, not the gang
