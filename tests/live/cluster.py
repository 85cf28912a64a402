"""A live cluster for tests: a real daemon in its own process, real workers, a client, and ways to hurt
them.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from aryl.client import ArylClient
from aryl.core.model import FINAL_STATES, JobState
from aryl.wire.job_file import JobFile, job_file_from_mapping
from aryl.wire.views import JobView, ServerView

T = TypeVar("T")

# Nothing here measures time: a test that waits so long has failed, on whatever machine.
PATIENCE_S = 60.0
ROOT = Path(__file__).parents[2]
LISTENING = re.compile(r"listening on (http://\S+);")

# A worker of plain Python that counts steps, saves on notice and goes on from there. It writes one line a
# step.
COUNTING = """
import os, signal, sys, time
noticed = []
signal.signal(signal.SIGUSR1, lambda *_: noticed.append(1))
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
saved = os.path.join(os.environ["ARYL_CHECKPOINT_DIR"], "step")
step = int(open(saved).read()) if os.path.exists(saved) else 0
print("start", rank, "of", size, "at", step, flush=True)
while step < int(os.environ.get("STEPS", "50")):
    time.sleep(float(os.environ.get("STEP_S", "0.05")))
    step += 1
    print("step", step, flush=True)
    if noticed:
        if rank == 0:
            with open(saved + ".part", "w") as file:
                file.write(str(step))
            os.replace(saved + ".part", saved)
        print("saved", step, flush=True)
        sys.exit(75)
print("done", flush=True)
"""


class LiveCluster:
    """One state folder, and the daemons that serve it one after the other."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.work = folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.config_file = folder / "cluster.yaml"
        self.log = folder / "serve.log"
        base: dict[str, Any] = {
            "cluster": {
                "training": {"servers": 2, "gpus_per_server": 4},
                "inference": {"servers": 2, "gpus_per_server": 4, "gpu_type": "T4", "speed": 1.0},
            },
            "state": str(self.state),
            "listen": "127.0.0.1:0",
            "workdirs": [str(self.work)],
            # What is said is what holds, at once.
            "inference": {"forecast": "last", "headroom": 0, "interval": 1, "settle": 0},
            "lease": 2,
            "kill_wait": 2,
            "restart_s": 0,
            "resize_s": 0,
        }
        self.config_file.write_text(yaml.safe_dump(_merged(base, config)), encoding="utf-8")
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.url = ""
        self._client: ArylClient | None = None
        self.program("counting.py", COUNTING)

    def program(self, name: str, text: str) -> Path:
        """Write a program that jobs can run."""
        path = self.work / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def start(self, *, ready: bool = True) -> subprocess.Popen[bytes]:
        """Start a daemon; with `ready` wait until it leads."""
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "aryl", "serve", "--config", str(self.config_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PATH": _path()},
                start_new_session=True,
            )
        self.daemons.append(daemon)

        def listening() -> str | None:
            assert daemon.poll() is None, self.said()
            found = LISTENING.search(self.log.read_bytes()[before:].decode())
            return found[1] if found else None

        url = eventually(listening, "the daemon doesn't listen")
        self.url = url
        if ready:
            eventually(lambda: self.client.health().status == "ok", "the daemon doesn't lead")
        return daemon

    def kill(self) -> None:
        """SIGKILL the last daemon."""
        self.daemons[-1].kill()
        self.daemons[-1].wait()

    def stop(self) -> int:
        """End the last daemon as one should; its exit code."""
        self.daemons[-1].send_signal(signal.SIGTERM)
        return self.daemons[-1].wait(timeout=PATIENCE_S)

    @property
    def client(self) -> ArylClient:
        """A client of the last daemon."""
        if self._client is None or self._client.base_url != self.url:
            if self._client is not None:
                self._client.close()
            self._client = ArylClient(self.url, timeout_s=PATIENCE_S)
        return self._client

    def said(self) -> str:
        """What all daemons said."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def job(self, name: str, workers: Any = 1, **more: Any) -> JobFile:
        """A job file: by default the counting program, which saves on notice."""
        data = {
            "name": name,
            "run": [sys.executable, "-u", "counting.py"],
            "workdir": str(self.work),
            "workers": workers,
            "checkpoint": {"signal": "USR1", "grace": 10},
            **more,
        }
        return job_file_from_mapping({key: value for key, value in data.items() if value is not None})

    def submit(self, name: str, workers: Any = 1, **more: Any) -> str:
        """Submit a job; its id."""
        return self.client.submit(self.job(name, workers, **more)).job_id

    def wait_state(self, job_id: str, *states: JobState) -> JobView:
        """Wait until a job is in one of these states (by default: over)."""
        wanted = states or tuple(FINAL_STATES)

        def there() -> JobView | None:
            view = self.client.job(job_id)
            if view.state not in wanted and view.state in FINAL_STATES:
                raise AssertionError(f"{view}\n{self.logs(job_id)}\n{self.said()}")
            return view if view.state in wanted else None

        return eventually(there, f"{job_id} is never {[state.value for state in wanted]}", self.said)

    def wait_workers(self, job_id: str, workers: int) -> JobView:
        """Wait until a job runs with so many workers."""

        def there() -> JobView | None:
            view = self.client.job(job_id)
            return view if view.state is JobState.RUNNING and view.workers == workers else None

        return eventually(there, f"{job_id} never has {workers} workers", self.said)

    def wait_attempt(self, job_id: str, attempt: int) -> JobView:
        """Wait until a job is being tried again."""

        def there() -> JobView | None:
            view = self.client.job(job_id)
            return view if view.attempt >= attempt else None

        return eventually(there, f"{job_id} has no attempt {attempt}", self.said)

    def wait_said(self, job_id: str, word: str, attempt: int = 1, rank: int = 0) -> None:
        """Wait until a worker has printed a whole line with this in it."""
        path = self.log_path(job_id, attempt, rank)
        eventually(
            lambda: path.exists() and re.search(rf"{word}.*\n", path.read_text()),
            f"{job_id} never says {word}",
            self.said,
        )

    def server(self, server_id: str) -> ServerView:
        """A server as it stands."""
        return next(server for server in self.client.servers() if server.server == server_id)

    def demand(self, servers: float) -> None:
        """The inference side says what it needs."""
        self.client.report_demand(servers)

    def metrics(self) -> dict[str, float]:
        """What `/metrics` says, by name with labels."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
        pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
        return {name: float(value) for name, _, value in pairs}

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Look into the store, past the daemon."""
        with closing(sqlite3.connect(self.state / "aryl.db")) as database:
            return list(database.execute(sql, values))

    def log_path(self, job_id: str, attempt: int = 1, rank: int = 0) -> Path:
        """Where a worker's output is."""
        return self.state / "jobs" / job_id / f"attempt-{attempt}" / f"rank-{rank}.log"

    def logs(self, job_id: str) -> str:
        """What all workers of a job printed."""
        files = sorted((self.state / "jobs" / job_id).glob("attempt-*/*.log"))
        return "\n".join(f"== {file.parent.name}/{file.name}\n{file.read_text()}" for file in files)

    def supervisor_pid(self) -> int:
        """The process that runs the workers."""
        return int(next(iter(pids_with(str(self.state / "supervisor"), "aryl.backends.supervisor"))))

    def worker_pids(self, job_id: str) -> list[int]:
        """The processes of a job that live. Other clusters may have a job of that name."""
        ours = f"ARYL_RUN_DIR={self.state}/jobs/{job_id}/run/"
        return [
            pid
            for pid in all_pids()
            if any(entry.startswith(ours) for entry in environment_of(pid)) and not is_zombie(pid)
        ]

    def close(self) -> None:
        """End everything that was started here."""
        if self._client is not None:
            self._client.close()
        for daemon in self.daemons:
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()
        marks = [f"ARYL_RUN_DIR={self.state}"]
        for pid in pids_with(str(self.state / "supervisor"), "aryl.backends.supervisor"):
            _kill(pid)
        for pid in all_pids():
            if any(entry.startswith(mark) for mark in marks for entry in environment_of(pid)):
                _kill(pid)


@contextmanager
def live_cluster(folder: Path, **config: Any) -> Iterator[LiveCluster]:
    """A cluster with a leading daemon, and nothing of it left afterwards."""
    cluster = LiveCluster(folder, **config)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def eventually(
    look: Callable[[], T | None],
    complaint: str,
    more: Callable[[], str] | None = None,
    within_s: float = PATIENCE_S,
) -> T:
    """Look until there is something to see (neither None nor False)."""
    end_s = time.monotonic() + within_s
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > end_s:
            raise AssertionError(f"{complaint}\n{more() if more else ''}")
        time.sleep(0.05)


def all_pids() -> list[int]:
    """Every process of the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def environment_of(pid: int) -> list[str]:
    """The environment of a process; empty if it is gone or not ours to see."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def pids_with(*words: str) -> list[int]:
    """The processes whose command line has all these words."""
    found = []
    for pid in all_pids():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if all(word in command for word in words):
            found.append(pid)
    return found


def is_zombie(pid: int) -> bool:
    """Whether a process has ended and only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _path() -> str:
    """Where programs are looked for, first of all `python` and what is installed beside this one."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in more.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
