"""The live half of `aryl demo`: a daemon, real processes, and a day of inference load in half a minute.

    jobs start -> the load falls, servers are lent -> the elastic job grows -> the load rises, the servers are
    taken back -> the job shrinks without losing a step -> all finish

What is told is what the journal says happened, line by line. Afterwards the steps that the elastic job has
written down are counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aryl.core.model import JobState
from aryl.errors import ArylError

if TYPE_CHECKING:
    from aryl.client import ArylClient
    from aryl.wire.job_file import JobFile

Say = Callable[[str], None]

INFERENCE_SERVERS = 2
MOST_WORKERS = 10
STEPS, STEP_S = 380, 0.35
# How long things are left as they are before the load changes.
QUIET_S = 4.0
PATIENCE_S = 110.0
STARTS_WITHIN_S = 30.0
# A fencing token above every daemon's: the supervisor's last client.
LAST_FENCE = 2**40


def run_live_demo(say: Say) -> None:
    """Show it. Raises ArylError if something doesn't go as told."""
    with tempfile.TemporaryDirectory(prefix="aryl-demo-") as name, _served(Path(name)) as url:
        from aryl.client import ArylClient

        with ArylClient(url) as client:
            _show(client, Path(name), say)


def _show(client: ArylClient, folder: Path, say: Say) -> None:
    say(
        "live: 1 training server and 2 inference servers of 4 GPUs each, emulated; the jobs are real "
        "processes of this machine"
    )
    client.report_demand(INFERENCE_SERVERS)
    fixed = [client.submit(_job(folder, name, 1, 60, 0.1)).job_id for name in ("short", "shorter")]
    elastic = client.submit(_job(folder, "elastic", [2, MOST_WORKERS], STEPS, STEP_S)).job_id
    teller = _Teller(say)
    threading.Thread(target=teller.follow, args=(client,), daemon=True).start()
    end_s = time.monotonic() + PATIENCE_S

    def wait_for(there: Callable[[], bool]) -> None:
        while not there():
            if time.monotonic() > end_s:
                raise ArylError(f"the live demo isn't over after {PATIENCE_S:.0f} s: {teller.last}")
            time.sleep(0.2)

    wait_for(lambda: client.job(elastic).state is JobState.RUNNING)
    time.sleep(QUIET_S)
    client.report_demand(0)
    wait_for(lambda: client.job(elastic).workers == MOST_WORKERS)
    wait_for(lambda: client.job(elastic).state is JobState.RUNNING)
    time.sleep(QUIET_S)
    client.report_demand(INFERENCE_SERVERS)
    wait_for(lambda: all(client.job(job_id).finished is not None for job_id in (*fixed, elastic)))
    teller.caught_up.wait(5.0)
    _account(client, elastic, folder, say)


def _account(client: ArylClient, elastic: str, folder: Path, say: Say) -> None:
    record = folder / "state" / "jobs" / elastic / "checkpoint" / "steps.jsonl"
    lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    steps = [line["step"] for line in lines]
    sizes = [str(size) for size, _ in groupby(line["workers"] for line in lines)]
    view = client.job(elastic)
    lost = STEPS - len(set(steps))
    repeated = sum(count - 1 for count in Counter(steps).values())
    say(
        f"{elastic} did {len(set(steps))} of {STEPS} steps with {' -> '.join(sizes)} workers: "
        f"{lost} lost, {repeated} done twice, {view.preemptions} preemptions."
    )
    if lost or repeated or view.preemptions:
        raise ArylError(f"{elastic} should have lost nothing")


def _job(folder: Path, name: str, workers: Any, steps: int, step_s: float) -> JobFile:
    from aryl.wire.job_file import job_file_from_mapping

    return job_file_from_mapping(
        {
            "name": name,
            "run": [sys.executable, "-m", "aryl.train.rehearsal"],
            "workdir": str(folder),
            "env": {"STEPS": str(steps), "STEP_S": str(step_s)},
            "workers": workers,
            "gpu_types": {"V100": 1.0, "T4": 1.0},
            "heterogeneous": True,
            "mixed_efficiency": 1.0,
            "estimate": steps * step_s,
            "checkpoint": {"signal": "USR1", "grace": "20s"},
        }
    )


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """A daemon of its own in `folder`; its address."""
    config = folder / "cluster.yaml"
    config.write_text(_CONFIG, encoding="utf-8")
    log = folder / "serve.log"
    with log.open("wb") as out:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "aryl", "serve", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield _address(daemon, log)
    finally:
        daemon.terminate()
        daemon.wait()
        _end_supervisor(folder / "state" / "supervisor")


_CONFIG = """\
cluster:
  training: {servers: 1, gpus_per_server: 4}
  inference: {servers: 2, gpus_per_server: 4, speed: 1.0}
inference: {headroom: 0, settle: 0, interval: 1}
state: state
listen: 127.0.0.1:0
policy: aryl:cooldown=2,min_interval=1
restart_s: 1
resize_s: 1
vacate_s: 1
"""


def _address(daemon: subprocess.Popen[bytes], log: Path) -> str:
    from aryl.client import ArylClient

    end_s = time.monotonic() + STARTS_WITHIN_S
    while daemon.poll() is None and time.monotonic() < end_s:
        said = log.read_text(encoding="utf-8")
        if "listening on " in said:
            url = said.partition("listening on ")[2].partition(";")[0]
            with ArylClient(url) as client:
                if client.health().status == "ok":
                    return url
        time.sleep(0.1)
    raise ArylError(f"the daemon of the demo doesn't start: {log.read_text(encoding='utf-8')}")


def _end_supervisor(directory: Path) -> None:
    from aryl.backends.supervisor.client import SupervisorClient

    client = SupervisorClient.connect(directory, LAST_FENCE, lambda _event: None)
    client.shutdown(force=True)
    client.close()


@dataclass
class _Teller:
    """Tells the journal, in the words of somebody who watches. `sizes` are workers by job."""

    say: Say
    last: str = ""
    caught_up: threading.Event = field(default_factory=threading.Event)
    _zero_s: float | None = None
    _need: float | None = None
    _sizes: dict[str, int] = field(default_factory=dict)
    _over: int = 0

    def follow(self, client: ArylClient) -> None:
        """Read the events until three jobs are over."""
        try:
            for event in client.events(after=-1):
                self._hear(event.kind, event.data)
                if self._over == 3:
                    break
        except ArylError as error:
            self.last = str(error)
        self.caught_up.set()

    def _hear(self, kind: str, data: dict[str, Any]) -> None:
        at_s = float(data["at"])
        if kind == "DemandReported" and data["need_servers"] != self._need:
            self._need = data["need_servers"]
            self._tell(at_s, f"inference needs {self._need:g} of its 2 servers")
        elif kind == "Finished":
            self._over += 1
            self._tell(at_s, f"{data['job_id']} has finished")
        elif kind == "PlanCommitted":
            for step in data["plan"]["steps"]:
                self._step(at_s, step)

    def _step(self, at_s: float, step: dict[str, Any]) -> None:
        kind = step["type"]
        if kind == "Launch":
            self._sizes[step["job_id"]] = _workers(step["slots"])
            where = ", ".join(slot[0] for slot in step["slots"])
            self._tell(at_s, f"{step['job_id']} starts with {self._sizes[step['job_id']]} workers on {where}")
        elif kind == "Resize":
            before = self._sizes[step["job_id"]]
            after = before + _workers(step["add"]) - _workers(step["remove"])
            self._sizes[step["job_id"]] = after
            verb = "grows" if after > before else "shrinks"
            self._tell(at_s, f"{step['job_id']} {verb} from {before} to {after} workers ({step['cause']})")
        elif kind == "Stop":
            self._tell(at_s, f"{step['job_id']} is stopped ({step['cause']})")
        elif kind in ("Loan", "Reclaim", "Return"):
            words = {"Loan": "is lent to training", "Reclaim": "is asked back", "Return": "is back"}
            self._tell(at_s, f"{step['server_id']} {words[kind]}")

    def _tell(self, at_s: float, what: str) -> None:
        if self._zero_s is None:
            self._zero_s = at_s
        self.last = what
        self.say(f"{at_s - self._zero_s:5.1f} s  {what}")


def _workers(slots: list[list[Any]]) -> int:
    return sum(slot[1] + slot[2] for slot in slots)
