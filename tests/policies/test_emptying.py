"""Which inference servers can be emptied at once: worked examples, and brute force."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.policies import emptying
from aryl.policies.emptying import Emptying, Host, Move, Standing, choose


@cache
def packs(replicas: tuple[int, ...], rooms: tuple[int, ...]) -> bool:
    """Whether the replicas fit into the rooms, by trying everything."""
    if not replicas:
        return True
    if sum(replicas) > sum(rooms):
        return False
    first, rest = replicas[0], replicas[1:]
    return any(
        packs(rest, tuple(sorted((*rooms[:place], room - first, *rooms[place + 1 :]))))
        for place, room in enumerate(rooms)
        if room >= first and room not in rooms[:place]
    )


def can_go(hosts: Sequence[Host], gone: set[str]) -> bool:
    """Whether there is any packing once the servers `gone` don't stay."""
    homeless = [
        gpus
        for host in hosts
        if host.standing is Standing.LEAVING or host.server_id in gone
        for gpus in host.replicas
    ]
    rooms = [
        host.gpus - sum(host.replicas)
        for host in hosts
        if host.standing is Standing.SERVING and host.server_id not in gone
    ]
    return packs(tuple(sorted(homeless, reverse=True)), tuple(sorted(rooms)))


def most_that_can_go(hosts: Sequence[Host]) -> int:
    names = [host.server_id for host in hosts if host.lendable and host.standing is not Standing.LEAVING]
    return max(
        (
            count
            for count in range(len(names) + 1)
            if any(can_go(hosts, set(some)) for some in itertools.combinations(names, count))
        ),
        default=0,
    )


def verify_moves(hosts: Sequence[Host], answer: Emptying) -> None:
    """Every replica of a server that doesn't stay moves once, whole, to one that serves and has room."""
    by_id = {host.server_id: host for host in hosts}
    gone = {host.server_id for host in hosts if host.standing is Standing.LEAVING} | {*answer.lend}
    replicas = Counter((name, gpus) for name in gone for gpus in by_id[name].replicas)
    assert Counter((move.from_id, move.gpus) for move in answer.moves) == replicas
    arrived: Counter[str] = Counter()
    for move in answer.moves:
        arrived[move.to_id] += move.gpus
    for name, gpus in arrived.items():
        host = by_id[name]
        assert name not in gone
        assert host.standing is Standing.SERVING
        assert gpus <= host.gpus - sum(host.replicas)


@st.composite
def pools(draw: st.DrawFn, sizes: Sequence[int] = (1, 2, 3, 4, 5, 8), most: int = 6) -> list[Host]:
    """Up to `most` servers with 4 or 8 GPUs, of every standing, none with more replicas than fit."""
    hosts = []
    for number in range(1, draw(st.integers(1, most)) + 1):
        gpus, replicas, used = draw(st.sampled_from((8, 8, 4))), [], 0
        for size in draw(st.lists(st.sampled_from(sizes), max_size=5)):
            if used + size <= gpus:
                replicas.append(size)
                used += size
        standing = draw(st.sampled_from((Standing.SERVING, Standing.SERVING, *Standing)))
        hosts.append(
            Host(f"I{number}", gpus, tuple(replicas), standing, draw(st.sampled_from((1, 1, 0))) == 1)
        )
    return hosts


def random_pool(seed: int, sizes: Sequence[int], count: int = 5, gpus: int = 8) -> list[Host]:
    """Servers that all serve, each filled with replicas of these sizes up to a random share."""
    draw = random.Random(seed)
    hosts = []
    for number in range(count):
        replicas: list[int] = []
        most = draw.randint(0, gpus)
        while sum(replicas) + (size := draw.choice(list(sizes))) <= most:
            replicas.append(size)
        hosts.append(Host(f"I{number + 1}", gpus, tuple(replicas)))
    return hosts


def test_servers_without_replicas_go_first_and_from_the_end_of_the_list() -> None:
    hosts = [Host("I1", 8, ()), Host("I2", 8, (1,)), Host("I3", 8, ()), Host("I4", 8, (4, 1))]
    assert choose(hosts, 2) == Emptying(("I3", "I1"), ())


def test_then_those_with_the_fewest_gpus_in_use_and_their_replicas_move_together() -> None:
    hosts = [Host("I1", 8, (4,)), Host("I2", 8, (2, 1)), Host("I3", 8, (1, 2)), Host("I4", 8, (5,))]
    assert choose(hosts, 4) == Emptying(
        ("I3", "I2"),
        (Move(2, "I2", "I4"), Move(2, "I3", "I1"), Move(1, "I2", "I4"), Move(1, "I3", "I1")),
    )


def test_one_that_does_not_serve_yet_and_carries_nothing_goes_before_all_others() -> None:
    hosts = [Host("I1", 8, (), Standing.KEEPING), Host("I2", 8, ()), Host("I3", 8, (), Standing.KEEPING)]
    assert choose(hosts, 3).lend == ("I3", "I1", "I2")


def test_the_largest_replica_takes_the_least_room_that_holds_it() -> None:
    hosts = [
        Host("I1", 8, (), lendable=False),
        Host("I2", 8, (4,), lendable=False),
        Host("I3", 8, (1, 3)),
    ]
    assert choose(hosts, 1) == Emptying(("I3",), (Move(3, "I3", "I2"), Move(1, "I3", "I2")))


def test_a_replica_is_not_split_over_servers() -> None:
    hosts = [Host("I1", 8, (6,)), Host("I2", 8, (6,)), Host("I3", 8, (4,))]
    assert choose(hosts, 1) == Emptying((), ())


def test_one_that_does_not_fit_is_passed_over_for_one_that_does() -> None:
    hosts = [Host("I1", 8, (5, 1)), Host("I2", 8, (1, 1, 1, 1, 1)), Host("I3", 8, (4,))]
    assert choose(hosts, 3).lend == ("I2",)


def test_of_two_with_the_same_replicas_the_smaller_may_fit_into_the_larger() -> None:
    hosts = [Host("I1", 4, (4,)), Host("I2", 8, (4,))]
    assert choose(hosts, 2) == Emptying(("I1",), (Move(4, "I1", "I2"),))


def test_replicas_without_gpus_need_no_room() -> None:
    hosts = [Host("I1", 8, (0,)), Host("I2", 8, (8,), lendable=False)]
    assert choose(hosts, 1) == Emptying(("I1",), ())


def test_servers_that_may_not_be_lent_are_room_as_long_as_they_serve() -> None:
    hosts = [Host("I1", 8, (), lendable=False), Host("I2", 8, (8,))]
    assert choose(hosts, 2) == Emptying(("I2",), (Move(8, "I2", "I1"),))
    assert choose([replace(hosts[0], standing=Standing.KEEPING), hosts[1]], 2) == Emptying((), ())
    assert choose([replace(hosts[0], standing=Standing.LEAVING), hosts[1]], 2) == Emptying((), ())


def test_room_for_the_replicas_of_a_leaving_server_is_not_given_away() -> None:
    leaving = Host("I1", 8, (8,), Standing.LEAVING)
    assert choose([leaving, Host("I2", 8, ())], 1) == Emptying((), ())
    assert choose([leaving, Host("I2", 8, ()), Host("I3", 8, ())], 2) == Emptying(
        ("I3",), (Move(8, "I1", "I2"),)
    )


def test_what_takes_no_room_away_is_lent_even_if_others_find_none() -> None:
    hosts = [Host("I1", 8, (8,), Standing.LEAVING), Host("I2", 8, (), Standing.KEEPING)]
    assert choose(hosts, 2) == Emptying(("I2",), ())


def test_a_server_said_to_carry_more_than_it_can_is_no_room() -> None:
    hosts = [Host("I1", 4, (4, 4), lendable=False), Host("I2", 8, (1,))]
    assert choose(hosts, 1) == Emptying((), ())


def test_replicas_larger_than_every_server_stay_where_they_are() -> None:
    assert choose([Host("I1", 8, (16,)), Host("I2", 8, ())], 2).lend == ("I2",)


@pytest.mark.parametrize("count", [0, -1])
def test_nothing_is_chosen_when_nothing_is_wanted(count: int) -> None:
    assert choose([Host("I1", 8, ())], count) == Emptying((), ())


def test_one_passed_over_is_tried_again_when_another_has_been_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    def whimsical(servers: Sequence[int], replicas: Sequence[int]) -> bool:
        return replicas[1] != 1  # a lone small replica doesn't fit, in company it does

    monkeypatch.setattr(emptying, "_fit", whimsical)
    hosts = [Host("I1", 8, (1,)), Host("I2", 8, (2,)), Host("I3", 8, (1, 1)), Host("I4", 8, (3,))]
    assert choose(hosts, 4).lend == ("I3", "I2", "I4", "I1")


@settings(deadline=None, max_examples=300)
@given(pools(), st.integers(1, 6))
def test_what_is_chosen_can_be_packed_as_the_moves_say(hosts: list[Host], count: int) -> None:
    answer = choose(hosts, count)
    by_id = {host.server_id: host for host in hosts}
    chosen = [by_id[name] for name in answer.lend]
    assert len({*answer.lend}) == len(chosen) <= count
    assert all(host.lendable and host.standing is not Standing.LEAVING for host in chosen)
    if all(host.standing is Standing.KEEPING and not host.replicas for host in chosen):
        return  # nothing that would matter to the replicas
    verify_moves(hosts, answer)


@settings(deadline=None, max_examples=300)
@given(pools(), st.integers(1, 6), st.booleans())
def test_asked_again_with_the_same_report_it_chooses_nothing_more(
    hosts: list[Host], count: int, from_the_start: bool
) -> None:
    answer = choose(hosts, count)
    after = [
        replace(host, standing=Standing.LEAVING) if host.server_id in answer.lend else host for host in hosts
    ]
    again = choose(after[::-1] if from_the_start else after, count - len(answer.lend))
    assert again == Emptying((), ())


@settings(deadline=None, max_examples=300)
@given(pools(sizes=(1, 2, 4, 8)))
def test_where_sizes_divide_each_other_whoever_stays_could_not_have_gone_too(hosts: list[Host]) -> None:
    lent = {*choose(hosts, len(hosts)).lend}
    for host in hosts:
        if host.server_id in lent or host.standing is Standing.LEAVING or not host.lendable:
            continue
        assert not can_go(hosts, {*lent, host.server_id})


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=7), st.integers(0, 12))
def test_with_replicas_of_one_gpu_as_many_are_chosen_as_possible(
    used: list[tuple[int, bool]], leaving: int
) -> None:
    hosts = [
        Host(f"I{number}", 8, (1,) * gpus, lendable=lendable) for number, (gpus, lendable) in enumerate(used)
    ]
    hosts.append(Host("gone", 16, (1,) * leaving, Standing.LEAVING))
    assert len(choose(hosts, len(hosts)).lend) == most_that_can_go(hosts)


def test_in_general_it_is_rarely_one_server_short_of_the_optimum() -> None:
    short: Counter[int] = Counter()
    for sizes in ((1, 2, 4), (2, 3, 5), range(1, 9)):
        for seed in range(400):
            hosts = random_pool(seed, sizes)
            short[most_that_can_go(hosts) - len(choose(hosts, len(hosts)).lend)] += 1
    assert short == {0: 1195, 1: 5}


def test_an_empty_server_that_is_lent_first_may_have_been_room_for_two() -> None:
    hosts = [Host("I1", 8, (4, 1)), Host("I2", 8, (2, 4)), Host("I3", 8, (5,)), Host("I4", 8, ())]
    assert choose(hosts, 4).lend == ("I4",)
    assert can_go(hosts, {"I1", "I2"})
