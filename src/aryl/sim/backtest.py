"""Back tests: a predictor on the rest of a curve, judged by its errors and by what a run with it comes to.

The forecasts are made once, by the loan control that a simulation has, tick by tick. They are compared with
what the curve needed, and then handed to a simulation: an inference pool, one training server, and as many
endless jobs of one server as there are servers. So every lent server is busy, a reclaim takes as long as
vacating does, and what inference goes short of is what the engine says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aryl.core.events import DemandReported, Event, Submitted
from aryl.errors import InputError
from aryl.files.inference_fields import ORACLE, Headroom
from aryl.forecast.catalogue import build_predictor
from aryl.forecast.control import LoanControl
from aryl.forecast.history import DAY_S, Floats, History
from aryl.forecast.predictor import MEDIAN, Predictor
from aryl.policies.catalogue import parse_policy
from aryl.report.judged import HOURS, PERCENTILES, Accuracy, Course, Lending
from aryl.report.outcome import DemandTable, Outcome
from aryl.report.recorder import Recorder
from aryl.sim.audit import Audit
from aryl.sim.demand import InferenceSide
from aryl.sim.driver import Overheads, SimDriver
from aryl.sim.experiment import Experiment
from aryl.sim.inference_side import inference_side
from aryl.sim.limit import bound_of
from aryl.sim.run import EVENTS_PER_AUDIT, simulate
from aryl.sim.world import World, declare, load_workload
from aryl.traces.curves import scale_curve
from aryl.traces.model import DemandCurve
from aryl.traces.need import Need

POLICY = "aryl:loaning"
# Of the pinball loss; the intervals are between the quantiles of 25 and 75 %, and of 5 and 95 %.
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
MOST_POINTS = 1500
# What is so near to an interval counts as inside, as a share of its width.
HAIR = 0.05

# Forecasting takes longer than the run that follows.
FORECASTING = 0.7

Progress = Callable[[float, str], None]


def busy_pools(servers: int, gpus_per_server: int, span_s: float) -> dict[str, Any]:
    """The sections `cluster`, `jobs` and `simulation.until` of an experiment that is always busy for a span.

    Loaned servers are like training servers, so that one job always takes one of them.
    """
    pool = {"gpus_per_server": gpus_per_server, "gpu_type": "any", "speed": 1.0}
    job = {
        "workers": 1,
        "gpus_per_worker": gpus_per_server,
        # It never ends, whatever restarts cost it.
        "duration": 1000.0 * span_s,
        "checkpoint": "continuous",
        "fungible": True,
    }
    return {
        "cluster": {"training": {**pool, "servers": 1}, "inference": {**pool, "servers": servers}},
        "jobs": [{"id": f"J{number}", **job} for number in range(servers + 1)],
        "simulation": {"until": span_s},
    }


def sampled_need(
    curve: DemandCurve, servers: int, gpus_per_server: int, until_s: float, interval_s: float
) -> Floats:
    """The need at each tick from the curve's first row on, while a whole interval is left until `until_s`;
    in servers of a pool of that size.
    """
    scaled = scale_curve(curve, servers=servers, gpus_per_server=gpus_per_server)
    first_s = float(curve.time_s[0])
    count = max(math.floor((until_s - first_s) / interval_s + 1e-9), 0)
    ticks = first_s + np.arange(count, dtype=np.float64) * interval_s
    return Need(scaled.time_s, scaled.busy, line=False).at(ticks)


@dataclass(frozen=True, slots=True)
class Trial:
    """What came out of one back test; `accuracy` None: nothing was forecast, or nobody asked."""

    accuracy: Accuracy | None
    lending: Lending
    course: Course


def judge(experiment: Experiment, *, accuracy: bool = True, on_progress: Progress | None = None) -> Trial:
    """Back test the predictor that an experiment names, from `inference.from` until `simulation.until`.

    `accuracy`: ask it for `LEVELS` too, which takes more than twice as long. Raises InputError for a curve
    that can't be used, or if the predictor can't be.
    """
    report = on_progress or _silent
    side = inference_side(experiment, 0.0)
    span_s = experiment.simulation.until
    if side is None or span_s is None:
        raise InputError("a back test needs an inference pool, a curve and an end", file=experiment.name)
    side = replace(side, end_s=span_s)
    asked: _Asked | None = None
    if side.control is not None:
        # Two of them, because what one is asked for may change what it says later.
        forecast = experiment.inference.forecast
        asked = _Asked(build_predictor(forecast), build_predictor(forecast) if accuracy else None)
        side = replace(side, control=LoanControl(side.control.rules, asked))
    events = _told(side, span_s, report)
    outcome = _run(experiment, events, span_s, report)
    judged = None
    if asked is not None and accuracy:
        judged = _accuracy(side, asked, experiment.curve_start_s)
    return Trial(
        judged,
        _lending(outcome, experiment.cluster.inference.servers, span_s),
        _course(outcome.demand, events, experiment),
    )


def _silent(_share: float, _words: str) -> None:
    return


class _Asked:
    """A `Predictor` that answers with one, and notes what another would have said of all `LEVELS`."""

    def __init__(self, told: Predictor, judged: Predictor | None) -> None:
        self._told, self._judged = told, judged
        self.steps = 1
        self.slots: list[int] = []
        self.quantiles: list[Floats] = []

    def predict(self, history: History, steps: int, levels: Sequence[float] = MEDIAN) -> Floats:
        """See `Predictor`."""
        if self._judged is not None:
            self.steps = steps
            self.slots.append(history.slot)
            self.quantiles.append(self._judged.predict(history, steps, LEVELS))
        return self._told.predict(history, steps, levels)


def _told(side: InferenceSide, span_s: float, report: Progress) -> list[Event]:
    """All that the inference side says."""
    events: list[Event] = []
    for event in side.events():
        events.append(event)
        report(FORECASTING * min(event.at / span_s, 1.0), "forecasting")
    return events


def _run(experiment: Experiment, events: Sequence[Event], span_s: float, report: Progress) -> Outcome:
    """The run of an experiment in which the inference side says this."""
    simulation, inference = experiment.simulation, experiment.inference
    policy = parse_policy(POLICY, seed=simulation.seed)
    workload = load_workload(experiment)

    def heard() -> Iterator[Event]:
        for event in events:
            yield event
            report(FORECASTING + (1.0 - FORECASTING) * min(event.at / span_s, 1.0), "simulating")

    arrivals = tuple(Submitted(spec.submit_s, spec) for spec in workload.specs)
    driver = SimDriver(
        arrivals,
        workload.durations_s,
        demand=heard(),
        overheads=Overheads(
            simulation.restart_s,
            simulation.resize_s,
            simulation.vacate_s,
            inference.drain,
            inference.load,
        ),
        until_s=span_s,
    )
    world = World(declare(experiment), arrivals, {}, driver)
    recorder = Recorder()
    audit = Audit(foresight=True, every=1 if simulation.check else EVENTS_PER_AUDIT)
    simulate(world, policy, workload, [recorder, audit])
    return recorder.outcome(
        policy=POLICY,
        trace=workload.trace,
        seed=workload.seed,
        durations_s=workload.durations_s,
        bound=bound_of(experiment, workload),
        end_s=span_s,
    )


def _lending(outcome: Outcome, servers: int, span_s: float) -> Lending:
    demand, totals = outcome.demand, outcome.totals
    widths_s = np.diff(np.append(demand.time_s, span_s))
    return Lending(
        span_s,
        totals.inference_shortfall_server_s,
        float((np.maximum(servers - demand.need_servers, 0.0) * widths_s).sum()),
        totals.loaned_server_s,
        totals.loans,
        totals.reclaims,
    )


def _accuracy(side: InferenceSide, asked: _Asked, start_s: float) -> Accuracy:
    """Forecasts beside the highest need from when they were made until so many slots later."""
    ticks = np.array(asked.slots, dtype=np.float64) * side.interval_s
    ahead_s = asked.steps * side.interval_s
    # Before 0 it only got to know its errors; what comes after the end nobody knows.
    counts = (ticks >= 0.0) & (ticks + ahead_s < side.end_s)
    if not counts.any():
        nothing = np.full((HOURS, len(PERCENTILES)), math.nan)
        return Accuracy(math.nan, math.nan, math.nan, math.nan, math.nan, nothing)
    ticks = ticks[counts]
    needed = side.need.highest(ticks, ahead_s)
    quantiles = np.stack(asked.quantiles)[counts]
    guesses = quantiles[:, LEVELS.index(0.5)]
    levels, above = np.array(LEVELS), needed[:, np.newaxis] - quantiles

    def within(low: float, high: float) -> float:
        lowest, highest = quantiles[:, LEVELS.index(low)], quantiles[:, LEVELS.index(high)]
        # A need that stays where it is lies a hair below any quantile that isn't exactly there.
        hair = HAIR * (highest - lowest)
        return float(((lowest - hair <= needed) & (needed <= highest + hair)).mean())

    return Accuracy(
        float(np.abs(needed - guesses).mean()),
        float((guesses - needed).mean()),
        float(np.maximum(levels * above, (levels - 1.0) * above).mean()),
        within(0.25, 0.75),
        within(0.05, 0.95),
        _by_hour(needed - guesses, start_s + ticks),
    )


def _by_hour(errors: Floats, time_s: Floats) -> Floats:
    hours = (time_s % DAY_S // 3600.0).astype(np.int64)
    table = np.full((HOURS, len(PERCENTILES)), math.nan)
    for hour in np.unique(hours).tolist():
        table[hour] = np.percentile(errors[hours == hour], PERCENTILES)
    return table


def _course(demand: DemandTable, events: Sequence[Event], experiment: Experiment) -> Course:
    """At most `MOST_POINTS` means over equally many reports each; the last may be over fewer."""
    reports = [event for event in events if isinstance(event, DemandReported)]
    inference = experiment.inference
    least = 0.0
    if inference.forecast.predictor != ORACLE or inference.headroom.is_fixed:
        least = float(inference.headroom.in_servers(experiment.cluster.inference.servers))
    ticks = np.array([report.at for report in reports])
    need = np.array([report.need_servers for report in reports])
    forecast = np.array([report.forecast_servers for report in reports])
    headroom = np.array(
        [least if report.headroom_servers is None else report.headroom_servers for report in reports]
    )
    rows = np.searchsorted(demand.time_s, ticks, side="right") - 1
    home = experiment.cluster.inference.servers - demand.on_loan_servers[rows]
    firsts = np.arange(0, len(ticks), math.ceil(len(ticks) / MOST_POINTS))
    sizes = np.diff(np.append(firsts, len(ticks)))

    def mean(values: Floats) -> Floats:
        means: Floats = np.add.reduceat(values, firsts) / sizes
        return means

    return Course(
        experiment.curve_start_s + ticks[firsts],
        mean(need),
        mean(forecast),
        mean(forecast + headroom),
        mean(home),
    )


def headroom_text(headroom: Headroom) -> str:
    """A headroom as the command line takes it."""
    if headroom.servers is not None:
        return str(headroom.servers)
    if headroom.share is not None:
        return f"{headroom.share * 100:.6g}%"
    if headroom.quantile is not None:
        return f"quantile={headroom.quantile * 100:.6g}%"
    assert headroom.risk is not None
    return f"risk={headroom.risk * 100:.6g}%"
