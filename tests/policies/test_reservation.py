"""Reservations: long waiters go first, and nobody pushes the first of them back."""

from __future__ import annotations

from aryl.core.model import Slot
from aryl.testing import Scene, servers


def scene_with_reservation(policy: str = "aryl:reserve_after=10m") -> Scene:
    """It is 0:10. T1 is busy until 1:00, half of T2 until 0:30; L needs both and waits since 0:00."""
    scene = Scene(*servers(2), policy=policy)
    scene.run("A", {"T1": 8}, estimate_s=3600.0)
    scene.run("B", {"T2": 4}, estimate_s=1800.0)
    scene.submit("L", 16, estimate_s=7200.0)
    return scene.at("10m")


def test_a_job_that_ends_before_the_reservation_may_start() -> None:
    scene = scene_with_reservation()
    scene.submit("short", 4, estimate_s=50 * 60.0)
    assert [start.job_id for start in scene.decide().starts] == ["short"]


def test_a_job_that_ends_a_second_later_may_not() -> None:
    scene = scene_with_reservation()
    scene.submit("long", 4, estimate_s=50 * 60.0 + 1)
    assert scene.decide().empty


def test_before_it_has_waited_long_nobody_is_held_back() -> None:
    scene = scene_with_reservation("aryl:reserve_after=11m")
    scene.submit("long", 4, estimate_s=7200.0)
    decision = scene.decide()
    assert [start.job_id for start in decision.starts] == ["long"]
    assert decision.wake_at_s == 11 * 60


def test_a_job_that_keeps_off_the_reserved_place_may_start() -> None:
    scene = Scene(*servers(3), policy="aryl:reserve_after=0")
    scene.run("A", {"T1": 8}, estimate_s=3600.0)
    scene.run("C", {"T3": 6}, estimate_s=36_000.0)
    scene.submit("L", 16, estimate_s=7200.0)
    scene.at("1m").submit("long", 2, estimate_s=36_000.0)
    (start,) = scene.decide().starts
    assert (start.job_id, start.slots) == ("long", (Slot("T3", 2, 0, 1),))


def test_a_job_whose_best_place_is_reserved_gets_the_next_best() -> None:
    scene = Scene(*servers(3), policy="aryl:reserve_after=0")
    scene.run("A", {"T1": 8}, estimate_s=3600.0)
    scene.run("B", {"T2": 6}, estimate_s=3600.0)
    scene.run("C", {"T3": 3}, estimate_s=36_000.0)
    scene.submit("L", 16, estimate_s=7200.0)
    scene.at("1m").submit("long", 2, estimate_s=36_000.0)
    (start,) = scene.decide().starts
    assert start.slots == (Slot("T3", 2, 0, 1),)


def test_a_higher_priority_is_not_held_back() -> None:
    scene = scene_with_reservation()
    scene.submit("urgent", 4, estimate_s=36_000.0, priority=1)
    assert [start.job_id for start in scene.decide().starts] == ["urgent"]


def test_whoever_has_waited_long_goes_before_shorter_jobs() -> None:
    scene = Scene(*servers(1), policy="aryl:reserve_after=10m")
    scene.run("A", {"T1": 8})
    scene.submit("long", 8, estimate_s=7200.0)
    scene.at("10m").submit("short", 8, estimate_s=60.0)
    scene.finish("A")
    assert [start.job_id for start in scene.decide().starts] == ["long"]


def test_without_estimates_there_is_no_reservation() -> None:
    scene = Scene(*servers(2), policy="aryl:reserve_after=0")
    scene.run("A", {"T1": 8}, estimate_s=None)
    scene.run("B", {"T2": 4})
    scene.submit("L", 16)
    scene.at("10m").submit("long", 4, estimate_s=36_000.0)
    assert [start.job_id for start in scene.decide().starts] == ["long"]


def test_a_place_that_is_being_vacated_counts_as_ending_when_its_next_job_ends() -> None:
    scene = Scene(*servers(1), policy="aryl:reserve_after=0", vacate_s=60.0)
    scene.run("low", {"T1": 6})
    scene.at("1m").submit("urgent", 6, priority=1, estimate_s=600.0)
    scene.carry_out()
    scene.submit("L", 8, estimate_s=7200.0)
    scene.submit("short", 2, estimate_s=660.0)
    scene.submit("long", 2, estimate_s=661.0)
    assert [start.job_id for start in scene.decide().starts] == ["short"]


def test_a_job_that_stands_still_in_a_resize_does_not_hide_the_reservation() -> None:
    scene = Scene(*servers(2), policy="aryl:reserve_after=0", resize_s=60.0, vacate_s=60.0)
    scene.run("A", {"T1": 8}, estimate_s=3600.0)
    scene.run("E", {"T2": (2, 4)}, estimate_s=3600.0)
    scene.submit("B", 4, estimate_s=60.0)
    scene.carry_out()
    assert scene.cluster.jobs["E"].progress.rate == 0.0
    scene.submit("L", 16, estimate_s=7200.0)
    scene.at("1s").submit("long", 1, estimate_s=36_000.0)
    assert scene.decide().empty
