"""From levels over time to figures: usage, loans, what inference was short of, and the plotted series.

Levels are step functions: a row holds until the next one. So every integral is exact, and a mean over a
time slot is the difference of two values of a piecewise linear integral.

**Usage** is time-weighted between the first submission and the last one (where these coincide: until the
end), so that neither the empty cluster before nor the emptying one afterwards counts. In use are: GPUs that
jobs hold, restarts and leaving workers included, and the inference servers that inference needs, as far as
it has them. The denominator is every GPU that the pool owns, all the time: a server that is down is
capacity that isn't used, and one that joins is capacity from then on.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aryl.core.model import Accounting, Pool
from aryl.report.outcome import OVER, DemandTable, Floats, JobTable, Series, ServerColumn, Totals, Usage

MOST_SLOTS = 1500  # more points than a screen has columns only make a page slow


@dataclass(frozen=True, slots=True, eq=False)
class Owned:
    """What the pools own, lost servers included; entry i holds from `from_s[i]` until the next one."""

    from_s: Floats
    training_gpus: Floats
    inference_gpus: Floats
    inference_servers: Floats

    @classmethod
    def of(cls, rows: Sequence[tuple[float, int, int, int]]) -> Owned:
        """From the recorder's rows; none: nobody owns anything."""
        table = np.array(rows or [(0.0, 0, 0, 0)], dtype=np.float64)
        return cls(*(table[:, column] for column in range(4)))

    def gpu_s(self, gpus: Floats, first_s: float, last_s: float) -> float:
        """One of the columns of GPUs, integrated between two instants."""
        until_s = np.append(self.from_s[1:], np.inf)
        width_s = np.maximum(0.0, np.minimum(until_s, last_s) - np.maximum(self.from_s, first_s))
        return float((gpus * width_s).sum())

    def gpus_per_inference_server(self, at_s: Floats) -> Floats:
        """The mean size of an inference server at some instants."""
        mean = self.inference_gpus / np.maximum(self.inference_servers, 1.0)
        found: Floats = mean[np.maximum(np.searchsorted(self.from_s, at_s, side="right") - 1, 0)]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Columns of levels; entry i holds from `from_s[i]` to `until_s[i]`."""

    from_s: Floats
    until_s: Floats
    training_gpus: Floats
    loaned_gpus: Floats
    pending: Floats
    need_servers: Floats
    forecast_servers: Floats
    on_loan_servers: Floats  # lent and not yet returned
    have_servers: Floats  # inference servers that are up, with inference and in service

    @classmethod
    def of(cls, rows: array[float], last: Sequence[float], end_s: float) -> Levels:
        """From the recorder's rows and the row that holds now, until `end_s`."""
        table = np.concatenate((np.frombuffer(rows), np.array(last, dtype=np.float64))).reshape(-1, len(last))
        until_s = np.append(table[1:, 0], end_s)
        return cls(table[:, 0], until_s, *(table[:, column] for column in range(1, len(last))))

    @property
    def shortfall_servers(self) -> Floats:
        """Servers that inference needs and doesn't have."""
        return np.maximum(0.0, self.need_servers - self.have_servers)

    @property
    def shortfall_server_s(self) -> float:
        """Server-seconds that inference needed and didn't have, over the whole run."""
        return self._integral(self.shortfall_servers)

    @property
    def loaned_server_s(self) -> float:
        """Server-seconds on loan over the whole run; a server being reclaimed is on loan until returned."""
        return self._integral(self.on_loan_servers)

    def usage(self, owned: Owned, first_s: float, last_s: float) -> Usage:
        """Shares of GPU time in use between two instants (see the top); zero where there are no GPUs."""
        if not last_s > first_s:
            last_s = float(self.until_s[-1])
        width_s = np.maximum(0.0, np.minimum(self.until_s, last_s) - np.maximum(self.from_s, first_s))
        owned_training_gpu_s = owned.gpu_s(owned.training_gpus, first_s, last_s)
        owned_inference_gpu_s = owned.gpu_s(owned.inference_gpus, first_s, last_s)
        serving_servers = np.minimum(self.need_servers, self.have_servers)
        serving = serving_servers * owned.gpus_per_inference_server(self.from_s)
        training_gpu_s = float((self.training_gpus * width_s).sum())
        inference_gpu_s = float(((serving + self.loaned_gpus) * width_s).sum())

        def share(used_gpu_s: float, owned_gpu_s: float) -> float:
            return used_gpu_s / owned_gpu_s if owned_gpu_s > 0.0 else 0.0

        return Usage(
            share(training_gpu_s, owned_training_gpu_s),
            share(inference_gpu_s, owned_inference_gpu_s),
            share(training_gpu_s + inference_gpu_s, owned_training_gpu_s + owned_inference_gpu_s),
        )

    def series(self, owned: Owned) -> Series:
        """Means over at most `MOST_SLOTS` time slots; the levels themselves where they are no more."""
        ends_s = np.append(self.from_s, self.until_s[-1])
        distinct_s = np.unique(ends_s)
        edge_s = distinct_s
        if len(distinct_s) > MOST_SLOTS + 1:
            edge_s = np.linspace(distinct_s[0], distinct_s[-1], MOST_SLOTS + 1)
        slot_s = np.diff(edge_s)

        def mean(level: Floats) -> Floats:
            integral = np.concatenate(([0.0], np.cumsum(level * (self.until_s - self.from_s))))
            # `interp` needs ascending abscissae: rows of no length carry nothing.
            keep = np.concatenate((np.diff(ends_s) > 0.0, [True]))
            means: Floats = np.diff(np.interp(edge_s, ends_s[keep], integral[keep])) / slot_s
            return means

        return Series(
            edge_s=edge_s,
            training_gpus=mean(self.training_gpus),
            loaned_gpus=mean(self.loaned_gpus),
            need_gpus=mean(self.need_servers * owned.gpus_per_inference_server(self.from_s)),
            on_loan_servers=mean(self.on_loan_servers),
            pending=mean(self.pending),
        )

    def demand_table(self, since_s: float) -> DemandTable:
        """A row for each change after inference first said what it needs."""
        columns = (self.need_servers, self.forecast_servers, self.on_loan_servers, self.shortfall_servers)
        table = np.column_stack((self.from_s, *columns))[self.from_s >= since_s]
        if len(table):
            table = table[np.append(table[1:, 0] > table[:-1, 0], True)]
            table = table[np.insert((table[1:, 1:] != table[:-1, 1:]).any(axis=1), 0, True)]
        return DemandTable(*(table[:, column].copy() for column in range(5)))

    def _integral(self, level: Floats) -> float:
        return float((level * (self.until_s - self.from_s)).sum())


def notes(
    jobs: JobTable, totals: Totals, accounting: Accounting, servers: Sequence[ServerColumn]
) -> tuple[str, ...]:
    """What a reader has to know to read the figures right, one sentence each."""
    said = []
    unfinished = sum(state not in OVER for state in jobs.state)
    if unfinished:
        said.append(f"{unfinished} jobs were not over at the end; queuing times and JCTs leave them out.")
    if totals.loans and accounting is Accounting.MORE_GPUS:
        said.append(
            "Usage counts GPUs that are held. A job on slower loaned GPUs holds more of them for the same "
            "work, so usage rises by more than the work done does."
        )
    sizes = {server.gpus for server in servers if server.pool is Pool.INFERENCE}
    if len(sizes) > 1:
        said.append("Inference needs are given in servers; in usage each counts as a server of mean size.")
    return tuple(said)
