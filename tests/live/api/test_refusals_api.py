"""Every refusal is a problem document, and nothing that is sent makes the server fail."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator

import pytest
from tests.live.api.asking import JOB, Api, problem_of
from tests.live.api.plain_control import PlainControl

from aryl.errors import ArylError, ConflictError, NotAllowedError, UnreachableError
from aryl.live.api import Settings, make_app
from aryl.live.store import Store

JSON = {"Content-Type": "application/json"}
DEMAND = "/v1/inference/demand"

BAD_BODIES = [
    b"",
    b"{",
    b"nonsense",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe",
    b'{"need_servers": NaN}',
    b'{"need_servers": Infinity}',
    b'{"need_servers": 1e999}',
    b'{"need_servers": -1}',
    b'{"need_servers": ' + b"9" * 6000 + b"}",
    b'{"need_servers": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"need_servers": 1, "unknown": 2}',
    b'{"need_servers": 1, "un\\ud800known": 2}',
    b'{"need_servers": true}',
    b'{"need_servers": "1"}',
    b'{"need_servers": {"a": "\\u0000"}}',
    b"\x00",
    '{"need_servers": 1}'.encode("utf-16"),
]


@pytest.mark.parametrize("body", BAD_BODIES)
def test_a_body_that_is_wrong_is_refused(api: Api, body: bytes) -> None:
    answer = api.ask("ola", "PUT", DEMAND, content=body, headers=JSON)
    assert problem_of(answer, 422)["faults"]


@pytest.mark.parametrize("text", [r"\u0000", r"\ud800", r"\udfff\ud800"])
@pytest.mark.parametrize("place", ["name", "run", "workdir", "project", "user"])
def test_texts_that_cannot_be_kept_are_refused(api: Api, place: str, text: str) -> None:
    body = json.dumps({**JOB, place: "HERE"}).replace("HERE", f"a{text}b")
    fault = problem_of(api.ask("root", "POST", "/v1/jobs", content=body, headers=JSON), 422)["faults"][0]
    assert fault["field"] == place


def test_a_whole_surrogate_pair_is_a_character(api: Api) -> None:
    body = json.dumps({**JOB, "run": "echo \N{SNOWMAN}\N{GRINNING FACE}"})
    assert r"\ud83d" in body
    assert api.ask("root", "POST", "/v1/jobs", content=body, headers=JSON).status_code == 201


def test_only_json_is_taken(api: Api) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"):
        answer = api.ask("ola", "PUT", DEMAND, content=b'{"need_servers": 1}', headers={"Content-Type": kind})
        problem_of(answer, 415)
    kind = "Application/JSON; charset=utf-8"
    answer = api.ask("ola", "PUT", DEMAND, content=b'{"need_servers": 1}', headers={"Content-Type": kind})
    assert answer.status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_not_read_to_its_end(
    control: PlainControl, store: Store, tokens: dict[str, str], chunked: bool
) -> None:
    api = Api(make_app(control, store, Settings(most_body_bytes=1000)), tokens)
    small, large = [json.dumps({**JOB, "run": "x" * size}).encode() for size in (100, 1000)]
    sent = []

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(100):
            sent.append(number)
            yield large

    assert api.ask("ada", "POST", "/v1/jobs", content=small, headers=JSON).status_code == 201
    body = pieces() if chunked else large
    problem_of(api.ask("ada", "POST", "/v1/jobs", content=body, headers=JSON), 413)
    assert len(sent) <= 3


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v2/jobs", "/v1/jobs/", "/v1/nothing", "/v1/jobs/a/b/c", "//v1/jobs", "/v1/jobs/%00"],
)
def test_a_path_that_leads_nowhere_is_a_problem(api: Api, path: str) -> None:
    problem_of(api.get("root", path), 404)


@pytest.mark.parametrize(
    "job_id", ["%00", "..", "%2e%2e%2fetc", "a%0Ab", "%F0%28", "x" * 301, "%ED%A0%80", "'; --"]
)
@pytest.mark.parametrize("what", ["", "/why", "/logs", "/history"])
def test_an_odd_name_is_of_nothing(api: Api, job_id: str, what: str) -> None:
    problem_of(api.get("root", f"/v1/jobs/{job_id}{what}"), 404)


def test_a_method_that_is_not_there_names_those_that_are(api: Api) -> None:
    answer = api.ask("root", "DELETE", "/v1/loans")
    problem_of(answer, 405)
    assert answer.headers["allow"]


def test_odd_queries_are_problems(api: Api) -> None:
    for query in ("user=%00", "project=a%00b", "user=" + "x" * 201, "cursor=%00", "limit=%00", "state=%ff"):
        problem_of(api.get("root", f"/v1/jobs?{query}"), 422)
    assert api.get("root", "/v1/jobs?user=%F0%9F%98%80").status_code == 200


def test_a_query_with_an_unknown_key_does_nothing(api: Api) -> None:
    body = problem_of(api.ask("ada", "POST", "/v1/jobs?dryrun=true", json=JOB), 422)
    assert (body["faults"][0]["field"], body["faults"][0]["nearest"]) == ("dryrun", "dry_run")
    assert api.get("ada", "/v1/jobs").json()["jobs"] == []
    for path in ("/v1/servers?%00", "/v1/whoami?=", "/v1/events?aftre=1", "/v1/jobs?" + "k" * 5000):
        assert problem_of(api.get("root", path), 422)["faults"][0]["message"] == "unknown query"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConflictError("no"), 409),
        (NotAllowedError("no"), 403),
        (UnreachableError("no"), 503),
    ],
)
def test_the_class_of_an_error_gives_the_status(
    api: Api, control: PlainControl, error: Exception, status: int
) -> None:
    control.broken = error
    assert problem_of(api.get("root", "/v1/loans"), status)["detail"] == "no"


@pytest.mark.parametrize("error", [RuntimeError("password in here"), ArylError("password in here")])
def test_what_nobody_expected_is_logged_and_not_shown(
    api: Api, control: PlainControl, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    control.broken = error
    with caplog.at_level(logging.ERROR):
        answer = api.get("root", "/v1/loans")
    problem_of(answer, 500)
    assert "password" not in answer.text
    assert "Traceback" in caplog.text
    assert "in loans" in caplog.text


def test_a_busy_what_if_turns_others_away(
    control: PlainControl, store: Store, tokens: dict[str, str]
) -> None:

    api = Api(make_app(control, store, Settings(most_whatifs=1)), tokens)
    control.let_whatif_go.clear()
    question = {"json": {"policies": ["fifo"]}}
    answers = []
    first = threading.Thread(target=lambda: answers.append(api.ask("ada", "POST", "/v1/whatif", **question)))
    first.start()
    assert control.in_whatif.wait(60)
    problem_of(api.ask("ada", "POST", "/v1/whatif", **question), 503)
    control.let_whatif_go.set()
    first.join()
    assert answers[0].json()["outcomes"][0]["policy"] == "fifo"
    assert api.ask("ada", "POST", "/v1/whatif", **question).status_code == 200


def test_an_unknown_policy_names_the_nearest(api: Api) -> None:
    body = problem_of(api.ask("ada", "POST", "/v1/whatif", json={"policies": ["fifa"]}), 422)
    assert body["faults"][0]["nearest"] == "fifo"


def test_servers_and_loans_answer_as_the_control_plane_does(api: Api) -> None:
    assert [one["server"] for one in api.get("vic", "/v1/servers").json()["servers"]] == ["T1", "I1"]
    assert api.ask("ola", "POST", "/v1/servers/T1/drain", json={"deadline_s": 5}).json()["draining"] is True
    assert api.ask("ola", "POST", "/v1/servers/T1/undrain").json()["draining"] is False
    problem_of(api.ask("ola", "POST", "/v1/servers/T9/drain", json={}), 404)
    problem_of(api.ask("ola", "POST", "/v1/loans", json={"server": "T1"}), 409)
    assert api.ask("ola", "POST", "/v1/loans", json={"server": "I1"}).json()["on_loan"] == 1
    assert api.get("vic", "/v1/loans").json()["loans"][0]["server"] == "I1"
    assert api.ask("ola", "POST", "/v1/loans/reclaim", json={}).json()["loans"] == []
    problem_of(api.ask("ola", "POST", "/v1/loans/reclaim", json={}), 409)
    assert api.ask("ola", "PUT", DEMAND, json={"need_servers": 1}).status_code == 200
