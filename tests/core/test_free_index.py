"""The index of free GPUs against a naive model: a list of (lane, free)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aryl.core.free_index import LANES_PER_SHELF, OFF_SHELF, Content, FreeIndex, Shelf, lowest

SHELVES = (Shelf(False, "V100", 8, 1.0), Shelf(True, "T4", 4, 0.5))
SERVERS = 6
Model = list[tuple[int, int]]


@st.composite
def _put(draw: st.DrawFn) -> tuple[int, int, int]:
    place = draw(st.integers(0, SERVERS - 1))
    if draw(st.integers(0, 5)) == 0:
        return place, OFF_SHELF, draw(st.integers(0, 8))
    shelf = draw(st.integers(0, len(SHELVES) - 1))
    content = draw(st.sampled_from(Content)) if SHELVES[shelf].loaned else Content.EMPTY
    free = draw(st.integers(0, SHELVES[shelf].gpus_per_server))
    return place, shelf * LANES_PER_SHELF + content, free


def _agree(index: FreeIndex, model: Model) -> None:
    assert list(zip(index.lane, index.free, strict=True)) == model
    for shelf in range(len(SHELVES)):
        there = [
            (lane, free) for lane, free in model if lane != OFF_SHELF and lane // LANES_PER_SHELF == shelf
        ]
        assert index.shelf_free(shelf) == sum(free for _, free in there)
        assert index.largest_free(shelf) == max((free for _, free in there), default=0)
        for gpus in (1, 2, 3, 5):
            assert index.shelf_slots(shelf, gpus) == sum(free // gpus for _, free in there)
    for lane, bucket in enumerate(index.buckets):
        for free, mask in enumerate(bucket):
            members = {place for place, entry in enumerate(model) if entry == (lane, free)}
            assert {place for place in range(SERVERS) if mask >> place & 1} == members


@given(puts=st.lists(_put(), max_size=40))
def test_the_index_says_what_a_plain_list_says(puts: list[tuple[int, int, int]]) -> None:
    index, model = FreeIndex(SHELVES, SERVERS), [(OFF_SHELF, 0)] * SERVERS
    for place, lane, free in puts:
        index.put(place, lane, free)
        model[place] = (lane, free)
        _agree(index, model)


@given(first=st.lists(_put(), max_size=15), second=st.lists(_put(), max_size=15))
def test_a_fork_and_its_original_go_their_own_ways(
    first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]
) -> None:
    index, model = FreeIndex(SHELVES, SERVERS), [(OFF_SHELF, 0)] * SERVERS
    for place, lane, free in first:
        index.put(place, lane, free)
        model[place] = (lane, free)
    fork, forked = index.fork(), list(model)
    for number, (place, lane, free) in enumerate(second):
        changed, its_model = (fork, forked) if number % 2 else (index, model)
        changed.put(place, lane, free)
        its_model[place] = (lane, free)
    _agree(index, model)
    _agree(fork, forked)


def test_taking_and_giving_move_a_loaned_server_between_lanes() -> None:
    index = FreeIndex(SHELVES, SERVERS)
    empty, base, flexible = (
        LANES_PER_SHELF + content for content in (Content.EMPTY, Content.BASE, Content.FLEXIBLE)
    )
    index.put(3, empty, 4)
    index.take(3, 1, Content.FLEXIBLE)
    assert (index.lane[3], index.free[3]) == (flexible, 3)
    index.take(3, 2, Content.BASE)
    assert (index.lane[3], index.free[3]) == (base, 1)
    index.take(3, 1, Content.FLEXIBLE)
    assert (index.lane[3], index.free[3]) == (base, 0), "base workers decide on mixed servers"
    index.give(3, 4)
    assert (index.lane[3], index.free[3]) == (base, 4)


def test_training_servers_have_one_lane() -> None:
    index = FreeIndex(SHELVES, SERVERS)
    index.put(0, 0, 8)
    index.take(0, 3, Content.BASE)
    index.take(0, 3, Content.FLEXIBLE)
    assert (index.lane[0], index.free[0]) == (0, 2)


def test_what_can_be_filled_is_counted_server_by_server_of_one_shelf() -> None:
    index = FreeIndex(SHELVES, SERVERS)
    for place, free in enumerate((8, 8, 5)):
        index.put(place, 0, free)
    index.put(3, LANES_PER_SHELF + Content.EMPTY, 4)
    index.put(4, LANES_PER_SHELF + Content.BASE, 3)
    fillings = (0, 0, 0, 3, 4, 4, 6, 7, 8)  # by workers of 3 and 4 GPUs
    assert (index.shelf_filled(0, fillings), index.shelf_filled(1, fillings)) == (8 + 8 + 4, 4 + 3)


def test_a_shelf_that_comes_later_is_behind_the_others_and_one_that_is_known_is_found() -> None:
    index = FreeIndex(SHELVES, 2)
    index.put(0, 0, 8)
    fork = index.fork()
    assert [index.shelf_number(shelf) for shelf in SHELVES] == [0, 1]
    assert index.shelf_number(Shelf(False, "A100", 2, 2.0)) == 2
    index.add_place()
    index.put(2, 2 * LANES_PER_SHELF, 2)
    assert (index.shelf_free(0), index.shelf_free(2), index.free) == (8, 2, [8, 0, 2])
    assert (len(fork.free), len(fork.buckets), fork.shelves) == (2, 2 * LANES_PER_SHELF, SHELVES)


@given(places=st.sets(st.integers(0, 2000), min_size=1))
def test_lowest_is_the_first_place_of_a_mask(places: set[int]) -> None:
    assert lowest(sum(1 << place for place in places)) == min(places)
