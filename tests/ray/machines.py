"""The processes that stand for the machines of a Ray cluster: `python -m tests.ray.machines FOLDER WIRED`.

The *yard* imports Ray once and forks a *machine* for each name, which forks a *starter* for each time that
Ray is started there; so a raylet costs its own start only. A machine is the subreaper of all that is started
on it: whatever outlives its raylet is still found under it. When the yard's standard input ends, because
the tests close it or because they have died, the yard ends everything and removes the folder.

Requests are lines of JSON on a Unix socket in the folder, one for the yard and one for each machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

YARD = "yard"
_PARENT_DEATH_SIGNAL = 1
_CHILD_SUBREAPER = 36
_EVERY_S = 0.05

Request = dict[str, Any]


def descendants(pid: int) -> list[int]:
    """All processes below one, from /proc; those that have ended but weren't waited for aside."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    below = [pid]
    while below:
        new = children.get(below.pop(), [])
        found += new
        below += new
    return found


def main() -> None:
    """Be the yard."""
    folder, wired = Path(sys.argv[1]), sys.argv[2] == "wired"
    for name in ("node", "parameter"):
        importlib.import_module(f"ray._private.{name}")
    gc.freeze()
    switch = None
    if wired:
        from tests.ray.wires import Switch

        switch = Switch()
    _prctl(_CHILD_SUBREAPER, 1)

    def machine(request: Request) -> Request:
        return {"pid": _fork_machine(folder, switch, request["name"], request["number"])}

    def turn(request: Request) -> Request:
        assert switch is not None
        switch.turn(request["number"], request["on"])
        return {}

    try:
        _serve(folder / YARD, {"machine": machine, "turn": turn}, sys.stdin.fileno())
    finally:
        while below := descendants(os.getpid()):
            for pid in below:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _reap()
            time.sleep(0.01)
        shutil.rmtree(folder, ignore_errors=True)


def _fork_machine(folder: Path, switch: Any, name: str, number: int) -> int:
    """`number`: of its cable; 0 if it is on no cable. Returns its process id."""
    moved, connected = os.pipe(), os.pipe()
    pid = os.fork()
    if pid:
        os.close(moved[1])
        os.close(connected[0])
        try:
            os.read(moved[0], 1)
            if number:
                switch.connect(number, pid)
        finally:
            os.close(moved[0])
            os.close(connected[1])
        return pid
    with _ending():
        _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        _prctl(_CHILD_SUBREAPER, 1)
        os.close(connected[1])
        if number:
            from tests.ray.wires import leave_network

            leave_network()
        elif switch is not None:
            switch.enter_outside()
        os.close(moved[1])
        os.read(connected[0], 1)
        if number:
            switch.answer(number)

        def start(request: Request) -> Request:
            return {"pid": _fork_starter(folder, request)}

        def run(request: Request) -> Request:
            return {"pid": _fork_program(request["argv"])}

        _serve(folder / name, {"start": start, "run": run}, None)
    raise AssertionError("unreachable")


def _fork_starter(folder: Path, request: Request) -> int:
    """Start the processes of Ray of a machine; what came of it is said in the file that is named."""
    pid = os.fork()
    if pid:
        return pid
    with _ending():
        _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        os.environ.update(request["env"])
        answer = folder / request["answer"]
        try:
            said, raylet = _start_ray(request["head"], request["params"])
        except BaseException:
            _say(answer, {"failed": traceback.format_exc()})
            raise
        _say(answer, said)
        raylet.wait()
    raise AssertionError("unreachable")


def _start_ray(head: bool, params: Request) -> tuple[Request, Any]:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    # "Reaper" is Ray's word for: its processes end with this one, by the kernel.
    node = Node(RayParams(**params), head=head, shutdown_at_exit=False, spawn_reaper=True)
    raylet = node.all_processes["raylet"][0].process
    said = {"node_id": node.node_id, "address": node.gcs_address, "raylet": raylet.pid}
    return said, raylet


def _fork_program(argv: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    with _ending():
        _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        os.execv(argv[0], argv)
    raise AssertionError("unreachable")


def _serve(path: Path, answers: dict[str, Callable[[Request], Request]], until: int | None) -> None:
    """Answer requests until there is something to read at `until`; reap what ends meanwhile."""
    with socket.socket(socket.AF_UNIX) as listener:
        # Under its name it listens already.
        new = path.with_suffix(".new")
        listener.bind(str(new))
        listener.listen(16)
        new.rename(path)
        sources: list[Any] = [listener, *([] if until is None else [until])]
        while True:
            ready = select.select(sources, [], [], _EVERY_S)[0]
            _reap()
            if until in ready:
                return
            if listener not in ready:
                continue
            with listener.accept()[0] as asker, asker.makefile("rw") as lines:
                request = json.loads(lines.readline())
                try:
                    said = answers[request["what"]](request)
                except Exception:
                    said = {"failed": traceback.format_exc()}
                lines.write(json.dumps(said) + "\n")


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _say(path: Path, said: Request) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(said))
    new.rename(path)


class _ending:  # noqa: N801
    """A forked process never returns into the code of its parent."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            traceback.print_exception(*error)
        os._exit(1 if error[0] is not None else 0)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    main()
