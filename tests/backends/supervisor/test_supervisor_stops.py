"""How workers leave: in the order of their schedule, and with all that they started."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.backends.supervisor.bench import Bench, key, lives, soon, wait_for

from aryl.backends.supervisor import tree
from aryl.backends.supervisor.protocol import WorkerExited, WorkerStarted, WorkerState, WorkerStuck

_STUBBORN = """
import signal, time
def note(number, frame): print(signal.Signals(number).name, time.time(), flush=True)
signal.signal(signal.SIGUSR1, note)
signal.signal(signal.SIGTERM, note)
print("ready", flush=True)
while True: time.sleep(1000)
"""
# Starts a process in a session of its own, as torchrun does, that notes what it gets.
_WITH_CHILD = f"""
import subprocess, sys, time
command = [sys.executable, "-I", "-S", "-c", {_STUBBORN!r}]
child = subprocess.Popen(command, stdout=open("child.log", "w"), start_new_session=True)
open("child.pid", "w").write(f"{{child.pid}}\\n")
time.sleep(1000)
"""
# Becomes a daemon: forks twice, in a session of its own, with an environment that says nothing of the worker.
_ESCAPE = """
import os, sys, time
def escape(name):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(name, "w").write(f"{os.getpid()}\\n")
            os.execve("/bin/sleep", ["sleep", "1000"], {})
        os._exit(0)
    os.wait()
    while not os.path.exists(name): time.sleep(0.01)
"""


def test_notice_term_and_kill_come_in_order_and_not_before_their_time(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.python(_STUBBORN)])
    bench.wait_until_said("ready")
    schedule = soon("USR1", term_in_s=1.5, kill_in_s=4.5)  # time enough for a busy machine
    client.stop([key()], schedule)
    status = bench.exited(key())
    assert (status.signal, status.exit_code, status.told_to_stop) == (signal.SIGKILL, None, True)
    _, notice, term = (line.split() for line in bench.said().splitlines())
    assert (notice[0], term[0]) == ("SIGUSR1", "SIGTERM")
    slack_s = 0.05  # the two clocks are read one after the other
    assert float(notice[1]) >= schedule.notice_at_unix_s - slack_s
    assert float(term[1]) >= schedule.term_at_unix_s - slack_s
    assert status.ended_unix_s is not None
    assert status.ended_unix_s >= schedule.kill_at_unix_s - slack_s


def test_a_worker_that_saves_on_notice_tells_so_by_its_exit_code(bench: Bench) -> None:
    client = bench.connect()
    client.start(
        [
            bench.python(
                "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: os._exit(75))\n"
                "print('ready', flush=True)\nwhile True: signal.pause()"
            )
        ]
    )
    bench.wait_until_said("ready")
    client.stop([key()], soon("USR1", term_in_s=3600))
    assert bench.exited(key()).exit_code == 75


def test_a_second_stop_can_only_make_it_earlier(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.python(_STUBBORN), bench.python(_STUBBORN, key(1))])
    for rank in (0, 1):
        bench.wait_until_said("ready", key(rank))
    client.stop([key(0)], soon(term_in_s=3600, kill_in_s=7200))
    client.stop([key(0)], soon(kill_in_s=0.5))
    client.stop([key(1)], soon(kill_in_s=0.5))
    client.stop([key(1)], soon(term_in_s=3600, kill_in_s=7200))
    for rank in (0, 1):
        assert bench.exited(key(rank)).signal == signal.SIGKILL


def test_unknown_and_ended_workers_are_passed_over(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.spec("true")])
    bench.exited(key())
    client.stop([key(), key(7)], soon())
    (status,) = client.list()
    assert (status.exit_code, status.told_to_stop) == (0, False)


def test_children_in_sessions_of_their_own_get_all_three_too(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.python(_WITH_CHILD)])
    child = bench.number("child.pid")
    said = bench.folder / "child.log"
    wait_for(lambda: "ready" in said.read_text(encoding="ascii"))
    client.stop([key()], soon("USR1", term_in_s=3600))
    wait_for(lambda: "SIGUSR1" in said.read_text(encoding="ascii"))
    client.stop([key()], soon())
    wait_for(lambda: "SIGTERM" in said.read_text(encoding="ascii"))
    # The leader is gone with SIGTERM, but the worker only with its child.
    client.stop([key()], soon(kill_in_s=0.0))
    assert bench.exited(key()).signal == signal.SIGTERM
    assert not lives(child)
    assert [line.split()[0] for line in said.read_text(encoding="ascii").splitlines()] == [
        "ready",
        "SIGUSR1",
        "SIGTERM",
    ]


def test_a_helper_without_a_handler_does_not_die_of_the_notice(bench: Bench) -> None:
    client = bench.connect()
    client.start(
        [
            bench.python(
                "import os, signal, subprocess, time\n"
                "def note(*_): print('noticed', helper.poll(), flush=True)\n"
                "helper = subprocess.Popen(['sleep', '1000'],"
                " preexec_fn=lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL))\n"
                "signal.signal(signal.SIGUSR1, note)\n"
                "print('ready', flush=True)\nwhile True: time.sleep(1000)"
            )
        ]
    )
    bench.wait_until_said("ready")
    client.stop([key()], soon("USR1", term_in_s=3600))
    bench.wait_until_said("noticed")
    client.stop([key()], soon())
    bench.exited(key())
    assert bench.said() == "ready\nnoticed None\n"


def test_a_shell_can_trap_the_notice(bench: Bench) -> None:
    client = bench.connect()
    script = "trap 'echo noticed; exit 75' USR1; echo ready; while :; do sleep 0.05; done"
    client.start([bench.spec("/bin/sh", "-c", script)])
    bench.wait_until_said("ready")
    client.stop([key()], soon("USR1", term_in_s=3600))
    assert bench.exited(key()).exit_code == 75
    assert bench.said().splitlines() == ["ready", "noticed"]


def test_the_notice_waits_for_a_program_that_is_still_loading_and_comes_once(bench: Bench) -> None:
    client = bench.connect()
    client.start(
        [
            bench.python(
                "import os, signal, time\n"
                "print('loading', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
                "signal.signal(signal.SIGUSR1, lambda *_: print('noticed', flush=True))\n"
                "print('ready', flush=True)\nwhile True: time.sleep(1000)"
            )
        ]
    )
    bench.wait_until_said("loading")
    client.stop([key()], soon("USR1", term_in_s=3600))
    time.sleep(0.3)  # the notice is due long ago
    (bench.folder / "go").touch()
    bench.wait_until_said("noticed")
    time.sleep(1.0)  # it would come again by now
    client.stop([key()], soon())
    bench.exited(key())
    assert sorted(bench.said().split()) == ["loading", "noticed", "ready"]


def test_a_process_that_waits_for_the_notice_by_blocking_it_gets_it(bench: Bench) -> None:
    client = bench.connect()
    client.start(
        [
            bench.python(
                "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n"
                "print('ready', flush=True)\nsignal.sigwait({signal.SIGUSR1})\nraise SystemExit(75)"
            )
        ]
    )
    bench.wait_until_said("ready")
    client.stop([key()], soon("USR1", term_in_s=3600))
    assert bench.exited(key()).exit_code == 75


def test_what_a_program_forks_in_order_to_save_is_not_told_to_leave(bench: Bench) -> None:
    client = bench.connect()
    client.start(
        [
            bench.python(
                "import os, signal, time\n"
                "def leave(*_):\n"
                "    if os.getpid() != first: os._exit(1)\n"
                "    if (saver := os.fork()) == 0:\n"
                "        time.sleep(1)\n"
                "        os._exit(7)\n"
                "    os._exit(os.waitstatus_to_exitcode(os.waitpid(saver, 0)[1]))\n"
                "first = os.getpid()\nsignal.signal(signal.SIGUSR1, leave)\n"
                "print('ready', flush=True)\nwhile True: time.sleep(1000)"
            )
        ]
    )
    bench.wait_until_said("ready")
    client.stop([key()], soon("USR1", term_in_s=3600))
    assert bench.exited(key()).exit_code == 7


def test_a_stopped_process_gets_its_term(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.python("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")])
    stat = Path(f"/proc/{bench.event(WorkerStarted).status.pid}/stat")
    wait_for(lambda: stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T")
    client.stop([key()], soon())
    assert bench.exited(key()).signal == signal.SIGTERM


def test_an_exit_is_reported_only_when_a_daemon_that_was_left_behind_is_gone(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.python(f"{_ESCAPE}\nescape('daemon.pid')\nsys.exit(3)")])
    status = bench.exited(key())
    assert status.exit_code == 3
    assert not lives(bench.number("daemon.pid"))


def test_what_is_left_behind_and_ignores_term_is_killed(bench: Bench) -> None:
    bench.state.mkdir(mode=0o700)
    command = [sys.executable, "-m", "aryl.backends.supervisor", "--dir", str(bench.state)]
    with subprocess.Popen([*command, "--leftover-grace", "0.2", "--linger", "60"]) as process:
        wait_for((bench.state / "address.json").exists)
        client = bench.connect()
        assert client.pid == process.pid
        client.start([bench.python(_WITH_CHILD.replace("time.sleep(1000)\n", "time.sleep(1)\n"))])
        child = bench.number("child.pid")
        assert bench.exited(key()).exit_code == 0
        assert not lives(child)
        client.shutdown()
        assert process.wait() == 0


def test_whoever_ended_by_itself_was_not_told_to_stop_even_if_something_is_left(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.python(_WITH_CHILD.replace("time.sleep(1000)\n", "sys.exit(1)\n"))])
    pid = bench.event(WorkerStarted).status.pid
    assert pid is not None
    child = bench.number("child.pid")
    wait_for(lambda: tree.read(pid) is None)  # reaped
    client.stop([key()], soon(kill_in_s=0.0))
    status = bench.exited(key())
    assert (status.exit_code, status.told_to_stop) == (1, False)
    assert not lives(child)


def test_a_daemon_that_may_be_of_two_workers_goes_with_the_last_of_them(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.spec("sleep", "1000", which=key(1))])
    bench.event(WorkerStarted, lambda event: event.status.key == key(1))
    elsewhere = "null = os.open(os.devnull, os.O_WRONLY); os.dup2(null, 1); os.dup2(null, 2)"
    client.start([bench.python(f"{_ESCAPE}\n{elsewhere}\nescape('daemon.pid')")])
    bench.exited(key(0))
    daemon = bench.number("daemon.pid")
    assert lives(daemon)
    client.stop([key(1)], soon())
    bench.exited(key(1))
    assert not lives(daemon)


def test_a_daemon_that_prints_into_the_log_of_its_worker_goes_with_it(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.spec("sleep", "1000", which=key(1))])
    bench.event(WorkerStarted, lambda event: event.status.key == key(1))
    client.start([bench.python(f"{_ESCAPE}\nescape('daemon.pid')")])
    bench.exited(key(0))
    assert not lives(bench.number("daemon.pid"))
    client.stop([key(1)], soon())
    bench.exited(key(1))


def test_the_schedule_is_kept_when_the_daemon_is_dead(bench: Bench) -> None:
    code = f"""
import os, sys, time
from pathlib import Path
from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor import tree
from aryl.backends.supervisor.protocol import StopSchedule, WorkerKey, WorkerSpec
client = SupervisorClient.connect(Path({str(bench.state)!r}), 1, lambda event: None)
argv = (sys.executable, "-I", "-S", "-c", {_STUBBORN!r})
key = WorkerKey("job-1", 1, 0, 0)
log = Path({str(bench.log())!r})
client.start([WorkerSpec(key, argv, "/", {{}}, str(log), "T1")])
while not log.exists() or "ready" not in log.read_text(): time.sleep(0.01)
now = time.time()
client.stop([key], StopSchedule("USR1", now + 0.5, now + 2.0, now + 5.0))
os.kill(os.getpid(), 9)
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    client = bench.connect(2)
    wait_for(lambda: client.list()[0].state.ended)
    assert client.list()[0].signal == signal.SIGKILL
    assert [line.split()[0] for line in bench.said().splitlines()] == ["ready", "SIGUSR1", "SIGTERM"]


# Anybody may trace it, also where the system lets only parents do that.
_TRACEABLE = """
import ctypes, time
ctypes.CDLL(None).prctl(0x59616d61, -1, 0, 0, 0)
print("ready", flush=True)
time.sleep(1000)
"""
_PTRACE_SEIZE, _PTRACE_DETACH, _PTRACE_O_TRACEEXIT, _WALL = 0x4206, 17, 0x40, 0x40000000


@contextmanager
def _held_at_its_end(pid: int) -> Iterator[None]:
    """Even SIGKILL doesn't get the process further than to the moment before its end."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    assert libc.ptrace(_PTRACE_SEIZE, pid, 0, _PTRACE_O_TRACEEXIT) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        os.waitpid(pid, _WALL)
        assert libc.ptrace(_PTRACE_DETACH, pid, 0, 0) == 0, os.strerror(ctypes.get_errno())


def test_a_worker_that_does_not_die_is_stuck_until_it_does(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.python(_TRACEABLE)])
    bench.wait_until_said("ready")
    pid = bench.event(WorkerStarted).status.pid
    assert pid is not None
    with _held_at_its_end(pid):
        client.stop([key()], soon(kill_in_s=0.0, stuck_after_s=0.2))
        stuck = bench.event(WorkerStuck)
        assert (stuck.key, stuck.server_id, stuck.stuck) == (key(), "T1", True)
        (status,) = client.list()
        assert status.stuck
        assert not status.state.ended
    status = bench.exited(key())
    assert status.signal == signal.SIGKILL
    assert not status.stuck
    gone = bench.event(WorkerStuck, lambda event: not event.stuck)
    assert bench.events.index(gone) < bench.events.index(bench.event(WorkerExited))


def test_a_stuck_worker_of_a_killed_supervisor_is_stuck_for_the_next_one(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.python(_TRACEABLE)])
    bench.wait_until_said("ready")
    pid = bench.event(WorkerStarted).status.pid
    assert pid is not None
    with _held_at_its_end(pid):
        os.kill(client.pid, signal.SIGKILL)
        wait_for(lambda: not lives(client.pid))
        again = bench.connect(2)
        wait_for(lambda: Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2] == "t")
        again.stop([key()], soon(kill_in_s=0.0, stuck_after_s=0.2))
        assert bench.event(WorkerStuck).stuck
        (status,) = again.list()
        assert not status.state.ended
    assert bench.exited(key()).state is WorkerState.LOST
