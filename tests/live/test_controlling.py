"""What the API asks for, answered by a lead whose loop turns in this process, with real workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.live.cluster import eventually

from aryl.core.model import FINAL_STATES, JobState
from aryl.errors import (
    ArylError,
    ConflictError,
    FencedError,
    InputError,
    NotAllowedError,
    NotFoundError,
)
from aryl.live.config import ServeConfig
from aryl.live.control import LogFile, Principal, Role
from aryl.live.controlling import LiveControl
from aryl.live.lead import Lead
from aryl.live.store import IdempotencyError, Store
from aryl.policies.catalogue import parse_policy
from aryl.wire.job_file import JobFile, job_file_from_mapping
from aryl.wire.views import DemandRequest, HealthView, JobView, ReclaimRequest, ResizeRequest, WhatIfRequest

ALICE = Principal("alice", Role.USER, "vision")
OLGA = Principal("olga", Role.OPERATOR)


class Ground:
    """A store, and who answers from it. `control` leads, `standby` doesn't."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = ServeConfig.model_validate(
            {
                "cluster": {
                    "training": {"servers": 1, "gpus_per_server": 4},
                    "inference": {"servers": 2, "gpus_per_server": 4},
                },
                "state": str(folder / "state"),
                "store": f"sqlite:///{folder}/aryl.db",
                "workdirs": [str(folder)],
                "inference": {"headroom": 0},
                "policy": "fifo",
                "kill_wait": 1,
            }
        )
        self.store = Store.open(self.config.store)
        policy = parse_policy(self.config.policy)
        token = self.store.take("test", self.store.observe())
        assert token is not None
        self.lead = Lead(self.config, self.store, policy, token)
        self.control = LiveControl(self.config, self.store, policy, None)
        self.standby = LiveControl(self.config, self.store, policy, None)
        self.lead.start()
        self.control.lead = self.lead

    def job(self, name: str, workers: Any = 1, **more: Any) -> JobFile:
        data = {"name": name, "run": "sleep 1000", "workdir": str(self.folder), "workers": workers, **more}
        return job_file_from_mapping(data)

    def submit(self, name: str, workers: Any = 1, **more: Any) -> str:
        view, created = self.control.submit(self.job(name, workers, **more), OLGA, None)
        assert created
        return view.job_id

    def wait(self, job_id: str, *states: JobState) -> JobView:
        def there() -> JobView | None:
            view = self.control.job(job_id)
            return view if view.state in states else None

        return eventually(there, f"{job_id} is never {states}")

    def close(self) -> None:
        supervisor = self.lead.backend.supervisor_pid
        for row in self.store.jobs(limit=1000)[0]:
            if row.state not in FINAL_STATES:
                self.control.cancel(row.job_id)
                self.wait(row.job_id, *FINAL_STATES)
        self.lead.stop()
        self.store.close()
        assert supervisor is not None
        os.kill(supervisor, signal.SIGKILL)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(tmp_path_factory.mktemp("controlling"))
    yield made
    made.close()


def test_a_job_is_kept_as_it_will_be_run(ground: Ground) -> None:
    (ground.folder / "link").symlink_to(ground.folder)
    job = ground.job("kept", project="vision", workdir=str(ground.folder / "link"), priority=3, estimate="1h")
    view, created = ground.control.submit(job, ALICE, None)
    assert created
    assert (view.name, view.user, view.project) == ("kept", "alice", "vision")
    assert (view.state, view.priority, view.estimate_s) == (JobState.PENDING, 3, 3600.0)
    assert view.job_id.startswith("kept-")
    assert ground.lead.job_file(view.job_id).workdir == str(ground.folder)
    running = ground.wait(view.job_id, JobState.RUNNING)
    assert [place.server for place in running.placement] == ["T1"]
    ended = ground.control.cancel(view.job_id)
    assert ended.job_id == view.job_id
    assert ground.wait(view.job_id, *FINAL_STATES).state is JobState.CANCELLED


def test_the_same_key_is_the_same_job_also_at_once_and_never_another(ground: Ground) -> None:
    job = ground.job("once", run="true")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ground.control.submit(job, ALICE, "key"), range(8)))
    assert len({view.job_id for view, _ in answers}) == 1
    assert sum(created for _, created in answers) == 1
    with pytest.raises(IdempotencyError):
        ground.control.submit(ground.job("once", run="false"), ALICE, "key")
    # Somebody else's key is another one.
    other, created = ground.control.submit(job, OLGA, "key")
    assert created
    ground.wait(other.job_id, *FINAL_STATES)


def test_only_operators_submit_for_others(ground: Ground) -> None:
    with pytest.raises(NotAllowedError, match=r"^alice can't submit a job as bob$"):
        ground.control.submit(ground.job("forged", user="bob"), ALICE, None)
    own, _ = ground.control.submit(ground.job("own", user="alice", run="true"), ALICE, None)
    forged, _ = ground.control.submit(ground.job("forged", user="bob", run="true"), OLGA, None)
    assert (own.user, forged.user) == ("alice", "bob")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"workers": 13}, "workers"),
        ({"gpus_per_worker": 5}, "workers"),
        ({"gpu_types": {"A100": 1.0}}, "workers"),
        ({"workdir": "/etc"}, "workdir"),
    ],
)
def test_a_job_that_could_never_run_here_is_refused_and_not_kept(
    ground: Ground, more: dict[str, Any], field: str
) -> None:
    before = [record.job_id for record in ground.store.jobs(limit=1)[0]]
    with pytest.raises(InputError) as caught:
        ground.control.submit(ground.job("never", **more), OLGA, None)
    assert caught.value.field == field
    assert [record.job_id for record in ground.store.jobs(limit=1)[0]] == before


def test_limits_change_together_or_one_by_one_and_none_is_lost(ground: Ground) -> None:
    # Larger than what is free, so that it waits.
    holds = ground.submit("holds", 4)
    ground.wait(holds, JobState.RUNNING)
    job_id = ground.submit("waits", [2, 3], checkpoint={"every": "1m"})
    ground.wait(job_id, JobState.PENDING)
    eventually(lambda: ground.control.why(job_id).needed_gpus == 2, "the loop never hears of it")
    view = ground.control.resize(job_id, ResizeRequest(max_workers=4))
    assert (view.min_workers, view.max_workers) == (2, 4)
    with ThreadPoolExecutor(2) as pool:
        asked = [ResizeRequest(min_workers=1), ResizeRequest(max_workers=3)]
        list(pool.map(lambda request: ground.control.resize(job_id, request), asked))
    view = ground.control.job(job_id)
    assert (view.min_workers, view.max_workers) == (1, 3)
    with pytest.raises(InputError, match=r"^min_workers: min_workers 4 exceeds max_workers 3; expected min"):
        ground.control.resize(job_id, ResizeRequest(min_workers=4))
    for ended in (holds, job_id):
        ground.control.cancel(ended)
        ground.wait(ended, *FINAL_STATES)
        with pytest.raises(ConflictError, match=rf"^job {ended} is over$"):
            ground.control.resize(ended, ResizeRequest(max_workers=1))
        assert ground.control.cancel(ended).state is JobState.CANCELLED


def test_a_size_that_the_job_does_not_allow_or_that_would_lose_its_work_is_refused(ground: Ground) -> None:
    job_id = ground.submit("plain", 1)
    ground.wait(job_id, JobState.RUNNING)
    with pytest.raises(InputError, match=r"^max_workers: a resize would lose the work of a job that has no "):
        ground.control.resize(job_id, ResizeRequest(max_workers=2))
    allowed = {"min": 1, "max": 2, "sizes": [1, 2]}
    sizes = ground.submit("sizes", allowed, checkpoint={"every": "1m"})
    eventually(lambda: ground.control.why(sizes).text != "It was accepted a moment ago.", "never heard")
    with pytest.raises(InputError, match=r"^min_workers: none of the allowed sizes \(found 3\); expected "):
        ground.control.resize(sizes, ResizeRequest(min_workers=3, max_workers=4))
    for ended in (job_id, sizes):
        ground.control.cancel(ended)
        ground.wait(ended, *FINAL_STATES)


ASK: list[Callable[[LiveControl], object]] = [
    lambda control: control.cancel("none-1"),
    lambda control: control.resize("none-1", ResizeRequest(max_workers=1)),
    lambda control: control.job("none-1"),
    lambda control: control.why("none-1"),
    lambda control: control.log_files("none-1"),
]


@pytest.mark.parametrize("ask", ASK)
def test_a_job_that_there_is_none_of_is_not_found_whoever_leads(
    ground: Ground, ask: Callable[[LiveControl], object]
) -> None:
    for control in (ground.control, ground.standby):
        with pytest.raises(NotFoundError, match=r"^there is no job none-1$"):
            ask(control)


def test_who_stands_by_answers_from_the_store_and_changes_nothing(ground: Ground) -> None:
    job_id = ground.submit("seen", run="true")
    ended = ground.wait(job_id, *FINAL_STATES)
    assert ground.standby.job(job_id) == ended
    assert ground.standby.why(job_id).text == "It isn't waiting: it is SUCCEEDED."
    assert ground.standby.log_files(job_id) == ground.control.log_files(job_id)
    waits = ground.submit("asked", 4)
    for refused in (
        lambda: ground.standby.submit(ground.job("x"), OLGA, None),
        lambda: ground.standby.cancel(job_id),
        lambda: ground.standby.dry_run(ground.job("x"), OLGA),
        lambda: ground.standby.why(waits),
        ground.standby.servers,
        ground.standby.loans,
        lambda: ground.standby.drain("T1", None),
        lambda: ground.standby.report_demand(DemandRequest(need_servers=1.0)),
    ):
        with pytest.raises(FencedError, match=r"^this daemon doesn't lead at the moment$"):
            refused()
    assert ground.standby.gauges() == {"leading": {(): 0.0}, "ready": {(): 0.0}}
    ground.control.cancel(waits)
    ground.wait(waits, *FINAL_STATES)


def test_without_foresight_nobody_knows_the_future(ground: Ground) -> None:
    view = ground.control.dry_run(ground.job("maybe"), ALICE)
    assert (view.verdict, view.starts, view.text) == ("unknown", None, "This server can't look ahead.")
    # Also of one that could never run: that is what a dry run is for. What is wrong is refused all the same.
    assert ground.control.dry_run(ground.job("never", 99), ALICE).verdict == "unknown"
    with pytest.raises(InputError, match=r"^workdir: "):
        ground.control.dry_run(ground.job("x", workdir="/etc"), ALICE)
    with pytest.raises(ConflictError, match=r"^this server can't look ahead$"):
        ground.control.whatif(WhatIfRequest(policies=["fifo"]))
    with pytest.raises(InputError, match=r"no such policy \(found 'fofi'\)"):
        ground.control.whatif(WhatIfRequest(policies=["fofi"]))


def test_only_what_is_a_log_by_its_name_is_one(ground: Ground) -> None:
    job_id = ground.submit("logs", run="true")
    ground.wait(job_id, *FINAL_STATES)
    folder = ground.folder / "state" / "jobs" / job_id
    (folder / "attempt-10").mkdir()
    for name in ("rank-11.log", "rank-2.log", "rank-x.log", "rank--1.log", "lighthouse.log", "rank-3.txt"):
        (folder / "attempt-10" / name).touch()
    (folder / "attempt-x").mkdir()
    (folder / "attempt-x" / "rank-0.log").touch()
    assert ground.control.log_files(job_id) == [
        LogFile(1, 0, folder / "attempt-1" / "rank-0.log"),
        LogFile(10, 2, folder / "attempt-10" / "rank-2.log"),
        LogFile(10, 11, folder / "attempt-10" / "rank-11.log"),
    ]


def test_servers_are_drained_lent_and_taken_back(ground: Ground) -> None:
    control = ground.control
    drained = control.drain("T1", 3600.0)
    assert (drained.server, drained.draining) == ("T1", True)
    assert drained.reclaim_by is not None
    assert not control.undrain("T1").draining
    with pytest.raises(NotFoundError, match=r"^there is no server T9; did you mean 'T1'\?$"):
        control.drain("T9", None)

    assert control.report_demand(DemandRequest(need_servers=1.0)).need_servers == 1.0
    lent = control.give("I1")
    assert lent.inference_servers == 2
    eventually(lambda: control.loans().on_loan == 1, "it isn't lent")
    assert [loan.server for loan in control.loans().loans] == ["I1"]
    with pytest.raises(ConflictError):
        control.give("I2")
    control.reclaim(ReclaimRequest())
    eventually(lambda: control.loans().on_loan == 0, "it isn't returned")
    with pytest.raises(ConflictError, match=r"^no server is on loan$"):
        control.reclaim(ReclaimRequest())


def test_gauges_are_told_by_who_leads(ground: Ground) -> None:
    gauges = ground.control.gauges()
    assert (gauges["leading"], gauges["ready"]) == ({(): 1.0}, {(): 1.0})
    assert gauges["events_total"][()] > 0.0
    assert gauges["invariant_violations_total"] == {(): 0.0}
    assert gauges["servers"][(("health", "healthy"),)] == 3.0


def test_health_says_what_a_daemon_is_at(ground: Ground) -> None:
    control = LiveControl(ground.config, ground.store, parse_policy("fifo"), None)
    assert control.health() == HealthView(status="standby", detail="another daemon leads")
    control.starting = True
    assert control.health() == HealthView(status="starting", detail="the state is being brought back")
    control.lead = ground.lead
    assert control.health() == HealthView(status="ok")
    control.failed = "the store is away"
    assert control.health() == HealthView(status="failed", detail="the store is away")


def test_a_lead_whose_loop_has_stopped_is_none(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    supervisor = ground.lead.backend.supervisor_pid
    assert supervisor is not None
    try:
        ground.lead.stop(ArylError("why"))
        assert ground.lead.over.is_set()
        assert ground.control.health() == HealthView(status="failed", detail="the loop has stopped")
        with pytest.raises(FencedError):
            ground.control.servers()
        with pytest.raises(FencedError):
            ground.submit("late")
        assert str(ground.lead.error) == "why"
    finally:
        ground.store.close()
        os.kill(supervisor, signal.SIGKILL)
