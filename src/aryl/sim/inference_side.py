"""The inference side of an experiment: its need, its loan control and its calendar."""

from __future__ import annotations

import numpy as np

from aryl.files.calendar_fields import CalendarSection
from aryl.files.inference_fields import ORACLE
from aryl.forecast.calendar import calendar_of
from aryl.forecast.catalogue import build_predictor, headroom_rule
from aryl.forecast.control import LoanControl, LoanRules
from aryl.forecast.limits import LimitClock
from aryl.sim.demand import InferenceSide
from aryl.sim.experiment import Experiment
from aryl.traces.curves import load_curve, scale_curve, window_curve
from aryl.traces.need import Need


def inference_side(experiment: Experiment, covered_s: float) -> InferenceSide | None:
    """What inference needs and says; the curve has to cover the time until the last submission."""
    pool, inference, simulation = experiment.cluster.inference, experiment.inference, experiment.simulation
    if pool.servers == 0:
        return None
    need, end_s = need_of(experiment, covered_s)
    give_back_s = inference.deadline + simulation.vacate_s + inference.load
    rules = LoanRules(
        simulation.interval,
        give_back_s,
        inference.lead,
        inference.settle,
        headroom_rule(inference.headroom, pool.servers),
    )
    oracle = inference.forecast.predictor == ORACLE
    return InferenceSide(
        need,
        simulation.interval,
        rules.lead_or_default_s,
        None if oracle else LoanControl(rules, build_predictor(inference.forecast)),
        None if inference.calendar is None else _limits(experiment, inference.calendar, give_back_s),
        end_s,
    )


def need_of(experiment: Experiment, covered_s: float) -> tuple[Need, float]:
    """The need in servers, from 0 s on and before as far as a curve has it; and when nothing is said any
    more.
    """
    pool, inference = experiment.cluster.inference, experiment.inference
    interval_s, line = experiment.simulation.interval, inference.interpolate == "line"
    if inference.points is not None:
        times, servers = np.array(inference.points, dtype=np.float64).T
        return Need(times, servers, line=line), max(float(times[-1]), covered_s) + interval_s
    if inference.curve is None:
        # Nobody says what inference needs, so all of it is needed.
        return Need(np.zeros(1), np.full(1, float(pool.servers)), line=False), 0.0
    curve = scale_curve(
        load_curve(inference.curve),
        servers=pool.servers,
        gpus_per_server=pool.gpus_per_server,
        peak=inference.peak,
    )
    start_s = experiment.curve_start_s
    window_curve(curve, start_s, start_s + max(covered_s, interval_s))  # raises if it is too short
    return Need(curve.time_s - start_s, curve.busy, line=line), curve.end_s - start_s


def _limits(experiment: Experiment, calendar: CalendarSection, give_back_s: float) -> LimitClock:
    start_s = experiment.simulation.start
    assert start_s is not None
    return LimitClock(
        calendar_of(calendar), give_back_s, lambda at_s: start_s + at_s, lambda unix_s: unix_s - start_s
    )
