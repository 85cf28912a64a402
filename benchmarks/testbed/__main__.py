"""The paper's testbed, by one command: live with each policy, and the same jobs simulated.

    ARYL_DATA=... python -m benchmarks.testbed [--backend ray] [--write docs/explanation/testbed.md]
    python -m benchmarks.testbed --jobs 60 --minutes 5          to try it

4 training and 4 inference servers of 8 declared GPUs, 180 jobs of a trace within 20 minutes, workers that
only wait, a demand that falls and rises; docs/explanation/testbed.md says what is compared and how. Fewer
jobs come in a shorter span of the cluster's time, so the load stays what it is. It exits 1 if the simulation,
told what changes cost, is off the live mean JCT by more than 5 %.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import yaml

from aryl.cli.progress import Bars
from aryl.errors import InputError
from aryl.policies.catalogue import parse_policy
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import load_experiment, to_mapping
from aryl.sim.policy_list import split_policies
from benchmarks.testbed.compare import Compared, compare
from benchmarks.testbed.live import UP_WITHIN_S, play
from benchmarks.testbed.table import lines, near
from benchmarks.testbed.workload import draw

SETTING = Path(__file__).parents[2] / "examples" / "testbed" / "testbed.yaml"
JOBS = 180
MARK = "<!-- figures -->\n"


def drawn(file: Path, jobs: int, seed: int) -> Experiment:
    """The experiment with its jobs. Raises InputError."""
    setting = load_experiment(file)
    points = setting.inference.points
    span_s = points[-1][0] if points else 0.0
    return draw(setting, jobs, span_s * jobs / JOBS, seed)


def played(
    experiment: Experiment, policies: Sequence[str], folder: Path, *, backend: str, minutes: float
) -> list[Compared]:
    """Each policy live, one after the other, and simulated."""
    points = experiment.inference.points or []
    speed = points[-1][0] / (minutes * 60.0)
    runs = []
    with Bars([f"{policy}, live" for policy in policies]) as bars:
        for number, policy in enumerate(policies):
            place = folder / f"{number}"
            place.mkdir(parents=True)
            tell = partial(bars.report, number)
            live = play(experiment, policy, place, backend=backend, speed=speed, on_progress=tell)
            runs.append(compare(experiment, policy, live, place))
    return runs


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.testbed", description=__doc__.split("\n")[0])
    parser.add_argument("--file", type=Path, default=SETTING, help="the setting from which jobs are drawn")
    parser.add_argument("--backend", choices=sorted(UP_WITHIN_S), default="local")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--minutes", type=float, default=20.0, help="within which the jobs are submitted")
    parser.add_argument("--policies", help="the first one is what the others are compared with")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--out", type=Path, help="keep the experiment, journals and logs in this new folder")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables below the mark in a page")
    return parser.parse_args(arguments)


def _check(asked: argparse.Namespace) -> None:
    """What would only be found out in the end. Raises InputError."""
    if not asked.minutes > 0:
        raise InputError("too short", field="minutes", found=asked.minutes, expected="above 0")
    if asked.out is not None and asked.out.exists() and (not asked.out.is_dir() or any(asked.out.iterdir())):
        raise InputError("is there already", file=str(asked.out), expected="a new or an empty folder")
    page = asked.write
    if page is not None and not (page.is_file() and MARK in page.read_text(encoding="utf-8")):
        raise InputError("not a page for tables", file=str(page), expected=f"a line {MARK.strip()}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and print the tables."""
    asked = options(arguments)
    try:
        experiment = drawn(asked.file, asked.jobs, asked.seed)
        policies = split_policies(asked.policies) if asked.policies else experiment.policies
        for policy in policies:
            parse_policy(policy)
        _check(asked)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="aryl-testbed-") as scratch:
        folder = Path(scratch) if asked.out is None else asked.out
        folder.mkdir(parents=True, exist_ok=True)
        written = yaml.safe_dump(to_mapping(experiment), sort_keys=False)
        (folder / "testbed.yaml").write_text(written, encoding="utf-8")
        runs = played(experiment, policies, folder, backend=asked.backend, minutes=asked.minutes)
    text = "\n".join(lines(experiment, asked.backend, asked.minutes, runs))
    print(text)
    if asked.write is not None:
        before, mark, _ = asked.write.read_text(encoding="utf-8").partition(MARK)
        asked.write.write_text(f"{before}{mark}{text}\n", encoding="utf-8")
    return 0 if near(runs) else 1


if __name__ == "__main__":
    # Whoever ends it doesn't want to be left with a daemon and its servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
