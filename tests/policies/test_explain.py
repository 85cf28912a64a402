"""Why does it wait? Each reason once, with its numbers, on the smallest cluster that has it."""

from __future__ import annotations

import pytest

from aryl.core import events as ev
from aryl.core.model import Accounting
from aryl.policies.reasons import Wait, WaitReason
from aryl.testing import Scene, servers

TYPES = (("H100", 1.0), ("A100", 0.5))


def test_next_pass_for_a_job_that_fits() -> None:
    scene = Scene(*servers(1))
    scene.run("A", {"T1": 3})
    scene.at("1m").submit("B", 4)
    assert scene.explain("B") == WaitReason("B", Wait.NEXT_PASS, 4, 5, 5, (), 60.0)


def test_next_pass_for_a_job_that_only_flexible_workers_are_in_the_way_of() -> None:
    scene = Scene(*servers(1))
    scene.run("E", {"T1": (2, 6)})
    scene.submit("B", 4)
    assert scene.explain("B") == WaitReason("B", Wait.NEXT_PASS, 4, 0, 0, (), 0.0)


def test_no_matching_gpu_for_a_type_that_nobody_has() -> None:
    scene = Scene(*servers(2))
    scene.submit("P", 1, gpu_types=(("MI300", 1.0),))
    assert scene.explain("P") == WaitReason("P", Wait.NO_MATCHING_GPU, 1)


def test_no_matching_gpu_for_a_worker_that_is_larger_than_any_server() -> None:
    scene = Scene(*servers(2))
    scene.submit("P", 2, gpus_per_worker=9)
    assert scene.explain("P") == WaitReason("P", Wait.NO_MATCHING_GPU, 18)


def test_no_matching_gpu_while_the_only_server_that_has_one_is_down() -> None:
    scene = Scene(*servers(1), *servers(1, "M", gpu_type="MI300"))
    scene.submit("P", 1, gpu_types=(("MI300", 1.0),))
    scene.happens(ev.ServerLost(0.0, "M1"))
    assert scene.explain("P").wait is Wait.NO_MATCHING_GPU
    scene.happens(ev.ServerReturned(0.0, "M1"))
    assert scene.explain("P").wait is Wait.NEXT_PASS


def test_too_large_for_a_gang_that_would_not_fit_into_the_empty_cluster() -> None:
    scene = Scene(*servers(2))
    scene.submit("G", 17)
    assert scene.explain("G") == WaitReason("G", Wait.TOO_LARGE, 17)


def test_vacating_names_those_that_are_leaving_its_place() -> None:
    scene = Scene(*servers(1), vacate_s=60.0)
    scene.run("low", {"T1": 8})
    scene.at("1m").submit("urgent", 8, priority=1)
    scene.carry_out()
    assert scene.explain("urgent") == WaitReason("urgent", Wait.VACATING, 8, behind=("low",), starts_s=120.0)


def test_behind_the_head_names_the_head_of_a_strict_queue() -> None:
    scene = Scene(*servers(1), policy="fifo")
    scene.run("A", {"T1": 4})
    scene.submit("head", 8)
    scene.submit("small", 1)
    assert scene.explain("small") == WaitReason("small", Wait.BEHIND_THE_HEAD, 1, 4, 4, ("head",))
    assert scene.explain("head").wait is Wait.NOT_ENOUGH_FREE


def test_not_enough_free_says_what_has_to_end_and_when() -> None:
    scene = Scene(*servers(2))
    scene.run("A", {"T1": 8}, estimate_s=600.0)
    scene.run("B", {"T2": 6}, estimate_s=1200.0)
    scene.at("1m").submit("G", 10)
    assert scene.explain("G") == WaitReason("G", Wait.NOT_ENOUGH_FREE, 10, 2, 2, ("A",), 600.0)


def test_not_enough_free_without_estimates_has_no_time() -> None:
    scene = Scene(*servers(1))
    scene.run("A", {"T1": 8}, estimate_s=None)
    scene.submit("G", 4)
    assert scene.explain("G") == WaitReason("G", Wait.NOT_ENOUGH_FREE, 4, 0, 0)


def test_flexible_workers_of_a_higher_priority_are_in_the_way_until_their_job_ends() -> None:
    scene = Scene(*servers(1))
    scene.run("E", {"T1": (2, 6)}, priority=1, estimate_s=2400.0)
    scene.submit("P", 2)
    # With four times its gang the job ends in a quarter of the time.
    assert scene.explain("P") == WaitReason("P", Wait.NOT_ENOUGH_FREE, 2, 0, 0, ("E",), 600.0)


def test_fragmented_names_the_best_server() -> None:
    scene = Scene(*servers(3), policy="aryl:scatter=never")
    for name, used in (("T1", 7), ("T2", 6), ("T3", 7)):
        scene.run(f"on {name}", {name: used}, estimate_s=float(used) * 100)
    scene.submit("F", 4)
    reason = scene.explain("F")
    assert (reason.wait, reason.needed_gpus, reason.free_gpus) == (Wait.FRAGMENTED, 4, 4)
    assert reason.best_server_free_gpus == 2
    assert (reason.behind, reason.starts_s) == (("on T2",), 600.0)


def test_a_job_that_ends_sooner_but_elsewhere_is_not_in_the_way() -> None:
    scene = Scene(*servers(1), *servers(1, "H", gpu_type="H100"), policy="sjf:scatter=never")
    scene.run("elsewhere", {"H1": 8}, gpu_types=(("H100", 1.0),), estimate_s=60.0)
    scene.run("A", {"T1": 8}, estimate_s=600.0)
    scene.submit("P", 4, gpu_types=(("V100", 1.0),))
    assert scene.explain("P") == WaitReason("P", Wait.NOT_ENOUGH_FREE, 4, 0, 0, ("A",), 600.0)


def test_a_job_whose_place_is_still_being_vacated_is_in_the_way_of_the_next() -> None:
    scene = Scene(*servers(1), vacate_s=60.0)
    scene.run("low", {"T1": 8}, estimate_s=7200.0)
    scene.at("1m").submit("urgent", 8, priority=1, estimate_s=600.0)
    scene.carry_out()
    scene.submit("next", 8, estimate_s=60.0)
    assert scene.explain("next") == WaitReason("next", Wait.NOT_ENOUGH_FREE, 8, 0, 0, ("urgent",), 720.0)


def test_fragmented_for_workers_that_no_server_has_room_for() -> None:
    scene = Scene(*servers(2))
    scene.run("A", {"T1": 6, "T2": 6})
    scene.submit("F", 1, gpus_per_worker=4)
    assert scene.explain("F").wait is Wait.FRAGMENTED


def test_gpus_of_types_that_may_not_be_mixed_do_not_add_up() -> None:
    scene = Scene(*servers(1, "H", gpu_type="H100"), *servers(1, "A", gpu_type="A100"))
    types = (("H100", 1.0), ("A100", 1.0))
    scene.run("on H1", {"H1": 4}, gpu_types=types, estimate_s=600.0)
    scene.run("on A1", {"A1": 3}, gpu_types=types, estimate_s=600.0)
    scene.submit("pure", 8, gpu_types=types)
    assert scene.explain("pure") == WaitReason("pure", Wait.NOT_ENOUGH_FREE, 8, 5, 5, ("on H1",), 600.0)


def test_gpus_are_counted_as_the_workers_take_them() -> None:
    scene = Scene(*servers(1), *servers(2, "I", gpu_type="T4", speed=0.5))
    scene.demand(0.0).lend("I1", "I2")
    scene.run("A", {"T1": 8}, estimate_s=600.0)
    scene.run("B", {"I1": 3}, fungible=True, estimate_s=600.0)
    # A worker takes two T4s: the 10 that are free hold five workers.
    scene.submit("F", 6, fungible=True)
    assert scene.explain("F") == WaitReason("F", Wait.NOT_ENOUGH_FREE, 12, 10, 8, ("A",), 600.0)


def test_too_large_for_a_gang_that_the_user_has_made_too_large() -> None:
    scene = Scene(*servers(1))
    scene.run("A", {"T1": 8})
    scene.submit("G", 4)
    scene.happens(ev.LimitsChanged(0.0, "G", 9, 9))
    assert scene.explain("G") == WaitReason("G", Wait.TOO_LARGE, 9)


def test_no_matching_gpu_where_the_type_is_the_inference_pools_and_nothing_is_lent() -> None:
    specs = (*servers(1), *servers(1, "I", gpu_type="T4"))
    scene = Scene(*specs, policy="fifo")
    scene.submit("F", 1, gpu_types=(("T4", 1.0),), fungible=True)
    assert scene.explain("F") == WaitReason("F", Wait.NO_MATCHING_GPU, 1)
    assert not scene.policy.could_ever_start(scene.cluster, scene.cluster.jobs["F"].spec)


def test_reserved_names_the_gang_that_has_the_reservation() -> None:
    scene = Scene(*servers(2), policy="aryl:reserve_after=0")
    scene.run("A", {"T1": 8})
    scene.submit("L", 16, estimate_s=7200.0)
    scene.at("1m").submit("long", 4, estimate_s=7200.0)
    assert scene.explain("long") == WaitReason("long", Wait.RESERVED, 4, 8, 8, ("L",))
    assert scene.explain("L").wait is Wait.NOT_ENOUGH_FREE
    assert scene.explain("L").starts_s == 3600.0


def test_victims_rest_says_until_when() -> None:
    scene = Scene(*servers(1), policy="aryl:min_runtime=20m")
    scene.at("5m").run("low", {"T1": 8})
    scene.at("10m").submit("urgent", 8, priority=1)
    assert scene.explain("urgent") == WaitReason("urgent", Wait.VICTIMS_REST, 8, 0, 0, ("low",), 25 * 60.0)


def test_faster_later_says_when_the_fast_gpus_are_expected() -> None:
    specs = (*servers(1, "H", gpu_type="H100"), *servers(1, "A", gpu_type="A100", speed=0.5))
    scene = Scene(*specs, accounting=Accounting.SLOWER)
    scene.run("first", {"H1": 8}, gpu_types=TYPES, estimate_s=600.0)
    scene.submit("patient", 8, gpu_types=TYPES, estimate_s=3600.0)
    assert scene.explain("patient") == WaitReason("patient", Wait.FASTER_LATER, 8, 8, 8, (), 600.0)
    assert scene.decide().empty
    scene.submit("hasty", 8, gpu_types=TYPES, estimate_s=300.0)
    assert [start.job_id for start in scene.decide().starts] == ["hasty"]


def test_not_waiting_for_a_job_that_runs() -> None:
    scene = Scene(*servers(1))
    scene.run("A", {"T1": 8})
    assert scene.explain("A") == WaitReason("A", Wait.NOT_WAITING)


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "sjf", "srtf", "las", "opportunistic", "aryl"])
def test_every_policy_explains_a_wait_and_leaves_the_state_as_it_was(policy: str) -> None:
    scene = Scene(*servers(1), policy=policy)
    scene.run("A", {"T1": 8}, estimate_s=10.0)
    scene.at("1s").submit("B", 8)
    free = list(scene.cluster.free.free)
    assert scene.explain("B").behind == ("A",)
    assert scene.explain("B").needed_gpus == 8
    assert free == scene.cluster.free.free


def test_an_unknown_job_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="nobody"):
        Scene(*servers(1)).explain("nobody")
