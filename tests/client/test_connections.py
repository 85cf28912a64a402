"""What the client does when the server is away, slow, restarted, or somebody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.client.stand_in import Proxy, StandIn, eventually, serving, unused_address
from tests.client.test_client import job_file

from aryl.client import ArylClient, ServerEvent, WaitTimeoutError
from aryl.client.stream import parse_events
from aryl.client.transport import LostAnswerError
from aryl.core.model import JobState
from aryl.errors import ArylError, ConflictError, InputError, NotAllowedError, NotFoundError, UnreachableError

Answer = Callable[[int], tuple[int, dict[str, str], bytes]]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """A server that gives these answers to the first, second, ... request."""
    count = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal count
            count += 1
            status, headers, body = answer(count)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the name is the base class's

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_an_answer_that_got_lost_makes_no_second_job(room: StandIn, url: str) -> None:
    with Proxy(url) as proxy, ArylClient(proxy.url) as client:
        proxy.answers_to_drop = 2
        assert client.submit(job_file()).job_id == "resnet-1"
        assert proxy.connections == 3
    assert list(room.all_jobs) == ["resnet-1"]


def test_what_would_be_done_twice_is_not_sent_again(room: StandIn, url: str) -> None:
    with Proxy(url) as proxy, ArylClient(proxy.url) as client:
        proxy.answers_to_drop = 1
        with pytest.raises(LostAnswerError):
            client.give("I1")
        assert len(room.lent) == 1
        assert proxy.connections == 1


def test_nobody_at_the_address_is_unreachable() -> None:
    with ArylClient(unused_address(), retries=1) as client:
        for ask in (client.servers, lambda: next(client.events()), client.health, lambda: client.wait("a-1")):
            with pytest.raises(UnreachableError, match="can't be reached"):
                ask()


def test_a_server_that_does_not_answer_in_time_is_unreachable(room: StandIn, url: str) -> None:
    room.slow_s = 1.0
    with ArylClient(url, timeout_s=0.2) as client, pytest.raises(UnreachableError, match="no answer in time"):
        client.submit(job_file())


def test_a_server_that_is_busy_is_asked_again() -> None:
    def busy_twice(count: int) -> tuple[int, dict[str, str], bytes]:
        return (503, {"Retry-After": "0"}, b"") if count < 3 else (200, {}, b'{"servers": []}')

    with answering(busy_twice) as url, ArylClient(url) as client:
        assert client.servers() == []
    with answering(busy_twice) as url, ArylClient(url, retries=1) as client, pytest.raises(UnreachableError):
        client.servers()
    with answering(busy_twice) as url, ArylClient(url) as client, pytest.raises(UnreachableError):
        client.give("I1")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (302, ArylError),
        (400, InputError),
        (401, NotAllowedError),
        (403, NotAllowedError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, InputError),
        (422, InputError),
        (500, ArylError),
        (502, UnreachableError),
        (504, UnreachableError),
        (599, ArylError),
    ],
)
def test_the_status_alone_decides_where_a_proxy_answers(status: int, error: type[ArylError]) -> None:
    page = b"<html>not for machines</html>"
    with answering(lambda _: (status, {}, page)) as url, ArylClient(url, retries=0) as client:
        with pytest.raises(error) as wrong:
            client.servers()
        assert type(wrong.value) is error
        assert str(status) in str(wrong.value)


def test_a_problem_names_the_nearest_word() -> None:
    fault = b'{"message": "", "nearest": "y-1"}'
    body = b'{"title": "Not found", "status": 404, "detail": "no job x", "faults": [%s]}' % fault
    with (
        answering(lambda _: (404, {}, body)) as url,
        ArylClient(url) as client,
        pytest.raises(NotFoundError, match="no job x; did you mean 'y-1'"),
    ):
        client.job("x")


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"", b'{"jobs": 1}'])
def test_an_answer_from_something_else_is_said_to_be_one(body: bytes) -> None:
    with (
        answering(lambda _: (200, {}, body)) as url,
        ArylClient(url) as client,
        pytest.raises(ArylError, match="not as an Aryl server does"),
    ):
        client.servers()


def test_events_go_on_after_a_broken_connection_without_a_gap(room: StandIn) -> None:
    for _ in range(3):
        room.happen("Submitted")
    seen: list[ServerEvent] = []
    with serving(room) as url, Proxy(url) as proxy, ArylClient(proxy.url) as client:
        for event in client.events(after=-1):
            seen.append(event)
            if event.sequence in (2, 4):
                proxy.cut()
                room.happen("Started", job_id=None)
                room.happen("Finished")
            if event.sequence == 6:
                break
        assert proxy.connections == 3
    assert [event.sequence for event in seen] == list(range(7))
    assert [event.kind for event in seen[2:5]] == ["Submitted", "Started", "Finished"]
    assert seen[3].data["seq"] == 3


def test_events_begin_where_they_are_asked_to(room: StandIn) -> None:
    for _ in range(5):
        room.happen("Submitted")
    coming: list[ServerEvent] = []
    with serving(room) as url, ArylClient(url) as client:
        assert next(client.events(after=2)).sequence == 3
        events = client.events()
        thread = threading.Thread(target=lambda: coming.append(next(events)))
        thread.start()
        while not coming:
            room.happen("Finished")
            time.sleep(0.05)
        thread.join()
        events.close()
    assert coming[0].sequence >= 5


def test_only_whole_events_count() -> None:
    whole = b'id: 1\r\nevent: A\r\ndata: {"a":\r\ndata: 1}\r\n\r\n'
    others = b"id: x\ndata: 1\n\nid: 3\ndata: no JSON\n\nid: 4\ndata: 4"
    lines = (b"retry: 1\n\n: hello\n\n" + whole + others).split(b"\n")
    assert list(parse_events(lines)) == [ServerEvent(1, "A", {"a": 1})]


def test_a_log_is_followed_across_broken_connections(room: StandIn, url: str) -> None:
    job_id = room.add("resnet", state=JobState.RUNNING, attempt=1)
    room.say(job_id, "old\n", attempt=0)
    room.say(job_id, "one\ntw", attempt=1)
    seen: list[str] = []
    with Proxy(url) as proxy, ArylClient(proxy.url) as client:
        for line in client.logs(job_id, follow=True):
            seen.append(line)
            if line == "one":
                proxy.cut()
                room.say(job_id, "o\nthree\n", attempt=1)
            if line == "three":
                room.say(job_id, "the end", attempt=1)
                room.change(job_id, state=JobState.SUCCEEDED)
    assert seen == ["one", "two", "three", "the end"]


def test_the_tail_of_a_log_is_followed_across_broken_connections(room: StandIn, url: str) -> None:
    job_id = room.add("resnet", state=JobState.RUNNING)
    room.say(job_id, "".join(f"line {number}\n" for number in range(1000)))
    seen: list[str] = []
    with Proxy(url) as proxy, ArylClient(proxy.url) as client:
        for line in client.logs(job_id, follow=True, tail=2):
            seen.append(line)
            if line == "line 999":
                room.say(job_id, "line 1000\n")
            if line == "line 1000":
                proxy.cut()
                room.say(job_id, "line 1001\n")
                room.change(job_id, state=JobState.FAILED)
    assert seen == ["line 998", "line 999", "line 1000", "line 1001"]


def test_a_follower_waits_for_the_first_line_and_survives_a_restart(room: StandIn) -> None:
    job_id = room.add("resnet")
    seen: list[str] = []

    def follow(url: str) -> None:
        with ArylClient(url) as client:
            seen.extend(client.logs(job_id, follow=True))

    with serving(room) as url:
        thread = threading.Thread(target=follow, args=(url,))
        thread.start()
        room.change(job_id, state=JobState.RUNNING)
        time.sleep(0.2)
        room.say(job_id, "before\n")
    room.say(job_id, "while away\n")
    with serving(room, port=int(url.rpartition(":")[2])):
        room.say(job_id, "after\n")
        room.change(job_id, state=JobState.SUCCEEDED)
        thread.join(60)
    assert not thread.is_alive()
    assert seen == ["before", "while away", "after"]


def test_wait_tells_of_changes_and_ends_with_the_last_job(room: StandIn, client: ArylClient) -> None:
    first, second = room.add("resnet"), room.add("bert", state=JobState.RUNNING)
    told: list[tuple[str, JobState]] = []

    def finish() -> None:
        eventually(lambda: len(told) == 2)
        room.change(first, state=JobState.FAILED)
        eventually(lambda: len(told) == 3)
        room.change(second, state=JobState.SUCCEEDED)

    thread = threading.Thread(target=finish)
    thread.start()
    ended = client.wait(
        [second, first, second], 60, on_change=lambda job: told.append((job.job_id, job.state))
    )
    thread.join()
    assert [job.state for job in ended] == [JobState.SUCCEEDED, JobState.FAILED, JobState.SUCCEEDED]
    assert [state for job_id, state in told if job_id == first] == [JobState.PENDING, JobState.FAILED]


def test_wait_times_out_and_says_for_what_it_waited(room: StandIn, client: ArylClient) -> None:
    job_id, over = room.add("resnet"), room.add("bert", state=JobState.SUCCEEDED)
    with pytest.raises(
        WaitTimeoutError, match=rf"after 0.3 s; still waiting for {job_id} \(PENDING\)$"
    ) as late:
        client.wait([job_id, over], timeout_s=0.3)
    assert late.value.exit_code == 124
    assert client.wait(job_id, 0, until=[JobState.PENDING])[0].state is JobState.PENDING
    assert client.wait(over, 0, until=[JobState.RUNNING])[0].state is JobState.SUCCEEDED
    with pytest.raises(NotFoundError):
        client.wait("nobody-1")


def test_wait_bears_a_restart_but_not_for_ever(room: StandIn) -> None:
    job_id = room.add("resnet")
    ended: list[JobState] = []
    with serving(room) as url:
        port = int(url.rpartition(":")[2])
        client = ArylClient(url, retries=0, outage_s=120)
        looked = threading.Event()
        thread = threading.Thread(
            target=lambda: ended.extend(
                job.state for job in client.wait(job_id, on_change=lambda _: looked.set())
            )
        )
        thread.start()
        assert looked.wait(60)
    room.change(job_id, state=JobState.SUCCEEDED)
    with serving(room, port=port):
        thread.join(60)
    client.close()
    assert ended == [JobState.SUCCEEDED]

    job_id = room.add("bert")
    with serving(room) as url:
        stopped = threading.Event()
        failed: list[ArylError] = []

        def wait() -> None:
            with ArylClient(url, retries=0, outage_s=0.2) as impatient:
                try:
                    impatient.wait(job_id, on_change=lambda _: stopped.set())
                except ArylError as error:
                    failed.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert stopped.wait(60)
    thread.join(60)
    assert [type(error) for error in failed] == [UnreachableError]
