"""Runs in several processes: the same results in the same order, and no process left over."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import pytest

from aryl.cli.parallel import Progress, Task, run_all
from aryl.errors import ArylError, InputError
from aryl.sim.experiment_file import experiment_from_mapping

EXPERIMENT = experiment_from_mapping(
    {"cluster": {"training": {"servers": 1}}, "jobs": [{"id": "A", "workers": 1, "duration": 9}]}
)


def tasks(*policies: str) -> list[Task]:
    return [Task(policy, EXPERIMENT, policy) for policy in policies]


def halfway(task: Task, report: Progress) -> str:
    report(0.5, "half")
    return f"{task.policy} on {task.experiment.name}"


def first_is_slow(task: Task, report: Progress) -> str:
    time.sleep(0.3 if task.policy == "a" else 0.0)
    return task.policy.upper()


def bad_input(task: Task, report: Progress) -> str:
    if task.policy == "b":
        raise InputError("wrong value", file="jobs.csv", line=7, found=-3)
    time.sleep(30)
    return task.policy


def killed(task: Task, report: Progress) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return task.policy


def slow(task: Task, report: Progress) -> str:
    report(0.5, "half")
    time.sleep(30)
    return task.policy


def test_results_do_not_depend_on_the_number_of_processes() -> None:
    some = tasks("fifo", "sjf", "aryl")
    reports: list[tuple[int, float, str]] = []
    alone = run_all(some, 1, lambda *_: None, halfway)
    together = run_all(some, 2, lambda *report: reports.append(report), halfway)
    assert together == alone == [f"{policy} on experiment" for policy in ("fifo", "sjf", "aryl")]
    assert sorted(reports) == [(0, 0.5, "half"), (1, 0.5, "half"), (2, 0.5, "half")]


def test_results_come_in_the_order_of_the_tasks_whichever_is_done_first() -> None:
    assert run_all(tasks("a", "b", "c", "d"), 2, lambda *_: None, first_is_slow) == ["A", "B", "C", "D"]
    assert multiprocessing.active_children() == []


def test_an_error_in_one_run_ends_the_others_and_is_told_as_it_was() -> None:
    started = time.monotonic()
    with pytest.raises(InputError, match=r"^jobs\.csv, line 7: wrong value \(found -3\)$"):
        run_all(tasks("a", "b"), 2, lambda *_: None, bad_input)
    assert time.monotonic() - started < 20
    assert multiprocessing.active_children() == []


def test_a_process_that_dies_is_an_error_with_a_name() -> None:
    with pytest.raises(
        ArylError, match=r"the process of [ab] ended before its run did \(SIGKILL\).*--jobs-in-parallel"
    ):
        run_all(tasks("a", "b"), 2, lambda *_: None, killed)
    assert multiprocessing.active_children() == []


def test_an_interrupt_ends_all_processes() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_all(tasks("a", "b"), 2, interrupt, slow)
    assert time.monotonic() - started < 20
    assert multiprocessing.active_children() == []
