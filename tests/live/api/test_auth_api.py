"""Who comes in, and what each role may do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.live.api.asking import JOB, Api, problem_of
from tests.live.api.plain_control import PlainControl

from aryl.errors import InputError
from aryl.live.api import Settings, check_listen, make_app
from aryl.live.api.auth import Doorman
from aryl.live.control import Principal, Role
from aryl.live.store import Store

PUBLIC = {"/healthz", "/readyz"}
LEAST_ROLES = {
    ("POST", "/v1/jobs"): Role.USER,
    ("PATCH", "/v1/jobs/x-1"): Role.USER,
    ("POST", "/v1/jobs/x-1/cancel"): Role.USER,
    ("POST", "/v1/whatif"): Role.USER,
    ("POST", "/v1/servers/T1/drain"): Role.OPERATOR,
    ("POST", "/v1/servers/T1/undrain"): Role.OPERATOR,
    ("POST", "/v1/loans"): Role.OPERATOR,
    ("POST", "/v1/loans/reclaim"): Role.OPERATOR,
    ("PUT", "/v1/inference/demand"): Role.OPERATOR,
    ("POST", "/v1/inference/ready"): Role.OPERATOR,
    ("GET", "/v1/jobs"): Role.VIEWER,
    ("GET", "/v1/jobs/x-1"): Role.VIEWER,
    ("GET", "/v1/jobs/x-1/why"): Role.VIEWER,
    ("GET", "/v1/jobs/x-1/history"): Role.VIEWER,
    ("GET", "/v1/jobs/x-1/logs"): Role.VIEWER,
    ("GET", "/v1/jobs/x-1/attempts"): Role.VIEWER,
    ("GET", "/v1/servers"): Role.VIEWER,
    ("GET", "/v1/loans"): Role.VIEWER,
    ("GET", "/v1/whoami"): Role.VIEWER,
    ("GET", "/v1/events"): Role.VIEWER,
}
BODIES = {
    "/v1/jobs": JOB,
    "/v1/jobs/x-1": {"max_workers": 3},
    "/v1/whatif": {"policies": ["fifo"]},
    "/v1/servers/T1/drain": {},
    "/v1/loans": {"server": "I1"},
    "/v1/loans/reclaim": {},
    "/v1/inference/demand": {"need_servers": 1},
    "/v1/inference/ready": {"server": "I1"},
}


def open_api(control: PlainControl, store: Store, **settings: str) -> Api:
    names = (settings["name"],) if settings else ()
    return Api(make_app(control, store, Settings(open=True, host_names=names, token_cache_s=0.0)), {})


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.3.2.1", "::1", "[::1]", "localhost", "LOCALHOST", "::ffff:127.0.0.1"]
)
def test_without_tokens_it_may_listen_on_this_machine(host: str) -> None:
    check_listen(host, has_tokens=False)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "10.0.0.1", "example.org", "localhost.example.org", "128.0.0.1"]
)
def test_without_tokens_it_may_listen_nowhere_else(host: str) -> None:
    with pytest.raises(InputError, match="token"):
        check_listen(host, has_tokens=False)
    check_listen(host, has_tokens=True)


def test_every_route_is_known_to_these_tests(api: Api) -> None:
    document = api.get(None, "/openapi.json").json()
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    known = {
        (method, path.replace("x-1", "{job_id}").replace("T1", "{server_id}")) for method, path in LEAST_ROLES
    }
    assert routes == known | {("GET", path) for path in (*PUBLIC, "/metrics")}


@pytest.mark.parametrize(("method", "path"), LEAST_ROLES)
def test_without_a_valid_token_nothing_is_answered(api: Api, method: str, path: str) -> None:
    token = api.tokens["root"]
    wrong = ("", "Bearer", "Bearer wrong", f"Basic {token}", f"Bearer {token}x", token, f"Bearer {token} x")
    for header in (None, *wrong):
        headers = {} if header is None else {"Authorization": header}
        answer = api.ask(None, method, path, headers=headers, json=BODIES.get(path))
        problem_of(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert token not in answer.text


def test_two_tokens_are_none(store: Store, tokens: dict[str, str]) -> None:
    header = (b"authorization", b"Bearer " + tokens["root"].encode())
    doorman = Doorman(store, Settings())
    assert asyncio.run(doorman.principal([header])) is not None
    assert asyncio.run(doorman.principal([header, header])) is None


@pytest.mark.parametrize(("method", "path"), [key for key in LEAST_ROLES if key[1] != "/v1/events"])
def test_each_role_may_do_what_those_below_may(api: Api, method: str, path: str) -> None:
    for who, role in (
        ("vic", Role.VIEWER),
        ("ada", Role.USER),
        ("olga", Role.OPERATOR),
        ("root", Role.ADMIN),
    ):
        answer = api.ask(who, method, path, json=BODIES.get(path))
        if role < LEAST_ROLES[method, path]:
            assert LEAST_ROLES[method, path].name.lower() in problem_of(answer, 403)["detail"]
        else:
            assert answer.status_code not in (401, 403), answer.text


def test_whoami_tells_name_role_and_project(api: Api) -> None:
    assert api.get("ada", "/v1/whoami").json() == {"name": "ada", "role": "user", "project": "vision"}
    assert api.get("root", "/v1/whoami").json() == {"name": "root", "role": "admin", "project": None}


def test_the_scheme_may_be_spelled_as_it_likes(api: Api) -> None:
    headers = {"Authorization": f"bEaReR   {api.tokens['ada']}"}
    assert api.get(None, "/v1/whoami", headers=headers).json()["name"] == "ada"


class Counting(Store):
    """Counts how often it is asked for a token."""

    asked = 0

    def find_token(self, secret: str) -> Principal | None:
        self.asked += 1
        return super().find_token(secret)


async def _ask(doorman: Doorman, token: str) -> Principal | None:
    return await doorman.principal([(b"authorization", b"Bearer " + token.encode())])


def test_a_revoked_token_dies_within_two_seconds_and_costs_one_question_until_then(
    store: Store, tokens: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aryl.live.api.auth.MOST_REMEMBERED", 8)
    now_s = 100.0
    counting = Counting.open(f"sqlite:///{tmp_path / 'aryl.db'}")
    assert isinstance(counting, Counting)
    doorman = Doorman(counting, Settings(), clock=lambda: now_s)

    async def story() -> None:
        nonlocal now_s
        for _ in range(5):
            assert await _ask(doorman, tokens["ada"]) == Principal("ada", Role.USER, "vision")
        store.revoke("ada")
        assert counting.asked == 1
        assert await _ask(doorman, tokens["ada"]) is not None
        now_s += 2.0
        assert await _ask(doorman, tokens["ada"]) is None
        assert await _ask(doorman, tokens["ada"]) is None
        assert counting.asked == 2
        for number in range(20):
            assert await _ask(doorman, f"guess{number}") is None
        assert len(doorman._remembered) == 8
        assert await _ask(doorman, tokens["bob"]) is not None

    asyncio.run(story())
    counting.close()


def test_without_tokens_everyone_is_the_local_admin(control: PlainControl, store: Store) -> None:
    api = open_api(control, store)
    assert api.get(None, "/v1/whoami").json() == {"name": "local", "role": "admin", "project": None}
    headers = {"Authorization": "Bearer whatever"}
    assert api.get(None, "/v1/whoami", headers=headers).json()["name"] == "local"
    assert api.ask(None, "POST", "/v1/jobs", json=JOB).json()["user"] == "local"


def test_the_first_token_closes_the_door_for_good(control: PlainControl, store: Store) -> None:
    api = open_api(control, store)
    assert api.get(None, "/v1/whoami").status_code == 200
    token = store.add_token("root", Role.ADMIN, None)
    problem_of(api.get(None, "/v1/whoami"), 401)
    assert api.get(None, "/v1/whoami", headers={"Authorization": f"Bearer {token}"}).json()["name"] == "root"
    store.revoke("root")
    problem_of(api.get(None, "/v1/whoami"), 401)


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8642", "10.0.0.1", ""]
)
def test_an_open_server_answers_to_its_own_names_only(control: PlainControl, store: Store, host: str) -> None:
    api = open_api(control, store, name="Aryl.local")
    for path in ("/v1/whoami", "/readyz", "/openapi.json"):
        problem_of(api.get(None, path, headers={"Host": host}), 403)
    for good in ("localhost", "LocalHost:8642", "127.0.0.1:1", "[::1]:8642", "aryl.local:8642"):
        assert api.get(None, "/v1/whoami", headers={"Host": good}).status_code == 200


def test_a_server_with_tokens_answers_to_any_name(api: Api) -> None:
    assert api.get("ada", "/v1/whoami", headers={"Host": "aryl.example.org"}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://localhost:1", "http://localhost.evil:8642", "http://[", ""],
)
def test_pages_from_elsewhere_change_nothing(
    control: PlainControl, store: Store, api: Api, origin: str
) -> None:
    answers = [
        open_api(control, store).ask(None, "POST", "/v1/jobs", json=JOB, headers={"Origin": origin})
        for _ in range(1)
    ]
    answers.append(api.ask("ada", "POST", "/v1/jobs", json=JOB, headers={"Origin": origin}))
    for answer in answers:
        problem_of(answer, 403)
    assert control.store.jobs()[0] == []


def test_pages_from_here_may(api: Api) -> None:
    headers = {"Origin": "http://localhost:8642"}
    assert api.ask("ada", "POST", "/v1/jobs", json=JOB, headers=headers).status_code == 201


def test_metrics_take_a_token_of_all_projects(api: Api, control: PlainControl, store: Store) -> None:
    problem_of(api.get(None, "/metrics"), 401)
    problem_of(api.get("ada", "/metrics"), 403)
    assert api.get("ola", "/metrics").status_code == 200
    relaxed = Api(make_app(control, store, Settings(metrics_open=True)), {})
    assert relaxed.get(None, "/metrics").status_code == 200
