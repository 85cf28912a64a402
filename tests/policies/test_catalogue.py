"""Every spelling of a policy, and what a wrong one is answered with."""

from __future__ import annotations

import pytest

from aryl.errors import InputError
from aryl.policies.aryl import Aryl
from aryl.policies.catalogue import SPELLINGS, parse_policy, policy_table
from aryl.policies.loaning import Loaning
from aryl.policies.placement import Scatter
from aryl.policies.policy import Policy
from aryl.policies.preempt import Preempting
from aryl.policies.queueing import Queueing
from aryl.policies.reclaim_problem import Rule
from aryl.policies.reservation import Reserving
from aryl.policies.scaling import Scaling


def aryl(spec: str) -> Aryl:
    policy: Policy = parse_policy(spec)
    assert isinstance(policy, Aryl)
    return policy


@pytest.mark.parametrize("name", [info.name for info in policy_table()])
def test_every_policy_in_the_table_can_be_had_by_its_name(name: str) -> None:
    policy = parse_policy(name)
    assert policy.name == name
    assert parse_policy(policy.name) == policy


def test_aryl_has_all_parts_but_reservations() -> None:
    assert aryl("aryl") == Aryl("aryl", loaning=Loaning(seed=1), scaling=Scaling(), preempting=Preempting())


@pytest.mark.parametrize(
    ("spec", "loaning", "scaling", "preempting"),
    [
        ("aryl:loaning", True, False, True),
        ("aryl:scaling", False, True, True),
        ("aryl:loaning,scaling", True, True, True),
        ("aryl:preemption", False, False, True),
        ("aryl:no-loaning", False, True, True),
        ("aryl:no-loaning,no-scaling", False, False, True),
        ("aryl:no-preemption", True, True, False),
        ("aryl:loaning,no-preemption", True, False, False),
    ],
)
def test_naming_parts_switches_the_unnamed_off(
    spec: str, loaning: bool, scaling: bool, preempting: bool
) -> None:
    policy = aryl(spec)
    parts = (policy.loaning, policy.scaling, policy.preempting)
    assert tuple(part is not None for part in parts) == (loaning, scaling, preempting)
    assert policy.lends is loaning


def test_options_leave_all_parts_on() -> None:
    policy = aryl(
        "aryl:reclaim=count,cooldown=10m,min_interval=30,min_runtime=20m,reserve_after=1h,scatter=never"
    )
    assert policy.loaning == Loaning(Rule.COUNT, 1)
    assert policy.scaling == Scaling(cooldown_s=600.0, min_interval_s=30.0)
    assert policy.preempting == Preempting(1200.0)
    assert policy.reserving == Reserving(3600.0)
    assert policy.scatter is Scatter.NEVER


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("1d", 86400.0)])
def test_times_are_written_as_everywhere(text: str, seconds: float) -> None:
    assert aryl(f"aryl:cooldown={text}").scaling == Scaling(cooldown_s=seconds)


def test_the_order_fifo_is_strict_and_the_others_pass_over() -> None:
    assert [
        (aryl(f"aryl:order={order}").ordering, aryl(f"aryl:order={order}").strict) for order in ORDERS
    ] == [
        ("sjf", False),
        ("las", False),
        ("size", False),
        ("fifo", True),
    ]


ORDERS = ("sjf", "las", "size", "fifo")


def test_aryl_las_needs_no_estimates() -> None:
    policy = aryl("aryl-las")
    assert (policy.ordering, policy.strict) == ("las", False)
    assert policy.scaling == Scaling(estimates=False)


def test_the_seed_is_for_the_random_rule() -> None:
    policy = parse_policy("aryl:reclaim=random", seed=7)
    assert isinstance(policy, Aryl)
    assert policy.loaning == Loaning(Rule.RANDOM, 7)


def test_queues_with_and_without_passing_over() -> None:
    assert parse_policy("fifo") == Queueing("fifo", "fifo", strict=True)
    assert parse_policy("fifo-skip") == Queueing("fifo-skip", "fifo", strict=False)
    assert parse_policy("sjf:scatter=never") == Queueing(
        "sjf:scatter=never", "sjf", strict=False, scatter=Scatter.NEVER
    )


@pytest.mark.parametrize(
    ("spec", "found", "nearest"),
    [
        ("arly", "arly", "aryl"),
        ("fifo-skp", "fifo-skp", "fifo-skip"),
        ("aryl:cooldwon=5m", "cooldwon", "cooldown"),
        ("aryl:no-loanning", "no-loanning", "no-loaning"),
        ("aryl:reclaim=cuont", "cuont", "count"),
        ("aryl:order=fifi", "fifi", "fifo"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_nearest(spec: str, found: str, nearest: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_policy(spec)
    assert (caught.value.found, caught.value.nearest) == (found, nearest)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("aryl:cooldown=soon", "soon"),
        ("aryl:cooldown=-5m", "-5m"),
        ("aryl:scatter=maybe", "maybe"),
        ("srtf:cooldown=5m", "cooldown"),
        ("aryl-las:order=sjf", "order"),
        ("fifo:loaning", "loaning"),
    ],
)
def test_what_cannot_be_is_refused_and_says_what_can(spec: str, found: str) -> None:
    with pytest.raises(InputError, match="expected") as caught:
        parse_policy(spec)
    assert caught.value.found == found


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="given twice"):
        parse_policy("aryl:cooldown=5m,cooldown=6m")


@pytest.mark.parametrize("spec", [spec for spec, _ in SPELLINGS])
def test_every_spelling_that_is_shown_to_people_is_a_policy_of_that_name(spec: str) -> None:
    assert parse_policy(spec).name == spec
