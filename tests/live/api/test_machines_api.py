"""Liveness, readiness and metrics."""

from __future__ import annotations

import re
import threading

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.live.api.asking import JOB, Api, problem_of
from tests.live.api.plain_control import PlainControl

from aryl.errors import UnreachableError
from aryl.live.api import ApiServer, Settings, make_app
from aryl.live.store import Store
from aryl.wire.views import HealthView


def samples(api: Api) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = api.get("root", "/metrics").text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("status", ["starting", "standby", "stalled", "failed"])
def test_a_loop_that_does_not_turn_is_alive_but_not_ready(
    api: Api, control: PlainControl, status: str
) -> None:
    assert api.get(None, "/readyz").status_code == 200
    control.state = HealthView.model_validate({"status": status, "detail": "secret-1 did it"})
    answer = api.get(None, "/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": status, "detail": ""})
    assert api.get("ada", "/readyz").json()["detail"] == ""
    assert api.get("ola", "/readyz").json()["detail"] == "secret-1 did it"
    assert api.get(None, "/healthz").status_code == 200


def test_liveness_asks_neither_the_control_plane_nor_the_store(
    control: PlainControl, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> bool:
        raise UnreachableError("the store is away")

    monkeypatch.setattr(store, "has_tokens", away)
    control.broken = RuntimeError("gone")
    api = Api(make_app(control, store, Settings(open=True)), {})
    assert api.get(None, "/healthz").json()["status"] == "ok"
    problem_of(api.get(None, "/readyz"), 503)


def test_readiness_is_told_while_every_thread_waits_for_the_loop(
    control: PlainControl, store: Store, tokens: dict[str, str]
) -> None:
    settings = Settings(threads=1)
    server = ApiServer(make_app(control, store, settings), "127.0.0.1", 0)
    server.start()
    control.let_whatif_go.clear()
    control.state = HealthView(status="stalled")

    def wait() -> None:
        headers = {"Authorization": f"Bearer {tokens['root']}"}
        httpx.post(f"{server.url}/v1/whatif", json={"policies": ["fifo"]}, headers=headers, timeout=60)

    waiting = threading.Thread(target=wait)
    try:
        waiting.start()
        assert control.in_whatif.wait(60)
        assert httpx.get(f"{server.url}/readyz", timeout=60).json()["status"] == "stalled"
    finally:
        control.let_whatif_go.set()
        waiting.join()
        server.stop()


def test_gauges_and_counters_of_the_control_plane_are_shown(api: Api, control: PlainControl) -> None:
    control.gauge = {
        "gpus": {
            (("pool", "training"), ("state", "free")): 3.0,
            (("pool", "inference"), ("state", "free")): 4.5,
        },
        "preemptions_total": {(("cause", "reclaim"),): 7.0},
        "loop_last_turn_age_seconds": {(): 0.25},
        "nothing_yet": {},
    }
    found = samples(api)
    assert found["aryl_gpus", frozenset({("pool", "training"), ("state", "free")})] == 3.0
    assert found["aryl_gpus", frozenset({("pool", "inference"), ("state", "free")})] == 4.5
    assert found["aryl_preemptions_total", frozenset({("cause", "reclaim")})] == 7.0
    assert found["aryl_loop_last_turn_age_seconds", frozenset()] == 0.25


def test_requests_are_counted_by_route_and_never_by_job(api: Api) -> None:
    job_id = api.submit("ada")
    for _ in range(3):
        api.get("ada", f"/v1/jobs/{job_id}")
    api.get("ada", "/v1/jobs/nowhere-1")
    api.get("ada", "/v1/nowhere-1")
    api.get(None, f"/v1/jobs/{job_id}")
    api.ask("ada", "BREW", "/v1/jobs")
    found = samples(api)

    def count(name: str, route: str, status: str, method: str = "GET") -> float | None:
        return found.get((name, frozenset({("method", method), ("route", route), ("status", status)})))

    assert count("aryl_http_requests_total", "/v1/jobs", "201", "POST") == 1
    assert count("aryl_http_requests_total", "/v1/jobs/{job_id}", "200") == 3
    assert count("aryl_http_requests_total", "/v1/jobs/{job_id}", "404") == 1
    assert count("aryl_http_request_duration_seconds_count", "/v1/jobs/{job_id}", "200") == 3
    assert count("aryl_http_requests_total", "unmatched", "404") == 1
    assert count("aryl_http_requests_total", "unmatched", "401") == 1
    assert [key for key in found if ("method", "other") in key[1]]
    assert job_id not in api.get("root", "/metrics").text


def test_all_names_have_the_prefix_and_base_units(api: Api) -> None:
    api.ask("ada", "POST", "/v1/jobs", json=JOB)
    answer = api.get("root", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"aryl_queue_jobs", "aryl_http_requests", "aryl_process_cpu_seconds"} <= names
    assert [name for name in names if not name.startswith("aryl_")] == []
    assert [name for name in names if re.search(r"_(ms|milliseconds|minutes|kb|mb)(_|$)", name)] == []
