"""The named reclaim rules on small hand-made instances, each answer checked as a whole."""

from __future__ import annotations

import math

import pytest

from aryl.errors import InputError
from aryl.policies.reclaim_greedy import solve
from aryl.policies.reclaim_problem import (
    FlexibleShare,
    Reason,
    ReclaimAnswer,
    ReclaimInstance,
    ReclaimJob,
    ReclaimServer,
    Rule,
    ScaleIn,
    parse_rule,
)

HEURISTICS = [rule for rule in Rule if rule is not Rule.EXACT]
Placement = dict[str, int]


def instance(
    *placements: tuple[Placement, Placement],
    outside: Placement | None = None,
    lost: dict[str, float] | None = None,
    finishes: dict[str, float] | None = None,
) -> ReclaimInstance:
    """Servers as (base GPUs, flexible one-GPU workers) by job; `outside`: base GPUs on one other server."""
    outside, lost, finishes = outside or {}, lost or {}, finishes or {}
    names = sorted({name for base, flexible in placements for name in (*base, *flexible)} | set(outside))
    place = {name: index for index, name in enumerate(names)}
    base_gpus = {n: sum(base.get(n, 0) for base, _ in placements) + outside.get(n, 0) for n in names}
    jobs = [
        ReclaimJob(
            name=name,
            base_servers=sum(name in base for base, _ in placements) + (name in outside),
            base_gpus=base_gpus[name],
            gpus=base_gpus[name] + sum(flexible.get(name, 0) for _, flexible in placements),
            lost_work_gpu_s=lost.get(name, 0.0),
            finishes_in_s=finishes.get(name, math.inf),
        )
        for name in names
    ]
    servers = [
        ReclaimServer(
            f"I{index}",
            {place[name]: gpus for name, gpus in base.items()},
            {place[name]: FlexibleShare(workers, workers) for name, workers in flexible.items()},
        )
        for index, (base, flexible) in enumerate(placements, start=1)
    ]
    return ReclaimInstance(servers, jobs)


def preempted(problem: ReclaimInstance, answer: ReclaimAnswer) -> list[str]:
    return [problem.jobs[job].name for job in answer.jobs_to_preempt]


FOUR_SERVERS = instance(({"a": 8}, {}), ({"a": 8}, {}), ({"b": 8}, {}), ({"c": 4, "d": 4}, {}))
KNOT = instance(
    ({"A": 4, "B": 4}, {}),
    ({"A": 4, "B": 4}, {}),
    ({"C": 2, "D": 2, "E": 2, "F": 2}, {}),
    ({"G": 8}, {}),
)


def test_one_job_on_two_servers_is_the_cheapest_way_to_two_servers() -> None:
    answer = solve(FOUR_SERVERS, 2, Rule.SERVER_FRACTION)
    assert answer.servers_to_return == (0, 1)
    assert preempted(FOUR_SERVERS, answer) == ["a"]
    assert answer.collateral_gpus == 0
    first, second = answer.steps
    assert (first.chosen.cost, first.reason, first.preempts) == (0.5, Reason.RULE, (0,))
    assert [(other.server, other.cost) for other in first.alternatives] == [(1, 0.5), (2, 1.0), (3, 2.0)]
    assert (second.chosen.server, second.reason, second.preempts) == (1, Reason.EMPTIED, ())


def test_the_knot_costs_the_greedy_rule_a_third_job() -> None:
    one = solve(KNOT, 1, Rule.SERVER_FRACTION)
    assert (one.servers_to_return, preempted(KNOT, one)) == ((3,), ["G"])
    two = solve(KNOT, 2, Rule.SERVER_FRACTION)
    assert (two.servers_to_return, preempted(KNOT, two)) == ((3, 0), ["G", "A", "B"])
    assert two.collateral_gpus == 8
    three = solve(KNOT, 3, Rule.SERVER_FRACTION)
    assert (set(three.servers_to_return), len(three.jobs_to_preempt)) == ({0, 1, 3}, 3)


@pytest.mark.parametrize("rule", Rule)
def test_idle_servers_go_first_and_nothing_else_is_touched(rule: Rule) -> None:
    problem = instance(({"a": 8}, {}), ({}, {}), ({}, {"b": 2}), ({}, {}), outside={"b": 8})
    for wanted, expected in ((0, ()), (1, (1,)), (2, (1, 3))):
        answer = solve(problem, wanted, rule)
        assert answer.servers_to_return == expected
        assert (answer.jobs_to_preempt, answer.scale_ins) == ((), ())
        assert all(step.reason is Reason.IDLE for step in answer.steps)


@pytest.mark.parametrize("rule", Rule)
def test_servers_with_flexible_workers_only_are_emptied_by_scaling_in_fewest_first(rule: Rule) -> None:
    problem = instance(({"a": 8}, {}), ({}, {"E": 8}), ({}, {"E": 3, "H": 2}), outside={"E": 8, "H": 8})
    one = solve(problem, 1, rule)
    assert one.servers_to_return == (2,)
    assert one.scale_ins == (ScaleIn(0, 2, 3), ScaleIn(1, 2, 2))
    two = solve(problem, 2, rule)
    assert two.servers_to_return == (2, 1)
    assert two.jobs_to_preempt == ()
    assert [step.reason for step in two.steps] == [Reason.SCALE_IN, Reason.SCALE_IN]


def test_flexible_workers_on_a_server_that_is_preempted_for_are_scaled_in() -> None:
    problem = instance(({"a": 6}, {"E": 2}), ({"b": 4, "c": 4}, {}), outside={"E": 8})
    answer = solve(problem, 1, Rule.SERVER_FRACTION)
    assert answer.servers_to_return == (0,)
    assert preempted(problem, answer) == ["a"]
    assert answer.scale_ins == (ScaleIn(0, 0, 2),)


def test_a_job_that_is_preempted_after_all_is_not_scaled_in_as_well() -> None:
    problem = instance(({}, {"E": 2}), ({"E": 8}, {}))
    answer = solve(problem, 2, Rule.SERVER_FRACTION)
    assert answer.servers_to_return == (0, 1)
    assert (preempted(problem, answer), answer.scale_ins, answer.collateral_gpus) == (["E"], (), 0)


def test_servers_outside_the_loan_count_in_a_jobs_share_and_in_the_collateral() -> None:
    problem = instance(({"a": 8}, {}), ({"b": 8}, {}), outside={"b": 16})
    answer = solve(problem, 1, Rule.SERVER_FRACTION)
    assert (answer.servers_to_return, answer.collateral_gpus) == ((1,), 16)
    assert answer.steps[0].chosen.cost == 0.5
    by_gpus = solve(problem, 1, Rule.GPU_FRACTION)
    assert by_gpus.steps[0].chosen.cost == pytest.approx(1 / 3, abs=1e-9)


def test_the_rules_differ_where_they_should() -> None:
    # `a` spreads thinly over three servers and sits beside `b`; `c` stands alone with nearly all that it has.
    problem = instance(
        ({"a": 1, "b": 1}, {}), ({"a": 7}, {}), ({"a": 7}, {}), ({"c": 7}, {}), outside={"b": 7, "c": 1}
    )
    cost = {rule: solve(problem, 1, rule).steps[0].chosen for rule in HEURISTICS}
    assert (cost[Rule.SERVER_FRACTION].server, cost[Rule.SERVER_FRACTION].cost) == (1, round(1 / 3, 9))
    assert (cost[Rule.GPU_FRACTION].server, cost[Rule.GPU_FRACTION].cost) == (
        0,
        round(1 / 15 + 1 / 8, 9),
    )
    assert (cost[Rule.COUNT].server, cost[Rule.COUNT].cost) == (3, 1.0)
    assert cost[Rule.IN_ORDER].server == 0


def test_a_tie_goes_to_fewer_collateral_gpus_then_to_less_lost_work_then_to_the_list() -> None:
    collateral = instance(({"a": 4}, {}), ({"b": 4}, {}), outside={"a": 8, "b": 4})
    assert solve(collateral, 1, Rule.SERVER_FRACTION).servers_to_return == (1,)
    saved = instance(({"a": 8}, {}), ({"b": 8}, {}), lost={"a": 50 * 60 * 8, "b": 2 * 60 * 8})
    assert solve(saved, 1, Rule.SERVER_FRACTION).servers_to_return == (1,)
    alike = instance(({"a": 8}, {}), ({"b": 8}, {}))
    assert solve(alike, 1, Rule.SERVER_FRACTION).servers_to_return == (0,)


def test_workers_scaled_in_with_a_returned_server_are_no_collateral_any_more() -> None:
    problem = instance(
        ({"p": 6}, {"E": 2}), ({"q": 6}, {}), ({"E": 6}, {}), ({"r": 2, "s": 2, "t": 2}, {"q": 1})
    )
    answer = solve(problem, 2, Rule.SERVER_FRACTION)
    # At first E would vacate 2 GPUs elsewhere, q one. Once I1 is returned, E has none elsewhere.
    assert (preempted(problem, answer), answer.collateral_gpus) == (["p", "E"], 0)


def test_workers_scaled_in_with_an_emptied_server_are_no_collateral_any_more() -> None:
    problem = instance(
        ({"a": 8}, {}),
        ({"a": 4}, {"E": 2}),
        ({"q": 6}, {}),
        ({"E": 6}, {}),
        ({"r": 2, "s": 2, "t": 2}, {"q": 1}),
    )
    answer = solve(problem, 3, Rule.SERVER_FRACTION)
    assert answer.servers_to_return == (0, 1, 3)
    assert (preempted(problem, answer), answer.collateral_gpus) == (["a", "E"], 0)


def test_thirds_add_up_to_a_whole() -> None:
    thirds: Placement = {"a": 1, "b": 1, "c": 1}
    problem = instance((thirds, {}), (thirds, {}), (thirds, {}), ({"d": 8}, {}), lost={"a": 1.0})
    # 1/3 + 1/3 + 1/3 ties with 1, and `d` has no collateral.
    assert solve(problem, 1, Rule.SERVER_FRACTION).servers_to_return == (3,)


def test_more_wanted_than_there_is_returns_all_and_says_what_is_missing() -> None:
    for rule in Rule:
        answer = solve(FOUR_SERVERS, 6, rule)
        assert (set(answer.servers_to_return), answer.shortfall) == ({0, 1, 2, 3}, 2)
    assert solve(ReclaimInstance([], []), 3, Rule.SERVER_FRACTION).shortfall == 3


@pytest.mark.parametrize("rule", Rule)
def test_a_job_about_to_finish_is_waited_for(rule: Rule) -> None:
    problem = instance(
        ({"a": 8}, {}), ({"b": 8}, {}), lost={"a": 100, "b": 900}, finishes={"a": 18_000, "b": 120}
    )
    waits = solve(problem, 1, rule, deadline_s=300)
    assert (waits.servers_to_wait_for, waits.servers_to_return, waits.jobs_to_preempt) == ((1,), (), ())
    assert waits.steps[0].reason is Reason.FINISHING
    if rule is not Rule.RANDOM:
        too_late = solve(problem, 1, rule, deadline_s=60)
        assert (too_late.servers_to_wait_for, too_late.servers_to_return) == ((), (0,))
        assert preempted(problem, too_late) == ["a"]


def test_waiting_comes_after_scaling_in_and_before_preempting_soonest_first() -> None:
    problem = instance(
        ({"p": 8}, {}),
        ({"late": 8}, {}),
        ({"soon": 6}, {"E": 2}),
        ({}, {"E": 4}),
        outside={"E": 8},
        finishes={"late": 200, "soon": 100},
    )
    answer = solve(problem, 4, Rule.SERVER_FRACTION, deadline_s=300)
    assert [step.chosen.server for step in answer.steps] == [3, 2, 1, 0]
    assert answer.servers_to_wait_for == (2, 1)
    assert answer.servers_to_return == (3, 0)
    assert preempted(problem, answer) == ["p"]
    assert answer.scale_ins == (ScaleIn(0, 3, 4), ScaleIn(0, 2, 2))


def test_a_finishing_job_beside_a_preempted_one_is_spared() -> None:
    problem = instance(({"p": 4, "soon": 4}, {}), ({"q": 4, "r": 4}, {}), finishes={"soon": 30})
    answer = solve(problem, 1, Rule.SERVER_FRACTION, deadline_s=60)
    assert (answer.servers_to_wait_for, preempted(problem, answer)) == ((0,), ["p"])


def test_the_random_order_follows_the_seed_alone() -> None:
    problem = instance(*[({f"j{n}": 8}, {}) for n in range(8)])
    orders = [solve(problem, 8, Rule.RANDOM, seed).servers_to_return for seed in range(5)]
    assert orders == [solve(problem, 8, Rule.RANDOM, seed).servers_to_return for seed in range(5)]
    assert len(set(orders)) == 5
    assert solve(problem, 8, Rule.IN_ORDER).servers_to_return == tuple(range(8))


def test_an_answer_leaves_the_instance_as_it_was() -> None:
    before = repr(KNOT)
    for rule in Rule:
        solve(KNOT, 3, rule)
    assert repr(KNOT) == before


def test_an_unknown_rule_is_refused_with_the_nearest_name() -> None:
    assert parse_rule("gpu-fraction") is Rule.GPU_FRACTION
    with pytest.raises(
        InputError, match=r"no such reclaim rule .*server-fractoin.*did you mean 'server-fraction'"
    ):
        parse_rule("server-fractoin")
