"""Which forecast and which loan rule keep the promise? Every predictor on every public curve.

    ARYL_DATA=... python -m benchmarks.loan_rules [--write docs/explanation/forecasting.md]

The first two thirds of a curve are known, the last third is judged. A pool of 200 servers at a peak of 95 %,
an interval of 5 minutes; a reclaimed server is empty after a minute and serves 6 minutes later. Two runs of
the engine a row: one in which every lent server is busy with endless jobs (shortfall, what was lent, how
often servers changed hands), and one with the real jobs of itp's densest 15 days on 170 training servers
under `aryl` (preemptions that reclaims caused, mean JCT). Accuracy is that of the highest need over the lead.

The LSTM is trained here, on the first two thirds.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aryl.forecast.lstm import Loss
from aryl.forecast.lstm_store import save
from aryl.forecast.lstm_training import train
from aryl.sim.backtest import Trial, busy_pools, judge, sampled_need
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import experiment_from_mapping
from aryl.sim.run import run
from aryl.traces.curves import load_curve

CURVES = ("nyc_taxi", "twitter_goog", "elb")
SERVERS, INTERVAL_S, SHARE_KNOWN = 200, 300.0, 2 / 3
JOBS_FROM_S, JOBS_SPAN_S = 14 * 86_400.0, 15 * 86_400.0
RISKS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.17, 0.22, 0.3)
DEFAULT: dict[str, Any] = {}
BARE: dict[str, Any] = {"headroom": 0, "settle": 0}
PAPER: dict[str, Any] = {"headroom": "2%", "settle": 0}


@dataclass(frozen=True)
class Rule:
    """One row: who forecasts, and what is different from the default rule."""

    label: str
    predictor: str
    what: tuple[tuple[str, Any], ...] = ()


def _rule(label: str, predictor: str, what: dict[str, Any]) -> Rule:
    return Rule(label, predictor, tuple(what.items()))


RULES = (
    _rule("oracle", "oracle", BARE),
    _rule("reactive: the present need, no headroom", "last", BARE),
    _rule("the present need, 2 %", "last", PAPER),
    _rule("the paper's: LSTM (squared error), 2 %", "lstm-squared", PAPER),
    _rule("`regression`, 2 %, no settling", "regression", PAPER),
    _rule("`regression`, quantile 99 %", "regression", {"headroom": {"quantile": "99%"}}),
    *(
        _rule(f"`{name}`", name, DEFAULT)
        for name in ("last", "day", "week", "ets", "mstl", "lstm", "lstm-squared", "regression")
    ),
)
FRONTIER = tuple(
    _rule(f"`regression`, risk {risk:.0%}", "regression", {"headroom": {"risk": risk}}) for risk in RISKS
)


@cache
def end_s(curve: str) -> float:
    """When a curve ends."""
    return load_curve(curve).end_s


def inference(curve: str, rule: Rule, models: str) -> dict[str, Any]:
    """The section `inference` of an experiment."""
    forecast: Any = rule.predictor
    if forecast.startswith("lstm"):
        forecast = {"predictor": "lstm", "model": f"{models}/{curve}-{forecast}.lstm"}
    start_s = end_s(curve) * SHARE_KNOWN // INTERVAL_S * INTERVAL_S
    return {"curve": curve, "from": start_s, "load": "6m", "forecast": forecast, **dict(rule.what)}


def back_test(task: tuple[str, Rule, str, bool]) -> Trial:
    """Every lent server is busy."""
    curve, rule, models, accuracy = task
    said = inference(curve, rule, models)
    sections = busy_pools(SERVERS, 8, end_s(curve) - said["from"])
    sections["simulation"] |= {"interval": INTERVAL_S, "vacate_s": 60.0}
    return judge(experiment_from_mapping(sections | {"inference": said}), accuracy=accuracy)


def with_jobs(task: tuple[str, Rule, str]) -> dict[str, Any]:
    """Real jobs, as many days of them as the curve has left, 15 at most."""
    curve, rule, models = task
    said = inference(curve, rule, models)
    span_s = min(JOBS_SPAN_S, end_s(curve) - said["from"] - INTERVAL_S)
    experiment: Experiment = experiment_from_mapping(
        {
            "cluster": {
                "training": {"servers": 170, "gpus_per_server": 8, "gpu_type": "V100"},
                "inference": {"servers": SERVERS, "gpus_per_server": 8, "gpu_type": "T4", "speed": 0.33},
            },
            "jobs": {"trace": "itp", "window": [JOBS_FROM_S, JOBS_FROM_S + span_s], "scenario": "basic"},
            "inference": said,
            "simulation": {"interval": INTERVAL_S, "vacate_s": 60.0},
        }
    )
    return run(experiment, "aryl").summary


def train_model(task: tuple[str, str, str]) -> tuple[str, str, float]:
    """Train one network; how long it took."""
    curve, name, models = task
    until_s = end_s(curve) * SHARE_KNOWN // INTERVAL_S * INTERVAL_S
    values = sampled_need(load_curve(curve), SERVERS, 8, until_s, INTERVAL_S)
    loss = Loss.SQUARED if name == "lstm-squared" else Loss.QUANTILE
    began_s = time.perf_counter()
    model = train(values, INTERVAL_S, loss=loss, curve=curve)
    save(model, Path(models) / f"{curve}-{name}.lstm")
    return curve, name, time.perf_counter() - began_s


def table(curve: str, trials: list[Trial], jobs: list[dict[str, Any]]) -> list[str]:
    """One curve's rows, as Markdown."""
    oracle, reactive = trials[0].lending, trials[1].lending
    text = [
        "",
        f"**{curve}**, the last {oracle.span_s / 86_400:.1f} days",
        "",
        "| rule | mean error | pinball | within 90 % | shortfall (server-min) | of reactive "
        "| idle hours lent | of the oracle | loans a day | reclaims a day | preemptions | mean JCT (s) |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for rule, trial, summary in zip(RULES, trials, jobs, strict=True):
        lending, accuracy = trial.lending, trial.accuracy
        errors = "| | | "
        if accuracy is not None:
            errors = f"| {accuracy.mae_servers:.2f} | {accuracy.pinball_servers:.3f} "
            errors += f"| {accuracy.within_90:.0%} "
        share = lending.shortfall_server_s / reactive.shortfall_server_s
        days = lending.span_s / 86_400
        text.append(
            f"| {rule.label} {errors}| {lending.shortfall_server_s / 60:,.0f} | {share:.3f} "
            f"| {lending.lent_share:.1%} | {lending.lent_server_s / oracle.lent_server_s:.1%} "
            f"| {lending.loans / days:,.0f} | {lending.reclaims / days:,.0f} "
            f"| {summary['preemptions']:,} | {summary['jct_s']['mean']:,.0f} |"
        )
    return text


def frontier(curve: str, base: list[Trial], trials: list[Trial]) -> str:
    """What the most that was lent is at a tenth of the reactive shortfall, over all rules and risks."""
    oracle, reactive = base[0].lending, base[1].lending
    points = [
        (trial.lending.lent_server_s / oracle.lent_server_s, rule.label, trial.lending.shortfall_server_s)
        for rule, trial in zip((*RULES[2:], *FRONTIER), (*base[2:], *trials), strict=True)
    ]
    enough = [point for point in points if point[2] <= 0.1 * reactive.shortfall_server_s]
    best = max(enough)
    least = min((point for point in points if point[0] >= 0.85), key=lambda point: point[2], default=None)
    said = (
        f"* {curve}: with at most a tenth of the reactive shortfall, {best[1]} lends most: "
        f"{best[0]:.1%} of what the oracle lends."
    )
    if least is not None:
        said += (
            f" With at least 85 %, {least[1]} has the least shortfall: "
            f"{least[2] / reactive.shortfall_server_s:.3f} of the reactive one."
        )
    return said


def main() -> int:
    """Train, run everything, and print the tables."""
    if "ARYL_DATA" not in os.environ:
        print("skipped: the loan rules need ARYL_DATA")
        return 0
    with TemporaryDirectory() as models, ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        networks = [(curve, name, models) for curve in CURVES for name in ("lstm", "lstm-squared")]
        trained = list(pool.map(train_model, networks))
        rows = [(curve, rule, models) for curve in CURVES for rule in RULES]
        margins = [(curve, rule, models) for curve in CURVES for rule in FRONTIER]
        judged = list(pool.map(back_test, [(*row, True) for row in rows]))
        edges = list(pool.map(back_test, [(*row, False) for row in margins]))
        jobs = list(pool.map(with_jobs, rows))
    text = ["Training, in seconds on one core: " + "; ".join(f"{c} {n} {s:.0f}" for c, n, s in trained) + "."]
    ends = []
    for number, curve in enumerate(CURVES):
        mine = slice(number * len(RULES), (number + 1) * len(RULES))
        text += table(curve, judged[mine], jobs[mine])
        ends.append(
            frontier(curve, judged[mine], edges[number * len(FRONTIER) : (number + 1) * len(FRONTIER)])
        )
    text += ["", *ends]
    print("\n".join(text))
    if "--write" in sys.argv:
        path = Path(sys.argv[sys.argv.index("--write") + 1])
        before, marker, _ = path.read_text(encoding="utf-8").partition("<!-- figures -->\n")
        path.write_text(before + marker + "\n".join(text) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
