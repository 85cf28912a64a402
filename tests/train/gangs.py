"""Starts workers by hand as a backend does: processes with the environment that a launcher gives them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples" / "train"
PATIENCE_S = 90.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for `condition`, as long as a loaded machine may take."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited in vain: {what}"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Stage:
    """A job's folders and the workers started for it, by worker number."""

    folder: Path
    attempt: int = 0
    generation: int = -1
    workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    @property
    def checkpoint_dir(self) -> Path:
        return self.folder / "checkpoint"

    def start(self, command: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start one worker; its number is `env`'s ARYL_RANK."""
        self.run_dir.mkdir(exist_ok=True)
        common = {
            "ARYL_JOB_ID": "example-1",
            "ARYL_ATTEMPT": str(self.attempt),
            "ARYL_GENERATION": str(max(0, self.generation)),
            "ARYL_RUN_DIR": str(self.run_dir),
            "ARYL_CHECKPOINT_DIR": str(self.checkpoint_dir),
            "ARYL_NOTICE_SIGNAL": "USR1",
            "ARYL_GRACE_S": "10",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        number = int(env["ARYL_RANK"])
        with (self.folder / f"log-{self.generation}-{number}").open("wb") as log, _notices_ignored():
            worker = subprocess.Popen(
                command,
                env={**os.environ, **common, **env},
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.workers[number] = worker
        return worker

    def start_gang(self, script: str, size: int, env: Mapping[str, str]) -> None:
        """Start `size` workers of an example as the launcher `process` does."""
        self.generation += 1
        port = free_port()
        for rank in range(size):
            place = {
                "ARYL_RANK": str(rank),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_WORLD_SIZE": str(size),
                "NODE_RANK": "0",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            self.start([sys.executable, str(EXAMPLES / script)], place | dict(env))

    def give_notice(self, *numbers: int) -> None:
        for number in numbers:
            self.workers[number].send_signal(signal.SIGUSR1)

    def exit_codes(self, *numbers: int) -> list[int]:
        """Wait for these workers to end, or for all that were started."""
        return [self.workers[n].wait(timeout=PATIENCE_S) for n in numbers or sorted(self.workers)]

    def steps(self) -> list[dict[str, Any]]:
        """What the example wrote to steps.jsonl; a line that isn't whole yet is left out."""
        path = self.checkpoint_dir / "steps.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def wait_for_step(self, step: int) -> None:
        self.wait_until(lambda: any(said["step"] >= step for said in self.steps()), f"step {step}")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for `condition`; in vain when a worker has failed."""

        def holds() -> bool:
            assert all(worker.poll() != 1 for worker in self.workers.values()), f"failed before {what}"
            return condition()

        wait_until(holds, what)

    def logs(self) -> str:
        return "\n".join(
            f"== {path.name}\n{path.read_text(encoding='utf-8', errors='replace')[-3000:]}"
            for path in sorted(self.folder.glob("log-*"))
        )


@contextmanager
def _notices_ignored() -> Iterator[None]:
    """What is started meanwhile ignores the signals, until it installs a handler."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """A stage whose workers are gone afterwards, and whose logs are shown when a test fails."""
    made = Stage(folder)
    try:
        yield made
    except BaseException:
        print(made.logs())
        raise
    finally:
        for worker in made.workers.values():
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
