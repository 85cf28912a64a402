"""Lines in the supervisor's own log, which is its standard error."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback


def say(text: str) -> None:
    """Write a line. A full disk is no reason to die."""
    with contextlib.suppress(OSError, ValueError):
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        print(f"{when} {text}", file=sys.stderr, flush=True)


def say_defect(text: str) -> None:
    """Write down an exception that nobody expected; the supervisor goes on, because workers depend on it."""
    say(f"{text}\n{traceback.format_exc()}")
