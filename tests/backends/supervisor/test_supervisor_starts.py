"""What a worker finds when it starts, what is known of how it ended, and starts that fail."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.backends.supervisor.bench import Bench, key, lives, soon, wait_for

from aryl.backends.supervisor.protocol import WorkerExited, WorkerSpec, WorkerStarted, WorkerState
from aryl.errors import ArylError

_LOOK_AROUND = """
import json, os, resource, signal, sys
mask = os.umask(0)
print(json.dumps({
    "env": dict(os.environ), "cwd": os.getcwd(), "stdin": os.readlink("/proc/self/fd/0"),
    "session": os.getsid(0), "pid": os.getpid(), "umask": mask,
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "files": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    "ignored": [name for name in ("USR1", "USR2", "TERM", "INT", "HUP", "PIPE", "CHLD")
                if signal.getsignal(getattr(signal, "SIG" + name)) is signal.SIG_IGN],
    "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
}), flush=True)
print("to stderr", file=sys.stderr)
sys.exit(75)
"""


def test_a_worker_finds_what_it_was_given_and_nothing_of_the_supervisor(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.python(_LOOK_AROUND)])
    status = bench.exited(key())
    assert (status.state, status.exit_code, status.signal) == (WorkerState.EXITED, 75, None)
    assert (status.server_id, status.gpus, status.meta) == ("T1", (0,), {"role": "test"})
    first, second = bench.said().splitlines()
    found = json.loads(first)
    assert second == "to stderr"
    mark = found["env"].pop("ARYL_WORKER")
    assert mark.endswith("/job-1.1.0.0")
    found["env"].pop("LC_CTYPE", None)  # Python's own
    assert found["env"] == {"PATH": os.environ["PATH"]}
    assert found["cwd"] == str(bench.folder)
    assert found["stdin"] == "/dev/null"
    assert found["session"] == found["pid"] == status.pid
    assert found["core"] == [0, 0]
    assert found["umask"] == 0o022
    assert found["files"][:3] == [0, 1, 2]
    assert len(found["files"]) == 4  # the last is the listing's own
    assert found["ignored"] == ["PIPE"]  # Python's own
    assert found["blocked"] == []


def test_started_comes_before_exited_with_times_that_ascend(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.spec("true")])
    exited = bench.event(WorkerExited)
    started = bench.event(WorkerStarted)
    assert bench.events.index(started) < bench.events.index(exited)
    assert started.status.state is WorkerState.RUNNING
    assert started.at_unix_s <= exited.at_unix_s
    assert exited.status.started_unix_s == started.at_unix_s
    assert exited.status.ended_unix_s == exited.at_unix_s
    assert not exited.status.told_to_stop


def test_a_signal_that_ended_a_worker_is_told(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.spec("sh", "-c", "kill -SEGV $$")])
    status = bench.exited(key())
    assert (status.exit_code, status.signal) == (None, signal.SIGSEGV)


def test_a_notice_before_the_program_has_its_handler_does_no_harm(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.python("import time; time.sleep(0.3); print('unharmed')")])
    client.stop([key()], soon("USR1", term_in_s=3600))
    assert bench.exited(key()).exit_code == 0
    assert bench.said() == "unharmed\n"


def _not_executable(bench: Bench) -> WorkerSpec:
    path = bench.folder / "program"
    path.write_text("#!/bin/sh\n", encoding="ascii")
    return bench.spec(str(path))


def _neither_binary_nor_script(bench: Bench) -> WorkerSpec:
    path = bench.folder / "program"
    path.write_text("echo no shell is asked\n", encoding="ascii")
    path.chmod(0o755)
    return bench.spec(str(path))


@pytest.mark.parametrize(
    ("make", "code", "reason"),
    [
        (lambda bench: bench.spec("no-such-program"), 127, "the program no-such-program can't be started"),
        (lambda bench: bench.spec("true", cwd="/no/such/folder"), 126, "/no/such/folder can't be entered"),
        (_not_executable, 126, "Permission denied"),
        (_neither_binary_nor_script, 126, "Exec format error"),
    ],
)
def test_a_start_that_fails_is_an_exit_with_a_reason_that_the_log_tells_too(
    bench: Bench, make: object, code: int, reason: str
) -> None:
    assert callable(make)
    client = bench.connect()
    client.start([make(bench)])
    status = bench.exited(key())
    assert (status.state, status.exit_code) == (WorkerState.EXITED, code)
    assert reason in status.reason
    assert reason in bench.said()
    assert not [event for event in bench.events if isinstance(event, WorkerStarted)]


def test_a_log_that_cannot_be_opened_is_a_reason_not_to_start(bench: Bench) -> None:
    bench.log().mkdir(parents=True)  # a folder in its place
    client = bench.connect()
    client.start([bench.spec("true")])
    status = bench.exited(key())
    assert status.exit_code == 126
    assert "can't be opened" in status.reason


def test_a_key_is_started_once_however_often_it_is_asked_for(bench: Bench) -> None:
    client = bench.connect()
    code = "open('starts', 'a').write('x')"
    client.start([bench.python(code)])
    client.start([bench.python(code)])
    bench.exited(key())
    client.start([bench.python(code), bench.python(code, key(1))])
    bench.exited(key(1))
    assert (bench.folder / "starts").read_text(encoding="ascii") == "xx"


def test_a_line_stands_between_generations_in_a_log(bench: Bench) -> None:
    client = bench.connect()
    for generation in (0, 1):
        which = key(generation=generation)
        client.start([bench.spec("echo", f"generation {generation} speaks", which=which)])
        bench.exited(which)
    first, line, last = bench.said().splitlines()
    assert (first, last) == ("generation 0 speaks", "generation 1 speaks")
    assert line.startswith("--- generation 1, started 2")
    assert line.endswith(" ---")


def test_ended_workers_are_listed_until_they_are_forgotten(bench: Bench) -> None:
    client = bench.connect()
    here, there, other = key(0), key(1), key(0, job="other-2")
    client.start([bench.spec("true", which=here), bench.spec("sleep", "1000", which=there)])
    client.start([bench.spec("true", which=other)])
    bench.exited(here)
    bench.exited(other)
    assert [(status.key, status.state) for status in client.list()] == [
        (here, WorkerState.EXITED),
        (there, WorkerState.RUNNING),
        (other, WorkerState.EXITED),
    ]
    assert client.forget("job-1", 1) == (there,)
    assert [status.key for status in client.list()] == [there, other]
    assert client.forget("nobody-9", 1) == ()


def test_two_hundred_workers_start_in_one_go_and_leave_in_one_go(bench: Bench) -> None:
    client = bench.connect()
    keys = [key(rank) for rank in range(200)]
    client.start([bench.spec("sleep", "1000", which=which) for which in keys])
    pids = set()
    for which in keys:
        event = bench.event(WorkerStarted, lambda event, which=which: event.status.key == which)  # type: ignore[misc]
        pids.add(event.status.pid)
    assert len(pids) == 200
    resident = Path(f"/proc/{client.pid}/status").read_text(encoding="ascii").split("VmHWM:")[1].split()[0]
    assert int(resident) < 60_000  # KiB
    client.stop(keys, soon())
    assert {bench.exited(which).signal for which in keys} == {signal.SIGTERM}


def test_a_worker_that_is_told_to_stop_before_its_turn_never_starts(bench: Bench) -> None:
    client = bench.connect()
    client.start([])
    # Starts are taken a few at a time, so that the last are still waiting when the stop comes.
    keys = [key(rank) for rank in range(100)]
    client.start([bench.spec("sleep", "1000", which=which) for which in keys])
    client.stop(keys, soon())
    statuses = [bench.exited(which) for which in keys]
    assert all(status.told_to_stop and status.signal == signal.SIGTERM for status in statuses)
    never = [status for status in statuses if status.pid is None]
    assert all(status.reason == "stopped before it was started" for status in never)
    assert not any(lives(status.pid) for status in statuses if status.pid is not None)


def test_a_supervisor_that_cannot_be_started_says_why(bench: Bench) -> None:
    bench.state.mkdir()
    (bench.state / "fence").write_text("not a number", encoding="ascii")
    with pytest.raises(ArylError, match="can't be used: invalid literal"):
        bench.connect()
    (bench.state / "fence").unlink()
    client = bench.connect()
    wait_for(lambda: lives(client.pid))
