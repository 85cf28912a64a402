"""How long whole simulations take, beside their budgets, and what dominates.

    ARYL_DATA=... python -m benchmarks.engine [--profile]

Each case runs through the command line in a process of its own; CPU time (user and system, imports included)
and peak memory are the operating system's account of that process. With `--profile` each case is run again
under cProfile and the share of each package's own time is printed. Exits 1 above a budget. The bound on the
mean JCT is part of it, for which the first case got a second more than the 3 s of the engine. Budgets hold
for one core of a two-core machine; the published Tiresias simulator needs 112 s of user CPU for the first
case on a machine like it (the data's README).
"""

from __future__ import annotations

import cProfile
import io
import json
import os
import pstats
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from aryl.cli.main import run_command


@dataclass(frozen=True)
class Case:
    name: str
    arguments: tuple[str, ...]
    budget_s: float
    budget_gib: float


CASES = (
    Case(
        "fifo, itp/cluster04, 15,802 jobs, 80 servers",
        (
            "--trace",
            "itp/cluster04",
            "--training-servers",
            "80",
            "--inference-servers",
            "0",
            "--policy",
            "fifo",
        ),
        4.0,
        1.0,
    ),
    Case(
        "aryl basic, itp, 69,351 jobs, 443 + 520 servers",
        (
            *("--trace", "itp", "--curve", "nyc_taxi", "--scenario", "basic", "--policy", "aryl"),
            *("--training-servers", "443", "--inference-servers", "520"),
        ),
        60.0,
        1.0,
    ),
    Case(
        "aryl basic, itp days 14 to 29, 26,317 jobs, 170 + 200 servers (loaded)",
        (
            *(
                "--trace",
                "itp",
                "--window",
                "14d,29d",
                "--curve",
                "nyc_taxi",
                "--scenario",
                "basic",
                "--policy",
                "aryl",
            ),
            *("--training-servers", "170", "--inference-servers", "200"),
        ),
        60.0,
        1.0,
    ),
)


def measure(case: Case) -> tuple[float, float]:
    """CPU seconds and peak memory in GiB of one case."""
    command = [sys.executable, "-m", "aryl", "simulate", *case.arguments, "-o", "json"]
    with tempfile.TemporaryFile() as answer:
        child = subprocess.Popen(command, stdout=answer, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        answer.seek(0)
        runs = json.load(answer)["runs"] if child.returncode == 0 else []
    if not runs or runs[0]["finished"] != runs[0]["jobs"]:
        raise SystemExit(f"{' '.join(command)} did not finish all jobs")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024**2


def profile(case: Case) -> list[tuple[str, float]]:
    """Each package's share of the time spent in its own functions, largest first."""
    profiler = cProfile.Profile()
    stdout, sys.stdout = sys.stdout, io.StringIO()
    try:
        profiler.runcall(run_command, ["simulate", *case.arguments, "-o", "json"])
    finally:
        sys.stdout = stdout
    times: Counter[str] = Counter()
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    for (file, _, _), (_, _, own_s, _, _) in stats.items():
        times[_package(file)] += own_s
    total_s = sum(times.values())
    return [(name, own_s / total_s) for name, own_s in times.most_common(8)]


def _package(file: str) -> str:
    parts = Path(file).parts
    if "aryl" in parts:
        inside = parts[len(parts) - parts[::-1].index("aryl") :]
        return "aryl." + inside[0].removesuffix(".py")
    for name in ("numpy", "polars", "pydantic", "typer", "rich"):
        if name in parts:
            return name
    return "built-in functions and the rest"


def main() -> int:
    """Run all cases."""
    if "ARYL_DATA" not in os.environ:
        print("skipped: the engine benchmark needs ARYL_DATA")
        return 0
    over = False
    for case in CASES:
        cpu_s, gib = measure(case)
        over |= cpu_s > case.budget_s or gib > case.budget_gib
        print(
            f"{case.name}: {cpu_s:.1f} s CPU (budget {case.budget_s:g}), "
            f"{gib:.2f} GiB (budget {case.budget_gib:g})"
        )
        if "--profile" in sys.argv:
            print("   " + ", ".join(f"{name} {share:.0%}" for name, share in profile(case)))
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
