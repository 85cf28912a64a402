"""What the supervisor makes of requests and reports that are wrong, and of those that are right."""

from __future__ import annotations

import json
import math
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.backends.supervisor.bench import Bench, key, soon, wait_for

from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor.places import Address
from aryl.backends.supervisor.protocol import (
    MAX_LINE_BYTES,
    MAX_REPORT_BYTES,
    VERSION,
    StartRefused,
    WorkerExited,
    WorkerReported,
    WorkerStarted,
)
from aryl.errors import ArylError

_KEY = ["job-1", 1, 0, 0]
_SPEC = {
    "key": _KEY,
    "argv": ["true"],
    "cwd": "/",
    "env": {},
    "log_path": "/tmp/log",
    "server_id": "T1",
    "gpus": [],
    "memory_bytes": 0,
    "cpus": 0,
    "meta": {},
}
_SCHEDULE = {"notice_signal": "USR1", "notice_at": 0, "term_at": 0, "kill_at": 0, "stuck_after_s": 1}


class _Raw:
    """A connection that says what no client would."""

    def __init__(self, bench: Bench) -> None:
        address = Address.read(bench.state)
        assert address is not None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(60)
        self._socket.connect(address.requests)
        self._file = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(self, **request: object) -> dict[str, object]:
        self.send(json.dumps(request).encode() + b"\n")
        return self.answer()

    def answer(self) -> dict[str, object]:
        answer = json.loads(self._file.readline())
        assert isinstance(answer, dict)
        return answer

    def ended(self) -> bool:
        return self._file.read() == b""

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"", "not a line of JSON"),
        (b"\xff\xfe", "not a line of JSON"),
        (b"[" * 100_000, "not a line of JSON"),
        (b"[1]", "line: expected an object"),
        (b'{"op":"list"}', "id: expected a whole number"),
        (b'{"id":-1,"op":"list"}', "id: expected a whole number"),
        (b'{"id":1}', "op: expected a text"),
        (b'{"id":1,"op":"dance"}', "op: unknown: dance"),
        (b'{"id":1,"op":"forget","job":1,"attempt":1}', "job: expected a text"),
        (b'{"id":1,"op":"shutdown","force":1}', "force: expected true or false"),
        (b'{"id":1,"op":"stop","keys":[[]],"schedule":{}}', "key: expected [job"),
        (b'{"id":1,"op":"hello","fence":"x","version":1}', "fence: expected a whole number"),
        (b'{"id":1,"op":"hello","fence":1,"version":99}', f"speaks version {VERSION}"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_the_next_is_answered(
    shared: Bench, line: bytes, text: str
) -> None:
    client = shared.connect()
    raw = _Raw(shared)
    assert "ok" in raw.ask(id=0, op="hello", fence=1, version=VERSION)
    raw.send(line + b"\n")
    answer = raw.answer()
    assert answer["error"] == "bad"
    assert text in str(answer["text"])
    assert raw.ask(id=5, op="list") == {"re": 5, "ok": {"workers": []}}
    raw.close()
    client.close()


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("key", ["job-1", 1, 0], "key: expected"),
        ("key", ["job-1", 1, 0, True], "key: expected a whole number"),
        ("argv", [], "argv: expected a program"),
        ("argv", ["a\0b"], "argv: expected a text"),
        ("argv", "true", "argv: expected a list"),
        ("cwd", "relative", "cwd: expected an absolute path"),
        ("log_path", "relative", "log_path: expected an absolute path"),
        ("env", {"A=B": "c"}, "env: a name"),
        ("env", {"A": 1}, "env.A: expected a text"),
        ("gpus", [-1], "gpus: expected a whole number"),
        ("cpus", -1, "cpus: expected a number >= 0"),
        ("cpus", 10**400, "cpus: expected a finite number"),
        ("memory_bytes", 0.5, "memory_bytes: expected a whole number"),
        ("meta", None, "meta: expected an object"),
    ],
)
def test_if_one_spec_is_wrong_none_of_them_is_started(
    shared: Bench, field: str, value: object, text: str
) -> None:
    client = shared.connect()
    raw = _Raw(shared)
    raw.ask(id=0, op="hello", fence=1, version=VERSION)
    answer = raw.ask(id=1, op="start", specs=[_SPEC, {**_SPEC, field: value}])
    assert answer["error"] == "bad"
    assert text in str(answer["text"])
    raw.close()
    assert client.list() == []
    client.close()


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("notice_signal", "NOPE", "there is no signal 'NOPE'"),
        ("kill_at", "soon", "kill_at: expected a finite number"),
        ("term_at", True, "term_at: expected a finite number"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(
    shared: Bench, field: str, value: object, text: str
) -> None:
    shared.connect()
    raw = _Raw(shared)
    raw.ask(id=0, op="hello", fence=1, version=VERSION)
    answer = raw.ask(id=1, op="stop", keys=[_KEY], schedule={**_SCHEDULE, field: value})
    assert text in str(answer["text"])
    raw.close()


def test_nothing_is_done_for_somebody_who_has_not_said_hello(bench: Bench) -> None:
    bench.connect()
    raw = _Raw(bench)
    answer = raw.ask(id=1, op="start", specs=[_SPEC])
    assert "say hello first" in str(answer["text"])
    raw.close()


def test_somebody_with_a_lower_token_is_answered_and_cut_off(bench: Bench) -> None:
    bench.connect(7)
    raw = _Raw(bench)
    assert raw.ask(id=0, op="hello", fence=6, version=VERSION)["error"] == "fenced"
    assert raw.ended()
    raw.close()


def test_a_line_without_end_is_cut_off(bench: Bench) -> None:
    client = bench.connect()
    raw = _Raw(bench)
    raw.send(b" " * (MAX_LINE_BYTES + 1))
    assert "more than" in str(raw.answer()["text"])
    assert raw.ended()
    raw.close()
    assert client.list() == []


def test_a_connection_that_ends_in_the_middle_of_a_line_does_no_harm(bench: Bench) -> None:
    client = bench.connect()
    raw = _Raw(bench)
    raw.send(b'{"id":1,"op":"sta')
    raw.close()
    assert client.list() == []


def test_an_odd_spec_is_refused_by_the_client_too(bench: Bench) -> None:
    client = bench.connect()
    with pytest.raises(ArylError, match="cwd: expected an absolute path"):
        client.start([bench.spec("true", cwd="relative")])


def test_what_nobody_waited_for_and_is_refused_comes_as_an_event(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.spec("sleep", "1000", which=key(1)), bench.spec("true", cwd="relative")], wait=False)
    refused = bench.event(StartRefused)
    assert refused.keys == (key(1), key())
    assert "cwd: expected an absolute path" in refused.reason
    assert client.list() == []


def test_requests_that_nobody_waits_for_keep_their_order(bench: Bench) -> None:
    client = bench.connect()
    keys = [key(rank) for rank in range(40)]  # more than one request holds
    client.start([bench.spec("true", which=which) for which in keys], wait=False)
    assert [status.key for status in client.list()] == keys
    for which in keys:
        bench.exited(which)
    assert client.forget("job-1", 1, wait=False) == ()
    assert client.list() == []


def test_an_environment_that_is_no_utf8_survives(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.spec("/usr/bin/env", env={"ODD": b"\xff".decode("utf-8", "surrogateescape")})])
    bench.exited(key())
    assert b"ODD=\xff\n" in bench.log().read_bytes()


def test_requests_may_come_from_many_threads_at_once(bench: Bench) -> None:
    client = bench.connect()

    def ask(rank: int) -> None:
        client.start([bench.spec("true", which=key(rank))])
        while not any(status.key == key(rank) and status.state.ended for status in client.list()):
            client.stop([], soon())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(16)))
    assert [status.exit_code for status in client.list()] == [0] * 16


def test_whoever_hears_of_an_event_may_ask_something_in_turn(bench: Bench) -> None:
    answers: list[int] = []

    def on_event(event: object) -> None:
        if isinstance(event, WorkerExited):
            number = len(client.list())
            client.close()
            answers.append(number)

    client = SupervisorClient.connect(bench.state, 1, on_event)
    client.start([bench.spec("true")])
    wait_for(lambda: answers == [1])
    with pytest.raises(ArylError, match="closed"):
        client.list()


def _report(rank: object = 0, report: object = None, *, job: object = "job-1", attempt: object = 1) -> bytes:
    return json.dumps({"job": job, "attempt": attempt, "rank": rank, "report": report}).encode()


def test_the_last_value_of_each_key_is_kept_and_told(bench: Bench) -> None:
    client = bench.connect()
    client.start([bench.spec("sleep", "1000")])
    bench.event(WorkerStarted)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(_report(report={"step": 1, "total_steps": 9}), client.report_socket)
        sender.sendto(_report(report={"step": 2.5}), client.report_socket)
    event = bench.event(WorkerReported, lambda event: event.report["step"] == 2.5)
    assert event.key == key()
    assert event.report == {"step": 2.5, "total_steps": 9}
    (status,) = client.list()
    assert status.last_report == event.report
    client.stop([key()], soon())
    assert bench.exited(key()).last_report == event.report


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"[]",
        _report(rank=1, report={"step": 7}),
        _report(rank="0", report={"step": 7}),
        _report(job="nobody-3", report={"step": 7}),
        _report(attempt=2, report={"step": 7}),
        _report(report=None),
        _report(report={}),
        _report(report={"step": "7"}),
        _report(report={"step": True}),
        _report(report={"step": math.nan}),
        _report(report={"step": math.inf}),
        _report(report={"step": 10**400}),
        _report(report={f"key{n}": n for n in range(33)}),
        _report(report={"x" * MAX_REPORT_BYTES: 1}),
    ],
)
def test_what_is_no_report_of_a_living_worker_is_dropped(shared: Bench, data: bytes) -> None:
    which = key()
    client = shared.connect()
    client.start([shared.spec("sleep", "1000", which=which)])
    shared.event(WorkerStarted, lambda event: event.status.key == which)
    before = len(shared.events)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, client.report_socket)
        sender.sendto(_report(report={"saved_step": 3}), client.report_socket)
    wait_for(lambda: any(isinstance(event, WorkerReported) for event in shared.events[before:]))
    client.close()
    assert {tuple(e.report.items()) for e in shared.events if isinstance(e, WorkerReported)} == {
        (("saved_step", 3),)
    }


def test_reports_belong_to_the_latest_generation(bench: Bench) -> None:
    client = bench.connect()
    old, new = key(), key(generation=1)
    client.start([bench.spec("true", which=old)])
    bench.exited(old)
    client.start([bench.spec("sleep", "1000", which=new)])
    bench.event(WorkerStarted, lambda event: event.status.key == new)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(_report(report={"step": 1}), client.report_socket)
    assert bench.event(WorkerReported).key == new
    assert [dict(status.last_report) for status in client.list()] == [{}, {"step": 1}]
