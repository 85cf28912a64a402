from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aryl.train import Environment
from aryl.train.reports import Reporter


class Ear:
    """The socket that reports come to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)

    def heard(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        while True:
            try:
                messages.append(json.loads(self.socket.recv(65_536)))
            except BlockingIOError:
                return messages


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    made = Ear(tmp_path / "reports")
    yield made
    made.socket.close()


def place(path: Path | str) -> Environment:
    return Environment(job_id="resnet-17", attempt=2, worker=3, report_socket=str(path))


def say(
    reporter: Reporter, step: int, *, saved: int | None = None, workers: int | None = 2, leader: bool = True
) -> bool:
    return reporter.report(step, total_steps=100, saved_step=saved, workers=workers, leader=leader)


def test_a_report_says_whose_it_is_and_how_far_the_job_is(ear: Ear) -> None:
    reporter = Reporter(place(ear.path))
    assert say(reporter, 5)
    reporter.close()
    assert ear.heard() == [
        {
            "job": "resnet-17",
            "attempt": 2,
            "rank": 3,
            "report": {"step": 5, "workers": 2, "total_steps": 100, "steps_per_s": 0.0},
        }
    ]


def test_reports_are_few_but_a_save_and_the_last_step_are_always_told(ear: Ear) -> None:
    reporter = Reporter(place(ear.path), every_s=3600.0)
    for step in range(1, 50):
        say(reporter, step)
    say(reporter, 50, saved=50)
    say(reporter, 100)
    reporter.close()
    assert [message["report"]["step"] for message in ear.heard()] == [1, 50, 100]


def test_speed_is_never_a_mixture_of_two_sizes(ear: Ear) -> None:
    reporter = Reporter(place(ear.path), every_s=0.0)
    say(reporter, 10)
    say(reporter, 11)
    say(reporter, 12, workers=4)
    say(reporter, 13, workers=4)
    reporter.close()
    reports = [message["report"] for message in ear.heard()]
    assert [report["steps_per_s"] > 0.0 for report in reports] == [False, True, False, True]


def test_a_save_is_told_with_the_number_of_workers_that_there_were_last(ear: Ear) -> None:
    reporter = Reporter(place(ear.path), every_s=0.0)
    say(reporter, 10, saved=10, workers=None)
    say(reporter, 11, workers=4)
    say(reporter, 12, workers=None, saved=12)
    reporter.close()
    assert [message["report"]["workers"] for message in ear.heard()] == [1, 4, 4]


def test_only_the_first_rank_tells_of_steps_but_whoever_saves_tells_of_that(ear: Ear) -> None:
    reporter = Reporter(place(ear.path))
    assert not say(reporter, 1, leader=False)
    assert say(reporter, 2, saved=2, leader=False)
    reporter.close()
    assert [message["report"]["saved_step"] for message in ear.heard()] == [2]


def test_telling_nobody_and_telling_one_who_is_gone_does_no_harm(tmp_path: Path) -> None:
    for path in ("", tmp_path / "nobody", tmp_path / ("long" * 100)):
        reporter = Reporter(place(path))
        assert not say(reporter, 1, saved=1)
        reporter.close()


def test_a_listener_that_does_not_read_blocks_nobody(ear: Ear) -> None:
    reporter = Reporter(place(ear.path), every_s=0.0)
    sent = [say(reporter, step) for step in range(5_000)]
    reporter.close()
    assert sent[0]
    assert not sent[-1]
