"""The inference demand in a file: its age, and what is said of one that can't be used."""

from __future__ import annotations

import json
import os
import queue
from pathlib import Path

import pytest

from aryl.errors import InputError
from aryl.live.sources.demand_file import FileSource
from aryl.live.sources.observation import Observation, Unit
from aryl.live.sources.poller import Poller
from aryl.whole_files import write_whole

LONG_S = 60.0
FORMS = 'a number, at least 0, or {"need": 5.5, "forecast": 6.0, "at": 1700000000}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "demand.json"


def write(file: Path, text: str, modified_s: float = 1000.0) -> None:
    write_whole(file, [text])
    os.utime(file, (0.0, modified_s))


def read(file: Path) -> Observation:
    return FileSource(str(file)).read()


def complaint(file: Path) -> str:
    with pytest.raises(InputError) as caught:
        read(file)
    assert caught.value.file == str(file)
    return str(caught.value).replace(f"{file}", "FILE")


def test_a_file_says_its_need_its_forecast_and_when_that_was_measured(file: Path) -> None:
    write(file, '{"need": 5.5, "forecast": 6, "at": 1700000000.5}')
    assert FileSource(str(file), Unit.SHARE).read() == Observation(1700000000.5, 5.5, Unit.SHARE, 6.0)


def test_without_a_time_of_its_own_a_need_is_as_old_as_its_file(file: Path) -> None:
    write(file, '{"need": 0}', 1234.5)
    assert read(file) == Observation(1234.5, 0.0, Unit.SERVERS)
    write(file, '{"need": 1, "at": null, "forecast": null}', 1235.5)
    assert read(file) == Observation(1235.5, 1.0, Unit.SERVERS)


def test_a_bare_number_is_a_need(file: Path) -> None:
    write(file, " 5.5\n", 1234.5)
    assert FileSource(str(file), Unit.GPUS).read() == Observation(1234.5, 5.5, Unit.GPUS)


def test_a_link_stands_for_the_file_behind_it(file: Path, tmp_path: Path) -> None:
    write(tmp_path / "behind", "3", 77.0)
    file.symlink_to("behind")
    assert read(file) == Observation(77.0, 3.0, Unit.SERVERS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "FILE, line 1: not JSON: Expecting value"),
        ('{"need": 5.5,\n "fore', "FILE, line 2: not JSON: Unterminated string starting at"),
        ('{"need": 5', "FILE, line 1: not JSON: Expecting ',' delimiter"),
        ("[" * 50_000, f"FILE: not JSON; expected {FORMS}"),
        ("1" * 5000, f"FILE: not JSON; expected {FORMS}"),
        ("[5.5]", f"FILE: not a demand; expected {FORMS}"),
        ("true", f"FILE: not a demand; expected {FORMS}"),
        ("null", f"FILE: not a demand; expected {FORMS}"),
        ('"5.5"', f"FILE: not a demand; expected {FORMS}"),
        ("NaN", "FILE, need: wrong value (found nan); expected a number, at least 0"),
        ("1e999", "FILE, need: wrong value (found inf); expected a number, at least 0"),
        ("-0.5", "FILE, need: wrong value (found -0.5); expected a number, at least 0"),
        ("1" + "0" * 400, "FILE, need: wrong value (found 'a huge number'); expected a number, at least 0"),
        ('{"need": true}', "FILE, need: wrong value (found True); expected a number, at least 0"),
        ('{"need": "5"}', "FILE, need: wrong value (found '5'); expected a number, at least 0"),
        (
            '{"need": 1, "forecast": -1}',
            "FILE, forecast: wrong value (found -1); expected a number, at least 0",
        ),
        ('{"forecast": 1}', "FILE: 'need' is missing"),
        ("{}", "FILE: 'need' is missing"),
        (
            '{"need": 1, "forcast": 2}',
            "FILE, forcast: unknown key; expected one of need, forecast, at; did you mean 'forecast'?",
        ),
        (
            '{"need": 1, "at": 1700000000000}',
            "FILE, at: wrong value (found 1700000000000); expected seconds since 1970, such as 1700000000",
        ),
        (
            '{"need": 1, "at": 0}',
            "FILE, at: wrong value (found 0); expected seconds since 1970, such as 1700000000",
        ),
        (
            '{"need": 1, "at": "now"}',
            "FILE, at: wrong value (found 'now'); expected seconds since 1970, such as 1700000000",
        ),
        ("5" + " " * 65536, "FILE: too large; expected at most 65536 bytes"),
    ],
)
def test_what_is_no_demand_is_an_error_that_names_the_file(file: Path, text: str, said: str) -> None:
    write(file, text)
    assert complaint(file) == said


def test_what_is_no_text_is_an_error(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00\xd8\x01")
    assert complaint(file) == f"FILE: not JSON; expected {FORMS}"


def test_what_is_no_file_is_an_error_and_nobody_waits_for_it(file: Path) -> None:
    assert complaint(file) == "FILE: no such file"
    file.mkdir()
    assert complaint(file) == "FILE: not a file"
    file.rmdir()
    os.mkfifo(file)
    assert complaint(file) == "FILE: not a file"
    file.unlink()
    file.symlink_to(file)
    assert complaint(file) == "FILE: can't be read: Too many levels of symbolic links"
    assert FileSource(str(file)).where == str(file)


def test_a_poll_leaves_nothing_open(file: Path) -> None:
    def left_open() -> list[str]:
        links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
        return [str(link) for link in links if link.is_symlink() and os.readlink(link) == str(file)]

    write(file, "5")
    read(file)
    write(file, "five")
    complaint(file)
    file.unlink()
    file.mkdir()
    complaint(file)
    assert left_open() == []


def test_a_file_that_vanishes_or_is_half_written_is_read_again_when_it_is_whole(file: Path) -> None:
    told: list[Observation] = []
    poller = Poller(FileSource(str(file)), LONG_S, told.append)

    def polled() -> tuple[list[float], str]:
        told.clear()
        poller.poll()
        return [observation.need for observation in told], poller.last_error.replace(str(file), "FILE")

    assert polled() == ([], "FILE: no such file")
    write(file, "1", 1001.0)
    assert polled() == ([1.0], "")
    write(file, '{"need": 2, "fo', 1002.0)
    assert polled() == ([], "FILE, line 1: not JSON: Unterminated string starting at")
    write(file, '{"need": 2, "forecast": 3}', 1003.0)
    assert polled() == ([2.0], "")
    assert polled() == ([], "")
    file.unlink()
    assert polled() == ([], "FILE: no such file")
    write(file, "4", 1004.0)
    assert polled() == ([4.0], "")
    assert (poller.failures, poller.last_unix_s) == (3, 1004.0)


def test_a_file_that_is_replaced_again_and_again_is_never_seen_half(file: Path) -> None:
    told: queue.Queue[Observation] = queue.Queue()
    write(file, "0")
    poller = Poller(FileSource(str(file)), 0.001, told.put)
    poller.start()
    try:
        for turn in range(1, 200):
            padding = " " * (turn % 7 * 5000)
            write_whole(file, [json.dumps({"need": turn, "forecast": turn, "at": 1000 + turn}), padding])
        seen = [told.get(timeout=LONG_S)]
        while seen[-1].need != 199:
            seen.append(told.get(timeout=LONG_S))
    finally:
        poller.close()
    later = [observation for observation in seen if observation.need > 0]
    assert all(each.forecast == each.need == each.measured_unix_s - 1000 for each in later)
    assert [each.need for each in later] == sorted({each.need for each in later})
    assert poller.failures == 0
