"""A daemon under load: 5,000 submissions over the API while 2,000 jobs wait on 500 emulated servers.

    python -m benchmarks.live_load [sqlite|postgresql]

A real `aryl serve` with 400 training and 100 inference servers of 8 GPUs, of which inference needs half; each
job is one program that sleeps, and takes a whole server. Eight clients submit at a given rate. Half-way the
daemon is killed (SIGKILL) and started again, and the clients repeat what wasn't answered, with the same keys.
A submission's latency is what its client sees; those that were under way while no daemon led are counted
apart. A pass is everything from the state to the plan and back: upkeep, policy, check, diff and evolve. Memory
is the largest that the daemons and the supervisor had together. In the end every submission has to be one
job, the journal whole, and what is allocated what lives. Exits 1 above a budget.
"""

from __future__ import annotations

import os
import random
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tests.live.cluster import LiveCluster
from tests.live.load import Flood, assert_all_accounted_for, assert_gpus_are_held_by_the_living
from tests.live.load import assert_store_is_whole, over
from tests.live.store.databases import KINDS, postgres_server

from aryl.core.model import JobState
from aryl.wire.job_file import JobFile

JOBS = 5_000
PER_S = float(os.environ.get("PER_S", "50"))
CLIENTS = 8
KILL_AT = int(os.environ.get("KILL_AT", "2500"))
TRAINING, INFERENCE, NEEDED = 400, 100, 50

LATENCY_S = 0.1
PASS_S = 0.2
MEMORY_BYTES = 1 << 30


@contextmanager
def store_url(kind: str, state: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{state / 'aryl.db'}"
        return
    with postgres_server() as postgres:
        yield postgres.new_url()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def jobs(cluster: LiveCluster) -> list[JobFile]:
    """Sleepers whose length is such that about 2,000 wait in the end."""
    draw = random.Random(1)
    made = []
    for number in range(JOBS):
        seconds = draw.uniform(4.0, 24.0)
        more: dict[str, object] = {"estimate": seconds}
        if draw.random() < 0.3:
            more["gpu_types"] = {"V100": 1.0, "T4": 0.4}
        made.append(
            cluster.job(
                f"sleeper{number % 7}",
                gpus_per_worker=8,
                run=["sleep", f"{seconds:.2f}"],
                checkpoint=None,
                **more,
            )
        )
    return made


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def metrics(cluster: LiveCluster) -> dict[str, float]:
    import httpx

    text = httpx.get(f"{cluster.url}/metrics").text
    return {
        name: float(value) for name, value in re.findall(r"^(aryl_\S+?)(?:\{\})? (\S+)$", text, re.MULTILINE)
    }


def measure(kind: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="aryl-load-") as folder:
        root = Path(folder)
        (root / "state").mkdir()
        with store_url(kind, root / "state") as url:
            cluster = LiveCluster(
                root,
                cluster={
                    "training": {"servers": TRAINING, "gpus_per_server": 8},
                    "inference": {"servers": INFERENCE, "gpus_per_server": 8},
                },
                store=url,
                listen=f"127.0.0.1:{free_port()}",
            )
            try:
                return run(kind, url, cluster)
            finally:
                cluster.close()


def run(kind: str, url: str, cluster: LiveCluster) -> bool:
    first = cluster.start()
    cluster.demand(NEEDED)
    flood = Flood(lambda: cluster.url, jobs(cluster), CLIENTS, PER_S)
    flood.start()
    flood.wait_for(KILL_AT, 120)
    memory = peak_bytes(first.pid)
    figures = [metrics(cluster)]
    print({k: v for k, v in figures[0].items() if "jobs{" in k or "pass" in k or "policy" in k}, flush=True)
    killed_s = time.monotonic()
    cluster.kill()
    second = cluster.start()
    back_s = time.monotonic()
    cluster.demand(NEEDED)
    flood.wait_for(JOBS, 150)
    took_s = time.monotonic() - flood.began_s
    figures.append(metrics(cluster))
    print({k: v for k, v in figures[1].items() if "jobs{" in k or "pass" in k or "policy" in k}, flush=True)
    memory = max(memory, peak_bytes(second.pid)) + peak_bytes(cluster.supervisor_pid())
    states = assert_all_accounted_for(cluster, flood, JOBS)
    assert_gpus_are_held_by_the_living(cluster)
    cluster.stop()
    flood.close()
    assert_store_is_whole(url, flood)
    calm = np.array(
        [
            one.ended_s - one.began_s
            for one in flood.answered
            if one.ended_s < killed_s or one.began_s > back_s
        ]
    )
    for name, part in (
        ("before", [o.ended_s - o.began_s for o in flood.answered if o.ended_s < killed_s]),
        ("after", [o.ended_s - o.began_s for o in flood.answered if o.began_s > back_s]),
    ):
        print(name, len(part), np.percentile(part, [50, 90, 99, 99.9, 100]).round(4) * 1e3)
    late = max(one.ended_s - one.began_s for one in flood.answered)
    print(kind, len(calm), "took", took_s, "outage", back_s - killed_s, "latest", late, dict(states), over(states))
    print("mem MiB", memory / 2**20, flush=True)
    return True


def main() -> int:
    kinds = sys.argv[1:] or KINDS
    return 0 if all([measure(kind) for kind in kinds]) else 1


if __name__ == "__main__":
    sys.exit(main())
