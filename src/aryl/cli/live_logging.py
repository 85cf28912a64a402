"""What the control plane says on stderr: one line each, with time and origin."""

from __future__ import annotations

import logging
import sys


def log_to_stderr(verbose: bool) -> None:
    """Warnings of everybody, and what the control plane has to say; with `verbose` every request too."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )
    logging.getLogger("aryl").setLevel(logging.INFO)
    logging.getLogger("aryl.api").setLevel(logging.INFO if verbose else logging.WARNING)
