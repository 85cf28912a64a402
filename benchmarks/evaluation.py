"""Do lending and resizing pay? Real jobs, part by part, beside the paper's claims.

    ARYL_DATA=... python -m benchmarks.evaluation [--write docs/explanation/evaluation.md]

The main workload: itp, days 14 to 29 (26,317 jobs), 170 training servers and 200 inference servers of 8 GPUs,
the taxi curve scaled to a peak of 95 %, headroom 2 %, an oracle forecast, seeds 1 to 3 for who is elastic and
fungible. Beside it the same jobs on 158 training servers, and Philly's days 24 to 39 (23,694 jobs) on 87 and
102. The cap is FIFO's mean JCT over the bound, which no scheduler can beat; what the paper claims is for its
own trace.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import experiment_from_mapping
from aryl.sim.run import run

SEEDS = (1, 2, 3)
PARTS = (
    "fifo",
    "aryl:no-loaning,no-scaling",
    "aryl:loaning",
    "aryl:scaling",
    "aryl",
    "aryl-las",
    "opportunistic",
)
RULES = ("random", "count", "gpu-fraction", "server-fraction", "exact")
SCENARIOS = ("basic", "advanced", "heterogeneous", "ideal")


@dataclass(frozen=True)
class Workload:
    trace: str
    window: tuple[str, str]
    training: int
    inference: int


WORKLOADS = {
    "itp": Workload("itp", ("14d", "29d"), 170, 200),
    "itp, tight": Workload("itp", ("14d", "29d"), 158, 200),
    "philly": Workload("philly", ("24d", "39d"), 87, 102),
}


@dataclass(frozen=True)
class Row:
    workload: str
    scenario: str
    policy: str
    queuing_s: float
    jct_s: float
    usage: float
    preemptions: float
    resizes: float
    bound_s: float


def experiment(workload: str, scenario: str, seed: int) -> Experiment:
    load = WORKLOADS[workload]
    return experiment_from_mapping(
        {
            "cluster": {
                "training": {"servers": load.training, "gpus_per_server": 8, "gpu_type": "V100"},
                "inference": {
                    "servers": load.inference,
                    "gpus_per_server": 8,
                    "gpu_type": "T4",
                    "speed": 0.33,
                },
            },
            "jobs": {"trace": load.trace, "window": [*load.window], "scenario": scenario, "seed": seed},
            "inference": {"curve": "nyc_taxi", "headroom": "2%", "from": "14d", "forecast": "oracle"},
        }
    )


def summary(task: tuple[str, str, str, int]) -> dict[str, Any]:
    workload, scenario, policy, seed = task
    return run(experiment(workload, scenario, seed), policy).summary


def mean_row(workload: str, scenario: str, policy: str, summaries: list[dict[str, Any]]) -> Row:
    return Row(
        workload,
        scenario,
        policy,
        fmean(one["queuing_s"]["mean"] for one in summaries),
        fmean(one["jct_s"]["mean"] for one in summaries),
        fmean(one["usage"]["overall"] for one in summaries),
        fmean(one["preemptions"] for one in summaries),
        fmean(one["resizes"] for one in summaries),
        fmean(one["jct_bound_s"] for one in summaries),
    )


def tasks() -> list[tuple[str, str, str]]:
    cases = [("itp", "basic", policy) for policy in PARTS]
    cases += [("itp", "basic", f"aryl:loaning,reclaim={rule}") for rule in RULES]
    cases += [("itp", scenario, policy) for scenario in SCENARIOS[1:] for policy in ("fifo", "aryl")]
    cases += [(load, "basic", policy) for load in ("itp, tight", "philly") for policy in ("fifo", "aryl")]
    return cases


def lines(rows: list[Row]) -> list[str]:
    """The table, as Markdown."""
    fifo = {(row.workload, row.scenario): row for row in rows if row.policy == "fifo"}
    text = [
        "| workload | scenario | policy | mean queuing (s) | FIFO / it | mean JCT (s) | FIFO / it | cap "
        "| usage | over FIFO | preemptions | resizes |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        base = fifo[row.workload, row.scenario]
        text.append(
            f"| {row.workload} | {row.scenario} | `{row.policy}` "
            f"| {row.queuing_s:,.0f} | {base.queuing_s / row.queuing_s:.2f} "
            f"| {row.jct_s:,.0f} | {base.jct_s / row.jct_s:.3f} | {base.jct_s / row.bound_s:.3f} "
            f"| {row.usage:.3f} | {row.usage / base.usage - 1:+.1%} "
            f"| {row.preemptions:,.0f} | {row.resizes:,.0f} |"
        )
    base = fifo["itp", "basic"]
    key = ("itp", "basic", "aryl")
    aryl = next(row for row in rows if (row.workload, row.scenario, row.policy) == key)
    text += [
        "",
        "`aryl` against `fifo` on itp, scenario basic: "
        f"mean queuing {base.queuing_s / aryl.queuing_s:.2f} times less (the paper: 1.53), "
        f"mean JCT {base.jct_s / aryl.jct_s:.3f} times less (the paper: 1.50; "
        f"cap here {base.jct_s / aryl.bound_s:.3f}), "
        f"overall usage {aryl.usage / base.usage - 1:+.1%} (the paper: up to +26.9 %).",
    ]
    return text


def main() -> int:
    """Run everything and print the table."""
    if "ARYL_DATA" not in os.environ:
        print("skipped: the evaluation needs ARYL_DATA")
        return 0
    cases = tasks()
    runs = [(*case, seed) for case in cases for seed in SEEDS]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        summaries = list(pool.map(summary, runs))
    rows = [
        mean_row(*case, summaries[number * len(SEEDS) : (number + 1) * len(SEEDS)])
        for number, case in enumerate(cases)
    ]
    text = lines(rows)
    print("\n".join(text))
    if "--write" in sys.argv:
        path = Path(sys.argv[sys.argv.index("--write") + 1])
        before, marker, _ = path.read_text(encoding="utf-8").partition("<!-- figures -->\n")
        path.write_text(before + marker + "\n".join(text) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
