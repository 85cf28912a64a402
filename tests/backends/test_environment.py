"""What a worker finds in its environment: all of it, for each launcher, and nothing of the daemon's own."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aryl.backends.environment import (
    INHERITED,
    Post,
    Start,
    lighthouse_command,
    processes_of,
    worker_environment,
)
from aryl.backends.port import Gang, Launcher, Program
from aryl.core.model import Slot
from aryl.wire.job_file_fields import RESERVED_ENV, RESERVED_PREFIXES

PROGRAM = Program(
    ("python", "train.py"),
    "/jobs",
    env=(("EPOCHS", "3"),),
    checkpoint_dir="/jobs/ckpt",
    notice_signal="USR1",
    grace_s=2.5,
)
# The second of two workers on the second of two servers.
POST = Post(rank=3, server_id="T2", server_rank=1, local_rank=1, local_size=2, gpus=(5,), visible=(4, 5))
DAEMON = {
    "PATH": "/bin",
    "HOME": "/nowhere",
    "LANG": "C.UTF-8",
    "LD_LIBRARY_PATH": "/cuda",
    "ARYL_TOKEN": "aryl_secret",
    "PGPASSWORD": "secret",
    "DATABASE_URL": "postgresql://aryl:secret@host/aryl",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "CUDA_VISIBLE_DEVICES": "9",
    "RANK": "7",
    "PYTHONPATH": "/daemon",
}
EVERY = {
    "PATH": "/bin",
    "HOME": "/nowhere",
    "LANG": "C.UTF-8",
    "LD_LIBRARY_PATH": "/cuda",
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "EPOCHS": "3",
    "CUDA_VISIBLE_DEVICES": "4,5",
    "ARYL_JOB_ID": "resnet-17",
    "ARYL_ATTEMPT": "2",
    "ARYL_GENERATION": "4",
    "ARYL_RANK": "3",
    "ARYL_SERVER_ID": "T2",
    "ARYL_RUN_DIR": "/state/run",
    "ARYL_CHECKPOINT_DIR": "/jobs/ckpt",
    "ARYL_REPORT": "/state/reports.sock",
    "ARYL_GRACE_S": "2.5",
    "ARYL_NOTICE_SIGNAL": "USR1",
}
OWN = {
    Launcher.PROCESS: {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    },
    Launcher.TORCHRUN: {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": "29500",
        "PET_MAX_RESTARTS": "0",
        "PET_RDZV_BACKEND": "static",
    },
    Launcher.TORCHFT: {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "0",
        "REPLICA_GROUP_ID": "3",
        "TORCHFT_LIGHTHOUSE": "http://127.0.0.1:29500",
    },
}


def start(program: Program = PROGRAM) -> Start:
    slots = (Slot("T1", 2, 0, 1), Slot("T2", 2, 0, 1))
    return Start(
        Gang("resnet-17", 2, 1, slots, program),
        generation=4,
        world_size=4,
        servers=2,
        host="127.0.0.1",
        port=29500,
        run_dir=Path("/state/run"),
        checkpoint_dir=Path("/jobs/ckpt"),
        report_socket="/state/reports.sock",
    )


@pytest.mark.parametrize("launcher", Launcher)
def test_the_whole_environment_of_a_worker(launcher: Launcher) -> None:
    """Nothing of the daemon is in it but a short list, and nothing else that isn't written here."""
    program = replace(PROGRAM, launcher=launcher)
    assert worker_environment(start(program), POST, DAEMON) == EVERY | OWN[launcher]


def test_a_program_that_cannot_save_on_notice_is_told_of_no_signal() -> None:
    found = worker_environment(start(replace(PROGRAM, notice_signal="")), POST, DAEMON)
    usual = EVERY | OWN[Launcher.PROCESS]
    assert found == {key: value for key, value in usual.items() if key != "ARYL_NOTICE_SIGNAL"}


def test_the_users_word_counts_more_than_the_daemons_and_the_schedulers_more_than_the_users() -> None:
    """Job files can't set what the scheduler sets; a store that somebody wrote into couldn't either."""
    taken = tuple((name, "mine") for name in (*EVERY, *OWN[Launcher.PROCESS]))
    found = worker_environment(start(replace(PROGRAM, env=taken)), POST, DAEMON)
    theirs = set(INHERITED) | {"EPOCHS", "PYTHONUNBUFFERED", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME"}
    for name, value in (EVERY | OWN[Launcher.PROCESS]).items():
        assert found[name] == ("mine" if name in theirs else value), name


@pytest.mark.parametrize("launcher", Launcher)
def test_all_that_the_scheduler_sets_is_refused_in_job_files(launcher: Launcher) -> None:
    bare = replace(PROGRAM, env=(), launcher=launcher)
    ours = set(worker_environment(start(bare), POST, {})) - {
        "PATH",
        "PYTHONUNBUFFERED",
        "OMP_NUM_THREADS",
        "GLOO_SOCKET_IFNAME",
    }
    assert {name for name in ours - RESERVED_ENV if not name.startswith(RESERVED_PREFIXES)} == set()


names = st.text(st.characters(codec="ascii", categories=["Lu"], include_characters="_"), min_size=1)


@given(st.dictionaries(names, st.text(max_size=5)))
def test_whatever_the_daemon_has_only_the_list_is_inherited(daemon: dict[str, str]) -> None:
    secret = {name: f"secret-{value}" for name, value in daemon.items()}
    found = worker_environment(start(), POST, secret)
    leaked = {name for name, value in found.items() if value.startswith("secret-")}
    assert leaked <= set(INHERITED)


def test_there_is_always_a_path_to_find_programs_by() -> None:
    assert worker_environment(start(), POST, {})["PATH"] == os.defpath


def test_by_default_it_is_this_process_that_is_inherited_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARYL_TOKEN", "aryl_secret")
    monkeypatch.setenv("TZ", "Europe/Zurich")
    found = worker_environment(start(), POST)
    assert found["TZ"] == "Europe/Zurich"
    assert "ARYL_TOKEN" not in found


def test_the_lighthouse_is_run_by_this_python() -> None:
    assert lighthouse_command(Path("/state/run"), "10.0.0.1", 29500) == (
        sys.executable,
        "-m",
        "aryl.train.lighthouse",
        "--host",
        "10.0.0.1",
        "--port",
        "29500",
        "--port-file",
        "/state/run/lighthouse",
    )


@pytest.mark.parametrize(
    ("launcher", "processes"), [(Launcher.PROCESS, 5), (Launcher.TORCHRUN, 2), (Launcher.TORCHFT, 5)]
)
def test_torchrun_has_an_agent_a_server_and_the_others_a_process_a_worker(
    launcher: Launcher, processes: int
) -> None:
    program = replace(PROGRAM, launcher=launcher)
    assert processes_of(program, [("T1", 2), ("T2", 0), ("T3", 3)]) == processes
