"""One HTML page that shows one run, or several side by side, and needs nothing else: no network, no other
file.

The table holds every figure as text, so that the page can be read without scripts, printed and searched;
the charts below it show how the figures came about. Wall-clock times are left out on purpose: the same runs
give the same page.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib.resources import files as package_files
from pathlib import Path

from aryl.core.model import Pool
from aryl.errors import InputError
from aryl.report import charts
from aryl.report.outcome import Outcome
from aryl.report.terms import COUNTED, MEASURES, Measure, Summary
from aryl.whole_files import write_whole

# More charts of pools than these make a page that nobody scrolls through, and that is slow to open.
MOST_POOL_CHARTS = 8


def write_page(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write the page for these runs; ratios are to the first of them.

    Raises InputError where plotly is missing and ValueError without any run.
    """
    if not outcomes:
        raise ValueError("a page needs at least one run")
    write_whole(path, [page(outcomes, _plotly())])


def page(outcomes: Sequence[Outcome], plotly: str) -> str:
    """The page's text, with the text of plotly.js inside."""
    labels = _labels(outcomes)
    end_s = max(outcome.totals.end_s for outcome in outcomes)
    summaries = [outcome.summary() for outcome in outcomes]
    figures = {
        f"pools{index}": charts.pools(one, end_s) for index, one in enumerate(outcomes[:MOST_POOL_CHARTS])
    }
    figures["queue"] = charts.queue(outcomes, labels)
    finished = [outcome.jobs.finished for outcome in outcomes]
    jct = [one.jobs.jct_s[mask] for one, mask in zip(outcomes, finished, strict=True)]
    queuing = [one.jobs.queuing_s[mask] for one, mask in zip(outcomes, finished, strict=True)]
    figures["jct"] = charts.distribution(jct, labels, "JCT")
    figures["queuing"] = charts.distribution(queuing, labels, "queuing time")
    parts = [
        _head(outcomes),
        _table(summaries, labels),
        _notes(outcomes, labels),
        "<h2>Who uses the GPUs</h2>",
        "<p>GPUs that jobs hold in each pool, and what inference needs. Empty room below a dashed line is "
        "idle; where the stack crosses the line of all inference GPUs, inference needs what jobs still hold. "
        "Drag over a chart to look closer, double-click to go back.</p>",
        *(
            f"<h3>{escape(label)}</h3>{_chart(f'pools{index}', f'GPUs in use over time under {label}')}"
            for index, label in enumerate(labels[:MOST_POOL_CHARTS])
        ),
        "<h2>How many jobs wait</h2>",
        _chart("queue", "Number of waiting jobs over time, one line a run"),
        "<h2>How long jobs take and wait</h2>",
        "<p>How many of 100 finished jobs take, or wait, no longer than so many seconds. Further left is "
        "better. Times below one second are drawn at one second.</p>",
        '<div class="pair">',
        _chart("jct", "Distribution of job completion times"),
        _chart("queuing", "Distribution of queuing times"),
        "</div>",
        "<h2>What the scheduler did</h2>",
        *_bars(summaries, labels),
        _terms(),
    ]
    # `<` inside a script element could end it; \u003c is the same character to JSON.
    data = json.dumps(figures, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(_title(outcomes))}</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + f'\n<script type="application/json" id="figures">{data}</script>\n'
        f"<script>{plotly}</script>\n<script>\n{_asset('page.js')}</script>\n</body>\n</html>\n"
    )


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as missing:
        raise InputError(
            "reports need plotly, which isn't installed: pip install 'aryl[report]'"
        ) from missing
    text: str = get_plotlyjs()
    return text


def _asset(name: str) -> str:
    return package_files("aryl.report").joinpath(name).read_text(encoding="utf-8")


def _labels(outcomes: Sequence[Outcome]) -> list[str]:
    """A name for each run: its policy, and as much more as tells the runs apart."""
    names = [outcome.policy for outcome in outcomes]
    for extra in ([outcome.trace for outcome in outcomes], [f"seed {outcome.seed}" for outcome in outcomes]):
        if len(set(names)) < len(names) and len(set(extra)) > 1:
            names = [f"{name}, {more}" for name, more in zip(names, extra, strict=True)]
    met: Counter[str] = Counter()
    labels = []
    for name in names:
        met[name] += 1
        labels.append(name if met[name] == 1 else f"{name} ({met[name]})")
    return labels


def _title(outcomes: Sequence[Outcome]) -> str:
    policies = list(dict.fromkeys(outcome.policy for outcome in outcomes))
    traces = list(dict.fromkeys(outcome.trace for outcome in outcomes))
    return f"{', '.join(policies[:4])}{' and more' if len(policies) > 4 else ''} on {', '.join(traces[:3])}"


def _head(outcomes: Sequence[Outcome]) -> str:
    first = outcomes[0]
    described = []
    for pool in Pool:
        servers = [server for server in first.servers if server.pool is pool]
        described.append(
            f"{len(servers):,} {pool.value} servers with {sum(server.gpus for server in servers):,} GPUs"
        )
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(outcome.seed for outcome in outcomes))
    return (
        f'<h1>{escape(_title(outcomes))}</h1>\n<p class="faint">{" and ".join(described)}; '
        f"{len(first.jobs.job_id):,} jobs; seed {escape(seeds)}.</p>"
    )


def _table(summaries: Sequence[Summary], labels: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(label)}</th>' for label in labels)
    rows = "".join(_row(measure, summaries) for measure in MEASURES)
    told = " Small figures are ratios to the first run." if len(summaries) > 1 else ""
    return (
        f'<p>What the rows mean is said <a href="#terms">at the end</a>.{told}</p>\n'
        '<div class="scroll" tabindex="0" role="region" aria-label="Figures of all runs"><table>'
        f'<thead><tr><th scope="col">Measure</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _row(measure: Measure, summaries: Sequence[Summary]) -> str:
    values = [measure.read(summary) for summary in summaries]
    cells = []
    for index, value in enumerate(values):
        text = "–" if value is None else escape(measure.write(value))
        first = values[0]
        if measure.compared and index and value is not None and first:
            text += f"<small>×{value / first:.2f}</small>"
        cells.append(f"<td>{text}</td>")
    kind = ' class="key"' if measure.compared else ""
    return f'<tr{kind}><th scope="row">{escape(measure.label)}</th>{"".join(cells)}</tr>'


def _notes(outcomes: Sequence[Outcome], labels: Sequence[str]) -> str:
    runs_by_note: dict[str, list[str]] = {}
    for outcome, label in zip(outcomes, labels, strict=True):
        for note in outcome.notes:
            runs_by_note.setdefault(note, []).append(label)
    if not runs_by_note:
        return ""
    items = []
    for note, runs in runs_by_note.items():
        whose = "" if len(runs) == len(outcomes) else f"<strong>{escape(', '.join(runs))}:</strong> "
        items.append(f"<li>{whose}{escape(note)}</li>")
    return f'<ul class="faint">{"".join(items)}</ul>'


def _chart(name: str, described: str) -> str:
    return f'<div class="chart" id="{name}" role="img" aria-label="{escape(described)}"></div>'


def _bars(summaries: Sequence[Summary], labels: Sequence[str]) -> list[str]:
    parts = []
    for measure in (measure for measure in MEASURES if measure.label in COUNTED):
        values = [measure.read(summary) or 0.0 for summary in summaries]
        most = max(values) or 1.0
        rows = "".join(
            f'<div><span class="name" title="{escape(label)}">{escape(label)}</span><span class="track">'
            f'<span class="bar" style="width:{100 * value / most:.1f}%;'
            f'background:var(--c{index % charts.COLOURS})"></span></span>'
            f'<span class="value">{measure.write(value)}</span></div>'
            for index, (value, label) in enumerate(zip(values, labels, strict=True))
        )
        parts.append(f'<h3>{escape(measure.label)}</h3><div class="bars">{rows}</div>')
    return ['<div class="pair">', *(f"<div>{part}</div>" for part in parts), "</div>"]


def _terms() -> str:
    words = "".join(f"<dt>{escape(one.label)}</dt><dd>{escape(one.means)}</dd>" for one in MEASURES)
    return f'<h2 id="terms">What the words mean</h2><dl>{words}</dl>'
