"""Every method of the client against the real API, and what is wrong as an error of ours."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.stand_in import PREEMPTION, StandIn, server, serving

from aryl.client import ArylClient
from aryl.core.model import JobState, Pool
from aryl.errors import ConflictError, InputError, NotAllowedError, NotFoundError
from aryl.live.control import Principal, Role
from aryl.wire.job_file import JobFile, job_file_from_mapping
from aryl.wire.views import DemandRequest, HealthView, RoleName


def job_file(**values: Any) -> JobFile:
    plain = {"name": "resnet", "run": "python train.py", "workdir": "/data", "project": "vision"}
    return job_file_from_mapping({**plain, **values})


def test_a_job_is_submitted_with_all_that_its_file_says(client: ArylClient, room: StandIn) -> None:
    job = job_file(
        workers={"sizes": [2, 4, 8]},
        env={"EPOCHS": "3", "WORD": "ü\n"},
        gpu_types={"V100": 1.0, "T4": 0.33},
        speedup={"points": {2: 1.0, 4: 1.5, 8: 2.0}},
        checkpoint={"signal": "USR1", "grace": "90s"},
        estimate="2h",
        resources={"memory": "2GiB"},
    )
    view = client.submit(job)
    assert view == room.all_jobs["resnet-1"]
    assert room.files["resnet-1"] == job


def test_each_call_submits_a_job_unless_it_has_the_key_of_another(client: ArylClient, room: StandIn) -> None:
    ids = [client.submit(job_file()).job_id, client.submit(job_file()).job_id]
    assert ids == ["resnet-1", "resnet-2"]
    again = [client.submit(job_file(), "tonight").job_id for _ in range(2)]
    assert again == ["resnet-3", "resnet-3"]
    assert len(room.all_jobs) == 3


def test_a_dry_run_makes_no_job(client: ArylClient, room: StandIn) -> None:
    assert client.dry_run(job_file()) == room.verdict
    assert room.all_jobs == {}


def test_jobs_come_page_by_page_newest_first(client: ArylClient, room: StandIn) -> None:
    for number in range(450):
        room.add("sweep", project="vision" if number % 2 else "speech")
    newest_first = [f"sweep-{number}" for number in range(450, 0, -1)]
    assert [job.job_id for job in client.jobs()] == newest_first
    assert [job.job_id for job in client.jobs(project="vision")] == newest_first[::2]
    room.change("sweep-7", state=JobState.RUNNING)
    assert [job.job_id for job in client.jobs(state=JobState.RUNNING)] == ["sweep-7"]
    assert list(client.jobs(user="nobody")) == []


def test_a_job_is_looked_at_resized_and_cancelled(client: ArylClient, room: StandIn) -> None:
    job_id = room.add("resnet")
    room.happened[job_id] = [PREEMPTION]
    assert client.job(job_id) == room.all_jobs[job_id]
    assert client.why(job_id).behind == ["bert-1", None]
    assert client.history(job_id).entries == [PREEMPTION]
    assert client.resize(job_id, max_workers=16).max_workers == 16
    assert client.resize(job_id, min_workers=1).max_workers == 16
    assert client.cancel(job_id).state is JobState.CANCELLED
    assert client.cancel(job_id).state is JobState.CANCELLED


def test_servers_are_drained_lent_and_reclaimed(client: ArylClient, room: StandIn) -> None:
    assert client.servers() == room.servers()
    assert client.drain("T1", deadline_s=60).draining
    assert not client.undrain("T1").draining
    assert client.give("I1").on_loan == 1
    assert client.reclaim("I1", deadline_s=300).loans[0].deadline is not None
    assert client.report_demand(0.5, 1.0).need_servers == 0.5
    assert room.demand == DemandRequest(need_servers=0.5, forecast_servers=1.0)
    assert client.loans().forecast_servers == 1.0
    hosting = {"I1": (2, 1)}
    told = client.report_demand(1.0, headroom_servers=2.0, measured_at=1000.0, hosting=hosting)
    assert told.headroom_servers == 2.0
    assert room.demand == DemandRequest(
        need_servers=1.0, headroom_servers=2.0, measured_at=1000.0, hosting={"I1": [2, 1]}
    )
    assert client.whatif(["fifo", "aryl"]).outcomes[1].policy == "aryl"


def test_a_server_that_came_home_is_said_to_serve_again_once(client: ArylClient, room: StandIn) -> None:
    room.all_servers["I1"] = server("I1", Pool.INFERENCE, restoring=True)
    before = client.loans()
    assert (before.serving_servers, before.restoring_servers) == (0, 1)
    assert client.servers()[1].restoring
    after = client.report_ready("I1")
    assert (after.serving_servers, after.restoring_servers) == (1, 0)
    with pytest.raises(ConflictError, match="isn't being restored"):
        client.report_ready("I1")
    with pytest.raises(NotFoundError, match="there is no server I9"):
        client.report_ready("I9")


def test_a_log_is_read_whole_by_its_end_and_by_attempt_and_rank(client: ArylClient, room: StandIn) -> None:
    job_id = room.add("resnet")
    room.say(job_id, "old\n", attempt=0)
    room.say(job_id, "eins\nzwölf\u2028\x0c\rthirteen\n\nlast without an end", attempt=1)
    room.say(job_id, "of rank 1\n", attempt=1, rank=1)
    whole = ["eins", "zwölf\u2028\x0c\rthirteen", "", "last without an end"]
    assert list(client.logs(job_id)) == whole
    assert list(client.logs(job_id, tail=2)) == whole[-2:]
    assert list(client.logs(job_id, attempt=0)) == ["old"]
    assert list(client.logs(job_id, rank=1)) == ["of rank 1"]
    assert [(place.attempt, place.rank) for place in client.attempts(job_id)] == [(0, 0), (1, 0), (1, 1)]
    with pytest.raises(NotFoundError, match="rank 7"):
        list(client.logs(job_id, rank=7))


def test_the_health_of_a_server_is_its_answer_even_if_it_is_bad(client: ArylClient, room: StandIn) -> None:
    assert client.health().status == "ok"
    room.health_view = HealthView(status="stalled", detail="no pass for 90 s")
    assert client.health() == room.health_view


def test_what_is_wrong_is_the_error_that_it_would_be_here(client: ArylClient, room: StandIn) -> None:
    job_id = room.add("resnet", state=JobState.SUCCEEDED)
    with pytest.raises(NotFoundError, match="there is no job bert-9"):
        client.job("bert-9")
    with pytest.raises(NotFoundError):
        client.job("../servers")
    with pytest.raises(ConflictError, match="is over"):
        client.resize(job_id, max_workers=2)
    with pytest.raises(InputError) as wrong:
        client.submit(job_file(workers=17))
    assert wrong.value.field == "workers"
    assert wrong.value.expected == "at most 16 workers"
    assert str(wrong.value) == "workers: larger than the cluster; expected at most 16 workers"


def test_a_token_says_who_it_is_and_what_is_allowed(room: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARYL_TOKEN", raising=False)
    room.tokens["aryl_good"] = Principal("alice", Role.USER, "vision")
    with serving(room) as url:
        monkeypatch.setenv("ARYL_SERVER", url)
        with ArylClient() as nobody, pytest.raises(NotAllowedError):
            nobody.jobs().__next__()
        with ArylClient(token="aryl_bad") as stranger, pytest.raises(NotAllowedError):
            stranger.servers()
        monkeypatch.setenv("ARYL_TOKEN", "aryl_good\n")
        with ArylClient() as alice:
            assert alice.base_url == url
            who = alice.whoami()
            assert (who.name, who.role, who.project) == ("alice", RoleName.USER, "vision")
            with pytest.raises(NotAllowedError, match="operator"):
                alice.drain("T1")


@pytest.mark.parametrize(
    "text", ["127.0.0.1:8642", "ftp://host", "http://", "http://host/?a=1", "http://[::1"]
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"expected an address such as http://127\.0\.0\.1:8642"):
        ArylClient(text)


def test_a_token_that_is_none_is_refused_and_not_shown() -> None:
    with pytest.raises(InputError) as wrong:
        ArylClient("http://127.0.0.1:1", token="two\nlines")
    assert "two" not in str(wrong.value)
