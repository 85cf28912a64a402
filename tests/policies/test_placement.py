"""Where workers stand: fewest servers, fullest first, and apart from flexible workers on loaned servers."""

from __future__ import annotations

from aryl.core.model import Accounting, Slot
from aryl.testing import Scene, servers


def placed(scene: Scene, job_id: str) -> dict[str, tuple[int, int]]:
    """Base and flexible workers by server of a job that the next pass starts; empty if it doesn't."""
    for start in scene.decide().starts:
        if start.job_id == job_id:
            return {slot.server_id: (slot.base, slot.flexible) for slot in start.slots}
    return {}


def test_a_gang_takes_the_fullest_server_that_can_hold_it() -> None:
    scene = Scene(*servers(4))
    for name, used in (("T1", 2), ("T2", 4), ("T3", 5)):
        scene.run(name, {name: used})
    scene.submit("G", 4)
    assert placed(scene, "G") == {"T2": (4, 0)}


def test_among_equal_servers_the_first_in_the_list() -> None:
    scene = Scene(*servers(3))
    scene.submit("G", 4)
    assert placed(scene, "G") == {"T1": (4, 0)}


def test_a_large_gang_takes_whole_servers_and_best_fit_for_the_rest() -> None:
    scene = Scene(*servers(4))
    scene.run("A", {"T1": 3})
    scene.run("B", {"T2": 4})
    scene.submit("G", 12)
    assert placed(scene, "G") == {"T3": (8, 0), "T2": (4, 0)}


def test_a_gang_that_cannot_have_whole_servers_is_scattered_over_the_emptiest() -> None:
    scene = Scene(*servers(4))
    for name, used in (("T1", 7), ("T2", 2), ("T3", 4), ("T4", 5)):
        scene.run(name, {name: used})
    scene.submit("G", 11)
    # Six on T2, four on T3, and the last one where it leaves no gap.
    assert placed(scene, "G") == {"T2": (6, 0), "T3": (4, 0), "T1": (1, 0)}


def test_with_scatter_never_it_waits() -> None:
    scene = Scene(*servers(2), policy="aryl:scatter=never")
    scene.run("A", {"T1": 4, "T2": 4})
    scene.submit("G", 6)
    assert placed(scene, "G") == {}


def test_a_worker_stands_on_one_server() -> None:
    scene = Scene(*servers(2))
    scene.run("A", {"T1": 5, "T2": 5})
    scene.submit("G", 1, gpus_per_worker=4)
    assert placed(scene, "G") == {}
    scene.submit("H", 2, gpus_per_worker=3)
    assert placed(scene, "H") == {"T1": (1, 0), "T2": (1, 0)}


def test_two_jobs_of_one_pass_see_each_other() -> None:
    scene = Scene(*servers(2))
    scene.submit("G", 6)
    scene.submit("H", 6)
    assert placed(scene, "G") == {"T1": (6, 0)}
    assert placed(scene, "H") == {"T2": (6, 0)}


def test_training_servers_come_first_and_loaned_ones_are_for_fungible_jobs() -> None:
    scene = Scene(*servers(1), *servers(1, "I"), policy="aryl:no-scaling").lend("I1")
    scene.submit("G", 8, fungible=True)
    assert placed(scene, "G") == {"T1": (8, 0)}
    scene.run("A", {"T1": 8})
    scene.submit("H", 8)
    assert placed(scene, "G") == {"I1": (8, 0)}
    assert placed(scene, "H") == {}


def test_flexible_workers_go_to_loaned_servers_first() -> None:
    scene = Scene(*servers(2), *servers(1, "I")).lend("I1")
    scene.submit("E", 8, 12, fungible=True)
    assert placed(scene, "E") == {"T1": (8, 0), "I1": (0, 4)}


def test_on_loaned_servers_base_and_flexible_workers_keep_apart() -> None:
    scene = Scene(*servers(1), *servers(3, "I"), policy="aryl:no-scaling").lend("I1", "I2", "I3")
    scene.run("E", {"T1": 8, "I1": (0, 4)}, fungible=True)
    scene.run("B", {"I2": 4}, fungible=True)
    scene.submit("G", 2, fungible=True)
    assert placed(scene, "G") == {"I2": (2, 0)}
    scene.submit("H", 6, fungible=True)
    assert placed(scene, "H") == {"I3": (6, 0)}


def test_they_share_a_server_when_there_is_no_choice() -> None:
    scene = Scene(*servers(1), *servers(1, "I"), policy="aryl:no-scaling").lend("I1")
    scene.run("E", {"T1": 8, "I1": (0, 4)}, fungible=True)
    scene.submit("G", 4, fungible=True)
    assert placed(scene, "G") == {"I1": (4, 0)}


def test_a_new_flexible_worker_joins_the_flexible_ones() -> None:
    scene = Scene(*servers(1), *servers(3, "I")).lend("I1", "I2", "I3")
    scene.run("E", {"T1": 4, "I2": (0, 4)}, most=10, fungible=True)
    scene.run("B", {"I1": 4, "T1": 4}, fungible=True)
    (rescale,) = scene.decide().rescales
    assert rescale.add == (Slot("I2", 0, 2, 1),)


def test_only_a_heterogeneous_gang_is_spread_over_two_gpu_types() -> None:
    def scene(heterogeneous: bool) -> Scene:
        specs = (*servers(1), *servers(1, "I", gpu_type="T4", speed=0.5))
        built = Scene(*specs, policy="aryl:no-scaling").lend("I1")
        built.run("A", {"T1": 4})
        built.submit("G", 6, fungible=True, heterogeneous=heterogeneous)
        return built

    assert placed(scene(False), "G") == {}
    # Four on the V100s that are left; each of the other two takes two T4s.
    assert placed(scene(True), "G") == {"T1": (4, 0), "I1": (2, 0)}
    (start,) = scene(True).decide().starts
    assert [slot.gpus for slot in start.slots] == [4, 4]


def test_slower_gpus_are_made_up_for_by_more_of_them_unless_it_is_accounted_otherwise() -> None:
    def gpus(accounting: Accounting) -> int:
        scene = Scene(*servers(1, "I", gpu_type="T4", speed=0.33), accounting=accounting).lend("I1")
        scene.submit("G", 2, fungible=True)
        (start,) = scene.decide().starts
        return start.slots[0].gpus

    assert gpus(Accounting.MORE_GPUS) == 6
    assert gpus(Accounting.SLOWER) == 2


def test_owned_and_loaned_servers_of_one_type_may_be_combined_by_anybody_fungible() -> None:
    scene = Scene(*servers(1), *servers(1, "I"), policy="aryl:no-scaling").lend("I1")
    scene.run("A", {"T1": 4, "I1": 4}, fungible=True)
    scene.submit("G", 6, fungible=True)
    assert placed(scene, "G") == {"T1": (4, 0), "I1": (2, 0)}
