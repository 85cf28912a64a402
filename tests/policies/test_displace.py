"""Flexible workers never hold back a base demand, and just enough of them go."""

from __future__ import annotations

from aryl.core.model import Slot
from aryl.core.plan import Cause
from aryl.testing import Scene, servers


def test_a_gang_takes_the_place_of_flexible_workers() -> None:
    scene = Scene(*servers(1))
    scene.run("E", {"T1": (2, 6)})
    scene.submit("B", 4)
    decision = scene.decide()
    (rescale,) = decision.rescales
    assert (rescale.job_id, rescale.remove, rescale.cause) == (
        "E",
        (Slot("T1", 0, 4, 1),),
        Cause.BASE_DEMAND,
    )
    assert decision.starts[0].slots == (Slot("T1", 4, 0, 1),)
    assert not decision.preemptions


def test_free_gpus_are_used_before_flexible_workers_go() -> None:
    scene = Scene(*servers(1))
    scene.run("E", {"T1": (2, 4)})
    scene.submit("B", 4)
    (rescale,) = scene.decide().rescales
    assert rescale.remove == (Slot("T1", 0, 2, 1),)


def test_base_workers_are_not_displaced() -> None:
    scene = Scene(*servers(1))
    scene.run("E", {"T1": (6, 2)})
    scene.submit("B", 4)
    assert scene.decide().empty


def test_flexible_workers_of_a_higher_priority_stay() -> None:
    scene = Scene(*servers(1))
    scene.run("E", {"T1": (2, 6)}, priority=1)
    scene.submit("B", 4)
    assert scene.decide().empty
    scene.submit("C", 4, priority=1)
    assert [start.job_id for start in scene.decide().starts] == ["C"]


def test_the_job_whose_end_moves_least_gives_way_first() -> None:
    scene = Scene(*servers(1))
    scene.run("long", {"T1": (2, 2)}, estimate_s=36_000.0)
    scene.run("short", {"T1": (2, 2)}, estimate_s=600.0)
    scene.submit("B", 2)
    assert [rescale.job_id for rescale in scene.decide().rescales] == ["short"]


def test_two_gangs_share_what_the_flexible_workers_leave() -> None:
    scene = Scene(*servers(2))
    scene.run("E", {"T1": (2, 6), "T2": (0, 8)})
    scene.at("1m").submit("B", 4)
    scene.submit("C", 4)
    scene.carry_out()
    scene.vacated()
    job = scene.cluster.jobs
    assert [job[name].workers for name in ("E", "B", "C")] == [8, 4, 4]


def test_a_job_with_allowed_sizes_gives_up_enough_to_reach_one() -> None:
    scene = Scene(*servers(2))
    scene.run("E", {"T1": 8, "T2": (0, 8)}, sizes=(8, 16))
    scene.submit("B", 2)
    scene.carry_out()
    assert scene.cluster.jobs["E"].workers == 8


def test_gpus_that_leave_beyond_what_was_needed_are_not_left_over() -> None:
    scene = Scene(*servers(1), vacate_s=30.0)
    # A worker of three GPUs goes for a gang of two; so the GPU that is free already stays free.
    scene.run("E", {"T1": (1, 1)}, gpus_per_worker=3)
    scene.run("F", {"T1": 1}, priority=9)
    scene.at("1m").submit("B", 2)
    scene.submit("C", 1, estimate_s=7200.0)
    scene.carry_out()
    states = [scene.cluster.jobs[name].state.value for name in ("B", "C")]
    assert states == ["PENDING", "STARTING"]


def test_without_scaling_nobody_is_displaced() -> None:
    scene = Scene(*servers(1), policy="aryl:no-scaling")
    scene.run("E", {"T1": (2, 6)})
    scene.submit("B", 4)
    assert scene.decide().empty
