"""Calendar rules in a file: how times may be written, and what is said of those that can't be meant."""

from __future__ import annotations

import zoneinfo
from pathlib import Path

import pytest

from aryl.errors import InputError
from aryl.files.calendar_fields import CalendarSection
from aryl.files.fields import Strict
from aryl.files.yaml_source import YamlSource, plain_values, read_yaml

RULES = """
calendar:
  zone: Europe/Berlin
  windows:
    - {from: "22:00", to: "06:30", max_lent: 6}
    - {from: "00:00", to: "24:00", days: [sat, sun], max_lent: 8}
  otherwise: 0
"""


class Whole(Strict):
    """A file with nothing but a calendar."""

    calendar: CalendarSection


def read(folder: Path, text: str) -> CalendarSection:
    file = folder / "e.yaml"
    file.write_text(text, encoding="utf-8")
    data, places = read_yaml(file, what="a file", keys="calendar")
    return YamlSource(data, places).validate(Whole).calendar


def error_of(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, text)
    return str(caught.value).removeprefix(f"{folder / 'e.yaml'}, ")


def hours_of(folder: Path, begin: str, end: str) -> tuple[int, int]:
    rules = RULES.replace('"22:00"', begin).replace('"06:30"', end)
    window = read(folder, rules).windows[0]
    return window.from_min, window.to_min


def test_a_calendar_is_read_with_its_defaults(tmp_path: Path) -> None:
    section = read(tmp_path, 'calendar: {zone: UTC, windows: [{from: "20:00", to: "21:05"}]}')
    assert section.model_dump(by_alias=True) == {
        "zone": "UTC",
        "windows": [
            {
                "from": "20:00",
                "to": "21:05",
                "days": ("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
                "max_lent": "all",
            }
        ],
        "otherwise": 0,
    }


def test_a_calendar_survives_being_written_down(tmp_path: Path) -> None:
    section = read(tmp_path, RULES.replace("otherwise: 0", "otherwise: all").replace("22:00", "00:05"))
    assert YamlSource(plain_values(section)).validate(CalendarSection) == section


@pytest.mark.parametrize(
    ("begin", "end", "minutes"),
    [
        ('"22:00"', '"06:30"', (1320, 390)),
        ("22:00", "06:30", (1320, 390)),  # without quotes YAML makes 1320 of the one and leaves the other
        ("6:30", "24:00", (390, 1440)),
        ("00:00", "24:00", (0, 1440)),
        ("0:59", "1:00", (59, 60)),
        ('" 9:05 "', '"00:00"', (545, 0)),
    ],
)
def test_times_of_the_day_are_read_with_and_without_quotes(
    tmp_path: Path, begin: str, end: str, minutes: tuple[int, int]
) -> None:
    assert hours_of(tmp_path, begin, end) == minutes


@pytest.mark.parametrize(
    "wrong",
    [
        "22",
        "22.00",
        "22:60",
        '"24:01"',
        '"7"',
        '"-1:00"',
        "22:00:00",
        '"22:00:00"',
        "true",
        "[22]",
        "10pm",
        "59",
    ],
)
def test_what_is_not_a_time_of_the_day_is_refused(tmp_path: Path, wrong: str) -> None:
    assert error_of(tmp_path, RULES.replace('"22:00"', wrong)).startswith(
        "line 5, calendar.windows[0].from: wrong value (found "
    )
    assert error_of(tmp_path, RULES.replace('"22:00"', wrong)).endswith(
        '); expected a time of the day from "00:00" to "24:00", in quotes'
    )


@pytest.mark.parametrize(
    ("right", "wrong", "error"),
    [
        (
            "Europe/Berlin",
            "Europe/Berln",
            "line 3, calendar.zone: wrong value (found 'Europe/Berln'); "
            "expected an IANA time zone such as Europe/Berlin or UTC; did you mean 'Europe/Berlin'?",
        ),
        (
            "Europe/Berlin",
            "New York",
            "line 3, calendar.zone: wrong value (found 'New York'); "
            "expected an IANA time zone such as Europe/Berlin or UTC; did you mean 'America/New_York'?",
        ),
        (
            "Europe/Berlin",
            "[+2]",
            "line 3, calendar.zone: wrong value (found '[2]'); "
            "expected an IANA time zone such as Europe/Berlin or UTC",
        ),
        ("  zone: Europe/Berlin\n", "", "line 2, calendar: 'zone' is missing"),
        ("zone:", "zones:", "line 3, calendar.zones: unknown key; expected one of zone, windows, otherwise"),
        ('"06:30"', '"22:00"', "line 5, calendar.windows[0].to: the window ends when it begins"),
        ('"24:00"', '"00:00"', "line 6, calendar.windows[1].to: the window ends when it begins"),
        ('"24:00"', '""', "line 6, calendar.windows[1].to: wrong value (found ''); expected a time of the"),
        ('to: "06:30", ', "", "line 5, calendar.windows[0]: 'to' is missing"),
        (
            '"22:00"',
            "24:00",
            "line 5, calendar.windows[0].from: wrong value (found '24:00'); expected a time",
        ),
        (
            "[sat, sun]",
            "[sat, Sunday]",
            "line 6, calendar.windows[1].days[1]: wrong value (found 'Sunday'); "
            "expected one of mon, tue, wed, thu, fri, sat, sun; did you mean 'sun'?",
        ),
        ("[sat, sun]", "[sat, sat]", "line 6, calendar.windows[1].days[1]: the day 'sat' is given twice"),
        (
            "[sat, sun]",
            "sat",
            "line 6, calendar.windows[1].days: wrong value (found 'sat'); expected a list of",
        ),
        (
            "[sat, sun]",
            "[]",
            "line 6, calendar.windows[1].days: wrong value (found '[]'); expected a list of",
        ),
        (
            "max_lent: 6",
            "max_lent: -1",
            "line 5, calendar.windows[0].max_lent: wrong value (found -1); "
            "expected a number of servers, at least 0, or all",
        ),
        (
            "max_lent: 6",
            "max_lent: 1.5",
            "line 5, calendar.windows[0].max_lent: wrong value (found 1.5); exp",
        ),
        (
            "max_lent: 6",
            "lent: 6",
            "line 5, calendar.windows[0].lent: unknown key; expected one of from, to,",
        ),
        ("otherwise: 0", "otherwise:", "line 7, calendar.otherwise: wrong value (found 'nothing'); expected"),
        ("otherwise: 0", "otherwise: al", "line 7, calendar.otherwise: wrong value (found 'al'); expected a"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, right: str, wrong: str, error: str) -> None:
    assert RULES.count(right) == 1
    assert error_of(tmp_path, RULES.replace(right, wrong)).startswith(error)


@pytest.mark.parametrize(
    "zone", ["America", "/etc/passwd", "../UTC", "", "x" * 5000, "tzdata.zi", "a\0b", "\ud800"]
)
def test_what_is_no_name_of_a_zone_is_refused_as_one_that_is_unknown(zone: str) -> None:
    with pytest.raises(InputError, match=r"^zone: wrong value .*expected an IANA time zone"):
        YamlSource({"zone": zone, "windows": [{"from": "1:00", "to": "2:00"}]}).validate(CalendarSection)


def test_a_machine_without_time_zones_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    assert error_of(tmp_path, RULES.replace("Berlin", "Berln")) == (
        "line 3, calendar.zone: this machine knows no time zones; "
        "expected the zones of the system or of a package (pip install tzdata)"
    )


@pytest.mark.parametrize(
    ("windows", "error"),
    [
        ([], "windows: wrong value (found '[]'); expected a list of windows, such as "),
        ("22:00-06:30", "windows: wrong value (found '22:00-06:30'); expected a list of windows, such as "),
        ([{"from": "1:00", "to": "2:00"}] * 101, "windows: more than 100 windows"),
        (["22:00-06:30"], "windows[0]: wrong value (found '22:00-06:30'); expected a mapping of keys to val"),
    ],
)
def test_windows_are_a_list_of_a_few(windows: object, error: str) -> None:
    with pytest.raises(InputError) as caught:
        YamlSource({"zone": "UTC", "windows": windows}).validate(CalendarSection)
    assert str(caught.value).startswith(error)


def test_a_hundred_windows_are_few_enough() -> None:
    written = {"zone": "UTC", "windows": [{"from": "1:00", "to": "2:00"}] * 100}
    assert len(YamlSource(written).validate(CalendarSection).windows) == 100


def test_a_window_whose_limit_is_left_empty_has_none_of_its_own(tmp_path: Path) -> None:
    assert read(tmp_path, RULES.replace("max_lent: 6", "max_lent: ")).windows[0].max_lent == "all"


def test_a_city_alone_is_found_in_any_case() -> None:
    with pytest.raises(InputError, match=r"did you mean 'Asia/Ho_Chi_Minh'\?$"):
        YamlSource({"zone": "ho chi minh", "windows": []}).validate(CalendarSection)
