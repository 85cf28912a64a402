"""Plays an experiment live: a real daemon, real processes that wait, jobs submitted over the API in time.

The control plane's clock runs faster than ours (`clock.speed`), so that the file is the one that is
simulated, seconds and all. Its zero is when the store is opened. The experiment begins a little later, when
everything is up and an interval begins: then the demand is heard at the same moments as in the simulation.
What happened is read from the journal afterwards.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.live.cluster import LiveCluster
from tests.ray.raylets import RayServer, RayServers

from aryl.core import events as ev
from aryl.files.inference_fields import LendingFields
from aryl.live.store import Store
from aryl.sim.experiment import Experiment
from aryl.sim.experiment_file import to_mapping
from aryl.sim.experiment_jobs import InlineJob
from aryl.wire.job_file import JobFile

PROGRAM = Path(__file__).parents[2] / "examples" / "testbed" / "waiting.py"
# How long the daemon may take to be up, in real seconds; where it takes longer, it is begun anew with more.
UP_WITHIN_S = {"local": 6.0, "ray": 20.0}
PATIENCE_GROWS = (1.0, 4.0, 16.0)
LOOK_EVERY_S = 2.0
STANDS_STILL_S = 600.0
# A machine that others keep busy is never calm.
CALM, CALM_WITHIN_S = 0.5, 60.0
GRACE_S = 10.0

OnProgress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Played:
    """What happened. `zero_s`: when the experiment began on the journal's clock, of which `speed` seconds
    pass in a real one. `jobs` gives the experiment's id of each job of the journal. `busy` are shares of all
    processors, one for each look.
    """

    events: tuple[ev.Event, ...]
    zero_s: float
    speed: float
    jobs: dict[str, str]
    busy: tuple[float, ...]
    late_s: float  # the latest submission, in real seconds
    longest_pass_s: float


def play(
    experiment: Experiment,
    policy: str,
    folder: Path,
    *,
    backend: str,
    speed: float,
    on_progress: OnProgress,
) -> Played:
    """Run all jobs to their ends. Raises AssertionError if the daemon doesn't come up or nothing moves, and
    RuntimeError for a job that hasn't ended well.
    """
    interval_s = experiment.simulation.interval
    with servers(experiment, backend) as settings:
        for factor in PATIENCE_GROWS:
            slots = math.ceil(UP_WITHIN_S[backend] * factor * speed / interval_s)
            place = folder / f"up-within-{slots}"
            config = _config(experiment, policy, slots * interval_s, speed)
            cluster = LiveCluster(place, backend=backend, **config, **settings)
            shutil.copy(PROGRAM, cluster.work / PROGRAM.name)
            try:
                cluster.start()
                return _Player(experiment, cluster, slots * interval_s, speed, on_progress).run()
            except _TooLateError:
                continue
            finally:
                cluster.close()
    raise AssertionError(f"the daemon isn't up within {UP_WITHIN_S[backend] * PATIENCE_GROWS[-1]:g} s")


@contextmanager
def servers(experiment: Experiment, backend: str) -> Iterator[dict[str, Any]]:
    """The servers of the experiment, and the settings with which the daemon finds them."""
    if backend == "local":
        yield {}
        return
    pools = ((experiment.cluster.training, "training", "T"), (experiment.cluster.inference, "inference", "I"))
    raylets = [
        RayServer(name, kind, gpu_type, pool.gpus_per_server)
        for pool, kind, prefix in pools
        for name, gpu_type in zip(pool.server_names(prefix), pool.server_gpu_types(), strict=True)
    ]
    with RayServers(raylets) as ray:
        _wait_for_calm()
        yield {"ray": {"address": ray.address}}


def _config(experiment: Experiment, policy: str, zero_s: float, speed: float) -> dict[str, Any]:
    """The configuration of `aryl serve`, beside what every live cluster of a test has."""
    data, simulation = to_mapping(experiment), experiment.simulation
    said = data["inference"]
    inference = {key: said[key] for key in LendingFields.model_fields if key in said}
    points = experiment.inference.points or []
    inference["points"] = [[0.0, points[0][1]], *([zero_s + at_s, need] for at_s, need in points)]
    inference["interpolate"] = experiment.inference.interpolate
    inference["interval"] = simulation.interval
    return {
        "cluster": data["cluster"],
        "policy": policy,
        "inference": inference,
        "restart_s": simulation.restart_s,
        "resize_s": simulation.resize_s,
        "vacate_s": simulation.vacate_s,
        "clock": {"speed": speed},
    }


class _TooLateError(Exception):
    """The experiment should have begun before the daemon was up."""


class _Player:
    def __init__(
        self, experiment: Experiment, cluster: LiveCluster, zero_s: float, speed: float, tell: OnProgress
    ) -> None:
        self._cluster, self._tell, self._speed, self._zero_s = cluster, tell, speed, zero_s
        self._jobs = sorted(experiment.inline_jobs(), key=lambda job: job.submit)
        self._store = Store.open(f"sqlite:///{cluster.state / 'aryl.db'}")
        self._zero_unix_s = self._store.epoch_s() + zero_s / speed
        self._names: dict[str, str] = {}
        self._busy: list[float] = []
        self._late_s = self._longest_pass_s = 0.0
        self._ticks = _ticks()

    def run(self) -> Played:
        wait_s = self._zero_unix_s - time.time()
        if wait_s < 0:
            self._store.close()
            raise _TooLateError
        time.sleep(wait_s)
        self._ticks = _ticks()
        try:
            for job in self._jobs:
                self._wait_until(self._zero_unix_s + job.submit / self._speed)
                view = self._cluster.client.submit(self._job_file(job), job.id)
                self._late_s = max(self._late_s, time.time() - self._zero_unix_s - job.submit / self._speed)
                self._names[view.job_id] = job.id
            self._wait_for_the_end()
            self._cluster.stop()
            events = tuple(self._store.events())
        finally:
            self._store.close()
        return Played(
            events,
            self._zero_s,
            self._speed,
            self._names,
            tuple(self._busy),
            self._late_s,
            self._longest_pass_s,
        )

    def _job_file(self, job: InlineJob) -> JobFile:
        environment = {
            "DURATION_S": repr(job.duration_s / self._speed),
            "BASE_WORKERS": str(job.min_workers),
        }
        elastic = job.max_workers > job.min_workers
        return self._cluster.job(
            job.id,
            job.workers.model_dump(exclude_none=True),
            run=[sys.executable, "-I", "-S", PROGRAM.name],
            env=environment,
            gpus_per_worker=job.gpus_per_worker,
            gpu_types=job.gpu_types,
            estimate=job.duration_s if job.estimate is None else job.estimate,
            priority=job.priority,
            checkpoint={"signal": "USR1", "grace": GRACE_S, "every": job.checkpoint} if elastic else None,
        )

    def _wait_until(self, unix_s: float) -> None:
        while (left_s := unix_s - time.time()) > 0:
            if left_s > LOOK_EVERY_S:
                self._look()
            time.sleep(min(max(unix_s - time.time(), 0.0), LOOK_EVERY_S))

    def _wait_for_the_end(self) -> None:
        before, since_s = -1.0, time.monotonic()
        while (over := self._look()) < len(self._jobs):
            if over > before:
                before, since_s = over, time.monotonic()
            if time.monotonic() - since_s > STANDS_STILL_S:
                raise AssertionError(f"nothing ends any more\n{self._cluster.said()}")
            time.sleep(LOOK_EVERY_S)

    def _look(self) -> float:
        """Note how busy the machine is; how many jobs are over."""
        now, before = _ticks(), self._ticks
        if now[1] > before[1]:
            self._busy.append((now[0] - before[0]) / (now[1] - before[1]))
        self._ticks = now
        said = self._cluster.metrics()
        self._longest_pass_s = max(self._longest_pass_s, said["aryl_longest_pass_seconds"])
        count = {state: said[f'aryl_jobs{{state="{state}"}}'] for state in ("PENDING", "SUCCEEDED")}
        bad = sum(said[f'aryl_jobs{{state="{state}"}}'] for state in ("FAILED", "CANCELLED"))
        if bad:
            raise RuntimeError(f"{bad:.0f} jobs haven't ended well\n{self._cluster.said()}")
        over = count["SUCCEEDED"]
        self._tell(
            over / len(self._jobs),
            f"{over:.0f} done, {count['PENDING']:.0f} waiting, "
            f"{len(self._names) - over - count['PENDING']:.0f} running",
        )
        return over


def _wait_for_calm() -> None:
    """Until what raylets start beside themselves is up: the first workers would have to wait for it."""
    end_s = time.monotonic() + CALM_WITHIN_S
    before = _ticks()
    while time.monotonic() < end_s:
        time.sleep(LOOK_EVERY_S)
        now = _ticks()
        if now[0] - before[0] < CALM * (now[1] - before[1]):
            return
        before = now


def _ticks() -> tuple[float, float]:
    """What all processors have worked, and what they could have, since the machine started."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, idle, waiting, *rest = map(int, file.readline().split()[1:9])
    total = user + nice + system + idle + waiting + sum(rest)
    return float(total - idle - waiting), float(total)


def processors() -> int:
    """How many there are."""
    return os.cpu_count() or 1
