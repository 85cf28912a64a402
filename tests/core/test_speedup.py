"""Speed-up curves: their values, their shape, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aryl.core.speedup import LINEAR, Amdahl, Points, Speedup


def test_linear_speed_grows_with_the_workers() -> None:
    assert [LINEAR(workers) for workers in (1, 2, 7)] == [1.0, 2.0, 7.0]


def test_amdahl_with_a_tenth_serial() -> None:
    curve = Amdahl(0.1)
    assert curve(1) == 1.0
    assert curve(9) == pytest.approx(5.0)  # 1 / (0.1 + 0.9 / 9)


def test_amdahl_at_its_ends() -> None:
    assert Amdahl(0.0)(6) == pytest.approx(6.0)
    assert Amdahl(1.0)(6) == 1.0


def test_points_are_joined_by_straight_lines_from_the_origin_and_flat_beyond() -> None:
    curve = Points(((4, 4.0), (8, 6.0)))
    assert [curve(workers) for workers in (1, 2, 4, 6, 8, 20)] == [1.0, 2.0, 4.0, 5.0, 6.0, 6.0]


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ((), "at least one"),
        (((4, 2.0), (2, 3.0)), "ascend"),
        (((2, 2.0), (4, 1.0)), "ascend"),
        (((2, 2.0), (2, 2.0)), "ascend"),
        (((2, 1.0), (4, 3.0)), "concave"),
    ],
)
def test_points_that_are_no_concave_curve_are_refused(
    points: tuple[tuple[int, float], ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Points(points)


@pytest.mark.parametrize("serial", [-0.1, 1.1])
def test_a_serial_share_outside_0_to_1_is_refused(serial: float) -> None:
    with pytest.raises(ValueError, match=r"within 0\.\.1"):
        Amdahl(serial)


_CURVES = st.one_of(
    st.just(LINEAR),
    st.floats(0.0, 1.0).map(Amdahl),
    st.sampled_from((Points(((1, 1.0),)), Points(((2, 2.0), (4, 3.5), (16, 8.0))))),
)


@given(curve=_CURVES, workers=st.integers(1, 60))
def test_every_curve_is_concave_and_never_falls(curve: Speedup, workers: int) -> None:
    before, here, after = (curve(workers + step) for step in (0, 1, 2))
    assert 0.0 < before <= here * (1 + 1e-12) <= after * (1 + 1e-12) ** 2
    assert after - here <= (here - before) + 1e-9
