"""How many inference servers are on loan, and which go back."""

from __future__ import annotations

import pytest

from aryl.core import events as ev
from aryl.core.decision import Recall
from aryl.core.model import Health, Hosting, Slot, Tenure
from aryl.core.plan import Cause, Reclaim, Stop
from aryl.core.server import LOAN_RETRY_S
from aryl.testing import Scene, servers


def both_pools(training: int = 1, inference: int = 4, policy: str = "aryl", **rules: object) -> Scene:
    return Scene(*servers(training), *servers(inference, "I"), policy=policy, **rules)


def tenure(scene: Scene, server_id: str) -> Tenure:
    return scene.cluster.server_by_id[server_id].tenure


def hosting(scene: Scene, need: float, **replicas: tuple[int, ...]) -> Scene:
    """The inference side reports its need, and where its replicas stand."""
    stands = tuple(Hosting(name, gpus) for name, gpus in replicas.items())
    return scene.happens(ev.DemandReported(scene.cluster.now, need, need, None, stands))


def test_before_the_inference_side_has_spoken_nothing_is_lent() -> None:
    assert both_pools().decide().empty


def test_what_the_forecast_and_the_headroom_leave_is_lent_from_the_end_of_the_list() -> None:
    scene = both_pools(headroom_servers=1).demand(1.2, 1.2)
    assert scene.decide().lend == ("I4",)
    scene.demand(0.0)
    assert scene.decide().lend == ("I4", "I3", "I2")


def test_a_forecast_counts_more_than_the_present_need() -> None:
    assert both_pools().demand(0.0, 3.0).decide().lend == ("I4",)


def test_a_draining_or_broken_server_is_not_lent() -> None:
    scene = both_pools(inference=3).demand(0.0)
    scene.happens(ev.ServerDrained(0.0, "I3", True), ev.ServerLost(0.0, "I2"))
    assert scene.decide().lend == ("I1",)


def test_nothing_is_lent_twice_and_the_second_pass_is_quiet() -> None:
    scene = both_pools().demand(2.0)
    scene.carry_out()
    assert scene.cluster.on_loan == 2
    assert scene.decide().empty


def test_an_idle_server_goes_back_first() -> None:
    scene = both_pools(inference=3).lend("I1", "I2", "I3")
    scene.run("J", {"I1": 8}, fungible=True)
    scene.run("K", {"I3": 8}, fungible=True)
    scene.demand(1.0)
    decision = scene.decide()
    assert decision.recall == (Recall("I2", 0.0, decision.recall[0].weighed),)
    assert not decision.preemptions


def test_a_server_with_flexible_workers_only_goes_back_by_scaling_in() -> None:
    scene = both_pools(training=2, inference=2).lend("I1", "I2")
    scene.run("J", {"I1": 8}, fungible=True)
    scene.run("E", {"T1": 8, "I2": (0, 4)}, fungible=True)
    scene.run("X", {"T2": 8})
    scene.demand(1.0)
    decision = scene.decide()
    assert [recall.server_id for recall in decision.recall] == ["I2"]
    (rescale,) = decision.rescales
    assert (rescale.job_id, rescale.remove, rescale.cause) == ("E", (Slot("I2", 0, 4, 1),), Cause.RECLAIM)
    assert not decision.preemptions


def test_the_paper_s_example_costs_one_job_for_two_servers() -> None:
    scene = both_pools(inference=4).lend("I1", "I2", "I3", "I4")
    scene.run("a", {"I1": 8, "I2": 8}, fungible=True)
    scene.run("b", {"I3": 8}, fungible=True)
    scene.run("c", {"I4": 4}, fungible=True)
    scene.run("d", {"I4": 4}, fungible=True)
    scene.demand(2.0)
    decision = scene.decide()
    assert [recall.server_id for recall in decision.recall] == ["I1", "I2"]
    (preemption,) = decision.preemptions
    assert (preemption.job_id, preemption.beneficiary, preemption.collateral_gpus) == ("a", "I1 I2", 0)
    assert preemption.weighed[0].cost == 0.5


def test_nothing_new_is_placed_on_a_server_that_goes_back() -> None:
    scene = both_pools(training=0, inference=1).lend("I1")
    scene.submit("J", 4, fungible=True)
    scene.demand(1.0)
    decision = scene.decide()
    assert [recall.server_id for recall in decision.recall] == ["I1"]
    assert not decision.starts


def test_a_server_goes_back_when_its_last_worker_has_left() -> None:
    scene = both_pools(inference=1, vacate_s=30.0).lend("I1")
    scene.run("J", {"I1": 8}, fungible=True)
    scene.demand(1.0)
    steps = scene.carry_out().steps
    assert [type(step) for step in steps] == [Reclaim, Stop]
    assert tenure(scene, "I1") is Tenure.RECLAIMING
    scene.at("30s").vacated()
    assert tenure(scene, "I1") is Tenure.OWNED


def test_a_reclaim_under_way_is_withdrawn_when_the_need_falls() -> None:
    scene = both_pools(inference=2, reclaim_within_s=600.0).lend("I1", "I2")
    scene.run("J", {"I1": 8}, fungible=True, estimate_s=300.0)
    scene.run("K", {"I2": 8}, fungible=True)
    scene.demand(1.0)
    scene.carry_out()
    assert tenure(scene, "I1") is Tenure.RECLAIMING
    scene.at("1m").demand(0.0)
    decision = scene.decide()
    assert decision.lend == ("I1",)
    assert not decision.preemptions


def test_a_job_that_was_waited_for_in_vain_is_stopped_in_time_to_be_gone() -> None:
    scene = both_pools(inference=1, reclaim_within_s=600.0, vacate_s=60.0).lend("I1")
    scene.run("J", {"I1": 8}, fungible=True, estimate_s=300.0)
    scene.demand(1.0)
    scene.carry_out()
    assert scene.decide().wake_at_s == 540.0
    scene.at(539.0)
    assert not scene.decide().preemptions
    scene.at(540.0)
    (preemption,) = scene.decide().preemptions
    assert (preemption.job_id, preemption.cause, preemption.beneficiary) == ("J", Cause.RECLAIM, "I1")


def test_a_rule_by_name_decides_otherwise() -> None:
    def recalled(rule: str) -> list[str]:
        scene = both_pools(training=1, inference=2, policy=f"aryl:reclaim={rule}").lend("I1", "I2")
        scene.run("wide", {"I1": 2, "T1": 6}, fungible=True)
        scene.run("wide too", {"I1": 2, "T1": 2}, fungible=True)
        scene.run("narrow", {"I2": 8}, fungible=True)
        scene.demand(1.0)
        return [recall.server_id for recall in scene.decide().recall]

    # Two halves of jobs cost as much as a whole one, but I2 vacates less elsewhere. By GPUs I1 is cheaper.
    assert recalled("server-fraction") == ["I2"]
    assert recalled("count") == ["I2"]
    assert recalled("gpu-fraction") == ["I1"]
    assert recalled("in-order") == ["I1"]


def test_a_server_that_breaks_while_it_is_on_loan_is_nothing_to_recall() -> None:
    scene = both_pools(inference=2).lend("I1", "I2").demand(0.0)
    scene.happens(ev.ServerLost(0.0, "I2"))
    scene.demand(1.0)
    assert [recall.server_id for recall in scene.decide().recall] == ["I1"]


def test_loaning_can_be_switched_off() -> None:
    assert both_pools(policy="aryl:no-loaning").demand(0.0).decide().empty


def test_opportunistic_takes_what_is_idle_now_and_gives_back_the_next_in_order() -> None:
    scene = both_pools(inference=3, policy="opportunistic", headroom_servers=1).demand(1.0, 3.0)
    assert scene.decide().lend == ("I3", "I2")
    scene.lend("I3", "I2")
    scene.run("J", {"I2": 8}, fungible=True)
    scene.demand(2.0)
    plan = scene.carry_out()
    assert [step.server_id for step in plan.steps if isinstance(step, Reclaim)] == ["I3"]
    scene.vacated()
    assert tenure(scene, "I3") is Tenure.OWNED


def test_servers_without_replicas_are_lent_before_those_that_have_to_be_emptied() -> None:
    scene = hosting(both_pools(), 1.0, I1=(1,), I2=(), I4=(2, 1))
    assert scene.decide().lend == ("I3", "I2", "I1")


def test_a_server_whose_replicas_fit_nowhere_stays_and_the_pass_is_at_rest() -> None:
    scene = hosting(both_pools(), 1.0, I1=(6,), I2=(6,), I3=(4, 4), I4=(2,))
    scene.carry_out()
    assert [tenure(scene, f"I{n}") for n in (1, 2, 3)] == [Tenure.OWNED] * 3
    assert tenure(scene, "I4") is Tenure.ON_LOAN
    assert scene.decide().empty


def test_replicas_of_a_server_that_is_handed_over_still_need_their_place() -> None:
    scene = hosting(both_pools(inference=3, confirms_loans=True), 1.0, I1=(4, 2), I2=(2,), I3=(2,))
    assert scene.decide().lend == ("I3",)
    scene.carry_out()
    assert scene.cluster.server_by_id["I3"].handing_over
    assert tenure(scene, "I2") is Tenure.OWNED
    scene.happens(ev.HandedOver(0.0, "I3"))
    assert scene.decide().empty
    hosting(scene, 1.0, I1=(4, 2), I2=(2,))
    assert scene.decide().lend == ("I2",)


def test_a_lost_server_s_replicas_need_a_place_before_more_is_lent() -> None:
    scene = hosting(both_pools(inference=3), 0.0, I1=(4,), I2=(), I3=(8,))
    scene.happens(ev.ServerLost(0.0, "I3"))
    assert scene.decide().empty
    hosting(scene, 0.0, I1=(4,), I2=())
    assert scene.decide().lend == ("I2",)


def test_replicas_on_training_servers_or_on_unknown_ones_are_no_concern() -> None:
    scene = hosting(both_pools(inference=2), 0.0, I1=(), T1=(8,), elsewhere=(8,))
    assert scene.decide().lend == ("I2", "I1")


def test_only_servers_that_are_well_and_not_draining_are_room_for_replicas() -> None:
    def lent(*events: ev.Event) -> tuple[str, ...]:
        scene = hosting(both_pools(inference=2), 0.0, I1=(2,), I2=(3,))
        return scene.happens(*events).decide().lend

    assert lent() == ("I1",)
    assert lent(ev.ServerDrained(0.0, "I2", True)) == ()
    assert lent(ev.HealthChanged(0.0, "I2", Health.QUARANTINED)) == ()
    assert lent(ev.ReclaimRequested(0.0, "I2", 0.0)) == ("I1",)


def test_what_stands_on_an_unwell_server_needs_no_place_but_a_draining_one_is_left() -> None:
    def lent(*events: ev.Event) -> tuple[str, ...]:
        scene = hosting(both_pools(inference=2), 0.0, I1=(), I2=(3,))
        return scene.happens(*events).decide().lend

    assert lent(ev.HealthChanged(0.0, "I2", Health.RESTING)) == ("I1",)
    assert lent(ev.ServerDrained(0.0, "I2", True)) == ()


@pytest.mark.parametrize("known", [True, False])
def test_a_server_that_does_not_serve_yet_is_lent_before_one_that_does(known: bool) -> None:
    scene = both_pools(inference=3, confirms_returns=True).lend("I1").demand(3.0)
    scene.carry_out()
    assert scene.cluster.server_by_id["I1"].restoring
    scene = hosting(scene, 1.0, I3=(1,)) if known else scene.demand(1.0)
    assert scene.decide().lend == (("I1", "I2") if known else ("I1", "I3"))


def test_a_server_that_loads_its_replicas_is_no_room_for_others() -> None:
    scene = both_pools(inference=2, confirms_returns=True).lend("I1").demand(2.0)
    scene.carry_out()
    hosting(scene, 1.0, I1=(4,), I2=(1,))
    assert scene.decide().lend == ("I1",)
    hosting(scene, 1.0, I1=(1,), I2=(8,))
    assert scene.decide().empty


def test_reclaims_are_withdrawn_before_idle_servers_are_emptied() -> None:
    scene = both_pools(inference=3, reclaim_within_s=600.0).lend("I1", "I2")
    scene.run("J", {"I1": 8}, fungible=True, estimate_s=300.0)
    scene.run("K", {"I2": 8}, fungible=True)
    scene.demand(2.0)
    scene.carry_out()
    assert tenure(scene, "I1") is Tenure.RECLAIMING
    assert hosting(scene.at("1m"), 1.0, I3=(8,)).decide().lend == ("I1",)
    assert hosting(scene, 0.0, I3=()).decide().lend == ("I1", "I3")
    assert hosting(scene, 0.0, I3=(1,)).decide().lend == ("I1",)


def test_a_server_whose_loan_was_called_off_is_thought_of_again_later() -> None:
    scene = hosting(both_pools(inference=2, confirms_loans=True), 1.0, I1=(1,), I2=())
    scene.carry_out()
    scene.at(10.0).happens(ev.LoanCalledOff(10.0, "I2"))
    assert scene.decide().lend == ("I1",)
    hosting(scene, 1.0, I1=(8,), I2=(1,))
    decision = scene.decide()
    assert (decision.lend, decision.wake_at_s) == ((), 10.0 + LOAN_RETRY_S)
