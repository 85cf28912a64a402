"""The inference demand as Prometheus knows it: a real HTTP server that answers in its format."""

from __future__ import annotations

import base64
import logging
import queue
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.cluster import eventually
from tests.live.fake_prometheus import AT_S, Server, series, success

from aryl.errors import ArylError, InputError, UnreachableError
from aryl.live.sources.observation import Observation, Unit
from aryl.live.sources.poller import Poller
from aryl.live.sources.prometheus import PrometheusSource

LONG_S = 60.0


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def source(server: Server, query: str = "sum(busy)", user: str = "", **settings: Any) -> PrometheusSource:
    return PrometheusSource(f"http://{user}{server.address}", query, **settings)


def read(server: Server, **settings: Any) -> Observation:
    asking = source(server, **settings)
    try:
        return asking.read()
    finally:
        asking.close()


def complaint(server: Server, kind: type[ArylError] = ArylError, **settings: Any) -> str:
    with pytest.raises(ArylError) as caught:
        read(server, **settings)
    assert type(caught.value) is kind
    where, _, text = str(caught.value).partition(f"http://{server.address}: ")
    assert where == ""
    return text


@pytest.mark.parametrize(
    ("body", "need"),
    [
        (success("vector", [series("5.5")]), 5.5),
        (success("scalar", [AT_S, "0"]), 0.0),
        (success("vector", [series("1e3")], infos=["not a counter"], warnings=[]), 1000.0),
    ],
)
def test_one_series_or_a_scalar_is_the_need(server: Server, body: str, need: float) -> None:
    server.body = body
    assert read(server, unit=Unit.GPUS) == Observation(AT_S, need, Unit.GPUS)


def test_the_query_is_asked_at_the_api_below_the_address(server: Server) -> None:
    asking = PrometheusSource(f"http://{server.address}/a/prom/", 'sum(busy{a="b c&d"})\n+ 1', timeout_s=2.5)
    asking.read()
    asking.close()
    query = {"query": ['sum(busy{a="b c&d"})\n+ 1'], "timeout": ["2500ms"]}
    assert server.asked == [("/a/prom/api/v1/query", query, None)]
    assert asking.where == f"http://{server.address}/a/prom"


def test_a_proxy_is_no_way_to_this_machine(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert read(server).need == 5.5


def test_a_second_query_tells_how_old_the_need_is_and_is_asked_first(server: Server) -> None:
    server.by_query["min(timestamp(busy))"] = success("vector", [series("1699999880.5")])
    assert read(server, time_query="min(timestamp(busy))") == Observation(1699999880.5, 5.5, Unit.SERVERS)
    assert [asked["query"] for _, asked, _ in server.asked] == [["min(timestamp(busy))"], ["sum(busy)"]]


@pytest.mark.parametrize("value", ["NaN", "0", "-1", "+Inf"])
def test_a_time_that_is_none_is_an_error(server: Server, value: str) -> None:
    server.by_query["t"] = success("scalar", [AT_S, value])
    assert complaint(server, time_query="t") == (
        f"the query for the time gives {float(value):g}; expected seconds since 1970"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (success("vector", []), "nothing is found for 'sum(busy)'; expected exactly one series"),
        (
            success("vector", [series("1"), series("2", name="b")]),
            "2 series are found for 'sum(busy)'; expected exactly one, such as that of sum(...)",
        ),
        (
            success("vector", [series("1")] * 5),
            "5 series are found for 'sum(busy)'; expected exactly one, such as that of sum(...)",
        ),
        (
            success("matrix", [{"metric": {}, "values": [[AT_S, "1"]]}]),
            "'sum(busy)' gives a matrix; expected a number or one series",
        ),
        (success("string", [AT_S, "5"]), "'sum(busy)' gives a string; expected a number or one series"),
        (success("vector", [series("NaN")]), "the query gives nan; expected a number, at least 0"),
        (success("vector", [series("-0.1")]), "the query gives -0.1; expected a number, at least 0"),
        (success("vector", [series("+Inf")]), "the query gives inf; expected a number, at least 0"),
        (success("scalar", [AT_S, "1e300"]), "the query gives 1e+300; expected a number, at least 0"),
        (
            success("vector", [series("5")], warnings=["a store\nis away", "b"]),
            "the answer comes with a warning: a store\\nis away",
        ),
    ],
)
def test_what_is_not_exactly_one_sensible_number_is_an_error(server: Server, body: str, said: str) -> None:
    server.body = body
    assert complaint(server) == said


@pytest.mark.parametrize(
    "body",
    [
        "<html>hello</html>",
        "",
        "[" * 100_000,
        "[]",
        "5",
        "null",
        '{"status": "success"}',
        '{"status": "fine", "data": {"resultType": "scalar", "result": [1, "2"]}}',
        success("histogram", [1, "2"]),
        success("vector", [{"metric": {}, "histogram": [AT_S, {}]}]),
        success("vector", [series(5.5)]),
        success("vector", [series("five")]),
        success("vector", [series("5", at_s=None)]),
        success("vector", [series("5", at_s="soon")]),
        success("vector", [series("5", at_s=0)]),
        '{"status": "success", "data": {"resultType": "scalar", "result": [NaN, "2"]}}',
        '{"status": "success", "data": {"resultType": "scalar", "result": [1' + "0" * 400 + ', "2"]}}',
        success("scalar", [AT_S, "5", "6"]),
        success("vector", "x"),
    ],
)
def test_an_answer_of_something_else_is_an_error(server: Server, body: str) -> None:
    server.body = body
    assert complaint(server) == "it answers, but not as Prometheus does; is it one?"


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            400,
            '{"status": "error", "errorType": "bad_data", "error": "1:6: parse\\nerror"}',
            "'sum(busy)' is refused: 1:6: parse\\nerror (HTTP 400)",
        ),
        (
            503,
            '{"status": "error", "errorType": "timeout", "error": "query timed out"}',
            "'sum(busy)' is refused: query timed out (HTTP 503)",
        ),
        (200, '{"status": "error", "error": "odd"}', "'sum(busy)' is refused: odd (HTTP 200)"),
        (503, "Service Unavailable", "the answer is HTTP 503 Service Unavailable"),
        (404, success("scalar", [AT_S, "5"]), "the answer is HTTP 404 Not Found"),
        (401, "", "the answer is HTTP 401 Unauthorized; is it the right token or password?"),
        (403, "{}", "the answer is HTTP 403 Forbidden; is it the right token or password?"),
        (302, "", "the answer is HTTP 302 Found"),
    ],
)
def test_an_error_of_the_server_is_shown_in_its_words(
    server: Server, status: int, body: str, said: str
) -> None:
    server.status, server.body = status, body
    assert complaint(server) == said


def test_a_redirect_is_not_followed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cr3t")
    server.status = 302
    server.headers["Location"] = f"http://u:p4ss@{server.address}/login/s3cr3t?token=s3cr3t#s3cr3t"
    assert complaint(server, token_file=str(tmp_path / "token")) == (
        f"it sends us elsewhere, to http://{server.address}/login/***"
    )
    assert len(server.asked) == 1


def test_a_token_is_read_anew_each_time_and_sent(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "token"
    asking = source(server, token_file=str(file))
    for token in ("first", "second"):
        file.write_text(f" {token}\n")
        asking.read()
    asking.close()
    assert [sent for _, _, sent in server.asked] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", b"two\nlines", b"gr\xc3\xbcn", b"a\x00b"])
def test_what_is_no_token_is_neither_sent_nor_shown(server: Server, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(server, token_file=str(file))
    assert str(caught.value) == f"{file}: not a token; expected one line of letters, digits and signs"
    assert server.asked == []


def test_a_token_s_file_that_is_not_there_is_an_error_of_the_moment(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(InputError) as caught:
        read(server, token_file=str(file))
    assert str(caught.value) == f"{file}: the token can't be read: No such file or directory"


def test_user_and_password_are_sent_and_never_shown(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asking = source(server, user="me:p%40ss@")
    poller = Poller(asking, LONG_S, lambda _: None)
    server.status, server.body = 400, '{"status": "error", "error": "bad p@ss from me"}'
    poller.poll()
    poller.close()
    sent = server.asked[0][2]
    assert sent == "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert poller.last_error == (
        f"http://{server.address}: 'sum(busy)' is refused: bad *** from me (HTTP 400)"
    )
    assert "p@ss" not in caplog.text
    assert "p%40ss" not in caplog.text
    assert sent.split()[1] not in caplog.text


def test_a_token_that_the_server_repeats_is_not_shown(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cr3t")
    server.status, server.body = 400, '{"status": "error", "error": "no such token: s3cr3t"}'
    text = complaint(server, token_file=str(tmp_path / "token"))
    assert text == "'sum(busy)' is refused: no such token: *** (HTTP 400)"


def test_a_server_that_does_not_answer_is_given_up_in_time(server: Server) -> None:
    server.let_go.clear()
    server.holds_s = 4.0  # then it does answer, for whoever still waits
    assert complaint(server, UnreachableError, timeout_s=0.2) == "no whole answer within 0.2 s"
    assert not server.held.is_set()


def test_a_server_that_drips_its_answer_is_given_up_in_time(server: Server) -> None:
    server.let_go.clear()
    server.drips = True
    assert complaint(server, UnreachableError, timeout_s=0.2) == "no whole answer within 0.2 s"


def test_an_endless_answer_is_given_up(server: Server) -> None:
    server.body = " " * (2**20 + 1)
    assert complaint(server) == "the answer is longer than 1048576 bytes"


def test_nobody_at_the_address_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        where = f"http://127.0.0.1:{taken.getsockname()[1]}"
        asking = PrometheusSource(where, "up")
        with pytest.raises(UnreachableError) as caught:
            asking.read()
        asking.close()
    assert str(caught.value) == f"{where}: [Errno 111] Connection refused"


def test_a_server_that_hangs_up_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            connection, _ = listening.accept()
            connection.recv(65536)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        where = f"http://127.0.0.1:{listening.getsockname()[1]}"
        asking = PrometheusSource(where, "up")
        with pytest.raises(UnreachableError) as caught:
            asking.read()
        asking.close()
        thread.join()
    assert str(caught.value) == f"{where}: Server disconnected without sending a response."


def test_a_poller_outlives_the_failures_of_its_server(server: Server) -> None:
    told: queue.Queue[Observation] = queue.Queue()
    poller = Poller(source(server), 0.01, told.put)
    server.status, good = 503, server.body
    poller.start()
    try:
        eventually(lambda: poller.failures >= 2, "the failures aren't counted")
        server.status = 200
        assert told.get(timeout=LONG_S) == Observation(AT_S, 5.5, Unit.SERVERS)
        server.body = success("vector", [series("6", at_s=AT_S + 1)])
        assert told.get(timeout=LONG_S) == Observation(AT_S + 1, 6.0, Unit.SERVERS)
        server.body = good
    finally:
        poller.close()
    assert told.empty()


def test_a_poller_is_closed_while_its_server_hangs(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aryl.live.sources.poller.CLOSE_WITHIN_S", 0.01)
    told: list[Observation] = []
    server.let_go.clear()
    poller = Poller(source(server), LONG_S, told.append)
    poller.start()
    assert server.hung.wait(LONG_S)
    poller.close()
    server.let_go.set()
    for thread in threading.enumerate():
        if thread.name == "demand":
            thread.join(LONG_S)
    assert (told, poller.failures, len(server.asked)) == ([], 0, 1)


def test_certificates_that_are_none_are_an_error_from_the_start(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    with pytest.raises(InputError) as missing:
        PrometheusSource("https://prom", "up", ca_file=str(file))
    assert str(missing.value) == f"{file}: the certificates can't be read: No such file or directory"
    file.write_text("hello")
    with pytest.raises(InputError) as wrong:
        PrometheusSource("https://prom", "up", ca_file=str(file))
    assert str(wrong.value) == f"{file}: not a file of certificates; expected certificates in PEM"


def test_an_address_that_httpx_can_not_use_is_an_error_that_does_not_show_it() -> None:
    with pytest.raises(InputError) as caught:
        PrometheusSource("http://u:hunter2@a..\u2603", "up")
    assert str(caught.value) == "url: not the address of a Prometheus server"


def test_without_httpx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(InputError) as caught:
        PrometheusSource("http://prom", "up")
    assert str(caught.value) == (
        "prometheus: to ask Prometheus needs httpx; expected an installation with the extra:"
        " pip install 'aryl[serve]'"
    )
