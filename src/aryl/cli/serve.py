"""`aryl serve`: run the control plane until it is told to stop."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from aryl.cli.output import note

# Requests are answered while the loop decides: it lets them in sooner than Python does by default (5 ms),
# which a request would have to wait several times, once after each question to the store.
SWITCH_S = 0.001

SERVE_EPILOG = """Examples:

  aryl serve

  aryl serve --config cluster.yaml

  aryl serve --backend ray --set ray.address=ray://head:10001

  aryl serve --config cluster.yaml --set listen=127.0.0.1:9000 --set policy=fifo
"""


def serve(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE.yaml", help="The configuration.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(metavar="NAME", help="What runs the workers: local or ray.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the configuration."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every request too.")] = False,
) -> None:
    """Schedule real jobs on this machine, or on the servers of a Ray cluster, until SIGTERM or Ctrl-C.

    Running jobs outlive it: they go on while it is away, and the next one on the same state folder adopts
    them.
    """
    from aryl.cli.foresight import LookAhead
    from aryl.cli.live_logging import log_to_stderr
    from aryl.live.config import load_serve_config
    from aryl.live.daemon import Daemon

    overrides = [*(settings or ()), *([f"backend={backend}"] if backend else ())]
    loaded = load_serve_config(config, overrides)
    log_to_stderr(verbose)
    sys.setswitchinterval(SWITCH_S)
    look_ahead = LookAhead()
    daemon = Daemon(loaded, look_ahead)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: daemon.stop())
    try:
        daemon.run(lambda url: note(f"listening on {url}; state in {loaded.state}"))
    finally:
        look_ahead.close()
    note("stopped; what runs goes on")
