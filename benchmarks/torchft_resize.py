"""How long the workers that stay pause when an elastic PyTorch job changes its size, beside the budget.

    python -m benchmarks.torchft_resize

A daemon and the example of the launcher `torchft`: 2 -> 4 -> 1 -> 3 workers, then one of them is killed and
replaced. A pause is the longest time between two steps, of which each takes 0.05 s by itself; newcomers load
torch meanwhile. No step may be lost or done twice. Exits 1 above the budget. It holds for a machine that
does nothing else, takes about half a minute on two cores, and needs torch and torchft.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.live.cluster import LiveCluster, live_cluster
from tests.live.elastic_jobs import (
    EXAMPLES,
    check_each_step_once,
    last_step,
    longest_pauses,
    settle,
    steps_of,
    submit_example,
    worker_pids,
)

from aryl.backends.gangs.elastic import LIGHTHOUSE_RANK

BUDGET_S = 1.0
STEP_S = 0.05


def change(cluster: LiveCluster, job_id: str) -> dict[str, int]:
    """Change the job's size; the step at which each change began."""
    settle(cluster, job_id, 2)
    changes = {}
    for size in (4, 1, 3):
        changes[f"to {size} workers"] = last_step(cluster, job_id)
        cluster.client.resize(job_id, max_workers=size)
        settle(cluster, job_id, size)
    workers = worker_pids(cluster, job_id)
    changes["one is killed"] = last_step(cluster, job_id)
    os.kill(workers[max(workers.keys() - {LIGHTHOUSE_RANK})], signal.SIGKILL)
    settle(cluster, job_id, 2)
    settle(cluster, job_id, 3)
    return changes


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="aryl-bench-") as folder,
        live_cluster(
            Path(folder), workdirs=[str(EXAMPLES)], policy="aryl:cooldown=0,min_interval=0"
        ) as cluster,
    ):
        settings = {"workers": "[1, 2]", "env.BATCHES": "1000000", "env.STEP_S": str(STEP_S)}
        job_id = submit_example(cluster, "torch_torchft.yaml", settings)
        changes = change(cluster, job_id)
        cluster.client.cancel(job_id)
        cluster.wait_state(job_id)
        steps = steps_of(cluster, job_id)
    count = check_each_step_once(steps)
    pauses_s = longest_pauses(steps, list(changes.values()))
    print(f"{count} steps, none lost and none done twice; budget {BUDGET_S:g} s a pause")
    for name, pause_s in zip(changes, pauses_s, strict=True):
        print(f"{name:16}{pause_s:>8.3f} s  {'ok' if pause_s <= BUDGET_S else 'OVER BUDGET'}")
    return int(max(pauses_s) > BUDGET_S)


if __name__ == "__main__":
    sys.exit(main())
