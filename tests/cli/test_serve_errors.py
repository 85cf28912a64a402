"""What `aryl serve` says when it can't: one line, and the exit code that tells whose fault it is. It leaves
nothing behind, neither half-written files nor processes.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.live.cluster import ROOT, live_cluster, pids_with

from aryl.cli.main import run_command

CLUSTER = {
    "training": {"servers": 1, "gpus_per_server": 1},
    "inference": {"servers": 1, "gpus_per_server": 1},
}


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


class Serve:
    """Runs `aryl serve` in a folder until it ends by itself: in this process, since it is to end at once."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *settings: str, **config: Any) -> Done:
        file = self.folder / "serve.yaml"
        base = {"cluster": CLUSTER, "state": "state", "listen": "127.0.0.1:0", "lease": 1}
        file.write_text(yaml.safe_dump({**base, **config}), encoding="utf-8")
        arguments = ["serve", "--config", str(file)]
        for setting in settings:
            arguments += ["--set", setting]
        code = run_command(arguments)
        return Done(code, *self._capsys.readouterr())


@pytest.fixture
def serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Serve]:
    """With what a command changes in its process put back afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # without the driver's library no machine has GPUs
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    root = logging.getLogger()
    handling = list(root.handlers)
    levels = {name: logging.getLogger(name).level for name in ("root", "aryl", "aryl.api")}
    yield Serve(tmp_path, capsys)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    root.handlers[:] = handling
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def one_line(done: Done, code: int) -> str:
    """What it said; it was the only line, and the code is this one."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def nothing_is_left(folder: Path, *expected: str) -> None:
    """No process, and no file but these."""
    assert pids_with(str(folder)) == []
    assert sorted(path.name for path in folder.iterdir()) == sorted(("serve.yaml", *expected))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"listn": "127.0.0.1:1"}, "serve.yaml, line 10, listn: unknown key; expected one of state, "),
        (
            {"listen": "127.0.0.1:99999"},
            "serve.yaml, line 9, listen: wrong value (found '127.0.0.1:99999'); "
            "expected HOST:PORT, such as 127.0.0.1:8642 or [::1]:8642",
        ),
        ({"policy": "aril"}, "serve.yaml, line 10, policy: no such policy (found 'aril'); expected one of "),
        (
            {"inference": {"curve": "none.csv"}},
            "there is no curve and no file of this name (found 'none.csv')",
        ),
        (
            {"gpus": "real"},
            "gpus: real GPUs need the package nvidia-ml-py; expected pip install 'aryl[serve]'",
        ),
    ],
    ids=["unknown key", "bad address", "unknown policy", "no such curve", "no driver"],
)
def test_a_configuration_that_cannot_be_used_leaves_nothing(
    tmp_path: Path, serve: Serve, config: dict[str, Any], said: str
) -> None:
    line = one_line(serve(**config), 2)
    assert said in line
    nothing_is_left(tmp_path)


def test_a_configuration_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "serve.yaml"
    done = Done(run_command(["serve", "--config", str(file)]), *capsys.readouterr())
    assert one_line(done, 2).startswith(f"{file}: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("state", "why"),
    [("/proc/aryl", "No such file or directory"), ("taken", "File exists"), ("taken/x", "Not a directory")],
)
def test_a_state_folder_that_cannot_be_made_is_named(
    tmp_path: Path, serve: Serve, state: str, why: str
) -> None:
    (tmp_path / "taken").touch()
    line = one_line(serve(state=state), 2)
    assert line == f"state: can't be used: {why} (found '{os.path.join(tmp_path, state)}')"
    nothing_is_left(tmp_path, "taken")


def test_a_store_that_leads_nowhere_is_named_without_its_password(tmp_path: Path, serve: Serve) -> None:
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))  # nobody listens there
        port = held.getsockname()[1]
        url = f"postgresql://aryl:topsecret@127.0.0.1:{port}/aryl"
        line = one_line(serve(store=url), 2)
    assert "postgresql" in line
    assert "topsecret" not in line
    assert pids_with(str(tmp_path)) == []


def test_a_store_that_is_none_is_named(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "notes.db").write_text("not a database, and long enough to be seen as none\n" * 100)
    line = one_line(serve(store="sqlite:///notes.db"), 2)
    assert "notes.db" in line
    assert (tmp_path / "notes.db").read_text().startswith("not a database")
    assert pids_with(str(tmp_path)) == []


def test_a_port_that_is_taken_is_named_and_nothing_of_the_cluster_begins(
    tmp_path: Path, serve: Serve
) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = one_line(serve(f"listen=127.0.0.1:{port}"), 1)
    assert line == f"can't listen on 127.0.0.1, port {port}: [Errno 98] Address already in use"
    assert pids_with(str(tmp_path)) == []
    assert not (tmp_path / "state" / "supervisor").exists()
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    with closing(sqlite3.connect(tmp_path / "state" / "aryl.db")) as store:
        assert store.execute("SELECT count(*) FROM journal").fetchone() == (0,)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_without_tokens_it_listens_to_nobody_but_this_machine(
    tmp_path: Path, serve: Serve, listen: str
) -> None:
    line = one_line(serve(listen=listen), 2)
    assert line.startswith("listen: without tokens everybody who can connect would be an admin")
    assert pids_with(str(tmp_path)) == []


def test_where_tokens_are_required_there_has_to_be_one(tmp_path: Path, serve: Serve) -> None:
    line = one_line(serve(tokens="required"), 2)
    assert line == (
        "tokens: tokens are required, and there are none; expected one made with 'aryl token create'"
    )
    assert pids_with(str(tmp_path)) == []


def test_a_store_of_another_cluster_is_left_alone_and_goes_on_with_its_own(tmp_path: Path) -> None:
    with live_cluster(tmp_path) as cluster:
        job_id = cluster.submit("holds", env={"STEPS": "100000"})
        cluster.wait_workers(job_id, 1)
        assert cluster.stop() == 0
        (worker,), supervisor = cluster.worker_pids(job_id), cluster.supervisor_pid()
        before = cluster.query("SELECT count(*) FROM journal")

        good = cluster.config_file.read_text()
        for where, what, said in (
            (("training", "servers"), 3, "with the new T3"),
            (("accounting",), "slower", "cluster.accounting: the store was begun with another one"),
        ):
            changed = yaml.safe_load(good)
            place = changed["cluster"]
            for key in where[:-1]:
                place = place[key]
            place[where[-1]] = what
            other = tmp_path / "other.yaml"
            other.write_text(yaml.safe_dump(changed))
            done = subprocess.run(
                [sys.executable, "-m", "aryl", "serve", "--config", str(other)],
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                timeout=120,
                check=False,
            )
            assert done.returncode == 2, done.stderr
            *_, line = done.stderr.splitlines()
            assert line.startswith("error: ")
            assert said in line
            assert "Traceback" not in done.stderr
        assert cluster.query("SELECT count(*) FROM journal") == before
        assert (cluster.worker_pids(job_id), cluster.supervisor_pid()) == ([worker], supervisor)

        cluster.start()
        assert cluster.client.job(job_id).attempt == 1
        cluster.client.cancel(job_id)
        cluster.wait_state(job_id)
