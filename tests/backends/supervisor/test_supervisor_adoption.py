"""What outlives what: workers the daemon, exit codes everybody, no worker its supervisor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.backends.supervisor.bench import Bench, key, lives, soon, wait_for

from aryl.backends.supervisor import places, tree
from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor.limits import Group
from aryl.backends.supervisor.protocol import (
    SupervisorGone,
    WorkerExited,
    WorkerStarted,
    WorkerState,
    WorkerStatus,
)
from aryl.backends.supervisor.records import Record, Records
from aryl.errors import ArylError, ConflictError, FencedError

_ESCAPE = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("daemon.pid", "w").write(f"{os.getpid()}\\n")
        time.sleep(1000)
    os._exit(0)
os.wait()
time.sleep(1000)
"""


def test_workers_and_exit_codes_outlive_a_daemon_that_is_killed(bench: Bench) -> None:
    code = f"""
import os, sys
from pathlib import Path
from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor.protocol import WorkerKey, WorkerSpec
client = SupervisorClient.connect(Path({str(bench.state)!r}), 1, lambda event: None)
def spec(rank, *argv):
    log = {str(bench.folder)!r} + f"/log-{{rank}}"
    return WorkerSpec(WorkerKey("job-1", 1, 0, rank), argv, "/", dict(os.environ), log, "T1")
client.start([spec(0, "sleep", "1000"), spec(1, "sh", "-c", "sleep 0.5; exit 42")])
print(client.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.PIPE)
    assert killed.returncode == -signal.SIGKILL
    supervisor = int(killed.stdout)
    time.sleep(1.0)  # nobody is connected when the second worker ends
    client = bench.connect(2)
    assert client.pid == supervisor
    wait_for(lambda: client.list()[1].state.ended)
    first, second = client.list()
    assert first.state is WorkerState.RUNNING
    assert first.pid is not None
    assert lives(first.pid)
    assert (second.state, second.exit_code) == (WorkerState.EXITED, 42)


def test_closing_touches_nothing_and_the_next_client_hears_of_what_happens(bench: Bench) -> None:
    first = bench.connect()
    first.start([bench.spec("sleep", "1000")])
    bench.event(WorkerStarted)
    first.close()
    first.close()
    with pytest.raises(ArylError, match="closed"):
        first.list()
    assert not [event for event in bench.events if isinstance(event, SupervisorGone)]
    second = bench.connect()
    assert second.pid == first.pid
    second.stop([key()], soon())
    assert bench.exited(key()).signal == signal.SIGTERM


def test_exit_codes_outlive_the_supervisor(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.spec("sh", "-c", "exit 7")])
    bench.exited(key())
    os.kill(client.pid, signal.SIGKILL)
    bench.event(SupervisorGone)
    with pytest.raises(ArylError, match="lost"):
        client.list()
    again = bench.connect()
    assert again.pid != client.pid
    (status,) = again.list()
    assert (status.state, status.exit_code, status.meta) == (WorkerState.EXITED, 7, {"role": "test"})
    again.forget("job-1", 1)
    os.kill(again.pid, signal.SIGKILL)
    wait_for(lambda: not lives(again.pid))
    assert bench.connect().list() == []


def test_workers_of_a_killed_supervisor_are_killed_and_lost(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.python(_ESCAPE), bench.spec("sleep", "1000", which=key(1))])
    daemon = bench.number("daemon.pid")
    pids = [bench.event(WorkerStarted, lambda e: e.status.key.rank == 0).status.pid]
    pids.append(bench.event(WorkerStarted, lambda e: e.status.key.rank == 1).status.pid)
    os.kill(client.pid, signal.SIGKILL)
    wait_for(lambda: not lives(client.pid))
    assert all(pid is not None and lives(pid) for pid in pids)
    again = bench.connect()
    wait_for(lambda: all(status.state.ended for status in again.list()))
    for status, pid in zip(again.list(), pids, strict=True):
        assert status.state is WorkerState.LOST
        assert (status.exit_code, status.signal) == (None, None)
        assert status.pid == pid
        assert "supervisor died" in status.reason
        assert not lives(pid or 0)
    assert not lives(daemon)


@pytest.mark.parametrize("same_boot", [True, False])
def test_a_process_that_only_has_the_number_of_a_lost_worker_is_left_alone(
    bench: Bench, same_boot: bool
) -> None:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as innocent:
        try:
            process = tree.read(innocent.pid)
            assert process is not None
            places.make_private(bench.state)
            records = Records(bench.state)
            status = WorkerStatus(
                key(), "T1", (0,), {}, str(bench.log()), WorkerState.RUNNING, pid=innocent.pid
            )
            ticks = process.start_ticks - 1 if same_boot else process.start_ticks
            boot = tree.boot_id() if same_boot else "another boot"
            records.put(Record(status, ticks, boot))
            assert records.commit()
            records.close()
            client = bench.connect()
            wait_for(lambda: client.list()[0].state is WorkerState.LOST)
            assert innocent.poll() is None
        finally:
            innocent.kill()


def test_a_daemon_with_a_lower_token_is_shut_out(bench: Bench) -> None:
    old = bench.connect(3)
    new = bench.connect(4)
    assert bench.event(SupervisorGone).fenced
    with pytest.raises(FencedError):
        old.start([bench.spec("true")])
    with pytest.raises(FencedError):
        old.list()
    with pytest.raises(FencedError):
        bench.connect(3)
    assert bench.connect(4).list() == new.list() == []


def test_the_highest_token_outlives_the_supervisor(bench: Bench) -> None:
    client = bench.connect(5)
    os.kill(client.pid, signal.SIGKILL)
    wait_for(lambda: not lives(client.pid))
    with pytest.raises(FencedError, match="higher token"):
        bench.connect(4)
    assert bench.connect(5).pid != client.pid


def test_a_folder_has_one_supervisor(bench: Bench) -> None:
    client = bench.connect()
    command = [sys.executable, "-m", "aryl.backends.supervisor", "--dir", str(bench.state)]
    second = subprocess.run(command, check=False, capture_output=True, text=True)
    assert second.returncode == places.ANOTHER_RUNS
    assert "another supervisor runs" in second.stderr
    assert client.list() == []


def test_clients_that_come_at_the_same_time_find_the_same_supervisor(bench: Bench) -> None:
    clients: list[SupervisorClient] = []
    threads = [threading.Thread(target=lambda: clients.append(bench.connect())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({client.pid for client in clients}) == 1
    assert len(clients) == 4


def test_signals_of_a_terminal_do_not_end_it_while_workers_live(bench: Bench) -> None:
    client = bench.connect()
    assert os.getsid(client.pid) == client.pid != os.getsid(0)
    client.start([bench.spec("sleep", "1000")])
    bench.event(WorkerStarted)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(client.pid, number)
    (status,) = client.list()
    assert status.state is WorkerState.RUNNING
    wait_for(lambda: "asked to end" in (bench.state / places.LOG).read_text(encoding="utf-8"))
    client.stop([key()], soon())
    bench.exited(key())
    os.kill(client.pid, signal.SIGTERM)
    bench.event(SupervisorGone)
    wait_for(lambda: not lives(client.pid))
    assert {path.name for path in bench.state.iterdir()} >= {"records.jsonl", "fence", places.LOG}
    assert places.Address.read(bench.state) is None


def test_it_ends_by_itself_when_nobody_needs_it_and_not_before(bench: Bench) -> None:
    client = bench.connect(linger_s=0.2)
    client.start([bench.spec("sleep", "1000")])
    bench.event(WorkerStarted)
    client.close()
    time.sleep(0.5)
    assert lives(client.pid)  # a worker lives
    again = bench.connect(2)
    again.stop([key()], soon())
    bench.exited(key())
    time.sleep(0.5)
    assert lives(client.pid)  # a client is there
    again.close()
    wait_for(lambda: not lives(client.pid))
    (status,) = bench.connect(3).list()
    assert status.signal == signal.SIGTERM


def test_shutdown_is_refused_while_workers_live_unless_it_is_forced(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.spec("sleep", "1000")])
    pid = bench.event(WorkerStarted).status.pid
    with pytest.raises(ConflictError, match="1 workers live"):
        client.shutdown()
    client.shutdown(force=True)
    assert not lives(pid or 0)
    assert bench.event(WorkerExited).status.signal == signal.SIGKILL
    wait_for(lambda: not lives(client.pid))


def test_a_supervisor_that_does_not_answer_is_given_up(bench: Bench) -> None:
    client = bench.connect()
    os.kill(client.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ArylError, match="doesn't answer"):
            bench.connect(2, start_within_s=0.1)
    finally:
        os.kill(client.pid, signal.SIGCONT)
    # What it was asked before it woke up counts: the second one may have shut out the first.
    assert bench.connect(3).list() == []


def test_it_sleeps_while_there_is_nothing_to_do(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.spec("sleep", "1000")])
    bench.event(WorkerStarted)
    client.stop([key()], soon(term_in_s=3600, kill_in_s=7200))

    def ticks() -> int:
        fields = Path(f"/proc/{client.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(1.0)
    assert ticks() - before <= 10  # hundredths of a second; a loop that doesn't sleep takes what it can get


def test_a_deep_folder_is_no_obstacle(bench: Bench) -> None:
    bench.state = bench.folder.joinpath(*["a-folder-with-a-long-name"] * 6)
    client = bench.connect()
    assert len(client.report_socket) < 108
    assert Path(client.report_socket).is_socket()
    client.start([bench.spec("true")])
    assert bench.exited(key()).exit_code == 0
    os.kill(client.pid, signal.SIGKILL)
    wait_for(lambda: not lives(client.pid))
    again = bench.connect()
    assert not Path(client.report_socket).exists()
    assert (Path(again.report_socket).parent.stat().st_mode & 0o777) == 0o700
    again.shutdown()
    assert not Path(again.report_socket).parent.exists()


def test_a_worker_knows_a_program_of_the_same_name_by_its_own_path(bench: Bench) -> None:
    folder = bench.folder / "bin"
    folder.mkdir()
    program = folder / "true"
    program.write_text("#!/bin/sh\nexit 9\n", encoding="ascii")
    program.chmod(0o755)
    client = bench.connect()
    client.start([bench.spec("true", env={"PATH": str(folder)})])
    assert bench.exited(key()).exit_code == 9


def test_a_worker_over_its_memory_is_killed_and_says_so_where_the_system_can_limit_it(bench: Bench) -> None:
    client = bench.connect()
    limit = 64 << 20
    client.start([bench.python("data = b'x' * (256 << 20)", memory_bytes=limit)])
    client.start([bench.python("data = b'x' * (1 << 20)", key(1), memory_bytes=limit)])
    greedy, modest = bench.exited(key()), bench.exited(key(1))
    if client.limits == "none":
        assert (greedy.exit_code, greedy.reason) == (0, "")
    else:
        assert greedy.signal == signal.SIGKILL
        assert f"memory limit of {limit} bytes" in greedy.reason
    assert (modest.exit_code, modest.reason) == (0, "")


def test_control_groups_hold_the_worker_and_go_with_it(bench: Bench) -> None:
    client = bench.connect()
    which = key()
    client.start([bench.spec("sleep", "1000", which=which, memory_bytes=256 << 20, cpus=0.5)])
    pid = bench.event(WorkerStarted).status.pid
    line = (bench.state / "records.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    folders = tuple(json.loads(line)["cgroups"])
    assert Group(folders).members() == ({pid} if client.limits != "none" else set())
    limits = [Path(folder, name) for folder in folders for name in ("memory.limit_in_bytes", "memory.max")]
    assert [path.read_text(encoding="ascii").strip() for path in limits if path.exists()] == (
        [str(256 << 20)] if client.limits != "none" else []
    )
    client.stop([which], soon())
    bench.exited(which)
    wait_for(lambda: not any(Path(folder).exists() for folder in folders), "the end of the control groups")
    client.shutdown()
    wait_for(lambda: not any(Path(folder).parent.exists() for folder in folders))
