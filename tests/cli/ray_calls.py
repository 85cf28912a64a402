"""What tests send to Ray: functions of a module that its servers can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from aryl.backends.ray.sweep import Progress
from aryl.errors import InputError


def halfway(number: int, report: Progress) -> int:
    report(0.5, "half")
    time.sleep(0.8 if number == 0 else 0.0)
    report(0.7, "more")
    return number * number


def bad_input(number: int, report: Progress) -> int:
    if number == 1:
        raise InputError("wrong value", file="jobs.csv", line=7, found=-3)
    time.sleep(300)
    return number


def defect(number: int, report: Progress) -> float:
    return 1 / number


def killed(count: Path, report: Progress) -> None:
    with count.open("a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)


def stay(begun: Path, report: Progress) -> str:
    """Say where, and stay for long the first time."""
    import ray

    here: str = ray.get_runtime_context().get_node_id()
    with begun.open("a") as file:
        file.write(here + "\n")
    if begun.read_text().count("\n") == 1 or begun.name == "always":
        time.sleep(300)
    return here
