"""What a run came to: a value that can be pickled, compared, summarised and written out.

Everything in it is a number, a name or an array, so that it crosses process borders cheaply and two runs
can be held side by side. Nothing here knows how it was measured; that is `recorder.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from aryl.core.model import Demand, Pool
from aryl.report.fairness import Fairness, fairness_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DEMANDS = (Demand.BASE, Demand.FLEXIBLE)
SUCCEEDED, FAILED, CANCELLED, REJECTED = "SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"
OVER = frozenset({SUCCEEDED, FAILED, CANCELLED, REJECTED})


class ServerColumn(NamedTuple):
    """A server as reports need it."""

    server_id: str
    pool: Pool
    gpus: int


@dataclass(frozen=True, slots=True, eq=False)
class JobTable:
    """One entry a job, in order of submission. Seconds; NaN where something never happened or isn't known."""

    job_id: tuple[str, ...]
    state: tuple[str, ...]
    submit_s: Floats
    first_start_s: Floats
    finish_s: Floats
    attempts: Ints
    preemptions: Ints
    resizes: Ints
    queuing_s: Floats
    gpu_s: Floats
    lost_gpu_s: Floats
    min_workers: Floats
    max_workers: Floats
    gpus_per_worker: Floats
    duration_s: Floats
    fungible: Floats
    heterogeneous: Floats
    user: tuple[str, ...]

    @property
    def base_gpus(self) -> Floats:
        """GPUs of the gang."""
        return self.min_workers * self.gpus_per_worker

    @property
    def finished(self) -> npt.NDArray[np.bool_]:
        """Which jobs ended well: the only ones that enter statistics of queuing time and JCT."""
        return np.fromiter((state == SUCCEEDED for state in self.state), np.bool_, len(self.state))

    @property
    def jct_s(self) -> Floats:
        """Finish minus submission; NaN for a job that isn't over."""
        return self.finish_s - self.submit_s

    @property
    def first_wait_s(self) -> Floats:
        """First start minus submission; NaN for a job that never started."""
        return self.first_start_s - self.submit_s


class Spread(NamedTuple):
    """Mean and percentiles of some seconds; NaN where there are none."""

    mean: float
    median: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Floats) -> Spread:
        """Percentiles interpolate linearly between the two nearest values (numpy's default)."""
        if len(values) == 0:
            return cls(*[math.nan] * 4)
        median, p95, p99 = (float(value) for value in np.percentile(values, (50, 95, 99)))
        return cls(float(values.mean()), median, p95, p99)


class Usage(NamedTuple):
    """Shares of GPU time in use, time-weighted between the first submission and the last."""

    training: float
    inference: float
    overall: float


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Levels over time for plots: entry i is the mean from `edge_s[i]` to `edge_s[i + 1]`."""

    edge_s: Floats
    training_gpus: Floats  # held on servers that the training pool owns
    loaned_gpus: Floats  # held on servers that the inference pool owns
    need_gpus: Floats  # what the inference side needs, in GPUs
    on_loan_servers: Floats
    pending: Floats  # jobs waiting


@dataclass(frozen=True, slots=True, eq=False)
class Loans:
    """One entry a loan, in the order in which they began. NaN where something hasn't happened."""

    server: Ints  # position in `Outcome.servers`
    lent_s: Floats
    reclaim_s: Floats
    returned_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class DemandTable:
    """One entry for each change of what inference needs, expects, has lent and is short of, in servers."""

    time_s: Floats
    need_servers: Floats
    forecast_servers: Floats
    on_loan_servers: Floats
    shortfall_servers: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """One entry for each stretch of time in which a job held a number of workers on a server."""

    job: Ints  # position in `Outcome.jobs`
    attempt: Ints
    server: Ints  # position in `Outcome.servers`
    demand: Ints  # position in `DEMANDS`
    workers: Ints
    gpus: Ints
    start_s: Floats
    end_s: Floats

    def rows(self) -> Iterator[tuple[int, int, int, int, int, int, float, float]]:
        """The entries one by one, in the order of the columns."""
        columns = (self.job, self.attempt, self.server, self.demand, self.workers, self.gpus)
        return zip(
            *(column.tolist() for column in columns), self.start_s.tolist(), self.end_s.tolist(), strict=True
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """The scalars of a run."""

    makespan_s: float
    preemptions: int
    preempted_jobs: int
    lost_gpu_s: float
    collateral_gpus: int
    resizes: int
    loans: int
    reclaims: int
    loaned_server_s: float
    inference_shortfall_server_s: float
    wasted_claims: int
    end_s: float
    jct_bound_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One run: which policy on which jobs, and what came of it. `schedule` is None unless asked for."""

    policy: str
    trace: str
    seed: int
    jobs: JobTable
    totals: Totals
    usage: Usage
    series: Series
    loans: Loans
    demand: DemandTable
    schedule: Schedule | None
    servers: tuple[ServerColumn, ...]
    events: int
    policy_wall_s: float
    wall_s: float
    notes: tuple[str, ...] = field(default=())

    @property
    def queuing(self) -> Spread:
        """All the time that finished jobs spent waiting."""
        return Spread.of(self.jobs.queuing_s[self.jobs.finished])

    @property
    def first_wait(self) -> Spread:
        """How long finished jobs waited for their first start."""
        return Spread.of(self.jobs.first_wait_s[self.jobs.finished])

    @property
    def jct(self) -> Spread:
        """Job completion times of finished jobs."""
        return Spread.of(self.jobs.jct_s[self.jobs.finished])

    @property
    def fairness(self) -> Fairness:
        """Who pays for a good mean."""
        return fairness_of(self.jobs)

    def count(self, state: str) -> int:
        """Number of jobs in this state."""
        return self.jobs.state.count(state)

    def gpus(self, pool: Pool) -> int:
        """GPUs that a pool owns."""
        return sum(server.gpus for server in self.servers if server.pool is pool)

    def summary(self) -> dict[str, Any]:
        """The run as one JSON object, None where there is no number (docs/reference/outputs.md)."""
        totals, jobs = self.totals, len(self.jobs.job_id)
        finished, failed = self.count(SUCCEEDED), self.count(FAILED)
        cancelled, rejected = self.count(CANCELLED), self.count(REJECTED)
        return {
            "policy": self.policy,
            "trace": self.trace,
            "seed": self.seed,
            "jobs": jobs,
            "finished": finished,
            "unfinished": jobs - finished - failed - cancelled - rejected,
            "queuing_s": _plain(self.queuing),
            "first_wait_s": _plain(self.first_wait),
            "jct_s": _plain(self.jct),
            "jct_bound_s": _known(totals.jct_bound_s),
            "usage": self.usage._asdict(),
            "makespan_s": totals.makespan_s,
            "preemptions": totals.preemptions,
            "preempted_jobs": totals.preempted_jobs,
            "preemption_ratio": totals.preempted_jobs / jobs if jobs else 0.0,
            "lost_gpu_s": totals.lost_gpu_s,
            "collateral_gpus": totals.collateral_gpus,
            "resizes": totals.resizes,
            "loans": totals.loans,
            "reclaims": totals.reclaims,
            "loaned_server_s": totals.loaned_server_s,
            "inference_shortfall_server_s": totals.inference_shortfall_server_s,
            "events": self.events,
            "policy_wall_s": self.policy_wall_s,
            "wall_s": self.wall_s,
            "rejected": rejected,
            "failed": failed,
            "cancelled": cancelled,
            "wasted_claims": totals.wasted_claims,
            "end_s": totals.end_s,
            "fairness": _plain(self.fairness),
            "notes": list(self.notes),
        }


def _plain(figures: Spread | Fairness) -> dict[str, float | None]:
    return {name: _known(value) for name, value in figures._asdict().items()}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
