"""The lighthouse of a torchft job: it keeps the quorum. `python -m aryl.train.lighthouse --port-file FILE`.

It is torchft's own, with settings under which a lost worker is noticed in half a second, and loaded without
torch, which the package would import: 14 MB and a hundredth of a second instead of 300 MB and two seconds.

It has to live as long as the workers: they can't take up with another one.
"""

from __future__ import annotations

import argparse
import os
import signal
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HEARTBEAT_TIMEOUT_MS = 500  # ten heartbeats of a `Replica`
QUORUM_TICK_MS = 20
# Longer than a save takes: whoever saves keeps the others waiting, and must not be left behind for it.
JOIN_TIMEOUT_MS = 30_000


def start_lighthouse(
    port: int = 0,
    *,
    host: str = "127.0.0.1",
    min_workers: int = 1,
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS,
    join_timeout_ms: int = JOIN_TIMEOUT_MS,
) -> tuple[Any, str]:
    """Start one in this process; returns it (it has `shutdown()`) and its address for TORCHFT_LIGHTHOUSE.

    Raises ModuleNotFoundError where torchft isn't installed, RuntimeError if the port is taken.
    """
    server = _extension().LighthouseServer(
        bind=f"{host}:{port}",
        min_replicas=min_workers,
        join_timeout_ms=join_timeout_ms,
        quorum_tick_ms=QUORUM_TICK_MS,
        heartbeat_timeout_ms=heartbeat_timeout_ms,
    )
    return server, f"http://{host}:{urlsplit(server.address()).port}"


def _extension() -> Any:
    package = find_spec("torchft")
    folders = package.submodule_search_locations if package is not None else None
    for folder in folders or ():
        for file in Path(folder).glob("_torchft*.so"):
            os.environ.setdefault("RUST_LOG", "error")  # by default it writes several lines a step
            loader = ExtensionFileLoader("_torchft", str(file))
            spec = spec_from_loader("_torchft", loader)
            if spec is None:  # a loader that was just made always gives one
                break
            module = module_from_spec(spec)
            loader.exec_module(module)
            return module
    msg = "torchft isn't installed; the launcher torchft needs it: pip install 'aryl[torch]'"
    raise ModuleNotFoundError(msg, name="torchft")


def main(arguments: list[str] | None = None) -> int:
    """Run one until SIGTERM or SIGINT; its address goes to `--port-file`, whole or not at all, or to
    stdout.
    """
    parser = argparse.ArgumentParser(
        prog="aryl.train.lighthouse", description="torchft's lighthouse for one job"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--port-file", default="", help="where to write the address; default: stdout")
    parser.add_argument("--min-workers", type=int, default=1)
    parser.add_argument("--heartbeat-timeout-ms", type=int, default=HEARTBEAT_TIMEOUT_MS)
    parser.add_argument("--join-timeout-ms", type=int, default=JOIN_TIMEOUT_MS)
    given = parser.parse_args(arguments)
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # inherited by its threads; awaited below
    server, address = start_lighthouse(
        given.port,
        host=given.host,
        min_workers=given.min_workers,
        heartbeat_timeout_ms=given.heartbeat_timeout_ms,
        join_timeout_ms=given.join_timeout_ms,
    )
    if given.port_file:
        partial = Path(f"{given.port_file}.{os.getpid()}")
        partial.write_text(address, encoding="utf-8")
        partial.replace(given.port_file)
    else:
        print(address, flush=True)
    signal.sigwait(ends)
    server.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
