"""What one project sees of another: that somebody is there, never who."""

from __future__ import annotations

import json

import pytest
from tests.live.api.asking import Api, problem_of
from tests.live.api.plain_control import PlainControl

from aryl.core.model import JobState
from aryl.core.plan import Weighed
from aryl.live.api.redact import ANOTHER, Eyes
from aryl.live.control import Principal, Role
from aryl.policies.reasons import Wait
from aryl.wire.views import WhyView

QUESTIONS = [
    ("GET", ""),
    ("PATCH", ""),
    ("POST", "/cancel"),
    ("GET", "/why"),
    ("GET", "/history"),
    ("GET", "/logs"),
    ("GET", "/logs?follow=true"),
    ("GET", "/attempts"),
]


@pytest.mark.parametrize(("method", "what"), QUESTIONS)
def test_another_projects_job_is_answered_like_one_that_does_not_exist(
    api: Api, control: PlainControl, method: str, what: str
) -> None:
    job_id = api.submit("bob", name="secret")
    control.log(job_id, 1, 0).write_text("secret")
    body = {"json": {"max_workers": 3}} if method == "PATCH" else {}
    there = problem_of(api.ask("ada", method, f"/v1/jobs/{job_id}{what}", **body), 404)
    nowhere = problem_of(api.ask("ada", method, f"/v1/jobs/secret-9{what}", **body), 404)
    assert json.dumps(there).replace("secret-1", "secret-9") == json.dumps(nowhere)
    assert api.get("ola", f"/v1/jobs/{job_id}").status_code == 200


def test_lists_hold_the_own_project_only(api: Api) -> None:
    api.submit("bob")
    assert api.get("ada", "/v1/jobs").json()["jobs"] == []
    assert api.get("ada", "/v1/jobs?project=speech").json()["jobs"] == []
    assert api.get("olga", "/v1/jobs").json()["jobs"] == []
    assert len(api.get("ola", "/v1/jobs").json()["jobs"]) == 1


def test_what_is_in_the_way_has_no_name_for_others(api: Api, control: PlainControl) -> None:
    mine, own, secret = api.submit("ada"), api.submit("ada", name="own"), api.submit("bob", name="secret")
    control.whys[mine] = WhyView(
        job_id=mine,
        state=JobState.PENDING,
        reason=Wait.NOT_ENOUGH_FREE,
        text=f"8 GPUs are needed, 3 are free; behind {own}, {secret} and {secret}.",
        behind=[own, secret, "unknown-99"],
    )
    shown = api.get("ada", f"/v1/jobs/{mine}/why").json()
    assert shown["behind"] == [own, None, None]
    assert shown["text"] == f"8 GPUs are needed, 3 are free; behind {own}, {ANOTHER} and {ANOTHER}."
    assert api.get("ola", f"/v1/jobs/{mine}/why").json()["behind"] == [own, secret, "unknown-99"]


def test_the_record_of_a_preemption_names_causes_and_costs_but_no_others(
    api: Api, control: PlainControl
) -> None:
    mine, own, secret = api.submit("ada"), api.submit("ada", name="own"), api.submit("bob", name="secret")
    control.happened(
        mine,
        f"T1 is vacated for {secret}",
        "priority",
        secret,
        Weighed(mine, 10.0),
        Weighed(own, 20.0),
        Weighed("secret-3", 30.0),
    )
    control.happened(mine, "I1 goes back", "reclaim", "I1, T1", Weighed("I1", 1.0))
    control.happened(mine, "", "reclaim", f"I1, {secret}", Weighed("gone-77", 1.0))
    first, second, third = api.get("ada", f"/v1/jobs/{mine}/history").json()["entries"]
    assert (first["cause"], first["beneficiary"]) == ("priority", None)
    assert first["text"] == f"T1 is vacated for {ANOTHER}"
    assert [(one["what"], one["cost"]) for one in first["alternatives"]] == [
        (mine, 10),
        (own, 20),
        (None, 30),
    ]
    assert (second["beneficiary"], second["alternatives"][0]["what"]) == ("I1, T1", "I1")
    assert (third["beneficiary"], third["alternatives"][0]["what"]) == (None, None)
    whole = api.get("root", f"/v1/jobs/{mine}/history").json()["entries"]
    assert [entry["beneficiary"] for entry in whole] == [secret, "I1, T1", f"I1, {secret}"]


def test_servers_show_how_many_jobs_of_others_they_have(api: Api, control: PlainControl) -> None:
    mine, secret = api.submit("ada"), api.submit("bob", name="secret")
    control.busy["T1"] = [secret, mine]
    for answer in (
        api.get("ada", "/v1/servers").json()["servers"][0],
        api.ask("olga", "POST", "/v1/servers/T1/drain", json={}).json(),
        api.ask("olga", "POST", "/v1/servers/T1/undrain").json(),
    ):
        assert answer["jobs"] == [None, mine]
    assert api.get("ola", "/v1/servers").json()["servers"][0]["jobs"] == [secret, mine]


def test_messages_and_forecasts_name_no_others(api: Api, control: PlainControl) -> None:
    mine, secret = api.submit("ada"), api.submit("bob", name="secret")
    control.change(mine, message=f"made room for {secret}")
    control.dry_text = f"when {secret} has ended"
    assert api.get("ada", f"/v1/jobs/{mine}").json()["message"] == f"made room for {ANOTHER}"
    assert api.get("ada", "/v1/jobs").json()["jobs"][0]["message"] == f"made room for {ANOTHER}"
    body = {"name": "n", "run": "true", "workdir": "/srv"}
    assert (
        api.ask("ada", "POST", "/v1/jobs?dry_run=1", json=body).json()["text"] == f"when {ANOTHER} has ended"
    )


def test_logs_of_all_attempts_are_for_their_owner(api: Api, control: PlainControl) -> None:
    job_id = api.submit("ada", workers=2)
    for attempt in (1, 2, 3):
        for rank in (0, 1):
            control.log(job_id, attempt, rank).write_text(f"attempt {attempt} rank {rank}\n")
    there = [(one["attempt"], one["rank"]) for one in api.get("vic", f"/v1/jobs/{job_id}/attempts").json()]
    assert there == [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]
    for attempt, rank in there:
        answer = api.get("ada", f"/v1/jobs/{job_id}/logs", params={"attempt": attempt, "rank": rank})
        assert answer.text == f"attempt {attempt} rank {rank}\n"
        problem_of(api.get("bob", f"/v1/jobs/{job_id}/logs", params={"attempt": attempt, "rank": rank}), 404)


def test_a_name_that_is_a_job_of_others_is_never_taken_for_a_server(control: PlainControl, api: Api) -> None:
    secret = api.submit("bob", name="gpu")
    eyes = Eyes(Principal("ada", Role.USER, "vision"), control.store, lambda: [secret, "I1"])
    eyes.learn([secret, "I1"])
    assert eyes.thing(secret) is None
    assert eyes.thing(f"I1, {secret}") is None
    assert eyes.thing("I1") == "I1"


def test_a_key_that_made_a_job_elsewhere_shows_nothing_of_it(api: Api, control: PlainControl) -> None:
    key = {"Idempotency-Key": "once"}
    body = {"name": "secret", "run": "true", "workdir": "/srv", "project": "vision"}
    made = api.ask("ada", "POST", "/v1/jobs", json=body, headers=key)
    control.change(made.json()["job_id"], project="speech")
    answer = api.ask("ada", "POST", "/v1/jobs", json=body, headers=key)
    assert "secret" not in json.dumps(problem_of(answer, 422))
