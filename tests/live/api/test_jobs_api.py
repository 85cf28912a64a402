"""Jobs over REST: submitting once, lists, limits, ends, and what a job's owner may ask."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.live.api.asking import JOB, Api, problem_of
from tests.live.api.plain_control import PlainControl

from aryl.core.model import JobState
from aryl.errors import FencedError


def test_a_submitted_job_is_where_the_answer_says(api: Api) -> None:
    answer = api.ask("ada", "POST", "/v1/jobs", json={**JOB, "workers": 2})
    assert answer.status_code == 201
    assert answer.headers["location"] == "/v1/jobs/resnet-1"
    job = api.get("ada", answer.headers["location"]).json()
    assert (job["job_id"], job["state"], job["min_workers"], job["user"]) == ("resnet-1", "PENDING", 2, "ada")


def test_a_job_without_a_project_gets_that_of_its_owner(api: Api) -> None:
    assert api.get("ada", f"/v1/jobs/{api.submit('ada')}").json()["project"] == "vision"
    assert api.get("root", f"/v1/jobs/{api.submit('root')}").json()["project"] == "default"


def test_nobody_submits_into_another_project(api: Api) -> None:
    problem_of(api.ask("ada", "POST", "/v1/jobs", json={**JOB, "project": "speech"}), 403)
    problem_of(api.ask("ada", "POST", "/v1/jobs?dry_run=true", json={**JOB, "project": "speech"}), 403)
    assert api.ask("root", "POST", "/v1/jobs", json={**JOB, "project": "speech"}).status_code == 201
    assert len(api.get("root", "/v1/jobs").json()["jobs"]) == 1


def test_the_same_key_five_times_at_once_makes_one_job(api: Api) -> None:
    def submit(_: int) -> tuple[int, object]:
        answer = api.ask("ada", "POST", "/v1/jobs", json=JOB, headers={"Idempotency-Key": "once"})
        return answer.status_code, answer.json()

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(submit, range(5)))
    assert sorted(status for status, _ in answers) == [200, 200, 200, 200, 201]
    assert [body for _, body in answers] == [answers[0][1]] * 5
    assert len(api.get("ada", "/v1/jobs").json()["jobs"]) == 1


def test_the_same_key_with_another_body_is_refused(api: Api) -> None:
    key = {"Idempotency-Key": "once"}
    assert api.ask("ada", "POST", "/v1/jobs", json=JOB, headers=key).status_code == 201
    body = problem_of(api.ask("ada", "POST", "/v1/jobs", json={**JOB, "priority": 1}, headers=key), 422)
    assert body["type"] == "urn:aryl:problem:key-reused"
    assert body["faults"][0]["field"] == "Idempotency-Key"


@pytest.mark.parametrize("key", ["", "k" * 256, "tab\there", b"caf\xe9"])
def test_a_key_is_short_and_printable(api: Api, key: str | bytes) -> None:
    answer = api.ask("ada", "POST", "/v1/jobs", json=JOB, headers={"Idempotency-Key": key})
    assert problem_of(answer, 422)["faults"][0]["field"] == "idempotency-key"


def test_a_dry_run_changes_nothing(api: Api) -> None:
    answer = api.ask("ada", "POST", "/v1/jobs", params={"dry_run": "true"}, json=JOB)
    assert answer.status_code == 200
    assert answer.json() == {"verdict": "now", "starts": 1000.0, "text": "it fits", "servers": ["T1"]}
    assert api.get("ada", "/v1/jobs").json() == {"jobs": [], "next": None}


def test_a_job_that_can_never_run_names_the_field(api: Api) -> None:
    body = problem_of(api.ask("ada", "POST", "/v1/jobs", json={**JOB, "workers": 99}), 422)
    assert body["faults"] == [
        {"field": "workers", "message": "can never run here (found 99)", "expected": "<= 16 GPUs"}
    ]


def test_an_unknown_field_names_the_nearest_one(api: Api) -> None:
    body = problem_of(api.ask("ada", "POST", "/v1/jobs", json={**JOB, "wrokers": 2}), 422)
    assert (body["faults"][0]["field"], body["faults"][0]["nearest"]) == ("wrokers", "workers")
    assert "did you mean 'workers'?" in body["detail"]
    body = problem_of(api.ask("ada", "PATCH", "/v1/jobs/x-1", json={"max_worker": 2}), 422)
    assert (body["faults"][0]["field"], body["faults"][0]["nearest"]) == ("max_worker", "max_workers")


def test_every_wrong_field_of_a_job_is_named_at_once(api: Api) -> None:
    answer = api.ask("ada", "POST", "/v1/jobs", json={**JOB, "priority": "high", "estimate": "soon"})
    assert {fault["field"] for fault in problem_of(answer, 422)["faults"]} == {"priority", "estimate"}


def test_pages_of_jobs_are_complete_while_new_ones_come(api: Api) -> None:
    ids = [api.submit("ada", name=f"j{number}") for number in range(7)]
    seen: list[str] = []
    cursor = None
    for _ in range(4):
        page = api.get(
            "ada", "/v1/jobs", params={"limit": 2, **({"cursor": cursor} if cursor else {})}
        ).json()
        seen += [job["job_id"] for job in page["jobs"]]
        cursor = page["next"]
        api.submit("ada", name="late")
    assert seen == ids[::-1]
    assert cursor is None


def test_jobs_are_listed_by_state_user_and_project(api: Api, control: PlainControl) -> None:
    first, second, other = api.submit("ada"), api.submit("root", project="vision"), api.submit("bob")
    control.change(first, state=JobState.RUNNING)

    def found(who: str, **query: str) -> list[str]:
        return [job["job_id"] for job in api.get(who, "/v1/jobs", params=query).json()["jobs"]]

    assert found("root") == [other, second, first]
    assert found("root", state="RUNNING") == [first]
    assert found("root", user="bob") == [other]
    assert found("root", project="vision") == [second, first]
    assert found("ada", project="vision") == [second, first]
    assert found("ada", user="bob") == []


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "1001"}, {"limit": "9" * 5000}, {"cursor": "zzz"}, {"state": "LOST"}]
)
def test_wrong_queries_are_named(api: Api, query: dict[str, str]) -> None:
    body = problem_of(api.get("ada", "/v1/jobs", params=query), 422)
    assert body["faults"][0]["field"] == next(iter(query))


def test_limits_change_unless_the_job_is_over(api: Api) -> None:
    job_id = api.submit("ada", workers=2)
    answer = api.ask("ada", "PATCH", f"/v1/jobs/{job_id}", json={"max_workers": 6})
    assert (answer.status_code, answer.json()["max_workers"], answer.json()["min_workers"]) == (200, 6, 2)
    problem_of(api.ask("ada", "PATCH", f"/v1/jobs/{job_id}", json={"min_workers": 7}), 422)
    assert api.ask("ada", "POST", f"/v1/jobs/{job_id}/cancel").json()["state"] == "CANCELLED"
    problem_of(api.ask("ada", "PATCH", f"/v1/jobs/{job_id}", json={"max_workers": 7}), 409)


def test_cancelling_twice_does_no_harm(api: Api) -> None:
    job_id = api.submit("ada")
    answers = [api.ask("ada", "POST", f"/v1/jobs/{job_id}/cancel") for _ in range(2)]
    assert [(answer.status_code, answer.json()["state"]) for answer in answers] == [(200, "CANCELLED")] * 2


def test_the_reason_for_waiting_is_a_name_for_scripts(api: Api) -> None:
    body = api.get("ada", f"/v1/jobs/{api.submit('ada')}/why").json()
    assert (body["reason"], body["text"]) == ("NEXT_PASS", "fits and starts at the next pass")


def test_the_history_is_told_in_order(api: Api, control: PlainControl) -> None:
    job_id = api.submit("ada")
    control.happened(job_id, "it waits", kind="submitted")
    control.happened(job_id, "it runs", kind="launched")
    body = api.get("ada", f"/v1/jobs/{job_id}/history").json()
    assert body["job_id"] == job_id
    told = [(entry["kind"], entry["text"]) for entry in body["entries"]]
    assert told == [("submitted", "it waits"), ("launched", "it runs")]


def test_a_server_that_does_not_lead_asks_to_come_back(api: Api, control: PlainControl) -> None:
    control.broken = FencedError("token 3 leads now")
    answer = api.ask("ada", "POST", "/v1/jobs", json=JOB)
    assert "lead" in problem_of(answer, 503)["detail"]
    assert int(answer.headers["retry-after"]) > 0
