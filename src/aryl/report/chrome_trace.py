"""A run as a timeline in Chrome's trace event format, which Perfetto and chrome://tracing open.

Servers are processes, and each stretch that a job held GPUs there is a slice; slices of one thread must not
overlap, so each server has as many threads ("lanes") as it ever held jobs side by side. A server of the
inference pool has one more lane for its loans. One process more, the cluster, carries the levels as
counters. Microseconds are the format's unit. One slice a row of schedule.csv, no cap: some 200 bytes each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

from aryl.report.outcome import DEMANDS, Outcome, Schedule

_CLUSTER = 0  # process of the counters; server i is process i + 1
_LOAN_LANE = 0
_US = 1e6


def chrome_trace(outcome: Outcome, schedule: Schedule) -> Iterator[str]:
    """The parts of the JSON text, one event a line."""
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    first = True
    for event in _events(outcome, schedule):
        yield ("" if first else ",\n") + json.dumps(event, separators=(",", ":"))
        first = False
    yield "\n]}\n"


def _events(outcome: Outcome, schedule: Schedule) -> Iterator[dict[str, Any]]:
    yield from _named(_CLUSTER, f"cluster ({outcome.policy})")
    for place, server in enumerate(outcome.servers):
        yield from _named(place + 1, f"{server.server_id} ({server.pool.value}, {server.gpus} GPUs)")
    yield from _loan_slices(outcome)
    yield from _job_slices(outcome, schedule)
    yield from _counters(outcome)


def _named(process: int, name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": process}}


def _slice(
    process: int, lane: int, *, name: str, kind: str, start_s: float, end_s: float, **args: object
) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": process,
        "tid": lane,
        "name": name,
        "cat": kind,
        "ts": _us(start_s),
        "dur": _us(end_s) - _us(start_s),
        "args": args,
    }


def _us(seconds: float) -> int:
    return round(seconds * _US)


def _loan_slices(outcome: Outcome) -> Iterator[dict[str, Any]]:
    loans = outcome.loans
    named: set[int] = set()
    rows = zip(loans.server.tolist(), loans.lent_s.tolist(), loans.returned_s.tolist(), strict=True)
    for place, lent_s, returned_s in rows:
        if place not in named:
            named.add(place)
            yield _lane_name(place + 1, _LOAN_LANE, "loan")
        end_s = outcome.totals.end_s if math.isnan(returned_s) else returned_s
        yield _slice(place + 1, _LOAN_LANE, name="on loan", kind="loan", start_s=lent_s, end_s=end_s)


def _lane_name(process: int, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": lane, "name": "thread_name", "args": {"name": name}}


def _job_slices(outcome: Outcome, schedule: Schedule) -> Iterator[dict[str, Any]]:
    """Stretches come by start, so the lowest lane that is free again is always right."""
    lanes = [0] * len(outcome.servers)
    busy: list[list[tuple[float, int]]] = [[] for _ in outcome.servers]
    idle: list[list[int]] = [[] for _ in outcome.servers]
    for job, attempt, place, demand, workers, gpus, start_s, end_s in schedule.rows():
        while busy[place] and busy[place][0][0] <= start_s:
            heappush(idle[place], heappop(busy[place])[1])
        if idle[place]:
            lane = heappop(idle[place])
        else:
            lanes[place] += 1
            lane = lanes[place]
            yield _lane_name(place + 1, lane, f"jobs {lane}")
        heappush(busy[place], (end_s, lane))
        kind = DEMANDS[demand].value
        yield _slice(
            place + 1,
            lane,
            name=outcome.jobs.job_id[job],
            kind=kind,
            start_s=start_s,
            end_s=end_s,
            attempt=attempt,
            demand=kind,
            workers=workers,
            gpus=gpus,
        )


def _counters(outcome: Outcome) -> Iterator[dict[str, Any]]:
    series = outcome.series
    levels = {
        "jobs waiting": series.pending,
        "training GPUs busy": series.training_gpus,
        "loaned GPUs busy": series.loaned_gpus,
        "servers on loan": series.on_loan_servers,
    }
    for name, level in levels.items():
        for start_s, value in zip(series.edge_s.tolist(), level.tolist(), strict=False):
            yield {"ph": "C", "pid": _CLUSTER, "name": name, "ts": _us(start_s), "args": {"value": value}}
