"""What tests of restarts look at: workers that notice when something runs twice, a journal that has to fold
to what the tables say, and a way to start daemons quickly.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from sqlalchemy import select
from tests.live.cluster import LISTENING, ROOT, LiveCluster, all_pids, environment_of, eventually, is_zombie

from aryl.core.cluster import Cluster
from aryl.core.invariants import violations
from aryl.core.model import JobState, Tenure
from aryl.live.projection_known import row
from aryl.live.store import Store
from aryl.live.store.tables import JOBS, LOANS
from aryl.policies.catalogue import parse_policy
from aryl.scheduler.journal import replay
from aryl.wire.views import ServerView

# A worker that holds locks on its GPU and on its rank for as long as it lives. The kernel lets go of them
# when it is gone, so whoever finds one taken has met a process that shouldn't be there.
WITNESS = """
import fcntl, os, signal, sys, time
noticed = []
signal.signal(signal.SIGUSR1, lambda *_: noticed.append(1))
env = os.environ
job, rank, locks = env["ARYL_JOB_ID"], int(env["RANK"]), env["LOCKS"]
gang = f"{job}.{env['ARYL_ATTEMPT']}.{env['ARYL_GENERATION']}."
gpu = env["CUDA_VISIBLE_DEVICES"].split(",")[int(env["LOCAL_RANK"])]

def hold(name, kind, tries=1):
    file = open(os.path.join(locks, name), "a")
    for left in reversed(range(tries)):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            time.sleep(0.01 if left else 0)
    with open(os.path.join(locks, "wrong"), "a") as wrong:
        wrong.write(f"{gang}{rank} meets {name}\\n")
    return None

# Others only look at this one for an instant.
held = [hold(f"{gang}{rank}", fcntl.LOCK_EX, 200), hold(f"gpu.{env['ARYL_SERVER_ID']}.{gpu}", fcntl.LOCK_EX)]
for name in os.listdir(locks):
    if name.startswith(job + ".") and not name.startswith(gang):
        hold(name, fcntl.LOCK_SH)

folder = env["ARYL_CHECKPOINT_DIR"]
saved = os.path.join(folder, "step")
step = int(open(saved).read()) if os.path.exists(saved) else 0
print("start", rank, "of", env["WORLD_SIZE"], "at", step, flush=True)

def save():
    if rank == 0:
        with open(saved + ".part", "w") as file:
            file.write(str(step))
        os.replace(saved + ".part", saved)

def over():
    if "UNTIL" in env:
        return os.path.exists(env["UNTIL"])
    return step >= int(env.get("STEPS", "20"))

while not over():
    if noticed or os.path.exists(os.path.join(env["ARYL_RUN_DIR"], f"notice-{rank}")):
        save()
        sys.exit(75)
    time.sleep(0.02)
    step += 1
    if rank == 0:
        print("step", step, flush=True)
    if step == 5 and "CRASHES" in env and not os.path.exists(os.path.join(folder, "crashed")):
        open(os.path.join(folder, "crashed"), "w").close()
        sys.exit(3)
save()
print("done", flush=True)
"""


def witness_program(cluster: LiveCluster) -> list[str]:
    """Write the program; its argument vector."""
    (cluster.folder / "locks").mkdir(exist_ok=True)
    return [sys.executable, "-S", "-u", str(cluster.program("witness.py", WITNESS))]


def witness_env(cluster: LiveCluster, **more: str) -> dict[str, str]:
    """What the program has to know."""
    return {"LOCKS": str(cluster.folder / "locks"), **more}


def met_twice(cluster: LiveCluster) -> str:
    """What ran beside what it should not have; empty if nothing did."""
    wrong = cluster.folder / "locks" / "wrong"
    return wrong.read_text() if wrong.exists() else ""


def steps_of(cluster: LiveCluster, job_id: str) -> list[int]:
    """The steps that the first worker of a job printed, in all its attempts."""
    folder = cluster.state / "jobs" / job_id
    logs = sorted(folder.glob("attempt-*/rank-0.log"), key=lambda log: int(log.parent.name.split("-")[1]))
    text = "".join(log.read_text() for log in logs)
    return [int(step) for step in re.findall(r"^step (\d+)$", text, re.MULTILINE)]


def living_workers(cluster: LiveCluster) -> dict[int, dict[str, str]]:
    """The environments of all workers of a cluster that live, by process."""
    found = {}
    for pid in all_pids():
        environment = dict(entry.partition("=")[::2] for entry in environment_of(pid))
        if environment.get("ARYL_RUN_DIR", "").startswith(str(cluster.state)) and not is_zombie(pid):
            found[pid] = environment
    return found


def assert_allocated_is_live(cluster: LiveCluster, look: Callable[[], Sequence[ServerView]]) -> None:
    """Wait until each server has as many GPUs in use as workers live there, each GPU with one owner."""

    def agrees() -> bool:
        owners = Counter(
            (env["ARYL_SERVER_ID"], env["CUDA_VISIBLE_DEVICES"].split(",")[int(env["LOCAL_RANK"])])
            for env in living_workers(cluster).values()
        )
        used = {server.server: server.used_gpus for server in look()}
        live = Counter(server for server, _ in owners.elements())
        return max(owners.values(), default=1) == 1 and all(live[name] == gpus for name, gpus in used.items())

    eventually(agrees, "what is allocated isn't what lives", cluster.said)


def assert_journal_is_whole(url: str) -> Cluster:
    """Fold the journal, and compare with the tables beside it; no daemon may write meanwhile."""
    store = Store.open(url)
    try:
        # `events` raises at a gap.
        cluster = replay(Cluster(parse_policy("aryl").order), store.events())
        wrong = list(violations(cluster))
        assert not wrong, wrong
        with store.reading() as connection:
            for found in connection.execute(select(JOBS)).mappings():
                job_id = found["job_id"]
                if found["journaled"] is None:
                    assert job_id not in {**cluster.jobs, **cluster.ended}
                    assert found["state"] == JobState.PENDING.value
                elif job_id in cluster.ended:
                    assert found["state"] == cluster.ended[job_id].value, dict(found)
                else:
                    told = row(cluster.jobs[job_id])
                    assert {name: found[name] for name in told} == told, (dict(found), told)
            present = set(connection.scalars(select(LOANS.c.server).where(LOANS.c.returned.is_(None))))
        assert present == {
            server.spec.server_id for server in cluster.servers if server.tenure is not Tenure.OWNED
        }
    finally:
        store.close()
    return cluster


# Loads the command line once, and then forks a daemon for each line that it reads: a configuration's path.
_NURSERY = """
import os, signal, sys
import aryl.live.daemon, aryl.sim.snapshot, aryl.sim.whatif
from aryl.cli.main import run_command
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        os._exit(run_command(["serve", "--config", line.strip()]))
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("gone", flush=True)
"""


class Nursery:
    """Starts one daemon after the other, and loads all modules once; for tests that start dozens."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster
        with cluster.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _NURSERY],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                text=True,
            )
        self._pid: int | None = None

    def start(self) -> None:
        """Start a daemon; returns when it listens."""
        before = self._cluster.log.stat().st_size
        self._say(str(self._cluster.config_file))
        self._pid = int(self._hear())

        def listening() -> str | None:
            found = LISTENING.search(self._cluster.log.read_bytes()[before:].decode())
            return found[1] if found else None

        self._cluster.url = eventually(listening, "the daemon doesn't listen", self._cluster.said)

    def kill(self) -> None:
        """SIGKILL the daemon."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._pid = None
            assert self._hear() == "gone"

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        self._process.communicate()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
