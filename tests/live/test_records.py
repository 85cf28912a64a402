"""What is kept for people: the output of every attempt, who had to go for whom, and what a dry run promises.
Each for their own eyes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.live.cluster import LiveCluster, eventually, live_cluster

from aryl.client import ArylClient
from aryl.core.model import JobState
from aryl.errors import InputError, NotFoundError
from aryl.live.control import Role
from aryl.live.store import Store
from aryl.wire.views import HistoryEntry

ON_LOAN = {"T4": 1.0, "K80": 1.0}
# The attempt and rank, and then until there is a file of the job's name.
SAYS_WHO = """
import os, time
print(f"attempt {os.environ['ARYL_ATTEMPT']} rank {os.environ['RANK']}\\n", end="", flush=True)
while not os.path.exists(os.environ["ARYL_JOB_ID"] + ".end"):
    time.sleep(0.05)
"""


@dataclass
class People:
    """Clients with tokens: two users of different projects, and one who sees all."""

    vision: ArylClient
    speech: ArylClient
    operator: ArylClient


@contextmanager
def _with_people(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **config: Any
) -> Iterator[tuple[LiveCluster, People]]:
    (folder / "state").mkdir(mode=0o700)
    store = Store.open(f"sqlite:///{folder / 'state' / 'aryl.db'}")
    secrets = {
        "vision": store.add_token("alice", Role.USER, "vision"),
        "speech": store.add_token("bob", Role.USER, "speech"),
        "operator": store.add_token("olga", Role.OPERATOR, None),
    }
    store.close()
    monkeypatch.setenv("ARYL_TOKEN", secrets["operator"])  # for the cluster's own client
    with live_cluster(folder, tokens="required", **config) as cluster, ExitStack() as stack:
        cluster.program("says_who.py", SAYS_WHO)
        clients = {
            name: stack.enter_context(ArylClient(cluster.url, secret)) for name, secret in secrets.items()
        }
        yield cluster, People(**clients)


def test_all_attempts_can_be_read_by_rank_by_their_owner_and_by_no_other_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8 and X2: a job is preempted twice, for a job of another project and by a reclaim."""
    with _with_people(tmp_path, monkeypatch, cluster={"training": {"servers": 1}}) as (cluster, people):
        run = [sys.executable, "-I", "-S", "says_who.py"]
        victim = cluster.job("victim", 2, run=run, checkpoint=None, estimate=600)
        job = people.vision.submit(victim).job_id
        dearer = cluster.job("dearer", 2, run=run, checkpoint=None, estimate=600, priority=1)
        _wait_said(cluster, job, 1)
        other = people.operator.submit(dearer).job_id
        cluster.wait_state(other, JobState.RUNNING)
        # Both have to go: nothing is weighed against anything.
        wanted = [people.speech.submit(_urgent(cluster, "urgent-a", 4)).job_id]
        _run_through(cluster, wanted[0])
        cluster.wait_state(job, JobState.RUNNING)
        _wait_said(cluster, job, 2)
        cluster.wait_state(other, JobState.RUNNING)
        # One of the two has to go: that of lower priority.
        wanted.append(people.speech.submit(_urgent(cluster, "urgent-b", 2)).job_id)
        _run_through(cluster, wanted[1])
        cluster.wait_state(job, JobState.RUNNING)
        _wait_said(cluster, job, 3)
        assert cluster.client.job(other).preemptions == 1

        # L8: three attempts of two ranks, for their owner and for operators.
        places = [(place.attempt, place.rank) for place in people.vision.attempts(job)]
        assert places == [(attempt, rank) for attempt in (1, 2, 3) for rank in (0, 1)]
        for client in (people.vision, people.operator):
            for attempt, rank in places:
                lines = list(client.logs(job, attempt=attempt, rank=rank))
                assert lines == [f"attempt {attempt} rank {rank}"]
        for look in (
            people.speech.job,
            people.speech.history,
            people.speech.attempts,
            people.speech.why,
            people.speech.cancel,
            lambda job_id: list(people.speech.logs(job_id, attempt=1, rank=0)),
        ):
            with pytest.raises(NotFoundError):
                look(job)

        # X2: cause, for whom, and what else could have gone at what cost.
        first, second = _preempted(people.operator, job)
        assert (first.cause, first.beneficiary) == ("priority", wanted[0])
        assert (second.cause, second.beneficiary) == ("priority", wanted[1])
        assert [one.what for one in second.alternatives] == [job, other]
        assert all(one.cost > 0 for one in second.alternatives)

        # The owner sees the same, but not the other project's names.
        history = people.vision.history(job)
        seen_first, seen_second = _preempted(people.vision, job)
        assert (seen_first.cause, seen_first.beneficiary) == ("priority", None)
        assert seen_second.beneficiary is None
        assert [one.what for one in seen_second.alternatives] == [job, None]
        assert [one.cost for one in seen_second.alternatives] == [one.cost for one in second.alternatives]
        assert not any(name in history.model_dump_json() for name in (*wanted, other))
        # And the other project sees its own claim without the names of those that had to go.
        theirs = people.speech.history(wanted[1])
        assert any(entry.kind == "reserved" and entry.cause == "priority" for entry in theirs.entries)
        assert not any(name in theirs.model_dump_json() for name in (job, other))
        # It is all there after a restart.
        cluster.stop()
        cluster.start()
        with ArylClient(cluster.url) as again:
            assert _preempted(again, job) == [first, second]


def test_whoever_has_to_go_for_inference_learns_which_servers_were_weighed(tmp_path: Path) -> None:
    """X2, for a reclaim: the cause is inference's need, and the alternatives are servers."""
    with live_cluster(tmp_path) as cluster:
        cluster.program("says_who.py", SAYS_WHO)
        cluster.demand(0)
        run = [sys.executable, "-I", "-S", "says_who.py"]
        # The first one loses more, since it has run for longer.
        jobs = []
        for name in ("old", "young"):
            jobs.append(cluster.submit(name, 4, gpu_types=ON_LOAN, run=run, checkpoint=None))
            _wait_said(cluster, jobs[-1], 1)
        server_of = {job: cluster.client.job(job).placement[0].server for job in jobs}
        cluster.demand(1)
        gone = eventually(
            lambda: next((job for job in jobs if cluster.client.job(job).preemptions), None),
            "nobody has to go",
            cluster.said,
        )
        assert gone == jobs[1]
        (entry,) = _preempted(cluster.client, gone)
        assert (entry.cause, entry.beneficiary) == ("reclaim", server_of[gone])
        assert [one.what for one in entry.alternatives] == [server_of[gone], server_of[jobs[0]]]


def test_a_dry_run_says_now_later_or_never_and_changes_nothing(tmp_path: Path) -> None:
    """X3: and what is submitted then does what was said."""
    with live_cluster(tmp_path, cluster={"training": {"servers": 2}, "inference": {"servers": 0}}) as cluster:
        cluster.program("says_who.py", SAYS_WHO)
        run = [sys.executable, "-I", "-S", "says_who.py"]
        busy = cluster.submit("busy", 3, run=run, checkpoint=None, estimate=600)
        cluster.wait_state(busy, JobState.RUNNING)
        endless = cluster.submit("endless", 2, run=run, checkpoint=None)
        cluster.wait_state(endless, JobState.RUNNING)
        servers = {job: cluster.client.job(job).placement[0].server for job in (busy, endless)}
        assert len(set(servers.values())) == 2

        before = _everything(cluster)
        files = {
            name: cluster.job(name, workers, run=run, checkpoint=None, estimate=60, **more)
            for name, workers, more in (
                ("now", 2, {}),
                ("later", 4, {}),
                ("unsaid", 8, {}),
                ("large", 9, {}),
                ("strange", 1, {"gpu_types": {"H100": 1.0}}),
            )
        }
        said = {name: cluster.client.dry_run(file) for name, file in files.items()}
        assert _everything(cluster) == before

        assert {name: view.verdict for name, view in said.items()} == {
            "now": "now",
            "later": "later",
            "unsaid": "unknown",
            "large": "never",
            "strange": "never",
        }
        assert said["now"].servers == [servers[endless]]
        assert said["later"].servers == [servers[busy]]
        started = cluster.client.job(busy).started
        assert started is not None
        assert said["later"].starts == pytest.approx(started + 600, abs=30)
        assert "9 GPUs" in said["large"].text
        assert "a GPU type that it accepts" in said["strange"].text
        assert "no estimate" in said["unsaid"].text

        jobs = {name: cluster.client.submit(files[name]).job_id for name in ("later", "now")}
        placed = cluster.wait_state(jobs["now"], JobState.RUNNING).placement
        assert [place.server for place in placed] == said["now"].servers
        assert cluster.client.job(jobs["later"]).state is JobState.PENDING
        _tell_to_end(cluster, busy)
        placed = cluster.wait_state(jobs["later"], JobState.RUNNING).placement
        assert [place.server for place in placed] == said["later"].servers
        for name in ("large", "strange"):
            with pytest.raises(InputError, match="could never run here"):
                cluster.client.submit(files[name])


def _urgent(cluster: LiveCluster, name: str, workers: int) -> Any:
    run = [sys.executable, "-I", "-S", "says_who.py"]
    return cluster.job(name, workers, run=run, checkpoint=None, priority=9, estimate=600)


def _run_through(cluster: LiveCluster, job_id: str) -> None:
    cluster.wait_state(job_id, JobState.RUNNING)
    _tell_to_end(cluster, job_id)
    assert cluster.wait_state(job_id).state is JobState.SUCCEEDED


def _preempted(client: ArylClient, job_id: str) -> list[HistoryEntry]:
    return [entry for entry in client.history(job_id).entries if entry.kind == "preempted"]


def _wait_said(cluster: LiveCluster, job_id: str, attempt: int) -> None:
    for rank in (0, 1):
        cluster.wait_said(job_id, "rank", attempt, rank)


def _everything(cluster: LiveCluster) -> dict[str, list[tuple[Any, ...]]]:
    """The whole store, but for the sign of life of whoever leads."""
    tables = [name for (name,) in cluster.query("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert {"journal", "jobs", "history", "idempotency"} <= set(tables)
    return {name: cluster.query(f"SELECT * FROM {name}") for name in tables if name != "leader"}


def _tell_to_end(cluster: LiveCluster, job_id: str) -> None:
    (cluster.work / f"{job_id}.end").touch()
