"""The queue against a plain sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aryl.core.pending import DemandClass, Entry, PendingQueue, QueueKey

CLASSES = tuple(DemandClass(workers, 1, False, False, (), 0, "") for workers in (1, 2, 4))


@st.composite
def _waiting(draw: st.DrawFn) -> list[tuple[DemandClass, QueueKey, str]]:
    keys = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=15))
    return [
        (draw(st.sampled_from(CLASSES)), (float(one), float(two), number), f"j{number}")
        for number, (one, two) in enumerate(keys)
    ]


def _filled(waiting: list[tuple[DemandClass, QueueKey, str]]) -> PendingQueue:
    queue = PendingQueue()
    for demand, key, job_id in waiting:
        queue.add(demand, key, job_id)
    return queue


@given(waiting=_waiting())
def test_the_queue_is_in_the_order_of_the_keys(waiting: list[tuple[DemandClass, QueueKey, str]]) -> None:
    queue = _filled(waiting)
    assert list(queue) == sorted(Entry(key, job_id) for _, key, job_id in waiting)
    assert len(queue) == len(waiting)
    assert all(job_id in queue for _, _, job_id in waiting)
    assert "somebody else" not in queue


@given(waiting=_waiting(), data=st.data())
def test_who_is_taken_out_is_out_and_the_others_keep_their_order(
    waiting: list[tuple[DemandClass, QueueKey, str]], data: st.DataObject
) -> None:
    queue = _filled(waiting)
    gone = data.draw(st.sets(st.sampled_from([job_id for _, _, job_id in waiting]))) if waiting else set()
    for job_id in gone:
        queue.discard(job_id)
        queue.discard(job_id)
    queue.discard("somebody else")
    assert list(queue) == sorted(Entry(key, job_id) for _, key, job_id in waiting if job_id not in gone)
    assert not any(job_id in queue for job_id in gone)
    assert all(queue.classes.values()), "a class without jobs costs a look in every pass"


@given(waiting=_waiting(), fits=st.sets(st.sampled_from(CLASSES)), places=st.integers(0, 20))
def test_a_walk_passes_over_whole_classes(
    waiting: list[tuple[DemandClass, QueueKey, str]], fits: set[DemandClass], places: int
) -> None:
    """Start what is of a class that fits, `places` jobs at most; then nothing fits any more."""
    walk, looks = _filled(waiting).walk(), 0
    started: list[str] = []
    while walk.next():
        looks += 1
        if walk.demand in fits and len(started) < places:
            started.append(walk.job_id)
            walk.skip_job()
        else:
            walk.skip_class()
    in_order = sorted(waiting, key=lambda entry: Entry(entry[1], entry[2]))
    assert started == [job_id for demand, _, job_id in in_order if demand in fits][:places]
    assert looks <= len(started) + len({demand for demand, _, _ in waiting})


def test_a_walk_doesnt_change_the_queue() -> None:
    queue = _filled([(CLASSES[0], (1.0, 0), "a"), (CLASSES[1], (0.0, 1), "b")])
    walk = queue.walk()
    while walk.next():
        walk.skip_class()
    assert [entry.job_id for entry in queue] == ["b", "a"]


def test_two_jobs_with_the_same_key_fall_in_the_order_of_their_names() -> None:
    queue = _filled([(CLASSES[0], (1.0,), "b"), (CLASSES[1], (1.0,), "a")])
    assert [entry.job_id for entry in queue] == ["a", "b"]


def test_an_empty_queue_has_nothing_to_walk() -> None:
    assert not PendingQueue().walk().next()
    with pytest.raises(StopIteration):
        next(iter(PendingQueue()))
