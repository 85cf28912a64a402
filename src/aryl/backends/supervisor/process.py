"""The supervisor's process: takes the lock of its folder, detaches itself if asked to, and serves.

    python -m aryl.backends.supervisor --dir DIR [--linger SECONDS] [--leftover-grace SECONDS] [--detach]
                                       [--leash DESCRIPTOR [--lease FILE --lease-lasts SECONDS]]

Exit code 0: nobody needed it any more (with `--detach`: it listens); 3: another one has the folder; 1: the
folder can't be used. One on a leash removes its folder in the end.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import resource
import shutil
import sys
from pathlib import Path

from aryl.backends.supervisor import places
from aryl.backends.supervisor.leash import Lease, Leash
from aryl.backends.supervisor.saying import say
from aryl.backends.supervisor.server import Options, Server

_PR_SET_CHILD_SUBREAPER = 36
_OPEN_FILES = 65536


def main(arguments: list[str] | None = None) -> int:
    """Run it. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="aryl-supervisor", description="Runs the workers of one state folder."
    )
    parser.add_argument("--dir", required=True, type=Path, help="its folder")
    parser.add_argument("--linger", type=float, default=30.0, help="seconds to stay when nobody needs it")
    parser.add_argument(
        "--leftover-grace", type=float, default=5.0, help="seconds between SIGTERM and SIGKILL for leftovers"
    )
    parser.add_argument("--detach", action="store_true", help="return as soon as it listens")
    parser.add_argument("--leash", type=int, help="a descriptor at whose end it ends, with all its workers")
    parser.add_argument("--lease", type=Path, help="a file with the time of the last leave to go on")
    parser.add_argument("--lease-lasts", type=float, default=30.0, help="seconds for which that holds")
    got = parser.parse_args(arguments)
    directory: Path = got.dir.absolute()
    os.umask(0o077)
    try:
        places.make_private(directory)
        if places.take_lock(directory) is None:
            print(f"another supervisor runs in {directory}", file=sys.stderr)
            return places.ANOTHER_RUNS
        told = _detach() if got.detach else None
        _become_the_parent_of_orphans()
        lease = None if got.lease is None else Lease(got.lease, got.lease_lasts)
        leash = None if got.leash is None else Leash(got.leash, lease)
        options = Options(got.linger, got.leftover_grace, _raise_open_files(), leash)
        server = Server(directory, os.getpid(), options)
        os.chdir("/")
    except (OSError, ValueError) as error:
        print(f"the folder {directory} can't be used: {error}", file=sys.stderr)
        return 1
    if told is not None:
        os.write(told, b"+")
        os.close(told)
    say(f"supervisor {os.getpid()} listens")
    gc.collect()
    gc.freeze()  # so that a fork doesn't copy what never changes
    server.run()
    say(f"supervisor {os.getpid()} ends")
    if leash is not None:
        shutil.rmtree(directory, ignore_errors=True)  # nobody will ask again
    return 0


def _detach() -> int:
    """Go on in a new process in a session of its own; the old one ends when it is told that all is well.
    Returns the descriptor to tell it through. The lock goes along.
    """
    told, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        well = bool(os.read(told, 1))
        os._exit(0 if well else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) or 1)
    os.close(told)
    os.setsid()
    return tell


def _become_the_parent_of_orphans() -> None:
    """So that nothing a worker starts gets out of sight. Raises OSError where the system can't do it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this system can't hand orphans to a subreaper")


def _raise_open_files() -> tuple[int, int]:
    """Allow enough open files for many starts at once. Returns what was allowed before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft, hard
