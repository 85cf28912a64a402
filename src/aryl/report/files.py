"""Writes a run into a folder: tables that an outsider can check it by, a summary, a timeline and a page.

Each file appears whole or not at all: it is written under a temporary name beside its own and then renamed.
The same outcome gives the same bytes: rows come in a fixed order, and numbers are written in the shortest
form that reads back as the same number, whole ones without a point. An empty cell is something that never
happened or isn't known.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from aryl.report.chrome_trace import chrome_trace
from aryl.report.outcome import DEMANDS, DemandTable, JobTable, Loans, Outcome, Schedule
from aryl.report.page import write_page
from aryl.whole_files import write_whole

JOB_COLUMNS = (
    "job_id",
    "submit_s",
    "first_start_s",
    "finish_s",
    "state",
    "attempts",
    "preemptions",
    "resizes",
    "queuing_s",
    "jct_s",
    "gpu_s",
    "lost_gpu_s",
    "min_workers",
    "max_workers",
    "gpus_per_worker",
    "duration_s",
    "fungible",
    "heterogeneous",
)
SCHEDULE_COLUMNS = ("job_id", "attempt", "server", "pool", "demand", "workers", "gpus", "start_s", "end_s")
LOAN_COLUMNS = ("server", "lent_s", "reclaim_s", "returned_s")
DEMAND_COLUMNS = ("time_s", "need_servers", "forecast_servers", "on_loan_servers", "shortfall_servers")

_LARGEST_EXACT = 2.0**53


def write_run(outcome: Outcome, folder: Path) -> None:
    """Write all files of one run into `folder`, which is made if it isn't there.

    Raises ValueError for an outcome that was recorded without a schedule, InputError where plotly is
    missing, and OSError where the disk refuses.
    """
    if outcome.schedule is None:
        raise ValueError("this outcome was recorded without a schedule: use Recorder(schedule=True)")
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "jobs.csv", JOB_COLUMNS, _job_rows(outcome.jobs))
    write_csv(folder / "schedule.csv", SCHEDULE_COLUMNS, _schedule_rows(outcome, outcome.schedule))
    write_csv(folder / "loans.csv", LOAN_COLUMNS, _loan_rows(outcome, outcome.loans))
    write_csv(folder / "demand.csv", DEMAND_COLUMNS, _demand_rows(outcome.demand))
    write_whole(folder / "summary.json", [json.dumps({"runs": [outcome.summary()]}, indent=2), "\n"])
    write_whole(folder / "trace.json", chrome_trace(outcome, outcome.schedule))
    write_page([outcome], folder / "report.html")


def write_csv(path: Path, header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Write a table whose cells are text already: comma, quotes where needed, one line feed a row."""

    def lines() -> Iterator[str]:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            writer.writerow(row)
            if buffer.tell() > 1 << 16:
                yield buffer.getvalue()
                buffer.seek(0)
                buffer.truncate()
        yield buffer.getvalue()

    write_whole(path, lines())


def number(value: float) -> str:
    """The shortest text that reads back as the same number; whole numbers without a point; NaN is empty."""
    if math.isnan(value):
        return ""
    if value.is_integer() and abs(value) < _LARGEST_EXACT:
        return str(int(value))
    return repr(value)


def _truth(value: float) -> str:
    return "" if math.isnan(value) else "true" if value else "false"


def _job_rows(jobs: JobTable) -> Iterator[tuple[str, ...]]:
    numbers = (
        jobs.submit_s,
        jobs.first_start_s,
        jobs.finish_s,
        jobs.attempts,
        jobs.preemptions,
        jobs.resizes,
        jobs.queuing_s,
        jobs.jct_s,
        jobs.gpu_s,
        jobs.lost_gpu_s,
        jobs.min_workers,
        jobs.max_workers,
        jobs.gpus_per_worker,
        jobs.duration_s,
    )
    columns = [[number(float(value)) for value in column.tolist()] for column in numbers]
    truths = [[_truth(value) for value in column.tolist()] for column in (jobs.fungible, jobs.heterogeneous)]
    return zip(jobs.job_id, *columns[:3], jobs.state, *columns[3:], *truths, strict=True)


def _schedule_rows(outcome: Outcome, schedule: Schedule) -> Iterator[tuple[str, ...]]:
    job_ids, servers = outcome.jobs.job_id, outcome.servers
    for job, attempt, place, demand, workers, gpus, start_s, end_s in schedule.rows():
        server = servers[place]
        yield (
            job_ids[job],
            str(attempt),
            server.server_id,
            server.pool.value,
            DEMANDS[demand].value,
            str(workers),
            str(gpus),
            number(start_s),
            number(end_s),
        )


def _loan_rows(outcome: Outcome, loans: Loans) -> Iterator[tuple[str, ...]]:
    times = [
        [number(value) for value in column.tolist()]
        for column in (loans.lent_s, loans.reclaim_s, loans.returned_s)
    ]
    return zip((outcome.servers[place].server_id for place in loans.server.tolist()), *times, strict=True)


def _demand_rows(demand: DemandTable) -> Iterator[tuple[str, ...]]:
    columns = (
        demand.time_s,
        demand.need_servers,
        demand.forecast_servers,
        demand.on_loan_servers,
        demand.shortfall_servers,
    )
    return zip(*([number(value) for value in column.tolist()] for column in columns), strict=True)
