"""The server itself: taking an address, giving it back, and keeping secrets out of its logs."""

from __future__ import annotations

import logging
import socket
import threading

import httpx
import pytest
from tests.live.api.asking import JOB, QUICK
from tests.live.api.plain_control import PlainControl

from aryl.errors import ArylError
from aryl.live.api import ApiServer, make_app
from aryl.live.store import Store


def server(control: PlainControl, store: Store, host: str = "127.0.0.1", port: int = 0) -> ApiServer:
    return ApiServer(make_app(control, store, QUICK), host, port)


def test_it_listens_from_start_to_stop(control: PlainControl, store: Store) -> None:
    serving = server(control, store)
    with pytest.raises(ArylError, match="isn't listening"):
        _ = serving.port
    serving.start()
    url, port = serving.url, serving.port
    assert httpx.get(f"{url}/healthz").status_code == 200
    serving.stop()
    serving.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz")
    again = server(control, store, port=port)
    again.start()
    assert httpx.get(f"{again.url}/healthz").status_code == 200
    again.stop()
    assert [thread for thread in threading.enumerate() if thread.name == "aryl-api"] == []


def test_an_address_that_is_taken_is_named(control: PlainControl, store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ArylError, match=f"can't listen on 127.0.0.1, port {port}: "):
            server(control, store, port=port).start()


@pytest.mark.parametrize(
    ("host", "port"), [("192.0.2.1", 0), ("no such host", 0), ("127.0.0.1", 70_000), ("x" * 300, 1)]
)
def test_an_address_that_is_none_is_named(control: PlainControl, store: Store, host: str, port: int) -> None:
    with pytest.raises(ArylError, match=f"can't listen on {host}, port {port}: "):
        server(control, store, host, port).start()


def test_a_body_too_large_over_a_real_connection_is_refused(
    served: ApiServer, tokens: dict[str, str]
) -> None:
    headers = {"Authorization": f"Bearer {tokens['ada']}", "Content-Type": "application/json"}
    for body in (b"x" * (1 << 20 | 1), iter([b"x" * 70_000] * 16)):
        with httpx.Client() as client:
            answer = client.post(f"{served.url}/v1/jobs", content=body, headers=headers)
        assert answer.status_code == 413
    assert httpx.get(f"{served.url}/v1/whoami", headers=headers).status_code == 200


def raw(served: ApiServer, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def test_a_token_is_in_no_log_and_no_answer(
    served: ApiServer,
    control: PlainControl,
    tokens: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    secret = tokens["ada"]
    good = {"Authorization": f"Bearer {secret}"}
    answers = []
    with caplog.at_level(logging.DEBUG):
        with httpx.Client(base_url=served.url) as client:
            answers.append(client.get("/v1/whoami", headers=good))
            answers.append(client.get("/v1/whoami", headers={"Authorization": f"Basic {secret}"}))
            answers.append(client.get("/v1/whoami", headers={"X-Token": secret, **good}))
            answers.append(client.get(f"/v1/jobs?token={secret}&limit={secret}", headers=good))
            answers.append(client.get(f"/v1/events?after={secret}", headers=good))
            answers.append(client.post("/v1/jobs", json={**JOB, "priority": -9999}, headers=good))
            answers.append(client.post("/v1/jobs", content=b"{", headers=good))
            control.broken = RuntimeError("unexpected")
            answers.append(client.get("/v1/loans", headers=good))
        answers_raw = raw(
            served, b"GET /v1/whoami HTTP/1.1\r\nAuthorization: Bearer %b\r\n\r\n" % secret.encode()
        )
        answers_raw += raw(served, b"nonsense %b\r\n\r\n" % secret.encode())
        served.stop()
    assert [answer.status_code for answer in answers] == [200, 401, 200, 422, 422, 422, 415, 500]
    shown = capfd.readouterr()
    everything = [shown.out, shown.err, *(answer.text for answer in answers), answers_raw.decode("latin-1")]
    # The client logs the addresses that it asks for; the server may not.
    ours = [one for one in caplog.records if one.name.partition(".")[0] in ("aryl", "uvicorn", "fastapi")]
    everything += [logging.Formatter().format(one) for one in ours]
    assert [text for text in everything if secret in text] == []
    access = [one.getMessage() for one in caplog.records if one.name == "aryl.api.access"]
    assert [line for line in access if line.startswith("GET /v1/whoami 200 ") and line.endswith(" ms ada")]
    assert [one for one in caplog.records if one.exc_info]


def test_a_path_cannot_forge_a_line_of_the_log(
    served: ApiServer, tokens: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        httpx.get(
            f"{served.url}/v1/jobs/x%0AGET%20forged", headers={"Authorization": f"Bearer {tokens['ada']}"}
        )
        raw(served, b"GET /v1/\x1b[31mred HTTP/1.1\r\nHost: localhost\r\n\r\n")
    lines = [one.getMessage() for one in caplog.records if one.name == "aryl.api.access"]
    assert lines
    assert all(line.isprintable() for line in lines)


def test_many_clients_at_once_are_all_answered(served: ApiServer, tokens: dict[str, str]) -> None:
    ids: list[str] = []

    def submit(number: int) -> None:
        with httpx.Client(
            base_url=served.url, headers={"Authorization": f"Bearer {tokens['ada']}"}
        ) as client:
            for part in range(5):
                body = {**JOB, "name": f"n{number}x{part}"}
                ids.append(client.post("/v1/jobs", json=body, timeout=60).json()["job_id"])

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 100
