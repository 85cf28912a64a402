"""The rows of the page's table: what each measure is called, how it is read and written, and what it means.

A measure is explained once, here, in a sentence that somebody can read who has never seen this program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Summary = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measure:
    """One row. `compared`: worth a ratio to the first run."""

    label: str
    means: str
    read: Callable[[Summary], float | None]
    write: Callable[[float], str]
    compared: bool = False


def seconds(value: float) -> str:
    """`3,072 s`; one decimal below ten seconds."""
    return f"{value:,.1f} s" if abs(value) < 10 and value != int(value) else f"{value:,.0f} s"


def count(value: float) -> str:
    """`50,390`."""
    return f"{value:,.0f}"


def share(value: float) -> str:
    """`71.9 %`."""
    return f"{100 * value:.1f} %"


def ratio(value: float) -> str:
    """`1.024`."""
    return f"{value:.3f}"


def hours(value: float) -> str:
    """Seconds of something as hours of it: `1,250 h`."""
    in_hours = value / 3600
    return f"{in_hours:,.1f} h" if in_hours < 100 else f"{in_hours:,.0f} h"


def _at(*keys: str) -> Callable[[Summary], float | None]:
    def read(summary: Summary) -> float | None:
        value: Any = summary
        for key in keys:
            value = value[key]
        return None if value is None else float(value)

    return read


def over_bound(summary: Summary) -> float | None:
    """The mean JCT over its lower bound; None where one is missing or the bound is 0."""
    mean_s, bound_s = _at("jct_s", "mean")(summary), _at("jct_bound_s")(summary)
    return None if mean_s is None or not bound_s else mean_s / bound_s


MEASURES: tuple[Measure, ...] = (
    Measure("Jobs", "All jobs of the trace.", _at("jobs"), count),
    Measure(
        "Finished",
        "Jobs that ran to their end. Only they enter queuing time and JCT.",
        _at("finished"),
        count,
    ),
    Measure(
        "Unfinished", "Jobs still waiting or running when the simulation ended.", _at("unfinished"), count
    ),
    Measure("Rejected", "Jobs that could never run on these servers.", _at("rejected"), count),
    Measure(
        "Queuing time, mean",
        "All the time that a job spends waiting for GPUs, after a preemption too.",
        _at("queuing_s", "mean"),
        seconds,
        compared=True,
    ),
    Measure("Queuing time, median", "Half of the jobs wait no longer.", _at("queuing_s", "median"), seconds),
    Measure(
        "Queuing time, 95th percentile",
        "95 of 100 jobs wait no longer.",
        _at("queuing_s", "p95"),
        seconds,
        True,
    ),
    Measure(
        "First wait, mean",
        "From a job's submission to its first start; later waits are not counted.",
        _at("first_wait_s", "mean"),
        seconds,
    ),
    Measure(
        "JCT, mean",
        "Job completion time: from a job's submission to its end.",
        _at("jct_s", "mean"),
        seconds,
        compared=True,
    ),
    Measure(
        "JCT, median", "Half of the jobs are done no later after submission.", _at("jct_s", "median"), seconds
    ),
    Measure("JCT, 95th percentile", "95 of 100 jobs are done no later.", _at("jct_s", "p95"), seconds, True),
    Measure(
        "Lower bound of the mean JCT",
        "No scheduler that leaves inference what it needs could do better with these jobs on these servers.",
        _at("jct_bound_s"),
        seconds,
    ),
    Measure(
        "Mean JCT over the bound",
        "How far from the best possible at most. FIFO's is the most that any scheduler can gain on it.",
        over_bound,
        ratio,
    ),
    Measure(
        "Longest wait of a large gang",
        "The longest queuing time of a gang of 32 GPUs or more: who pays for a good mean, if somebody does.",
        _at("fairness", "longest_wait_large_s"),
        seconds,
        True,
    ),
    Measure(
        "Evenness of speeds",
        "Jain's index of how fast jobs got through, of running time over JCT: 1 if all alike.",
        _at("fairness", "jain"),
        ratio,
    ),
    Measure("Makespan", "From the first submission to the last end of a job.", _at("makespan_s"), seconds),
    Measure(
        "Training usage",
        "Share of the training pool's GPU time that jobs hold between the first submission and the last.",
        _at("usage", "training"),
        share,
    ),
    Measure(
        "Inference usage",
        "Share of the inference pool's GPU time that inference needs or jobs hold on loan, in the same time.",
        _at("usage", "inference"),
        share,
    ),
    Measure("Overall usage", "The same over both pools.", _at("usage", "overall"), share, compared=True),
    Measure(
        "Preemptions",
        "How often a job was stopped for somebody else's sake and had to wait again.",
        _at("preemptions"),
        count,
    ),
    Measure(
        "Jobs preempted",
        "Share of the jobs that were preempted at least once.",
        _at("preemption_ratio"),
        share,
    ),
    Measure(
        "Work lost",
        "Work at base demand that was done, not saved and has to be done again, in GPU hours.",
        _at("lost_gpu_s"),
        hours,
    ),
    Measure(
        "Collateral GPUs",
        "GPUs vacated by preemptions outside the servers that were to be returned, added up.",
        _at("collateral_gpus"),
        count,
    ),
    Measure("Resizes", "How often a running job got more or fewer workers.", _at("resizes"), count),
    Measure("Loans", "How often an inference server went to training use.", _at("loans"), count),
    Measure("Reclaims", "How often an inference server was asked back.", _at("reclaims"), count),
    Measure(
        "Time on loan", "Server hours that inference servers were on loan.", _at("loaned_server_s"), hours
    ),
    Measure(
        "Inference shortfall",
        "Server hours that inference needed and didn't have, because a server was on loan or down.",
        _at("inference_shortfall_server_s"),
        hours,
    ),
)

COUNTED = ("Preemptions", "Resizes", "Loans", "Reclaims")
