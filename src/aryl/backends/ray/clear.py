"""End all that a control plane keeps in a Ray cluster: workers, keepers, and the registry.

    python -m aryl.backends.ray.clear ADDRESS [--namespace aryl]

For a control plane that is gone for good. One that leads loses its workers.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

from aryl.backends.ray.connection import CONNECT_WITHIN_S, RayAddress, connect
from aryl.backends.ray.places import is_ours
from aryl.errors import ArylError


def clear(where: RayAddress, within_s: float = CONNECT_WITHIN_S) -> int:
    """End every actor of Aryl's in the namespace. Returns how many. Raises UnreachableError."""
    ray = connect(where, within_s)
    from ray.util import list_named_actors

    names = [name for name in list_named_actors() if is_ours(name)]
    for name in names:
        with contextlib.suppress(ValueError):  # it ended by itself
            ray.kill(ray.get_actor(name, namespace=where.namespace), no_restart=True)
    return len(names)


def main(arguments: list[str] | None = None) -> int:
    """Run it. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m aryl.backends.ray.clear",
        description="End all of Aryl's actors in a namespace of a Ray cluster.",
    )
    parser.add_argument("address", help="HOST:PORT, ray://HOST:PORT or auto")
    parser.add_argument("--namespace", default="aryl")
    given = parser.parse_args(arguments)
    try:
        ended = clear(RayAddress(given.address, given.namespace))
    except ArylError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{ended} actors ended", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
