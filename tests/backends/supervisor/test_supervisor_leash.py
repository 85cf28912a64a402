"""A supervisor that ends with whoever holds its leash, or when its server's lease is over."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.backends.supervisor.bench import key, lives, wait_for

from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor.leash import Lease, since_boot_s
from aryl.backends.supervisor.protocol import (
    SupervisorEvent,
    WorkerExited,
    WorkerSpec,
    WorkerStarted,
)
from aryl.errors import ArylError

# Leaves a grandchild in a session of its own, which hides where it comes from.
HIDES = 'env -i setsid sleep 600 & echo "$!"; while :; do sleep 0.1; done'


@dataclass
class Held:
    """A supervisor on a leash, with one worker."""

    folder: Path
    leash: int
    lease: Lease
    client: SupervisorClient
    events: list[SupervisorEvent]

    @property
    def log(self) -> Path:
        return self.folder.parent / "log"

    def let_go(self) -> None:
        os.close(self.leash)

    def processes(self) -> list[int]:
        """The worker and what it hides."""
        wait_for(lambda: self.log.exists() and self.log.read_text().endswith("\n"))
        started = next(event for event in self.events if isinstance(event, WorkerStarted))
        assert started.status.pid is not None
        return [started.status.pid, int(self.log.read_text())]


@contextmanager
def held(lease_s: float) -> Iterator[Held]:
    with tempfile.TemporaryDirectory(prefix="aryl-leash-") as above:
        folder, lease = Path(above) / "worker", Lease(Path(above) / "lease", lease_s)
        lease.write(since_boot_s())
        theirs, ours = os.pipe()
        command = [sys.executable, "-m", "aryl.backends.supervisor", "--dir", str(folder), "--detach"]
        command += ["--leash", str(theirs), "--lease", str(lease.path), "--lease-lasts", str(lease_s)]
        subprocess.run(command, pass_fds=(theirs,), check=True)
        os.close(theirs)
        events: list[SupervisorEvent] = []
        client = SupervisorClient.connect(folder, 1, events.append, start=False)
        state = Held(folder, ours, lease, client, events)
        client.start([WorkerSpec(key(), ("sh", "-c", HIDES), "/", dict(os.environ), str(state.log), "T1")])
        wait_for(lambda: any(isinstance(event, WorkerStarted) for event in events))
        try:
            yield state
        finally:
            client.close()


def test_when_its_leash_is_let_go_everything_ends_and_its_folder_with_it() -> None:
    with held(3600.0) as it:
        processes = it.processes()
        it.let_go()
        wait_for(lambda: not any(lives(pid) for pid in processes))
        wait_for(lambda: not it.folder.exists())


def test_when_the_lease_is_over_everything_ends_and_says_that_it_was_told_to() -> None:
    with held(1.0) as it:
        processes = it.processes()
        for _ in range(10):  # as long as it is renewed, everything goes on
            it.lease.write(since_boot_s())
            wait_for(lambda: not it.lease.over)
            assert all(lives(pid) for pid in processes)
        wait_for(lambda: any(isinstance(event, WorkerExited) for event in it.events))
        (exited,) = [event for event in it.events if isinstance(event, WorkerExited)]
        assert exited.status.told_to_stop
        assert not any(lives(pid) for pid in processes)
        it.let_go()


def test_one_whose_lease_is_over_takes_on_nobody() -> None:
    with held(0.5) as it:
        wait_for(lambda: any(isinstance(event, WorkerExited) for event in it.events))
        spec = WorkerSpec(key(1), ("true",), "/", dict(os.environ), str(it.log), "T1")
        with pytest.raises(ArylError):
            it.client.start([spec])
        it.let_go()


def test_a_lease_counts_from_what_was_asked_for_and_never_backwards(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "lease", 100.0)
    assert not lease.over
    lease.write(since_boot_s() - 200.0)
    assert not lease.over  # it began later than that
    old = Lease(tmp_path / "lease", 100.0, since_boot_s() - 300.0)
    assert old.over
    old.write(since_boot_s() - 50.0)
    assert not old.over
    (tmp_path / "lease").write_text("half a numb", encoding="ascii")
    assert not old.over
