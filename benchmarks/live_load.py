"""A daemon under load: 5,000 submissions over the API while 2,000 jobs wait on 500 emulated servers.

    python -m benchmarks.live_load [sqlite|postgresql]...

A real `aryl serve` with 400 training and 100 inference servers of 8 GPUs, half of which inference needs. Each
job is a program that sleeps and takes a whole server; four in ten may run on lent ones. First eight clients
submit as fast as they can until 2,000 jobs wait. Then come 5,000 more at a given rate, of shorter jobs, which
go first: programs end and start all the time, and at least 2,000 jobs wait. Half-way the daemon is killed
(SIGKILL) and started again; the clients repeat what wasn't answered, with the same keys.

The latency is what a client sees; submissions that were under way while nobody led are counted apart. A pass
is upkeep, policy, check, diff and evolve, without the journal's disk. Memory is the largest that a daemon and
the supervisor ever had. In the end every submission has to be one job, the journal whole, and what is
allocated what lives. Exits 1 above a budget; the figures are the machine's, and of whatever else it does.
"""

from __future__ import annotations

import os
import random
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import numpy as np
from tests.live.cluster import LiveCluster
from tests.live.load import (
    Flood,
    Submission,
    assert_all_accounted_for,
    assert_gpus_are_held_by_the_living,
    assert_store_is_whole,
)
from tests.live.store.databases import KINDS, postgres_server

from aryl.core.model import JobState
from aryl.errors import ArylError
from aryl.wire.job_file import JobFile

TRAINING, INFERENCE, NEEDED = 400, 100, 50
WAITING = 2_000
FILL = TRAINING + INFERENCE - NEEDED + WAITING + 50
SUBMISSIONS = 5_000
PER_S = 50.0
CLIENTS = 8
PATIENCE_S = 240.0

LATENCY_S = 0.1
PASS_S = 0.2
MEMORY_BYTES = 1 << 30


@dataclass
class Figures:
    """What is seen from outside while it runs."""

    longest_pass_s: float = 0.0
    daemon_bytes: int = 0
    waiting: list[float] = field(default_factory=list)

    def note(self, cluster: LiveCluster, daemon: int) -> None:
        """Look once."""
        with urlopen(f"{cluster.url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = dict(re.findall(r"^aryl_(\S+) (\S+)$", text, re.MULTILINE))
        self.longest_pass_s = max(self.longest_pass_s, float(found["longest_pass_seconds"]))
        self.waiting.append(float(found['jobs{state="PENDING"}']))
        self.daemon_bytes = max(self.daemon_bytes, peak_bytes(daemon))


class Asker:
    """Asks every half second what only the loop can answer, and notes how long that takes."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.took_s: list[float] = []
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.5):
            began_s = time.monotonic()
            try:
                self._cluster.client.loans()
            except ArylError:
                continue
            self.took_s.append(time.monotonic() - began_s)


@contextmanager
def store_url(kind: str, state: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{state / 'aryl.db'}"
        return
    with postgres_server(safe=True) as postgres:
        yield postgres.new_url()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def sleepers(cluster: LiveCluster, count: int, least_s: float, most_s: float) -> list[JobFile]:
    """Jobs that sleep for so long."""
    draw = random.Random(1)
    made = []
    for number in range(count):
        seconds = draw.uniform(least_s, most_s)
        types = {"V100": 1.0, "T4": 1.0} if draw.random() < 0.4 else {"V100": 1.0}
        job = cluster.job(
            f"sleeper{number % 7}",
            run=["sleep", f"{seconds:.2f}"],
            gpus_per_worker=8,
            gpu_types=types,
            estimate=seconds,
            checkpoint=None,
        )
        made.append(job)
    return made


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def measure(kind: str) -> bool:
    """Print the figures of one store; whether all are within their budgets."""
    with tempfile.TemporaryDirectory(prefix="aryl-load-") as folder:
        root = Path(folder)
        (root / "state").mkdir()
        with store_url(kind, root / "state") as url:
            cluster = LiveCluster(
                root,
                cluster={
                    "training": {"servers": TRAINING, "gpus_per_server": 8, "gpu_type": "V100"},
                    "inference": {"servers": INFERENCE, "gpus_per_server": 8, "gpu_type": "T4", "speed": 1.0},
                },
                store=url,
                listen=f"127.0.0.1:{free_port()}",
            )
            try:
                return run(kind, url, cluster)
            finally:
                cluster.close()


def run(kind: str, url: str, cluster: LiveCluster) -> bool:
    """Fill, submit, kill, submit on, and account."""
    daemon = cluster.start()
    cluster.demand(NEEDED)
    figures = Figures()
    jobs = sleepers(cluster, FILL, 45.0, 75.0) + sleepers(cluster, SUBMISSIONS, 4.0, 14.0)

    fill = Flood(lambda: cluster.url, jobs[:FILL], CLIENTS)
    fill.start()
    fill.wait_for(FILL, PATIENCE_S)
    fill_s = max(one.ended_s for one in fill.answered) - fill.began_s
    fill.close()
    figures.note(cluster, daemon.pid)

    asker = Asker(cluster)
    flood = Flood(lambda: cluster.url, jobs, CLIENTS, PER_S, first=FILL)
    flood.start()
    flood.wait_for(SUBMISSIONS // 2, PATIENCE_S)
    figures.note(cluster, daemon.pid)
    killed_s = time.monotonic()
    cluster.kill()
    daemon = cluster.start()
    back_s = time.monotonic()
    cluster.demand(NEEDED)
    flood.wait_for(SUBMISSIONS, PATIENCE_S)
    took_s = time.monotonic() - flood.began_s
    asker.close()
    figures.note(cluster, daemon.pid)
    memory = figures.daemon_bytes + peak_bytes(cluster.supervisor_pid())

    answered = fill.answered + flood.answered
    states = assert_all_accounted_for(cluster, answered, len(jobs))
    assert_gpus_are_held_by_the_living(cluster)
    cluster.stop()
    flood.close()
    assert_store_is_whole(url, answered)

    calm = [one for one in flood.answered if one.ended_s < killed_s or one.began_s > back_s]
    late = [one for one in flood.answered if killed_s <= one.ended_s and one.began_s <= back_s]
    median_s, p99_s, most_s = np.percentile([took(one) for one in calm], [50, 99, 100])
    print(
        f"{kind}: {len(jobs):,} jobs, none lost or doubled; {states[JobState.SUCCEEDED]:,} have ended, "
        f"{states[JobState.RUNNING] + states[JobState.STARTING]:,} run, at least {min(figures.waiting):,.0f} "
        f"waited; load average {os.getloadavg()[0]:.1f}\n"
        f"  filling: {FILL / fill_s:.0f} submissions/s by {CLIENTS} clients, "
        f"99 % within {np.percentile([took(one) for one in fill.answered], 99) * 1e3:.0f} ms\n"
        f"  then {SUBMISSIONS:,} at {SUBMISSIONS / took_s:.0f}/s: half within {median_s * 1e3:.0f} ms, "
        f"the slowest {most_s * 1e3:.0f} ms; the loop answers questions within "
        f"{np.percentile(asker.took_s, 50) * 1e3:.0f} ms (half), {np.percentile(asker.took_s, 99) * 1e3:.0f} "
        f"ms (99 %)\n"
        f"  kill -9: {back_s - killed_s:.1f} s without a leader, {len(late)} submissions waited, "
        f"{max(map(took, late)):.1f} s at most"
    )
    enough = min(figures.waiting) >= WAITING
    if not enough:
        print(f"  TOO FEW WAITED: {min(figures.waiting):,.0f}")
    budgets = [
        ("99 % of submissions", p99_s * 1e3, LATENCY_S * 1e3, "ms"),
        ("the longest pass", figures.longest_pass_s * 1e3, PASS_S * 1e3, "ms"),
        ("daemon and supervisor", memory / 2**20, MEMORY_BYTES / 2**20, "MiB"),
    ]
    kept = True
    for name, value, budget, unit in budgets:
        ok = value < budget
        kept &= ok
        print(f"  {name:24}{value:8.1f} {unit} (budget {budget:g})  {'ok' if ok else 'OVER BUDGET'}")
    sys.stdout.flush()
    return kept and enough


def took(one: Submission) -> float:
    """How long a client waited, in seconds."""
    return one.ended_s - one.began_s


def main() -> int:
    """Measure the stores that are named, or both."""
    kinds = sys.argv[1:] or list(KINDS)
    verdicts = [measure(kind) for kind in kinds]
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
