"""Logs over REST: whole, from the end, by attempt and rank, and as they grow."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import httpx
import pytest
from tests.live.api.asking import Api, problem_of
from tests.live.api.plain_control import PlainControl

from aryl.core.model import JobState
from aryl.live.api import ApiServer, Settings, make_app
from aryl.live.store import Store

LARGE = b"".join(b"line %06d\n" % number for number in range(30_000))


def test_a_large_log_comes_whole_and_as_plain_text(api: Api, control: PlainControl) -> None:
    job_id = api.submit("ada")
    control.log(job_id, 1, 0).write_bytes(LARGE + b"\xff\x00 not text")
    answer = api.get("ada", f"/v1/jobs/{job_id}/logs")
    assert answer.content == LARGE + b"\xff\x00 not text"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("content", "lines", "expected"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\n", 5, b"a\nb\n"),
        (b"a\nb\n", 2, b"a\nb\n"),
        (b"a\n\n\n", 2, b"\n\n"),
        (b"\n", 1, b"\n"),
        (b"a", 0, b""),
        (b"", 3, b""),
        (LARGE, 20_000, LARGE[-20_000 * 12 :]),
        (b"x" * 200_000 + b"\ny\n", 1, b"y\n"),
        (b"x" * 200_000, 1, b"x" * 200_000),
        (b"z\n" + b"x" * (64 * 1024 - 1) + b"\n", 1, b"x" * (64 * 1024 - 1) + b"\n"),
    ],
)
def test_the_tail_is_the_last_lines(
    api: Api, control: PlainControl, content: bytes, lines: int, expected: bytes
) -> None:
    job_id = api.submit("ada")
    control.log(job_id, 1, 0).write_bytes(content)
    assert api.get("ada", f"/v1/jobs/{job_id}/logs", params={"tail": lines}).content == expected


def test_the_last_attempt_is_shown_unless_another_is_named(api: Api, control: PlainControl) -> None:
    job_id = api.submit("ada")
    for attempt in (1, 2, 10):
        control.log(job_id, attempt, 0).write_text(f"attempt {attempt}")
    control.log(job_id, 2, 1).write_text("another rank")
    assert api.get("ada", f"/v1/jobs/{job_id}/logs").text == "attempt 10"
    assert api.get("ada", f"/v1/jobs/{job_id}/logs?attempt=2&rank=1").text == "another rank"


def test_a_log_that_is_not_there_says_which_are(api: Api, control: PlainControl) -> None:
    job_id = api.submit("ada")
    path = f"/v1/jobs/{job_id}/logs"
    assert "printed nothing" in problem_of(api.get("ada", path), 404)["detail"]
    assert "none" in problem_of(api.get("ada", f"{path}?attempt=1"), 404)["detail"]
    assert api.get("ada", f"/v1/jobs/{job_id}/attempts").json() == []
    for attempt, rank in ((1, 0), (1, 1), (1, 2), (1, 3), (3, 0)):
        control.log(job_id, attempt, rank)
    assert "there are 1, 3" in problem_of(api.get("ada", f"{path}?attempt=2"), 404)["detail"]
    assert "there are 0 to 3" in problem_of(api.get("ada", f"{path}?attempt=1&rank=9"), 404)["detail"]
    assert "there are 0" in problem_of(api.get("ada", f"{path}?rank=1"), 404)["detail"]


@pytest.mark.parametrize(
    "query", ["attempt=-1", "rank=-1", "tail=-1", "tail=100001", "rank=x", "follow=perhaps"]
)
def test_wrong_questions_about_logs_are_named(api: Api, query: str) -> None:
    job_id = api.submit("ada")
    assert problem_of(api.get("ada", f"/v1/jobs/{job_id}/logs?{query}"), 422)["faults"]


def test_nothing_but_plain_files_is_ever_read(api: Api, control: PlainControl, tmp_path: Path) -> None:
    job_id = api.submit("ada")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    link, pipe, gone = (control.log(job_id, 1, rank) for rank in range(3))
    link.unlink()
    link.symlink_to(secret)
    pipe.unlink()
    os.mkfifo(pipe)
    gone.unlink()
    gone.symlink_to(tmp_path / "nowhere")
    for rank in range(3):
        for follow in ("false", "true"):
            answer = api.get(
                "ada", f"/v1/jobs/{job_id}/logs", params={"rank": rank, "attempt": 1, "follow": follow}
            )
            problem_of(answer, 404)


class Follower:
    """Follows a log over a real connection, in a thread."""

    def __init__(self, served: ApiServer, token: str, job_id: str, query: str = "") -> None:
        self.text = b""
        self._changed = threading.Condition()
        self._url = f"{served.url}/v1/jobs/{job_id}/logs?follow=true{query}"
        self._headers = {"Authorization": f"Bearer {token}"}
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def wait_for(self, text: bytes) -> None:
        """Until the log ends like this."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.text.endswith(text), 60), self.text

    def ends(self) -> bytes:
        """All of it, once it is over."""
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.text

    def _read(self) -> None:
        with httpx.stream("GET", self._url, headers=self._headers, timeout=60) as answer:
            for piece in answer.iter_raw():
                with self._changed:
                    self.text += piece
                    self._changed.notify_all()


@pytest.fixture
def job_id(control: PlainControl, served: ApiServer, tokens: dict[str, str]) -> str:
    answer = httpx.post(
        f"{served.url}/v1/jobs",
        json={"name": "n", "run": "true", "workdir": "/srv"},
        headers={"Authorization": f"Bearer {tokens['ada']}"},
    )
    found: str = answer.json()["job_id"]
    return found


def test_a_log_is_followed_until_the_job_is_over(
    control: PlainControl, served: ApiServer, tokens: dict[str, str], job_id: str
) -> None:
    path = control.log(job_id, 1, 0)
    path.write_bytes(b"old\nbegin\n")
    control.change(job_id, state=JobState.RUNNING)
    follower = Follower(served, tokens["ada"], job_id, "&tail=1")
    follower.wait_for(b"begin\n")
    with path.open("ab") as file:
        file.write(b"more\n")
    follower.wait_for(b"more\n")
    with path.open("ab") as file:
        file.write(b"last words\n")
    control.change(job_id, state=JobState.SUCCEEDED)
    assert follower.ends() == b"begin\nmore\nlast words\n"


def test_a_follower_goes_on_with_the_next_attempt(
    control: PlainControl, served: ApiServer, tokens: dict[str, str], job_id: str
) -> None:
    follower = Follower(served, tokens["ada"], job_id)
    control.log(job_id, 1, 0).write_bytes(b"first\n")
    follower.wait_for(b"first\n")
    control.log(job_id, 2, 1).write_bytes(b"not this rank\n")
    control.log(job_id, 3, 0).write_bytes(b"third\n")
    follower.wait_for(b"third\n")
    only_first = Follower(served, tokens["ada"], job_id, "&attempt=1")
    assert only_first.ends() == b"first\n"
    control.change(job_id, state=JobState.FAILED)
    assert follower.ends() == b"first\nthird\n"


def test_a_job_that_never_ran_has_an_empty_log_to_follow(
    control: PlainControl, served: ApiServer, tokens: dict[str, str], job_id: str
) -> None:
    control.change(job_id, state=JobState.CANCELLED)
    assert Follower(served, tokens["ada"], job_id).ends() == b""


def test_only_so_many_streams_at_once_and_each_gives_its_place_back(
    control: PlainControl, store: Store, tokens: dict[str, str]
) -> None:
    server = ApiServer(make_app(control, store, Settings(most_streams=1, poll_s=0.02)), "127.0.0.1", 0)
    server.start()
    headers = {"Authorization": f"Bearer {tokens['root']}"}
    try:
        body = {"name": "n", "run": "true", "workdir": "/srv"}
        job_id = httpx.post(f"{server.url}/v1/jobs", json=body, headers=headers).json()["job_id"]
        control.log(job_id, 1, 0).write_bytes(b"begin\n")
        url = f"{server.url}/v1/jobs/{job_id}/logs"
        with httpx.stream("GET", f"{url}?follow=true", headers=headers, timeout=60) as answer:
            pieces = answer.iter_raw()
            assert next(pieces) == b"begin\n"
            refused = httpx.get(url, headers=headers)
            assert problem_of(refused, 503)["type"].endswith("unavailable")
            assert refused.headers["retry-after"]
        for _ in range(1000):
            if httpx.get(url, headers=headers).status_code == 200:
                break
            time.sleep(0.02)
        else:
            pytest.fail("the place was never given back")
    finally:
        server.stop()
