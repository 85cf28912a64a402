"""The API is held to its own document: whatever is sent, answers are as documented, and never a failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.live.api.asking import JOB, problem_of
from tests.live.api.plain_control import PlainControl

from aryl.live.api import ApiServer, Settings, make_app
from aryl.live.api.app import close_streams
from aryl.live.control import Role
from aryl.live.store import Store
from aryl.wire.job_file import JobFile

DETERMINED = settings(
    max_examples=20,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


class Ground:
    """A server with a few jobs that have something to show, and a token for all."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(f"sqlite:///{folder / 'aryl.db'}")
        self.control = PlainControl(self.store, folder / "jobs")
        self.token = self.store.add_token("root", Role.ADMIN, None)
        self.app = make_app(self.control, self.store, Settings(poll_s=0.01))
        close_streams(self.app)  # so that a stream of events has an end
        self.server = ApiServer(self.app, "127.0.0.1", 0)
        self.server.start()
        self.headers = {"Authorization": f"Bearer {self.token}"}
        for _ in range(3):
            answer = httpx.post(f"{self.server.url}/v1/jobs", json=JOB, headers=self.headers)
            self.control.log(answer.json()["job_id"], 1, 0).write_text("hello\n")

    def close(self) -> None:
        """Give everything back."""
        self.server.stop()
        self.store.close()


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(tmp_path_factory.mktemp("fuzz"))
    yield ground
    ground.close()


def hold_to_document(operation: Any, ground: Ground, mode: GenerationMode) -> None:
    there = {"job_id": "resnet-1", "server_id": "T1"}

    @DETERMINED
    @given(case=operation.as_strategy(generation_mode=mode), real=st.booleans())
    def ask(case: schemathesis.Case[Any], real: bool) -> None:
        if real and mode is GenerationMode.POSITIVE:
            for name in case.path_parameters or {}:
                case.path_parameters[name] = there[name]
        case.call_and_validate(base_url=ground.server.url, headers=ground.headers, checks=CHECKS)

    ask()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_operation_answers_as_documented(ground: Ground, mode: GenerationMode) -> None:
    document = httpx.get(f"{ground.server.url}/openapi.json").json()
    for path in document["paths"].values():
        for operation in path.values():
            operation.pop("security", None)  # every request has a token; others test those that don't
    found: Any = list(schemathesis.openapi.from_dict(document).get_all_operations())
    operations = [one.ok() for one in found]
    assert len(operations) == 23
    if mode is GenerationMode.NEGATIVE:  # any text may stand in a path, so nothing can be wrong in it
        operations = [operation for operation in operations if operation.body or list(operation.query)]
        assert len(operations) > 8
    for operation in operations:
        hold_to_document(operation, ground, mode)


TEXTS = st.one_of(st.text(max_size=20), st.text(st.characters(categories=["Cs", "Cc", "Lu"]), max_size=5))
NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([10**30, -(2**63), 1e308, 5e-324]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)
JOB_KEYS = st.sampled_from(sorted(JobFile.model_fields))
JOBS = st.dictionaries(st.one_of(JOB_KEYS, TEXTS), VALUES, max_size=6).map(lambda changes: {**JOB, **changes})
OTHERS = st.dictionaries(
    st.one_of(st.sampled_from(["min_workers", "deadline_s", "need_servers", "policies", "server"]), TEXTS),
    VALUES,
    max_size=4,
)
TARGETS = [
    ("POST", "/v1/jobs"),
    ("POST", "/v1/jobs?dry_run=true"),
    ("PATCH", "/v1/jobs/resnet-1"),
    ("POST", "/v1/servers/T1/drain"),
    ("POST", "/v1/loans"),
    ("POST", "/v1/loans/reclaim"),
    ("PUT", "/v1/inference/demand"),
    ("POST", "/v1/inference/ready"),
    ("POST", "/v1/whatif"),
]


@pytest.mark.parametrize(("method", "path"), TARGETS)
def test_no_json_makes_the_server_fail(ground: Ground, method: str, path: str) -> None:
    headers = {**ground.headers, "Content-Type": "application/json"}
    bodies = st.one_of(JOBS if path.startswith("/v1/jobs") else OTHERS, VALUES).map(json.dumps)
    with httpx.Client(base_url=ground.server.url, headers=headers) as client:

        @settings(DETERMINED, max_examples=40)
        @given(body=st.one_of(bodies.map(str.encode), st.binary(max_size=30)))
        def send(body: bytes) -> None:
            answer = client.request(method, path, content=body, timeout=60)
            assert answer.status_code in (200, 201, 404, 409, 422), answer.text
            if answer.status_code >= 400:
                problem_of(answer, answer.status_code)

        send()
