"""Phase 2: workers that go from one job to another, workers of several GPUs, and what is unknown."""

from __future__ import annotations

import pytest
from tests.policies.scaling_scenes import EAGER, resized, resizes, sizes

from aryl.core import events as ev
from aryl.core.model import Slot
from aryl.core.plan import Cause
from aryl.testing import Scene, experiment, job, run_scenario, servers

# Transfers between jobs.


def test_workers_go_from_a_job_with_little_to_gain_to_one_with_much() -> None:
    scene = Scene(*servers(1))
    scene.run("B", {"T1": (2, 4)}, estimate_s=60.0)
    scene.run("A", {"T1": 2}, most=6, estimate_s=36_000.0)
    (rescale,) = scene.decide().rescales
    assert (rescale.job_id, rescale.remove, rescale.cause) == ("B", (Slot("T1", 0, 4, 1),), Cause.GROWTH)
    scene.carry_out()
    resized(scene.vacated()).at(1.0).carry_out()
    assert sizes(scene) == {"B": 2, "A": 6}


def test_a_scale_in_goes_only_as_far_as_the_growth_needs() -> None:
    scene = Scene(*servers(1))
    scene.run("B", {"T1": (1, 4)}, estimate_s=60.0)
    scene.run("A", {"T1": 2}, most=4, estimate_s=36_000.0)
    # One GPU is free, A wants two.
    (rescale,) = scene.decide().rescales
    assert (rescale.job_id, rescale.remove) == ("B", (Slot("T1", 0, 1, 1),))


def test_nobody_gives_up_workers_that_nobody_wants() -> None:
    scene = Scene(*servers(1))
    scene.run("B", {"T1": (2, 2)}, estimate_s=60.0)
    scene.run("A", {"T1": 4}, estimate_s=36_000.0)
    assert scene.decide().empty


def test_a_growth_comes_whole_once_its_gpus_are_vacated_and_takes_them_once() -> None:
    scene = Scene(*servers(1), vacate_s=30.0, resize_s=10.0)
    scene.run("B", {"T1": (1, 4)}, estimate_s=60.0)
    scene.run("A", {"T1": 2}, most=6, estimate_s=36_000.0)
    plans = [resized(scene.at(now_s)).carry_out() for now_s in (0.0, 5.0, 10.0, 20.0, 30.0)]
    assert [(step.job_id, step.add, step.remove) for plan in plans for step in resizes(plan)] == [
        ("B", (), (Slot("T1", 0, 3, 1),))
    ]
    assert sizes(scene) == {"B": 2, "A": 2}
    (growth,) = resizes(scene.vacated().carry_out())
    assert (growth.job_id, growth.add, growth.remove) == ("A", (Slot("T1", 0, 4, 1),), ())


def test_gpus_on_their_way_to_a_growth_are_not_taken_from_a_third_job() -> None:
    scene = Scene(*servers(2), vacate_s=30.0, resize_s=5.0)
    scene.run("B", {"T1": (2, 4)}, estimate_s=60.0)
    scene.run("C", {"T2": (4, 4)}, estimate_s=90.0)
    scene.run("A", {"T1": 2}, most=6, estimate_s=36_000.0)
    taken = [step for step in resizes(scene.carry_out()) if step.remove]
    assert sum(slot.flexible for step in taken for slot in step.remove) == 4
    for now_s in (1.0, 15.0, 29.0):
        assert not resizes(resized(scene.at(now_s)).carry_out())
    scene.vacated().carry_out()
    assert sizes(scene)["A"] == 6


def test_a_growth_in_a_simulation_costs_each_job_one_resize() -> None:
    jobs = [
        job("B", (2, 6), duration="20m"),
        job("A", (2, 6), submit="1m", duration="10h"),
    ]
    overheads = {"restart_s": 0, "resize_s": 10, "vacate_s": 30, "interval": 60, "check": True}
    record = run_scenario(experiment(jobs, simulation=overheads))
    before_end = [(at, step.job_id, step.cause) for at, step in record.resizes() if at < record.ended_at("B")]
    assert len([one for one in before_end if one[1] == "B"]) <= 1
    assert len([one for one in before_end if one[1] == "A"]) <= 1


# Workers of several GPUs.


def test_a_worker_of_two_gpus_does_not_grow_into_two_servers() -> None:
    scene = Scene(*servers(2))
    scene.run("X", {"T1": 7})
    scene.run("Y", {"T2": 5})
    scene.run("E", {"T2": 1}, most=2, gpus_per_worker=2)
    assert scene.decide().empty


def test_growth_that_finds_no_place_leaves_its_gpus_to_the_next_best() -> None:
    scene = Scene(*servers(2))
    scene.run("X", {"T1": 7})
    scene.run("Y", {"T2": 3})
    scene.run("E", {"T2": 1}, most=2, gpus_per_worker=2, estimate_s=36_000.0)
    scene.run("F", {"T2": 2}, most=8, estimate_s=60.0)
    scene.carry_out()
    # Two GPUs are free, but apart.
    assert sizes(scene) == {"X": 7, "Y": 3, "E": 1, "F": 4}


def test_a_worker_of_four_gpus_weighs_four() -> None:
    # Four GPUs: one worker of E saves 300 s, four workers of F save 480 s.
    scene = Scene(*servers(1, gpus=9))
    scene.run("E", {"T1": 1}, most=2, gpus_per_worker=4, estimate_s=600.0)
    scene.run("F", {"T1": 1}, most=5, estimate_s=600.0)
    scene.carry_out()
    assert sizes(scene) == {"E": 1, "F": 5}


def test_small_workers_make_room_for_a_large_one_that_gains_more() -> None:
    scene = Scene(*servers(1))
    scene.run("F", {"T1": (2, 4)}, estimate_s=60.0)
    scene.run("E", {"T1": 1}, most=2, gpus_per_worker=2, estimate_s=36_000.0)
    (rescale,) = scene.decide().rescales
    assert (rescale.job_id, rescale.remove) == ("F", (Slot("T1", 0, 2, 1),))


# What isn't known.


def test_without_an_estimate_a_job_is_expected_to_run_as_long_again() -> None:
    def grows(run_s: float) -> list[str]:
        scene = Scene(*servers(1))
        scene.run("unknown", {"T1": 2}, most=3, estimate_s=None)
        scene.at(run_s).run("known", {"T1": 5}, most=6, estimate_s=2500.0)
        return [one.job_id for one in scene.decide().rescales]

    # The guess is 300 s more than what has been run. A third of that, against a sixth of 2,500 s.
    assert grows(600.0) == ["known"]
    assert grows(1200.0) == ["unknown"]


@pytest.mark.parametrize(("policy", "grows"), [("aryl", "long"), ("aryl-las", "old")])
def test_aryl_las_ignores_estimates(policy: str, grows: str) -> None:
    scene = Scene(*servers(1), policy=policy)
    scene.run("old", {"T1": 2}, most=4, estimate_s=3700.0)
    scene.at("1h").run("long", {"T1": 4}, most=6, estimate_s=36_000.0)
    scene.carry_out()
    assert sizes(scene)[grows] - {"old": 2, "long": 4}[grows] == 2


# What one pass sees of itself.


def test_a_job_that_grows_in_one_place_gives_nothing_up_in_another_at_the_same_time() -> None:
    """It would come to 4 workers, which it isn't allowed to have."""
    scene = Scene(*servers(1), *servers(1, "I"), policy=EAGER).lend("I1")
    scene.run("full", {"I1": 5}, fungible=True)
    scene.run("E", {"T1": (1, 1)}, most=7, sizes=(1, 2, 5, 7), fungible=True, estimate_s=600.0)
    scene.run("F", {"T1": 2}, most=3, estimate_s=36_000.0)
    scene.run("rest", {"T1": 4})
    assert [(one.job_id, one.add, one.remove) for one in scene.at(1.0).decide().rescales] == [
        ("E", (Slot("I1", 0, 3, 1),), ())
    ]


def test_what_a_preemption_leaves_over_is_counted_on_in_the_same_pass() -> None:
    scene = Scene(*servers(1, gpus=9), policy=EAGER)
    scene.run("victim", {"T1": 4})
    scene.run("G", {"T1": 2}, most=6, sizes=(2, 6), estimate_s=36_000.0, priority=2)
    scene.run("H", {"T1": (1, 2)}, estimate_s=60.0, priority=2)
    scene.at(1.0).submit("urgent", 2, priority=1)
    plan = scene.carry_out()
    # Two of the victim's four GPUs are left over; G needs two more.
    assert [(step.job_id, step.remove) for step in resizes(plan)] == [("H", (Slot("T1", 0, 2, 1),))]


def test_a_job_does_not_start_on_gpus_that_another_grows_onto() -> None:
    """One GPU is idle: what leaves covers all claims, so a gang or a growth can have it, but not both."""
    scene = Scene(*servers(1), policy="aryl:scaling", vacate_s=3.0)
    scene.run("A", {"T1": (2, 1)}, estimate_s=2.0)
    scene.run("B", {"T1": (4, 1)}, most=10, estimate_s=36_000.0)
    scene.at(5.0).submit("C", 1, gpus_per_worker=2)
    scene.carry_out()
    scene.at(405.0).happens(ev.Vacated(405.0, "B", 1, (Slot("T1", 0, 1, 1),)))
    scene.submit("D", 1, priority=1)
    resized(scene).carry_out()
    assert set(scene.cluster.claims) == {"C", "D"}
    assert sizes(scene)["B"] == 5
