"""Quantities as people write them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aryl.files.units import UnitError, gpu_seconds, human_seconds, seconds, share, size_bytes


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        (90, 90.0),
        (0, 0.0),
        (1.5, 1.5),
        ("90", 90.0),
        ("90s", 90.0),
        ("250ms", 0.25),
        ("10m", 600.0),
        ("10 min", 600.0),
        ("2h", 7200.0),
        ("1h30m", 5400.0),
        ("1d 2h", 93600.0),
        ("15d", 1296000.0),
        ("0.5h", 1800.0),
        ("2w", 1209600.0),
    ],
)
def test_a_time_is_read_in_every_unit(text: object, expected_s: float) -> None:
    assert seconds(text) == pytest.approx(expected_s, rel=1e-12)


@pytest.mark.parametrize(
    "wrong", ["", " ", "ten", "10q", "-5", "5m-", "1:30", -5, True, None, math.nan, math.inf, [3], "10 M"]
)
def test_what_is_not_a_time_is_refused_with_examples(wrong: object) -> None:
    with pytest.raises(UnitError, match="expected a time such as 90, 90s, 10m"):
        seconds(wrong)


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_the_parts_of_a_time_add_up(days: int, hours: int, minutes: int, secs: int) -> None:
    expected_s = ((days * 24 + hours) * 60 + minutes) * 60 + secs
    assert seconds(f"{days}d{hours}h{minutes}m{secs}s") == expected_s


@pytest.mark.parametrize(
    ("text", "expected"),
    [("95%", 0.95), (0.95, 0.95), ("0.95", 0.95), ("2 %", 0.02), (1, 1.0), ("120%", 1.2)],
)
def test_a_share_is_a_percentage_or_a_fraction(text: object, expected: float) -> None:
    assert share(text) == pytest.approx(expected)


@pytest.mark.parametrize("wrong", ["x%", "%", -0.1, False, None, "-5%", "95 percent"])
def test_what_is_not_a_share_is_refused(wrong: object) -> None:
    with pytest.raises(UnitError, match=r"95% or 0\.95"):
        share(wrong)


def test_a_bare_number_is_a_fraction_and_never_a_percentage() -> None:
    assert share("95") == 95.0


@pytest.mark.parametrize(
    ("text", "expected_gpu_s"),
    [
        ("120 gpu-min", 7200.0),
        ("2 gpu-h", 7200.0),
        ("90 gpu-s", 90.0),
        ("1.5GPU-h", 5400.0),
        (60, 60.0),
        ("1 gpu-d", 86400.0),
    ],
)
def test_work_is_read_in_gpu_seconds(text: object, expected_gpu_s: float) -> None:
    assert gpu_seconds(text) == pytest.approx(expected_gpu_s)


@pytest.mark.parametrize("wrong", ["120 min", "120 gpu-mins", "gpu-min", "-1 gpu-h", True])
def test_what_is_not_work_is_refused(wrong: object) -> None:
    with pytest.raises(UnitError, match="gpu-min"):
        gpu_seconds(wrong)


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (0, "0 s"),
        (45.25, "45.2 s"),
        (300, "5 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (180000, "2.1 d"),
        (math.nan, "-"),
    ],
)
def test_people_read_times_in_the_unit_that_fits(value_s: float, text: str) -> None:
    assert human_seconds(value_s) == text


@pytest.mark.parametrize(
    ("text", "expected_bytes"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("100B", 100),
        ("4GiB", 4 * 2**30),
        ("4Gi", 4 * 2**30),
        ("1.5 MiB", 3 * 2**19),
        ("2KiB", 2048),
        ("1TiB", 2**40),
        ("3kB", 3000),
        ("3MB", 3_000_000),
        ("2gb", 2_000_000_000),
        ("1TB", 10**12),
    ],
)
def test_a_size_is_read_in_every_unit(text: object, expected_bytes: int) -> None:
    assert size_bytes(text) == expected_bytes


@pytest.mark.parametrize(
    "wrong", ["", "4G", "4 GiBs", "-1MiB", "GiB", "1e999MiB", True, None, -1, [4], 10**400]
)
def test_what_is_not_a_size_is_refused_with_examples(wrong: object) -> None:
    with pytest.raises(UnitError, match="expected a size such as 4GiB, 512MiB or a number of bytes"):
        size_bytes(wrong)


@pytest.mark.parametrize("read", [seconds, share, gpu_seconds, size_bytes])
def test_a_number_beyond_floating_point_is_no_quantity(read: Callable[[object], float]) -> None:
    with pytest.raises(UnitError):
        read(10**400)
