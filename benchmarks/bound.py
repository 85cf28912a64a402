"""How long the bound on the mean JCT takes, beside its budget, and by how much crowding lifts it.

    python -m benchmarks.bound

50,000 jobs over 15 days, drawn from the bundled model of itp, on 443 servers of 8 GPUs, at several loads:
running times are stretched until so many of the GPUs are busy on average. CPU time of this process, without
drawing. Exits 1 above the budget.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from aryl.report.bound import Load, Room, mean_jct_bound_s
from aryl.traces.catalogue import bundled_path
from aryl.traces.fit import read_model
from aryl.traces.synth import draw

JOBS, DAYS, GPUS = 50_000, 15, 443 * 8
LOADS = (0.7, 0.9, 1.0, 1.2)
BUDGET_S = 20.0


def load_at(share: float) -> Load:
    model = read_model(bundled_path("itp-fitted.json"))
    jobs = draw(model, JOBS, DAYS, 1, busy_gpus=share * GPUS).jobs
    duration_s = np.array([job.duration_s for job in jobs])
    return Load(
        np.array([job.submit_s for job in jobs]),
        duration_s,
        duration_s * np.array([job.gpus for job in jobs], dtype=np.float64),
    )


def main() -> int:
    room = Room(np.zeros(1), np.array([float(GPUS)]))
    slowest_s = 0.0
    print("| load | mean of the shortest times (s) | bound (s) | CPU time (s) |")
    print("|--:|--:|--:|--:|")
    for share in LOADS:
        load = load_at(share)
        began_s = time.process_time()
        bound_s = mean_jct_bound_s(load, room)
        took_s = time.process_time() - began_s
        slowest_s = max(slowest_s, took_s)
        print(f"| {share:.0%} | {load.shortest_s.mean():,.0f} | {bound_s:,.0f} | {took_s:.1f} |", flush=True)
    print(f"\nslowest {slowest_s:.1f} s, budget {BUDGET_S:.0f} s")
    return int(slowest_s > BUDGET_S)


if __name__ == "__main__":
    sys.exit(main())
