"""The wall clock on the cluster's scale."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aryl.live.clock import WallClock

epochs = st.floats(0, 4e9)
speeds = st.sampled_from([0.5, 1.0, 60.0, 3600.0])


@given(epochs, speeds, st.floats(0, 1e8))
def test_an_instant_goes_to_unix_time_and_back(epoch_s: float, speed: float, at_s: float) -> None:
    clock = WallClock(epoch_s, speed)
    assert clock.at(epoch_s) == 0.0
    assert clock.unix(0.0) == epoch_s
    # A Unix time has some tenths of a microsecond.
    assert clock.at(clock.unix(at_s)) == pytest.approx(at_s, abs=1e-5 * speed)


@given(speeds, st.floats(0, 1e6), st.floats(0, 1e6))
def test_later_is_later_on_both_scales(speed: float, one: float, other: float) -> None:
    clock = WallClock(1000.0, speed)
    assert clock.at(min(one, other)) <= clock.at(max(one, other))
    assert clock.at(one + 1.0) - clock.at(one) == pytest.approx(speed)


def test_now_lies_between_two_looks_at_the_real_clock() -> None:
    clock = WallClock(time.time() - 10.0, 60.0)
    before = clock.at(time.time())
    now_s = clock.now()
    assert 600.0 <= before <= now_s <= clock.at(time.time())


def test_a_wait_is_in_real_seconds_and_never_negative() -> None:
    clock = WallClock(time.time(), 60.0)
    assert 0.0 < clock.seconds_until(clock.now() + 600.0) <= 10.0
    assert clock.seconds_until(-1.0) == 0.0
    assert clock.seconds_until(float("-inf")) == 0.0
    assert clock.seconds_until(float("inf")) == float("inf")
