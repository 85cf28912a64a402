"""Who has to go so that a waiting job can start: as few as possible, the cheapest, and never for nothing."""

from __future__ import annotations

import pytest

from aryl.core.check import check
from aryl.core.decision import Decision
from aryl.core.model import Accounting, Slot
from aryl.core.plan import Cause, Claim, Plan, Reserve, Stop, Weighed
from aryl.errors import DecisionError
from aryl.testing import Scene, servers

HOUR_S = 3600.0


def stopped(decision: Decision) -> list[str]:
    return [preemption.job_id for preemption in decision.preemptions]


def test_a_higher_priority_stops_the_job_that_loses_least_work() -> None:
    scene = Scene(*servers(2))
    scene.run("old", {"T1": 8})
    scene.at("10m").run("young", {"T2": 8})
    scene.at("20m").submit("urgent", 8, priority=1)
    decision = scene.decide()
    (preemption,) = decision.preemptions
    assert (preemption.job_id, preemption.cause, preemption.beneficiary) == (
        "young",
        Cause.PRIORITY,
        "urgent",
    )
    assert preemption.weighed == (Weighed("young", 600.0 * 8), Weighed("old", 1200.0 * 8))
    assert decision.starts[0].slots == (Slot("T2", 8, 0, 1),)


def test_nobody_is_stopped_for_a_job_of_the_same_priority() -> None:
    scene = Scene(*servers(1))
    scene.run("a", {"T1": 8}, priority=3)
    scene.at("1m").submit("b", 8, priority=3)
    assert scene.decide().empty


def test_saved_work_is_not_lost_so_the_job_that_saves_is_stopped_first() -> None:
    scene = Scene(*servers(2))
    scene.run("saves", {"T1": 8}, checkpoint_s=60.0)
    scene.at("10m").run("young", {"T2": 8})
    scene.at("11m").submit("urgent", 8, priority=1)
    assert stopped(scene.decide()) == ["saves"]


def test_one_victim_is_better_than_two_cheaper_ones() -> None:
    scene = Scene(*servers(2))
    scene.run("whole", {"T1": 8})
    scene.at("30m").run("half", {"T2": 4})
    scene.run("other", {"T2": 4})
    scene.at("31m").submit("urgent", 8, priority=1)
    assert stopped(scene.decide()) == ["whole"]


def test_a_victim_that_turns_out_not_to_be_needed_is_left_alone() -> None:
    scene = Scene(*servers(3), policy="aryl:scatter=never")
    scene.run("big", {"T1": 5})
    scene.run("rest", {"T1": 3})
    scene.at("30m").run("cheap", {"T2": 4})
    scene.run("fixed", {"T2": 4}, priority=2)
    scene.run("fixed too", {"T3": 8}, priority=2)
    scene.at("31m").submit("urgent", 8, priority=1)
    # The cheapest comes first while victims are gathered, but its place is of no use.
    assert stopped(scene.decide()) == ["rest", "big"]


def test_a_striped_victim_frees_its_gpus_on_every_server() -> None:
    scene = Scene(*servers(4))
    names = ("T1", "T2", "T3", "T4")
    for number in range(4):
        scene.run(f"j{number}", dict.fromkeys(names, 2))
    scene.at("1m").submit("urgent", 8, priority=1)
    decision = scene.decide()
    assert stopped(decision) == ["j3"]
    assert decision.starts[0].slots == tuple(Slot(name, 2, 0, 1) for name in names)


def test_without_a_complete_place_nobody_is_stopped() -> None:
    scene = Scene(*servers(2))
    scene.run("low", {"T1": 8})
    scene.run("high", {"T2": 8}, priority=9)
    scene.at("1m").submit("urgent", 16, priority=5)
    assert scene.decide().empty


def test_what_victims_do_not_give_comes_from_free_gpus_and_flexible_workers() -> None:
    scene = Scene(*servers(2))
    scene.run("low", {"T1": 4})
    scene.run("elastic", {"T1": (1, 2)}, priority=1)
    scene.run("fixed", {"T2": 8}, priority=9)
    scene.at("1m").submit("urgent", 7, priority=1)
    decision = scene.decide()
    assert stopped(decision) == ["low"]
    (rescale,) = decision.rescales
    assert (rescale.job_id, rescale.remove) == ("elastic", (Slot("T1", 0, 2, 1),))


def test_collateral_gpus_are_those_vacated_where_nobody_needs_them() -> None:
    scene = Scene(*servers(2))
    scene.run("wide", {"T1": 6, "T2": 6})
    scene.run("fixed", {"T1": 2, "T2": 2}, priority=9)
    scene.at("1m").submit("urgent", 6, priority=1)
    (preemption,) = scene.decide().preemptions
    assert preemption.collateral_gpus == 6


def test_the_place_is_claimed_and_the_job_starts_when_the_victim_is_gone() -> None:
    scene = Scene(*servers(1), vacate_s=300.0)
    scene.run("low", {"T1": 8})
    scene.at("10m").submit("urgent", 8, priority=1)
    plan = scene.carry_out()
    assert plan == Plan(
        (
            Stop("low", 1, Cause.PRIORITY, False, "urgent", (Weighed("low", 4800.0),), 0),
            Reserve(Claim(0, "urgent", (Slot("T1", 8, 0, 1),), Cause.PRIORITY)),
        )
    )
    assert not scene.cluster.live
    scene.at("15m").vacated()
    assert list(scene.cluster.live) == ["urgent"]
    assert [entry.job_id for entry in scene.cluster.pending] == ["low"]


def test_nobody_is_stopped_before_the_minimum_running_time() -> None:
    scene = Scene(*servers(1), policy="aryl:min_runtime=20m")
    scene.at("5m").run("low", {"T1": 8})
    scene.at("10m").submit("urgent", 8, priority=1)
    decision = scene.decide()
    assert decision.empty
    assert decision.wake_at_s == 25 * 60
    scene.at("25m")
    assert stopped(scene.decide()) == ["low"]


def test_nobody_is_stopped_at_the_instant_at_which_it_was_started() -> None:
    scene = Scene(*servers(1))
    scene.run("low", {"T1": 8})
    scene.submit("urgent", 8, priority=1)
    decision = scene.decide()
    assert (decision.empty, decision.wake_at_s) == (True, 1.0)


def test_a_project_takes_back_its_share_from_one_that_is_above_its_own() -> None:
    scene = Scene(*servers(1), guaranteed=(("a", 3), ("b", 5)))
    scene.run("a1", {"T1": 4}, project="a")
    scene.run("b1", {"T1": 1}, project="b")
    scene.at("1m").submit("b2", 4, project="b")
    (preemption,) = scene.decide().preemptions
    assert (preemption.job_id, preemption.cause) == ("a1", Cause.QUOTA)


def test_a_project_claims_no_more_than_its_share() -> None:
    scene = Scene(*servers(1), guaranteed=(("a", 3), ("b", 5)))
    scene.run("a1", {"T1": 4}, project="a")
    scene.run("b1", {"T1": 2}, project="b")
    scene.at("1m").submit("b2", 4, project="b")
    assert scene.decide().empty


def test_a_claim_that_is_still_being_vacated_counts_against_the_share() -> None:
    scene = Scene(*servers(2), guaranteed=(("b", 8),), vacate_s=300.0)
    scene.run("a1", {"T1": 8}, project="a")
    scene.run("a2", {"T2": 8}, project="a")
    scene.at("1m").submit("b1", 8, project="b")
    assert [step.job_id for step in scene.carry_out().steps if isinstance(step, Stop)] == ["a2"]
    scene.at("2m").submit("b2", 8, project="b")
    assert scene.decide().empty


def test_a_project_within_its_share_is_safe_from_shares_and_from_priorities_of_others() -> None:
    scene = Scene(*servers(1), guaranteed=(("a", 8), ("b", 8)))
    scene.run("a1", {"T1": 8}, project="a")
    scene.at("1m").submit("b1", 8, project="b", priority=9)
    assert scene.decide().empty
    scene.submit("a2", 8, project="a", priority=9)
    assert stopped(scene.decide()) == ["a1"]


def test_a_project_is_not_pushed_below_its_share_by_several_victims() -> None:
    scene = Scene(*servers(1), guaranteed=(("a", 4), ("b", 8)))
    scene.run("a1", {"T1": 4}, project="a")
    scene.run("a2", {"T1": 4}, project="a")
    scene.at("1m").submit("b1", 8, project="b")
    assert scene.decide().empty
    scene.submit("b2", 4, project="b")
    assert stopped(scene.decide()) == ["a2"]


def test_jobs_of_no_project_have_no_share_to_stand_on() -> None:
    scene = Scene(*servers(1), guaranteed=(("b", 8),))
    scene.run("nobody's", {"T1": 8})
    scene.at("1m").submit("b1", 8, project="b")
    assert stopped(scene.decide()) == ["nobody's"]


def test_flexible_workers_of_a_project_do_not_make_its_gangs_victims() -> None:
    scene = Scene(*servers(2), guaranteed=(("a", 8), ("b", 8)))
    scene.run("a1", {"T1": (4, 4)}, project="a")
    scene.run("a2", {"T2": 4}, project="a")
    scene.run("c1", {"T2": 4})
    scene.at("1m").submit("b1", 4, project="b")
    decision = scene.decide()
    assert not decision.preemptions
    assert [rescale.job_id for rescale in decision.rescales] == ["a1"]


def test_a_job_that_waits_by_its_own_will_preempts_nobody() -> None:
    specs = (*servers(1, "H", gpu_type="H100"), *servers(1, "A", gpu_type="A100", speed=0.5))
    scene = Scene(*specs, policy="aryl:no-scaling", accounting=Accounting.SLOWER)
    types = (("H100", 1.0), ("A100", 0.5))
    scene.run("low", {"H1": 8}, gpu_types=types, estimate_s=600.0)
    scene.at("1m").submit("urgent", 8, gpu_types=types, priority=1, estimate_s=HOUR_S)
    assert scene.decide().empty


def test_preemption_can_be_switched_off() -> None:
    scene = Scene(*servers(1), policy="aryl:no-preemption")
    scene.run("low", {"T1": 8})
    scene.at("1m").submit("urgent", 8, priority=1)
    assert scene.decide().empty


def test_the_scene_refuses_a_decision_that_cannot_be() -> None:
    scene = Scene(*servers(1), policy="aryl")
    scene.run("low", {"T1": 8})
    scene.at("1m").submit("urgent", 8, priority=1)
    decision = scene.decide()
    scene.finish("low")
    with pytest.raises(DecisionError, match="low"):
        check(scene.cluster, decision)


def test_who_runs_within_the_share_is_safe_while_another_of_the_project_runs_beyond_it() -> None:
    """Stopped together with that one, it would take its place back at once."""
    scene = Scene(*servers(1), guaranteed=(("a", 4), ("b", 3)))
    scene.run("beyond", {"T1": 4}, project="b")
    scene.at("1m").run("within", {"T1": 2}, project="b")
    scene.at("2m").submit("urgent", 8, priority=2, project="a")
    assert scene.decide().empty
    scene.submit("less", 6, priority=2, project="a")
    assert stopped(scene.decide()) == ["beyond"]


def test_a_job_too_large_for_its_project_s_share_leaves_those_within_it_alone() -> None:
    """Beyond the share it could be stopped by anybody, and those within it would come back."""
    scene = Scene(*servers(1), guaranteed=(("a", 4),))
    scene.run("small", {"T1": 3}, project="a")
    scene.run("other", {"T1": 5}, priority=2)
    scene.at("1m").submit("large", 8, priority=3, project="a")
    assert stopped(scene.decide()) == []
    scene.submit("fits", 3, priority=1, project="a")
    assert stopped(scene.decide()) == ["small"]


def test_a_share_counts_what_a_job_needs_and_not_what_it_takes_on_slower_gpus() -> None:
    slow = servers(1, "I", gpu_type="T4", speed=0.5)
    scene = Scene(*servers(1), *slow, guaranteed=(("a", 4),)).lend("I1")
    scene.run("full", {"T1": 8}, priority=3)
    scene.run("small", {"I1": 3}, project="a", fungible=True)
    assert scene.cluster.jobs["small"].gpus == 6
    scene.at("1m").submit("urgent", 4, priority=1, fungible=True)
    assert scene.decide().empty
