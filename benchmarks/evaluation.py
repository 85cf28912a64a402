"""Do lending and resizing pay? The densest 15 days of itp, part by part, beside the paper's claims.

    ARYL_DATA=... python -m benchmarks.evaluation [--write docs/explanation/evaluation.md]

The setting: itp, days 14 to 29 (26,317 jobs), 170 training servers and 200 inference servers of 8 GPUs, the
taxi curve scaled to a peak of 95 %, headroom 2 %, an oracle forecast, seeds 1 to 3 for who is elastic and
fungible. The cap is FIFO's mean JCT over the mean of the jobs' shortest running times, which no scheduler can
beat; what the paper claims is for its own trace.
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
SETTING: dict[str, Any] = {
    "cluster": {
        "training": {"servers": 170, "gpus_per_server": 8, "gpu_type": "V100"},
        "inference": {"servers": 200, "gpus_per_server": 8, "gpu_type": "T4", "speed": 0.33},
    },
    "inference": {"curve": "nyc_taxi", "peak": "95%", "headroom": "2%"},
}


@dataclass(frozen=True)
class Row:
    scenario: str
    policy: str
    queuing_s: float
    jct_s: float
    usage: float
    preemptions: float
    resizes: float
    bound_s: float


def experiment(scenario: str, seed: int) -> Experiment:
    jobs = {"trace": "itp", "window": ["14d", "29d"], "scenario": scenario, "seed": seed}
    return experiment_from_mapping({**SETTING, "jobs": jobs})


def summary(task: tuple[str, str, int]) -> dict[str, Any]:
    scenario, policy, seed = task
    return run(experiment(scenario, seed), policy).summary


def mean_row(scenario: str, policy: str, summaries: list[dict[str, Any]]) -> Row:
    return Row(
        scenario,
        policy,
        fmean(one["queuing_s"]["mean"] for one in summaries),
        fmean(one["jct_s"]["mean"] for one in summaries),
        fmean(one["usage"]["overall"] for one in summaries),
        fmean(one["preemptions"] for one in summaries),
        fmean(one["resizes"] for one in summaries),
        fmean(one["jct_bound_s"] for one in summaries),
    )


def tasks() -> list[tuple[str, str]]:
    cases = [("basic", policy) for policy in PARTS]
    cases += [("basic", f"aryl:loaning,reclaim={rule}") for rule in RULES]
    cases += [(scenario, policy) for scenario in SCENARIOS[1:] for policy in ("fifo", "aryl")]
    return cases


def lines(rows: list[Row]) -> list[str]:
    """The table, as Markdown."""
    fifo = {row.scenario: row for row in rows if row.policy == "fifo"}
    text = [
        "| scenario | policy | mean queuing (s) | FIFO / it | mean JCT (s) | FIFO / it | cap "
        "| usage | over FIFO | preemptions | resizes |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        base = fifo[row.scenario]
        text.append(
            f"| {row.scenario} | `{row.policy}` "
            f"| {row.queuing_s:,.0f} | {base.queuing_s / row.queuing_s:.2f} "
            f"| {row.jct_s:,.0f} | {base.jct_s / row.jct_s:.3f} | {base.jct_s / row.bound_s:.3f} "
            f"| {row.usage:.3f} | {row.usage / base.usage - 1:+.1%} "
            f"| {row.preemptions:,.0f} | {row.resizes:,.0f} |"
        )
    base = fifo["basic"]
    aryl = next(row for row in rows if (row.scenario, row.policy) == ("basic", "aryl"))
    text += [
        "",
        f"`aryl` against `fifo` in scenario basic: mean queuing {base.queuing_s / aryl.queuing_s:.2f} times "
        f"less (the paper: 1.53), mean JCT {base.jct_s / aryl.jct_s:.3f} times less (the paper: 1.50; cap "
        f"here {base.jct_s / aryl.bound_s:.3f}), overall usage {aryl.usage / base.usage - 1:+.1%} (the "
        "paper: up to +26.9 %).",
    ]
    return text


def main() -> int:
    """Run everything and print the table."""
    if "ARYL_DATA" not in os.environ:
        print("skipped: the evaluation needs ARYL_DATA")
        return 0
    cases = tasks()
    runs = [(scenario, policy, seed) for scenario, policy in cases for seed in SEEDS]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        summaries = list(pool.map(summary, runs))
    rows = [
        mean_row(scenario, policy, summaries[number * len(SEEDS) : (number + 1) * len(SEEDS)])
        for number, (scenario, policy) in enumerate(cases)
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
