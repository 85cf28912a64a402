"""The journal: what is written comes back as it was, and what isn't a journal is refused with its line."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from aryl.core import events as ev
from aryl.core.model import Accounting, Health, Hosting, JobSpec, Pool, ServerSpec, Slot
from aryl.core.plan import (
    Cause,
    Claim,
    Launch,
    Loan,
    Plan,
    Reclaim,
    Release,
    Reserve,
    Resize,
    Return,
    Step,
    Stop,
    Weighed,
)
from aryl.core.speedup import Amdahl, Points
from aryl.errors import InputError
from aryl.scheduler.journal import FileJournal, MemoryJournal, from_lines, to_line

SLOTS = (Slot("T1", 2, 1, 4), Slot("I1", 0, 3, 8))
STEPS: tuple[Step, ...] = (
    Launch("A", 1, SLOTS),
    Resize("A", 1, 2, SLOTS, (), Cause.GROWTH),
    Stop("A", 1, Cause.RECLAIM, True, "I1 I2", (Weighed("I1", 0.5), Weighed("I2", 1.0)), 3),
    Reserve(Claim(7, "B", SLOTS, Cause.PRIORITY)),
    Release(7, Cause.WITHDRAWN),
    Loan("I1"),
    Reclaim("I1", float("inf"), (Weighed("I1", 2.0),)),
    Return("I1"),
)
JOB = JobSpec(
    "A",
    3,
    1.5,
    2,
    8,
    2,
    (2, 4, 8),
    None,
    -1,
    "ada",
    "vision",
    "resnet",
    (("V100", 1.0), ("T4", 0.33)),
    True,
    True,
    0.7,
    15.0,
    Points(((2, 2.0), (4, 3.0))),
    3,
)
EVENTS: tuple[ev.Event, ...] = (
    ev.ClusterDeclared(
        0.0,
        (ServerSpec("T1", Pool.TRAINING, "V100", 8), ServerSpec("I1", Pool.INFERENCE, "T4", 8, 0.33)),
        Accounting.SLOWER,
        1.0,
        2.0,
        3.0,
        4,
        5.0,
        (("vision", 8),),
        True,
        True,
        360.0,
        1,
        6,
    ),
    ev.ServersJoined(0.5, (ServerSpec("T2", Pool.TRAINING, "A100", 4, 2.0),)),
    ev.Submitted(1.0, JOB),
    ev.Submitted(1.0, JobSpec("B", 4, 1.0, 1, 1, speedup=Amdahl(0.25))),
    ev.Refused(1.0, "C", "too large"),
    ev.CancelRequested(2.0, "A"),
    ev.LimitsChanged(2.0, "A", 2, 4),
    ev.Launched(3.0, "A", 1),
    ev.Resized(3.0, "A", 1, 2),
    ev.Vacated(3.0, "A", 1, SLOTS),
    ev.Stopped(3.0, "A", 1, 0.1 + 0.2),
    ev.Finished(4.0, "A", 1),
    ev.Failed(4.0, "A", 1, "out of memory"),
    ev.Crashed(4.0, "A", 1, 2.5, "exit 1"),
    ev.WorkersDone(4.0, "A", 1, SLOTS),
    ev.WorkerReplaced(4.0, "A", 1, "T1", "signal 9"),
    ev.Stalled(4.0, "A", 1),
    ev.Learned(4.0, "A", 1, 3.5, 3.0, 60.0, Amdahl(0.25)),
    ev.Learned(4.0, "A", 1, 3.5, 3.0, None, Points(((1, 1.0), (2, 1.5)))),
    ev.Learned(4.0, "A", 1, 3.5, 3.0),
    ev.ServerLost(5.0, "T1"),
    ev.ServerReturned(5.0, "T1"),
    ev.ServerDrained(5.0, "T1", True),
    ev.ServerDrained(5.0, "T1", True, 900.0),
    *(ev.HealthChanged(5.0, "T1", health) for health in Health),
    ev.HandedOver(5.0, "I1"),
    ev.BackInService(5.0, "I1"),
    ev.LoanCalledOff(5.0, "I1", "three streams are still open"),
    ev.GiveRequested(5.0, "I1"),
    ev.ReclaimRequested(5.0, "I1", 600.0),
    ev.TelemetryLost(5.0),
    ev.DemandReported(6.0, 1.5, 2.5),
    ev.DemandReported(6.0, 1.5, 2.5, 0.5, (Hosting("I1", (2, 1)), Hosting("I2", ())), 5.0),
    ev.NeedChanged(6.0, 2.0),
    ev.LendingLimited(6.0, 3),
    ev.LendingLimited(6.0, None),
    ev.Tick(7.0),
    ev.PlanCommitted(8.0, Plan(STEPS)),
)


def test_every_kind_of_event_and_step_comes_back_as_it_was() -> None:
    assert {type(event) for event in EVENTS} == set(ev.Event.__args__)
    assert {type(step) for step in STEPS} == set(Step.__args__)
    lines = [to_line(event, number) for number, event in enumerate(EVENTS)]
    assert tuple(from_lines(lines, "journal")) == EVENTS


def _without(event: ev.Event, *keys: str) -> str:
    """The line of an event as a version wrote it that didn't know these keys, wherever they stand."""

    def older(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: older(part) for key, part in value.items() if key not in keys}
        return [older(part) for part in value] if isinstance(value, list) else value

    return json.dumps(older(json.loads(to_line(event, 0))))


@pytest.mark.parametrize(
    ("event", "keys"),
    [
        (ev.ClusterDeclared(0.0, ()), ("confirms_loans",)),
        (ev.Submitted(1.0, JobSpec("B", 4, 1.0, 1, 1)), ("max_failures",)),
        (ev.ServerDrained(5.0, "T1", True), ("deadline_s",)),
        (ev.Failed(4.0, "A", 1), ("reason",)),
        (ev.Crashed(4.0, "A", 1, 2.5), ("reason",)),
        (ev.Learned(4.0, "A", 1, 3.5, 3.0), ("estimate_s", "speedup")),
        (ev.LoanCalledOff(5.0, "I1"), ("reason",)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_key_that_came_later_than_the_journal_reads_as_its_default(
    event: ev.Event, keys: tuple[str, ...]
) -> None:
    line = _without(event, *keys)
    assert all(key not in line for key in keys)
    assert list(from_lines([line], "journal")) == [event]


def test_a_key_that_an_event_never_did_without_may_not_be_missing() -> None:
    with pytest.raises(InputError, match="not a Crashed event"):
        list(from_lines([_without(ev.Crashed(4.0, "A", 1, 2.5), "kept_s")], "journal"))


def test_a_line_is_one_json_object_with_time_number_and_type_first() -> None:
    line = to_line(ev.Launched(12.0, "a", 1), 7)
    assert line == '{"at":12.0,"seq":7,"type":"Launched","job_id":"a","attempt":1}\n'


def test_infinity_is_written_as_a_word_since_json_has_none() -> None:
    line = to_line(ev.PlanCommitted(0.0, Plan((Reclaim("I1", float("inf")),))), 0)
    assert json.loads(line)["plan"]["steps"][0]["deadline_s"] == "inf"


def test_a_file_journal_writes_what_a_memory_journal_keeps() -> None:
    file, memory = io.StringIO(), MemoryJournal()
    written = FileJournal(file)
    for event in EVENTS:
        written.append(event)
        memory.append(event)
    assert list(from_lines(file.getvalue().splitlines(), "journal")) == memory.events == list(EVENTS)


def _line(**changes: Any) -> str:
    return json.dumps({"at": 1.0, "seq": 1, "type": "Finished", "job_id": "a", "attempt": 1, **changes})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "not a line of a journal"),
        ("[1, 2]", "not a line of a journal"),
        ('{"at": 1.0}', "not a line of a journal"),
        (_line(type="Finishd"), r"unknown event \(found 'Finishd'\); did you mean 'Finished'"),
        (_line(seq=5), r"the journal has a gap \(found 5\); expected 1"),
        (_line(at="soon"), "not a Finished event"),
        ('{"at": 1.0, "seq": 1, "type": "Finished", "job_id": "a"}', "not a Finished event"),
        (
            '{"at": 1.0, "seq": 1, "type": "PlanCommitted", "plan": {"steps": [{"type": "Nap"}]}}',
            "not a Plan",
        ),
    ],
)
def test_what_isnt_a_journal_is_refused_with_its_line(line: str, words: str) -> None:
    good = to_line(ev.Tick(0.0), 0)
    with pytest.raises(InputError, match=rf"j\.jsonl, line 2.*{words}"):
        list(from_lines([good, line], "j.jsonl"))
