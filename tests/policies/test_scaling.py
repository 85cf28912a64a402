"""Phase 2: who gets the GPUs that base demand leaves over, when, and where."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from tests.policies.scaling_scenes import resized, resizes, sizes, slots, t4

from aryl.core import events as ev
from aryl.core.model import Accounting, Slot
from aryl.core.plan import Cause, Launch
from aryl.testing import Scene, experiment, job, run_scenario, servers

# Who gets how many.


def test_four_gpus_to_spare_are_shared_three_and_one_when_both_jobs_start() -> None:
    scene = Scene(*servers(1))
    scene.submit("A", 2, 6, estimate_s=150.0)
    scene.submit("B", 2, 6, estimate_s=60.0)
    scene.carry_out()
    assert sizes(scene) == {"A": 5, "B": 3}


def test_four_gpus_to_spare_are_shared_three_and_one_when_both_jobs_run() -> None:
    scene = Scene(*servers(1))
    scene.run("A", {"T1": 2}, most=6, estimate_s=150.0)
    scene.run("B", {"T1": 2}, most=6, estimate_s=60.0)
    rescales = {one.job_id: (one.add, one.remove, one.cause) for one in scene.decide().rescales}
    assert rescales == {
        "A": ((Slot("T1", 0, 3, 1),), (), Cause.GROWTH),
        "B": ((Slot("T1", 0, 1, 1),), (), Cause.GROWTH),
    }


def test_the_static_value_favours_the_long_job() -> None:
    jobs = [job("A", (2, 6), duration=150), job("B", (2, 6), duration=60)]
    record = run_scenario(experiment(jobs))
    assert (record.size_of("A", 0), record.size_of("B", 0)) == (5, 3)
    ends = record.ended_at("A"), record.ended_at("B")
    # B's 120 worker-seconds on three workers; A's 300 on five, and on six from then on.
    assert ends == pytest.approx((40.0 + 100.0 / 6, 40.0))
    assert sum(ends) / 2 == pytest.approx(48.3, abs=0.05)


@pytest.mark.parametrize("most", [3, 4, 5])
def test_workers_of_different_sizes_fill_the_servers_in_one_pass(most: int) -> None:
    """With 4 + 3 of 8 GPUs on one server and 3 + 3 on another, more is full than workers of 3 GPUs could
    fill.
    """
    scene = Scene(*servers(3))
    scene.submit("A", 1, most, gpus_per_worker=3, estimate_s=10.0)
    scene.submit("B", 1, 2, gpus_per_worker=4, estimate_s=10.0)
    scene.carry_out()
    assert sizes(scene) == {"A": min(most, 4), "B": 2}


def test_whatever_the_sizes_of_workers_the_first_pass_leaves_nothing_to_the_second() -> None:
    for sizes_of_two in product((2, 3, 4, 5), (2, 3, 4, 5), (2, 5), (2, 5)):
        first_gpus, second_gpus, first_most, second_most = sizes_of_two
        scene = Scene(*servers(3))
        scene.submit("A", 1, first_most, gpus_per_worker=first_gpus, estimate_s=10.0)
        scene.submit("B", 1, second_most, gpus_per_worker=second_gpus, estimate_s=10.0)
        scene.carry_out()  # comes to rest, or raises


def test_everybody_gets_all_when_there_is_enough() -> None:
    scene = Scene(*servers(2))
    scene.run("A", {"T1": 2}, most=6, estimate_s=150.0)
    scene.run("B", {"T1": 2}, most=6, estimate_s=60.0)
    scene.carry_out()
    assert sizes(scene) == {"A": 6, "B": 6}


def test_a_job_grows_to_an_allowed_size_only() -> None:
    scene = Scene(*servers(1))
    scene.run("other", {"T1": 1})
    scene.run("E", {"T1": 2}, most=8, sizes=(2, 4, 8))
    scene.at(1.0).carry_out()
    assert sizes(scene)["E"] == 4


def test_what_an_allowed_size_can_not_use_goes_to_another_job() -> None:
    scene = Scene(*servers(1))
    scene.run("E", {"T1": 2}, most=8, sizes=(2, 4, 8), estimate_s=7200.0)
    scene.run("F", {"T1": 1}, most=8, estimate_s=600.0)
    scene.at(1.0).carry_out()
    assert sizes(scene) == {"E": 4, "F": 4}


def test_a_base_demand_goes_before_any_growth() -> None:
    scene = Scene(*servers(1))
    scene.run("E", {"T1": 2}, most=8, estimate_s=36_000.0)
    scene.submit("B", 5, estimate_s=60.0)
    scene.carry_out()
    assert sizes(scene) == {"E": 3, "B": 5}


# What a resize costs.


@pytest.mark.parametrize(("resize_s", "workers"), [(49.0, 4), (50.0, 2), (60.0, 2)])
def test_a_resize_is_done_only_if_it_gains_more_than_it_costs(resize_s: float, workers: int) -> None:
    scene = Scene(*servers(1), resize_s=resize_s)
    # 100 s left with two workers are 50 s with four.
    scene.run("E", {"T1": 2}, most=4, estimate_s=100.0)
    scene.carry_out()
    assert sizes(scene) == {"E": workers}


def test_a_job_that_starts_gets_flexible_workers_at_launch_and_pays_nothing() -> None:
    scene = Scene(*servers(1), resize_s=1000.0)
    scene.submit("E", 2, 4, estimate_s=100.0)
    plan = scene.carry_out()
    assert plan.steps == (Launch("E", 1, (Slot("T1", 2, 2, 1),)),)


def test_a_transfer_is_not_worth_two_resizes() -> None:
    for resize_s, moved in ((30.0, True), (60.0, False)):
        scene = Scene(*servers(1), resize_s=resize_s)
        # All that A can gain is 100 s, and B loses 20 s by it.
        scene.run("A", {"T1": 2}, most=4, estimate_s=200.0)
        scene.run("B", {"T1": (4, 2)}, estimate_s=60.0)
        scene.carry_out()
        assert bool(slots(scene, "B")) != moved


# When.


def test_a_job_rests_for_the_cool_down_between_two_growths() -> None:
    scene = Scene(*servers(1))
    scene.run("X", {"T1": 4}, estimate_s=100.0)
    scene.run("E", {"T1": 2}, most=8)
    scene.carry_out()
    assert sizes(scene)["E"] == 4
    resized(scene).at(100.0).finish("X")
    decision = scene.decide()
    assert decision.empty
    assert decision.wake_at_s == 300.0
    scene.at(299.0).carry_out()
    assert sizes(scene) == {"E": 4}
    scene.at(300.0).carry_out()
    assert sizes(scene) == {"E": 8}


def test_a_job_whose_growth_was_taken_back_rests_twice_as_long() -> None:
    scene = Scene(*servers(1))
    scene.run("E", {"T1": 2}, most=8)
    scene.carry_out()
    resized(scene).at(100.0).submit("B", 6, estimate_s=60.0)
    scene.carry_out()
    resized(scene.vacated())
    assert sizes(scene) == {"E": 2, "B": 6}
    scene.happens(ev.Launched(100.0, "B", 1)).at(200.0).finish("B")
    assert scene.at(300.0).decide().wake_at_s == 600.0
    scene.at(599.0).carry_out()
    assert sizes(scene) == {"E": 2}
    scene.at(600.0).carry_out()
    assert sizes(scene) == {"E": 8}


def test_flexible_demand_moves_once_in_the_minimum_interval() -> None:
    scene = Scene(*servers(1))
    scene.run("X", {"T1": 3}, estimate_s=30.0)
    scene.run("E", {"T1": 2}, most=3, estimate_s=7200.0)
    scene.run("F", {"T1": 2}, most=5, estimate_s=600.0)
    scene.carry_out()
    assert sizes(scene) == {"X": 3, "E": 3, "F": 2}
    resized(scene).at(30.0).finish("X")
    decision = scene.decide()
    assert decision.empty
    assert decision.wake_at_s == 60.0
    scene.at(60.0).carry_out()
    assert sizes(scene) == {"E": 3, "F": 5}


def test_the_cool_down_and_the_interval_can_be_set() -> None:
    scene = Scene(*servers(1), policy="aryl:cooldown=10s,min_interval=5s")
    scene.run("X", {"T1": 4}, estimate_s=5.0)
    scene.run("E", {"T1": 2}, most=8)
    scene.carry_out()
    resized(scene).at(5.0).finish("X")
    assert scene.decide().wake_at_s == 10.0
    scene.at(10.0).carry_out()
    assert sizes(scene) == {"E": 8}


def test_who_has_just_made_room_for_a_gang_takes_no_other_job_s_workers_at_once() -> None:
    scene = Scene(*servers(1))
    scene.run("E", {"T1": (1, 3)}, estimate_s=36_000.0)
    scene.run("F", {"T1": (1, 3)}, estimate_s=600.0)
    scene.submit("B", 5)
    plan = scene.carry_out()
    assert {step.job_id: step.cause for step in resizes(plan)} == {
        "E": Cause.BASE_DEMAND,
        "F": Cause.BASE_DEMAND,
    }
    again = scene.decide()
    assert again.empty


# Where.


def test_flexible_workers_go_to_loaned_servers_first() -> None:
    scene = Scene(*servers(1), *servers(1, "I")).lend("I1")
    scene.run("E", {"T1": 2}, most=6, fungible=True)
    scene.carry_out()
    assert slots(scene, "E") == {"I1": 4}


def test_flexible_workers_of_a_job_that_is_not_fungible_stay_off_loaned_servers() -> None:
    scene = Scene(*servers(1), *servers(1, "I")).lend("I1")
    scene.run("E", {"T1": 4}, most=12)
    scene.carry_out()
    assert slots(scene, "E") == {"T1": 4}


def test_flexible_workers_keep_off_loaned_servers_with_base_workers_while_there_is_a_choice() -> None:
    scene = Scene(*servers(1), *servers(2, "I")).lend("I1", "I2")
    scene.run("full", {"T1": 6})
    scene.run("base", {"I1": 4}, fungible=True)
    scene.run("E", {"T1": 2}, most=6, fungible=True)
    scene.carry_out()
    # The best fit would be the four that are free on I1.
    assert slots(scene, "E") == {"I2": 4}


def test_flexible_workers_share_a_loaned_server_with_base_workers_when_there_is_no_choice() -> None:
    scene = Scene(*servers(1), *servers(1, "I")).lend("I1")
    scene.run("full", {"T1": 6})
    scene.run("base", {"I1": 4}, fungible=True)
    scene.run("E", {"T1": 2}, most=6, fungible=True)
    scene.carry_out()
    assert slots(scene, "E") == {"I1": 4}


def test_what_does_not_fit_on_loaned_servers_goes_to_training_servers() -> None:
    scene = Scene(*servers(1), *servers(1, "I", gpus=4)).lend("I1")
    scene.run("E", {"T1": 2}, most=8, fungible=True)
    scene.carry_out()
    assert slots(scene, "E") == {"I1": 4, "T1": 2}


# Mixed GPU types.


def test_a_job_that_is_not_heterogeneous_never_mixes() -> None:
    scene = Scene(*servers(1), *t4(1)).lend("I1")
    scene.run("full", {"T1": 6})
    scene.run("E", {"T1": 2}, most=8, fungible=True, estimate_s=36_000.0)
    assert scene.decide().empty


def test_a_job_that_loses_nothing_by_mixing_goes_to_loaned_servers_first() -> None:
    scene = Scene(*servers(1), *t4(1)).lend("I1")
    scene.run("E", {"T1": 2}, most=8, fungible=True, heterogeneous=True)
    scene.at("1m").carry_out()
    assert slots(scene, "E") == {"I1": 6}


LOSSY: dict[str, Any] = {"fungible": True, "heterogeneous": True, "mixed_efficiency": 0.7}


def test_a_job_that_loses_by_mixing_gets_its_own_type_first() -> None:
    scene = Scene(*servers(1), *t4(1)).lend("I1")
    scene.run("E", {"T1": 2}, most=8, **LOSSY)
    scene.at("1m").carry_out()
    assert slots(scene, "E") == {"T1": 6}


@pytest.mark.parametrize(("most", "mixes"), [(5, False), (6, True)])
def test_a_job_that_loses_by_mixing_mixes_only_if_that_pays(most: int, mixes: bool) -> None:
    scene = Scene(*servers(1), *t4(1)).lend("I1")
    scene.run("full", {"T1": 4})
    # 0.7 of five workers are less than four; of six, more.
    scene.run("E", {"T1": 4}, most=most, **LOSSY)
    scene.at("1m").carry_out()
    assert slots(scene, "E") == ({"I1": most - 4} if mixes else {})


def test_a_job_takes_its_own_type_and_mixes_in_one_pass_if_both_pay() -> None:
    scene = Scene(*servers(1), *t4(1)).lend("I1")
    scene.run("full", {"T1": 4})
    scene.run("E", {"T1": 2}, most=12, **LOSSY)
    scene.at("1m").carry_out()
    assert slots(scene, "E") == {"T1": 2, "I1": 8}


def test_more_gpus_on_a_slow_type_weigh_more() -> None:
    scene = Scene(*servers(1), *t4(1, speed=0.5)).lend("I1")
    scene.run("full", {"T1": 6})
    scene.run("E", {"T1": 2}, most=8, fungible=True, heterogeneous=True)
    scene.at("1m").carry_out()
    assert scene.cluster.jobs["E"].slots["I1"] == Slot("I1", 0, 4, 2)


def test_speeds_enter_the_values_when_slower_gpus_make_jobs_slower() -> None:
    # One T4 at half speed is free. It takes X from 120 to 80 s, and Y from 100 to 80 s; at full speed it
    # would save X 20 s and Y 33 s.
    scene = Scene(*servers(1), *t4(1, speed=0.5), accounting=Accounting.SLOWER).lend("I1")
    scene.run("full", {"T1": 6})
    scene.run("loaned", {"I1": 5}, fungible=True)
    scene.run("X", {"I1": 2}, most=3, fungible=True, estimate_s=60.0)
    scene.run("Y", {"T1": 2}, most=3, fungible=True, heterogeneous=True, estimate_s=100.0)
    assert [one.job_id for one in scene.at(1.0).decide().rescales] == ["X"]


@pytest.mark.parametrize("picky", [{"heterogeneous": True}, {"sizes": (2, 8)}])
def test_a_moment_passes_after_the_launch_of_a_job_that_is_particular(picky: dict[str, object]) -> None:
    """Whoever has stood back for it at its launch would otherwise take its place at once."""
    scene = Scene(*servers(1), *t4(1)).lend("I1")
    scene.run("E", {"I1": 2}, most=8, fungible=True, **picky)
    scene.run("other", {"T1": 2}, most=6)
    decision = scene.decide()
    assert (decision.empty, decision.wake_at_s) == (True, 1.0)
    scene.at("1s").carry_out()
    assert slots(scene, "E") == {"I1": 6}
    assert slots(scene, "other") == {"T1": 4}
