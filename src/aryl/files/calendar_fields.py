"""Calendar rules in a file: how many servers may be lent at which hours of which days."""

from __future__ import annotations

import re
import zoneinfo
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, model_validator

from aryl.errors import nearest_word
from aryl.files.fields import Section, Strict, fault, whole_number

HOUR_MIN = 60
DAY_MIN = 24 * HOUR_MIN
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# More than anybody can keep in mind.
MOST_WINDOWS = 100

EXPECTED_TIME = 'a time of the day from "00:00" to "24:00", in quotes'
EXPECTED_ZONE = "an IANA time zone such as Europe/Berlin or UTC"
_TIME = re.compile("([0-9]{1,2}):([0-9]{2})")


def _minute(value: object) -> int:
    """The minutes since midnight of a time of the day."""
    minute = -1
    if isinstance(value, str) and (match := _TIME.fullmatch(value.strip())) and int(match[2]) < HOUR_MIN:
        minute = int(match[1]) * HOUR_MIN + int(match[2])
    elif isinstance(value, int) and value >= HOUR_MIN:
        # YAML 1.1 reads 22:00 without quotes as a number to the base of sixty: 1320. It does so from 1:00
        # on, so a smaller number is something else, such as an hour.
        minute = value
    if not 0 <= minute <= DAY_MIN:
        raise fault("wrong value", expected=EXPECTED_TIME)
    return minute


def _written(minute: int) -> str:
    return f"{minute // HOUR_MIN:02}:{minute % HOUR_MIN:02}"


def _days(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise fault("wrong value", expected="a list of days, such as [sat, sun]")
    for index, day in enumerate(value):
        if day not in DAYS:
            near = nearest_word(day[:3].casefold(), DAYS) if isinstance(day, str) else None
            expected = "one of " + ", ".join(DAYS)
            raise fault("wrong value", index, expected=expected, nearest=near, found=day)
        if day in value[:index]:
            raise fault(f"the day '{day}' is given twice", index)
    return tuple(value)


def _most(value: object) -> int | Literal["all"]:
    if value == "all":
        return "all"
    try:
        return whole_number(value, 0)
    except ValueError:
        raise fault("wrong value", expected="a number of servers, at least 0, or all") from None


def _zone(value: object) -> str:
    if isinstance(value, str):
        try:
            return zoneinfo.ZoneInfo(value).key
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            pass  # it isn't there, can't be a name, or is the name of a folder
    known = sorted(zoneinfo.available_timezones())
    if not known:
        raise fault(
            "this machine knows no time zones",
            expected="the zones of the system or of a package (pip install tzdata)",
        )
    near = _nearest_zone(value[:200], known) if isinstance(value, str) else None
    raise fault("wrong value", expected=EXPECTED_ZONE, nearest=near)


def _nearest_zone(name: str, known: list[str]) -> str | None:
    """People write the city alone, or a space in it."""
    city = name.strip().replace(" ", "_").casefold()
    same = [zone for zone in known if city in (zone.casefold(), zone.rpartition("/")[2].casefold())]
    return same[0] if same else nearest_word(name, known)


Minute = Annotated[int, PlainValidator(_minute), PlainSerializer(_written)]
Most = Annotated[int | Literal["all"], PlainValidator(_most)]


class WindowSection(Section):
    """One window that comes again: from a time of the day until another one, maybe of the next day.

    `days` are those on which it begins. `max_lent` is how many servers may be on loan in it; by default the
    window sets no limit of its own.
    """

    from_min: Minute = Field(alias="from")
    to_min: Minute = Field(alias="to")
    days: Annotated[tuple[str, ...], PlainValidator(_days)] = DAYS
    max_lent: Most = "all"

    @model_validator(mode="after")
    def _lasts(self) -> WindowSection:
        if self.from_min == DAY_MIN:
            raise fault("wrong value", "from", expected="a time before 24:00", found=_written(DAY_MIN))
        if self.from_min == self.to_min:
            raise fault(
                "the window ends when it begins", "to", expected="another time; 24:00 for a whole day"
            )
        return self


def _windows(value: object) -> object:
    if not isinstance(value, list | tuple) or not value:
        raise fault("wrong value", expected='a list of windows, such as [{from: "22:00", to: "06:30"}]')
    if len(value) > MOST_WINDOWS:
        raise fault(f"more than {MOST_WINDOWS} windows")
    return value


class CalendarSection(Strict):
    """At which local times of a `zone` how many servers may be on loan; see `aryl.forecast.calendar`.

    Where windows overlap, the one that allows most counts. Outside of all of them it is `otherwise`.
    """

    zone: Annotated[str, PlainValidator(_zone)]
    windows: Annotated[list[WindowSection], BeforeValidator(_windows)]
    otherwise: Most = 0
