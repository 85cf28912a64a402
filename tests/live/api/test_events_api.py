"""Events over real connections: in order, resumable, and for the right eyes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import anyio
import httpx
import pytest
from tests.live.api.asking import Api, problem_of
from tests.live.api.plain_control import PlainControl

from aryl.core import events as ev
from aryl.core.model import JobSpec, Slot
from aryl.core.plan import Cause, Claim, Launch, Loan, Plan, Reserve, Stop, Weighed
from aryl.errors import UnreachableError
from aryl.live.api import ApiServer
from aryl.live.api.feed import MOST_SHARED, Feed
from aryl.live.store import JournalLine, NewJob, Store


class Told(NamedTuple):
    number: int
    kind: str
    data: Any


class Listener:
    """One open stream."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.comments = 0
        self._lines = answer.iter_lines()

    def next(self) -> Told:
        """The next event."""
        fields: dict[str, str] = {}
        for line in self._lines:
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                return Told(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            else:
                fields.clear()
        raise EOFError

    def wait_for_comment(self) -> None:
        """Until the server says that it is still there."""
        for line in self._lines:
            if line.startswith(":"):
                return


@contextmanager
def listening(served: ApiServer, token: str, query: str = "", last: int | None = None) -> Iterator[Listener]:
    headers = {"Authorization": f"Bearer {token}"}
    if last is not None:
        headers["Last-Event-ID"] = str(last)
    with httpx.stream("GET", f"{served.url}/v1/events{query}", headers=headers, timeout=60) as answer:
        assert answer.status_code == 200, answer.read()
        yield Listener(answer)


def accept(store: Store, name: str, project: str) -> str:
    new = NewJob(name, project, "u", "{}", 1, 1, 1)
    return store.accept(new, "u", None, "", 1_000.0)[0].job_id


def submitted(control: PlainControl, name: str, project: str) -> str:
    job_id = accept(control.store, name, project)
    control.journal(ev.Submitted(1.0, JobSpec(job_id, 1, 1.0, 1, 1, project=project)))
    return job_id


def test_events_come_in_order_as_they_happen(
    control: PlainControl, served: ApiServer, tokens: dict[str, str]
) -> None:
    job_id = submitted(control, "a", "vision")
    with listening(served, tokens["root"]) as listener:
        assert listener.answer.headers["content-type"].startswith("text/event-stream")
        first = listener.next()
        assert (first.number, first.kind, first.data["job"]["job_id"]) == (0, "Submitted", job_id)
        for attempt in range(1, 4):
            control.journal(ev.Launched(2.0, job_id, attempt))
            told = listener.next()
            assert (told.number, told.kind, told.data["attempt"]) == (attempt, "Launched", attempt)


def test_a_listener_resumes_where_it_was(
    control: PlainControl, served: ApiServer, tokens: dict[str, str]
) -> None:
    control.journal(*[ev.Tick(float(number)) for number in range(600)])  # more than a batch
    with listening(served, tokens["root"]) as listener:
        assert [listener.next().number for _ in range(600)] == list(range(600))
    with listening(served, tokens["root"], last=597) as listener:
        assert [listener.next().number for _ in range(2)] == [598, 599]
    with listening(served, tokens["root"], "?after=598") as listener:
        assert listener.next().number == 599
    with listening(served, tokens["root"], "?after=3", last=598) as listener:
        assert listener.next().number == 599
    with listening(served, tokens["root"], "?after=now") as listener:
        control.journal(ev.Tick(600.0))
        assert listener.next().number == 600


@pytest.mark.parametrize("query", ["?after=-2", "?after=x", "?after=99999999999999999999", "?after=1.5"])
def test_a_wrong_point_to_start_at_is_named(api: Api, query: str) -> None:
    problem_of(api.get("root", f"/v1/events{query}"), 422)


@pytest.mark.parametrize("last", ["", "x", "-1", "9" * 19, "1" * 30, "\N{SUPERSCRIPT TWO}", "١"])
def test_a_wrong_last_event_is_named(api: Api, last: str) -> None:
    problem_of(api.get("root", "/v1/events", headers={"Last-Event-ID": last.encode()}), 422)


def test_a_quiet_stream_shows_that_it_is_there(served: ApiServer, tokens: dict[str, str]) -> None:
    with listening(served, tokens["ada"]) as listener:
        listener.wait_for_comment()


def test_a_project_hears_of_its_own_jobs_only(
    control: PlainControl, served: ApiServer, tokens: dict[str, str]
) -> None:
    control.journal(ev.ServerLost(0.0, "T1"))
    secret = submitted(control, "secret", "speech")
    mine = submitted(control, "mine", "vision")
    control.journal(ev.Launched(2.0, secret, 1))
    control.journal(ev.Launched(2.0, mine, 1))
    with listening(served, tokens["vic"]) as listener:
        assert [listener.next()[:2] for _ in range(2)] == [(2, "Submitted"), (4, "Launched")]
    with listening(served, tokens["olga"]) as listener:
        assert [listener.next().number for _ in range(3)] == [0, 2, 4]
    with listening(served, tokens["ola"]) as listener:
        assert [listener.next().number for _ in range(5)] == [0, 1, 2, 3, 4]


def test_of_a_plan_a_project_sees_its_own_steps_without_other_names(
    control: PlainControl, served: ApiServer, tokens: dict[str, str]
) -> None:
    mine, secret = accept(control.store, "mine", "vision"), accept(control.store, "secret", "speech")
    slots = (Slot("T1", 1, 0, 1),)
    weighed = (Weighed(mine, 1.0), Weighed(secret, 2.0))
    control.journal(
        ev.PlanCommitted(
            1.0,
            Plan(
                (
                    Stop(mine, 1, Cause.PRIORITY, save=True, beneficiary=secret, weighed=weighed),
                    Stop(
                        secret, 1, Cause.RECLAIM, save=True, beneficiary="I1", weighed=(Weighed("I1", 3.0),)
                    ),
                    Reserve(Claim(1, secret, slots, Cause.PRIORITY)),
                    Loan("I1"),
                )
            ),
        )
    )
    control.journal(ev.PlanCommitted(2.0, Plan((Launch(secret, 2, slots),))))
    control.journal(ev.PlanCommitted(3.0, Plan((Reserve(Claim(2, mine, slots, Cause.GROWTH)),))))
    with listening(served, tokens["ada"]) as listener:
        first, second = listener.next(), listener.next()
    assert (first.number, second.number) == (0, 2)
    (stop,) = first.data["plan"]["steps"]
    assert (stop["job_id"], stop["cause"], stop["beneficiary"]) == (mine, "priority", None)
    assert stop["weighed"] == [[mine, 1.0], [None, 2.0]]
    assert second.data["plan"]["steps"][0]["claim"]["job_id"] == mine
    assert secret not in json.dumps([first, second])
    with listening(served, tokens["olga"]) as listener:
        assert [step["type"] for step in listener.next().data["plan"]["steps"]] == ["Stop", "Loan"]
    with listening(served, tokens["root"]) as listener:
        assert len(listener.next().data["plan"]["steps"]) == 4


def test_streams_end_when_the_server_stops(
    control: PlainControl, served: ApiServer, tokens: dict[str, str]
) -> None:
    ended = threading.Event()
    with listening(served, tokens["root"]) as listener:
        listener.wait_for_comment()
        stopper = threading.Thread(target=served.stop)
        stopper.start()
        with pytest.raises(EOFError):
            listener.next()
        ended.set()
    stopper.join(60)
    assert not stopper.is_alive()
    assert ended.is_set()


def test_a_listener_that_reads_nothing_holds_up_nobody(
    control: PlainControl, served: ApiServer, tokens: dict[str, str]
) -> None:
    job_id = "x" * 20_000  # enough to fill every buffer on the way
    control.journal(*[ev.CancelRequested(1.0, job_id)] * 400)
    with listening(served, tokens["root"]), listening(served, tokens["root"]):
        with listening(served, tokens["root"]) as quick:
            assert [quick.next().number for _ in range(400)] == list(range(400))
        answer = httpx.get(f"{served.url}/v1/whoami", headers={"Authorization": f"Bearer {tokens['ada']}"})
        assert answer.status_code == 200


def test_a_database_that_is_away_for_a_moment_ends_no_stream(
    control: PlainControl, served: ApiServer, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(served, tokens["root"]) as listener:
        listener.wait_for_comment()
        asked = threading.Event()

        def away(after: int, limit: int) -> list[JournalLine]:
            asked.set()
            raise UnreachableError("away")

        monkeypatch.setattr(control.store, "lines", away)
        assert asked.wait(60)
        monkeypatch.undo()
        control.journal(ev.Tick(1.0))
        assert listener.next().number == 0


def test_many_listeners_at_one_point_ask_the_store_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [JournalLine(0, "{}", None)]
    asked: list[int] = []

    def lines(after: int, limit: int) -> list[JournalLine]:
        asked.append(after)
        return [line for line in written if line.sequence > after]

    monkeypatch.setattr(store, "lines", lines)
    now_s = 0.0
    feed = Feed(store, poll_s=1.0, clock=lambda: now_s)

    async def story() -> None:
        nonlocal now_s

        async def read(after: int, most: int) -> None:
            assert len(await feed.read(after)) == most

        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(read, -1, 1)
                group.start_soon(read, 0, 0)
        assert sorted(asked) == [-1, 0]
        await read(0, 0)
        now_s = 1.0
        written.append(JournalLine(1, "{}", None))
        await read(0, 1)
        assert sorted(asked) == [-1, 0, 0]
        for after in range(1, 200):
            await read(after, 0)
        assert len(feed._reads) == MOST_SHARED

    anyio.run(story)
