"""What `aryl serve` says when it can't: one line, the exit code that tells whose fault it is, and nothing left
behind, neither half-written files nor processes.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.live.cluster import ROOT, live_cluster, pids_with

# Without the driver's library there is no GPU on any machine.
WITHOUT_NVML = """
import sys
sys.modules["pynvml"] = None
from aryl.cli.main import main
main()
"""
CLUSTER = {
    "training": {"servers": 1, "gpus_per_server": 1},
    "inference": {"servers": 1, "gpus_per_server": 1},
}


def serve(folder: Path, *settings: str, **config: Any) -> subprocess.CompletedProcess[str]:
    """Run it in a folder with this configuration, until it ends by itself."""
    file = folder / "serve.yaml"
    base = {"cluster": CLUSTER, "state": "state", "listen": "127.0.0.1:0", "lease": 1}
    file.write_text(yaml.safe_dump({**base, **config}), encoding="utf-8")
    command = [sys.executable, "-c", WITHOUT_NVML, "serve", "--config", str(file)]
    for setting in settings:
        command += ["--set", setting]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        timeout=120,
        check=False,
    )


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
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
        (
            {"listn": "127.0.0.1:1"},
            "{file}, line 8, listn: unknown key (found 'listn'); did you mean 'listen'?",
        ),
        (
            {"listen": "127.0.0.1:99999"},
            "{file}, line 7, listen: wrong value (found '127.0.0.1:99999'); "
            "expected HOST:PORT, such as 127.0.0.1:8642 or [::1]:8642",
        ),
        ({"policy": "aril"}, "policy: there is no policy of this name (found 'aril')"),
        ({"inference": {"curve": "none.csv"}}, "there is no curve and no file of this name (found 'none.csv')"),
        ({"gpus": "real"}, "gpus: real GPUs need the package nvidia-ml-py; expected pip install 'aryl[serve]'"),
    ],
    ids=["unknown key", "bad address", "unknown policy", "no such curve", "no driver"],
)
def test_a_configuration_that_cannot_be_used_leaves_nothing(
    tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    line = one_line(serve(tmp_path, **config), 2)
    assert said.format(file=tmp_path / "serve.yaml").split(",", 2)[-1].strip() in line
    nothing_is_left(tmp_path)


def test_a_configuration_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    done = subprocess.run(
        [sys.executable, "-m", "aryl", "serve", "--config", str(file)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        timeout=120,
        check=False,
    )
    assert str(file) in one_line(done, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("state", "why"),
    [("/proc/aryl", "No such file or directory"), ("taken", "File exists"), ("taken/x", "Not a directory")],
)
def test_a_state_folder_that_cannot_be_made_is_named(tmp_path: Path, state: str, why: str) -> None:
    (tmp_path / "taken").touch()
    line = one_line(serve(tmp_path, state=state), 2)
    assert line == f"state: can't be used: {why} (found '{os.path.join(tmp_path, state)}')"
    nothing_is_left(tmp_path, "taken")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_state_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o500)
    line = one_line(serve(tmp_path), 2)
    assert line == f"state: can't be used: Permission denied (found '{tmp_path}/state')"
    nothing_is_left(tmp_path, "state")


def test_a_store_that_leads_nowhere_is_named_without_its_password(tmp_path: Path) -> None:
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))  # nobody listens there
        port = held.getsockname()[1]
        url = f"postgresql://aryl:topsecret@127.0.0.1:{port}/aryl"
        line = one_line(serve(tmp_path, store=url), 2)
    assert "postgresql" in line
    assert "topsecret" not in line
    assert pids_with(str(tmp_path)) == []


def test_a_store_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("not a database, and long enough to be seen as none\n" * 100)
    line = one_line(serve(tmp_path, store="sqlite:///notes.db"), 2)
    assert "notes.db" in line
    assert (tmp_path / "notes.db").read_text().startswith("not a database")
    assert pids_with(str(tmp_path)) == []


def test_a_port_that_is_taken_is_named_and_nothing_of_the_cluster_begins(tmp_path: Path) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = one_line(serve(tmp_path, f"listen=127.0.0.1:{port}"), 1)
    assert line == f"can't listen on 127.0.0.1, port {port}: [Errno 98] Address already in use"
    assert pids_with(str(tmp_path)) == []
    assert not (tmp_path / "state" / "supervisor").exists()
    with closing(sqlite3.connect(tmp_path / "state" / "aryl.db")) as store:
        assert store.execute("SELECT count(*) FROM journal").fetchone() == (0,)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_without_tokens_it_listens_to_nobody_but_this_machine(tmp_path: Path, listen: str) -> None:
    line = one_line(serve(tmp_path, listen=listen), 2)
    assert line.startswith("listen: without tokens everybody who can connect would be an admin")
    assert pids_with(str(tmp_path)) == []


def test_where_tokens_are_required_there_has_to_be_one(tmp_path: Path) -> None:
    line = one_line(serve(tmp_path, tokens="required"), 2)
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
            (("inference", "servers"), 1, "without I2"),
            (("training", "gpus_per_server"), 8, "with other GPUs in T1 T2"),
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
