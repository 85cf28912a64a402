"""Trust (X4): same input and seed, byte-identical journal, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from aryl.core.events import PlanCommitted
from aryl.core.model import JobState
from aryl.core.plan import Cause
from aryl.testing import Record

Play = Callable[..., Record]
SCENARIO = Path(__file__).parent / "X4-everything.yaml"

THREE_RUNS = """
import sys
from pathlib import Path
from aryl.sim.experiment_file import load_experiment
from aryl.sim.run import run
experiment = load_experiment(sys.argv[1])
for number in range(3):
    run(experiment, experiment.policies[0], journal=Path(sys.argv[2]) / f"{number}.jsonl")
"""


def test_x4_the_journal_is_the_same_over_three_runs_and_three_hash_seeds(tmp_path: Path) -> None:
    started = []
    for seed in ("0", "1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", THREE_RUNS, str(SCENARIO), str(folder)]
        started.append(subprocess.Popen(command, env=environment))
    assert [process.wait() for process in started] == [0, 0, 0]
    journals = [path.read_bytes() for path in sorted(tmp_path.glob("*/*.jsonl"))]
    assert len(journals) == 9
    assert len(journals[0].splitlines()) > 500
    assert len(set(journals)) == 1


def test_x4_another_seed_gives_another_journal(play: Play) -> None:
    assert play("X4-everything").events != play("X4-everything", None, "simulation.seed=4").events


def test_x4_the_scenario_has_everything_in_it(play: Play) -> None:
    record = play("X4-everything")
    kinds = Counter(
        type(step).__name__
        for event in record.events
        if isinstance(event, PlanCommitted)
        for step in event.plan.steps
    )
    assert all(kinds[kind] for kind in ("Launch", "Resize", "Stop", "Reserve", "Loan", "Reclaim", "Return"))
    causes = {stop.cause for _, stop in record.stops()} | {resize.cause for _, resize in record.resizes()}
    assert causes >= {Cause.RECLAIM, Cause.PRIORITY, Cause.QUOTA, Cause.SERVER_LOST, Cause.GROWTH}
    ended = Counter(record.loop.cluster.ended.values())
    assert ended == {JobState.SUCCEEDED: 89, JobState.CANCELLED: 1}
