"""Accepting jobs once and in order, and finding them again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.live.store.databases import lead, new_job, ticks

from aryl.core.model import JobState
from aryl.errors import InputError
from aryl.live.store import NO_CHANGES, Changes, IdempotencyError, JobChange, JobRow, Store


def test_jobs_are_numbered_in_the_order_of_acceptance(store: Store) -> None:
    first, new = store.accept(new_job("a"), "ann", None, "", 5.0)
    second, _ = store.accept(new_job("b"), "ann", None, "", 6.0)
    assert new
    assert [(job.job_id, job.sequence, job.submitted) for job in (first, second)] == [
        ("a-1", 1, 5.0),
        ("b-2", 2, 6.0),
    ]
    assert store.job("a-1") == first
    assert store.job("a-2") is None
    assert store.bodies(["a-1", "nobody-7"]) == {"a-1": '{"name":"a"}'}


def test_a_job_that_was_just_accepted_is_shown_as_pending(store: Store) -> None:
    job, _ = store.accept(new_job(estimate_s=60.0, priority=3), "ann", None, "", 5.0)
    view = job.view()
    assert (view.job_id, view.name, view.project, view.user) == ("resnet-1", "resnet", "vision", "ann")
    assert (view.state, view.min_workers, view.max_workers) == (JobState.PENDING, 2, 8)
    assert (view.priority, view.estimate_s, view.submitted, view.started) == (3, 60.0, 5.0, None)


def test_the_same_key_five_times_at_once_is_one_job_and_five_equal_answers(store: Store) -> None:
    together = threading.Barrier(5)

    def ask(_: int) -> tuple[JobRow, bool]:
        together.wait()
        return store.accept(new_job(), "ann", "key", "hash", 5.0)

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(ask, range(5)))
    assert len({job.job_id for job, _ in answers}) == 1
    assert all(job == answers[0][0] for job, _ in answers)
    assert sorted(new for _, new in answers) == [False, False, False, False, True]
    assert store.jobs()[0] == [answers[0][0]]


def test_the_same_key_with_another_body_is_refused_and_accepts_nothing(store: Store) -> None:
    store.accept(new_job(), "ann", "key", "hash", 5.0)
    with pytest.raises(IdempotencyError) as caught:
        store.accept(new_job("other"), "ann", "key", "another hash", 6.0)
    assert caught.value.exit_code == 2
    assert len(store.jobs()[0]) == 1


def test_a_key_belongs_to_whoever_used_it(store: Store) -> None:
    mine, _ = store.accept(new_job(), "ann", "key", "hash", 5.0)
    yours, new = store.accept(new_job(), "bob", "key", "hash", 5.0)
    assert new
    assert yours.job_id != mine.job_id


def test_keys_are_kept_for_more_than_a_day(store: Store) -> None:
    day_s = 24 * 3600.0
    job, _ = store.accept(new_job(), "ann", "key", "hash", 0.0)
    assert store.prune_keys(day_s) == 0
    assert store.accept(new_job(), "ann", "key", "hash", day_s) == (job, False)
    assert store.prune_keys(3 * day_s) == 1
    assert store.accept(new_job(), "ann", "key", "hash", 3 * day_s)[1]


def test_no_job_is_seen_before_an_earlier_one_and_the_journal_is_written_meanwhile(store: Store) -> None:
    token = lead(store)
    threads, each, batches = 4, 12, 30
    seen: list[list[int]] = []
    done = threading.Event()

    def accept(_: int) -> None:
        for _ in range(each):
            store.accept(new_job(), "ann", None, "", 5.0)

    def look() -> None:
        while not done.is_set():
            seen.append([job.sequence for job in store.unjournaled()])

    def write() -> None:
        for batch in range(batches):
            store.append(token, batch * 2, ticks(2, first=batch * 2), NO_CHANGES)

    with ThreadPoolExecutor(threads + 2) as pool:
        looks = pool.submit(look)
        work = [pool.submit(accept, number) for number in range(threads)] + [pool.submit(write)]
        for one in work:
            one.result()
        done.set()
        looks.result()
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in seen)
    assert [job.sequence for job in store.unjournaled()] == list(range(1, threads * each + 1))
    assert list(store.events()) == ticks(2 * batches)


def _page_through(store: Store, limit: int, **filters: str) -> list[int]:
    found: list[int] = []
    page, cursor = store.jobs(limit=limit, project=filters.get("project"), user=filters.get("user"))
    while True:
        assert len(page) <= limit
        found += [job.sequence for job in page]
        if cursor is None:
            return found
        page, cursor = store.jobs(
            limit=limit, project=filters.get("project"), user=filters.get("user"), cursor=cursor
        )


@pytest.mark.parametrize("limit", [1, 3, 7, 8])
def test_pages_go_from_the_newest_to_the_oldest_and_miss_nothing(store: Store, limit: int) -> None:
    for number in range(7):
        project, user = ("vision", "ann") if number % 2 else ("speech", "bob")
        store.accept(new_job(project=project, user=user), "ann", None, "", 5.0)
    assert _page_through(store, limit) == [7, 6, 5, 4, 3, 2, 1]
    assert _page_through(store, limit, project="vision") == [6, 4, 2]
    assert _page_through(store, limit, user="bob") == [7, 5, 3, 1]
    assert _page_through(store, limit, user="bob", project="vision") == []


def test_a_job_that_comes_meanwhile_moves_no_page(store: Store) -> None:
    for _ in range(4):
        store.accept(new_job(), "ann", None, "", 5.0)
    _, cursor = store.jobs(limit=2)
    store.accept(new_job(), "ann", None, "", 5.0)
    assert [job.sequence for job in store.jobs(limit=2, cursor=cursor)[0]] == [2, 1]


def test_jobs_are_found_by_their_state(store: Store) -> None:
    jobs = [store.accept(new_job(), "ann", None, "", 5.0)[0] for _ in range(3)]
    running = JobChange({"state": JobState.RUNNING.value, "workers": 4}, {"resizes": 2})
    store.append(lead(store), 0, ticks(1), Changes({jobs[1].job_id: running}))
    found, _ = store.jobs(state=JobState.RUNNING)
    assert [(job.job_id, job.workers, job.resizes) for job in found] == [(jobs[1].job_id, 4, 2)]
    assert [job.sequence for job in store.jobs(state=JobState.PENDING)[0]] == [3, 1]


@pytest.mark.parametrize(
    "cursor", ["", "x", "am9i", "am9iOjE=", "Zm9vOjE", "am9iOi0", "am9iOjAx", "\udc80ä", "A" * 99]
)
def test_what_is_no_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(InputError, match="cursor"):
        store.jobs(cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_pages_have_a_size(store: Store, limit: int) -> None:
    with pytest.raises(InputError, match="limit"):
        store.jobs(limit=limit)


def test_the_projects_of_very_many_jobs_are_found_at_once(store: Store) -> None:
    job, _ = store.accept(new_job(), "ann", None, "", 5.0)
    asked = [f"nobody-{number}" for number in range(1200)] + [job.job_id]
    assert store.projects_of(asked) == {job.job_id: "vision"}
    assert store.projects_of([]) == {}
