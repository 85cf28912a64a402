"""The files of a run: their text, their determinism, and that they appear whole or not at all."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aryl.errors import ArylError
from aryl.report.files import number, write_csv, write_run
from aryl.whole_files import write_whole

if TYPE_CHECKING:
    from tests.report.conftest import Drive

NAMES = ["demand.csv", "jobs.csv", "loans.csv", "report.html", "schedule.csv", "summary.json", "trace.json"]


def test_a_run_is_written_as_the_contract_says(told: Drive, tmp_path: Path) -> None:
    write_run(told.outcome(), tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    assert (folder / "jobs.csv").read_text() == (
        "job_id,submit_s,first_start_s,finish_s,state,attempts,preemptions,resizes,queuing_s,jct_s,gpu_s,lost_gpu_s,"
        "min_workers,max_workers,gpus_per_worker,duration_s,fungible,heterogeneous\n"
        "A,0,0,80,SUCCEEDED,1,0,2,0,80,460,0,4,8,1,100,false,false\n"
        "B,10,80,100,SUCCEEDED,1,0,0,70,90,160,0,8,8,1,100,false,false\n"
        "C,10,10,160,SUCCEEDED,2,1,0,30,150,720,200,4,4,1,100,true,false\n"
        "D,150,150,170,SUCCEEDED,1,0,0,0,20,20,0,1,1,1,100,false,false\n"
    )
    assert (folder / "schedule.csv").read_text() == (
        "job_id,attempt,server,pool,demand,workers,gpus,start_s,end_s\n"
        "A,1,T1,training,base,4,4,0,80\n"
        "C,1,I2,inference,base,4,8,10,70\n"
        "A,1,T1,training,flexible,4,4,20,55\n"
        "B,1,T1,training,base,8,8,80,100\n"
        "C,2,T1,training,base,4,4,100,160\n"
        "D,1,T1,training,base,1,1,150,170\n"
    )
    assert (folder / "loans.csv").read_text() == "server,lent_s,reclaim_s,returned_s\nI2,10,60,70\n"
    assert (folder / "demand.csv").read_text() == (
        "time_s,need_servers,forecast_servers,on_loan_servers,shortfall_servers\n"
        "0,1,1,0,0\n10,1,1,1,0\n60,2,2,1,1\n70,2,2,0,0\n"
    )
    assert json.loads((folder / "summary.json").read_text()) == {"runs": [told.outcome().summary()]}


def test_the_same_events_give_the_same_bytes(
    told: Drive, new_drive: Callable[..., Drive], tell: Callable[[Drive], None], tmp_path: Path
) -> None:
    again = new_drive(1, 2)
    tell(again)
    write_run(told.outcome(), tmp_path / "a")
    write_run(again.outcome(), tmp_path / "b")
    for name in NAMES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_a_run_in_which_nothing_happened_has_tables_without_rows(
    new_drive: Callable[..., Drive], tmp_path: Path
) -> None:
    write_run(new_drive(1).outcome(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES
    for name in ("jobs", "schedule", "loans", "demand"):
        assert (tmp_path / f"{name}.csv").read_text().count("\n") == 1


def test_an_outcome_without_a_schedule_is_not_written(
    new_drive: Callable[..., Drive], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="schedule=True"):
        write_run(new_drive(1, schedule=False).outcome(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_can_not_be_finished_leaves_the_old_one(tmp_path: Path) -> None:
    def breaks() -> Iterator[str]:
        yield "half"
        raise OSError("the disk is full")

    path = tmp_path / "jobs.csv"
    path.write_text("old")
    with pytest.raises(ArylError, match=r"can.t be written: the disk is full"):
        write_whole(path, breaks())
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("jobs.csv", "old")]


def test_cells_that_need_quotes_get_them(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["job_id", "x"], [['one, "two"', "1"]])
    assert (tmp_path / "a.csv").read_text() == 'job_id,x\n"one, ""two""",1\n'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-3.0, "-3"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e15, "1000000000000000"),
        (1e300, "1e+300"),
    ],
)
def test_numbers_are_short_and_read_back_as_themselves(value: float, text: str) -> None:
    assert number(value) == text
    assert float(number(value)) == value


def test_what_is_not_known_is_an_empty_cell() -> None:
    assert number(float("nan")) == ""


def test_the_timeline_has_a_slice_for_each_stretch_and_none_overlap_in_a_lane(
    told: Drive, tmp_path: Path
) -> None:
    write_run(told.outcome(), tmp_path)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X" and event["cat"] != "loan"]
    assert [(one["name"], one["pid"], one["ts"], one["dur"]) for one in slices] == [
        ("A", 1, 0, 80_000_000),
        ("C", 3, 10_000_000, 60_000_000),
        ("A", 1, 20_000_000, 35_000_000),
        ("B", 1, 80_000_000, 20_000_000),
        ("C", 1, 100_000_000, 60_000_000),
        ("D", 1, 150_000_000, 20_000_000),
    ]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {
        0: "cluster (by-hand)",
        1: "T1 (training, 8 GPUs)",
        2: "I1 (inference, 8 GPUs)",
        3: "I2 (inference, 8 GPUs)",
    }
    lanes: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append(event)
    for lane in lanes.values():
        for before, after in itertools.pairwise(lane):
            assert before["ts"] + before["dur"] <= after["ts"]
