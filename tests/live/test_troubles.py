"""Whose fault a failure is, and who has fallen silent."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.helpers import cluster_of, happen, job, run, submit

from aryl.core.cluster import Cluster
from aryl.core.events import Crashed, Event, HealthChanged, ServerLost, Stalled
from aryl.core.model import Health, JobState, Slot
from aryl.live.troubles import QuarantineRule, Troubles, Watchdog

ENDLESS = float("inf")
RULE = QuarantineRule(within_s=2.0, failures=3, jobs=2, rest_s=5.0)


@pytest.fixture
def cluster() -> Cluster:
    cluster = cluster_of(4)
    submit(cluster, *(job(name, 1) for name in "abcd"))
    return cluster


def let(cluster: Cluster, events: Iterable[Event]) -> list[Event]:
    """Have them happen; which they were."""
    happened = list(events)
    happen(cluster, *happened)
    return happened


def fail(
    cluster: Cluster, troubles: Troubles, server_id: str, job_id: str, ran_s: float = 0.1
) -> list[Health]:
    """A launch failed there; what becomes of the server."""
    events = troubles.failed(cluster, (server_id,), job_id, ran_s, cluster.now)
    return [event.health for event in let(cluster, events) if isinstance(event, HealthChanged)]


def test_a_server_rests_after_a_launch_that_failed_at_once_and_not_after_a_late_one(cluster: Cluster) -> None:
    troubles = Troubles(RULE)
    assert fail(cluster, troubles, "T1", "a", ran_s=2.1) == []
    assert troubles.next_s() == ENDLESS
    assert fail(cluster, troubles, "T1", "a", ran_s=2.0) == [Health.RESTING]
    assert troubles.next_s() == 5.0
    assert list(troubles.rested(cluster, 4.9)) == []
    assert let(cluster, troubles.rested(cluster, 5.0)) == [HealthChanged(5.0, "T1", Health.HEALTHY)]
    assert troubles.next_s() == ENDLESS
    assert list(troubles.rested(cluster, 100.0)) == []


def test_three_failures_of_two_jobs_set_a_server_apart(cluster: Cluster) -> None:
    troubles = Troubles(RULE)
    assert fail(cluster, troubles, "T1", "a") == [Health.RESTING]
    assert fail(cluster, troubles, "T1", "a") == [Health.RESTING]
    assert fail(cluster, troubles, "T1", "b") == [Health.QUARANTINED]
    # That it rested before brings it back no more.
    assert list(troubles.rested(cluster, 100.0)) == []
    # What was on its way there changes nothing either.
    assert fail(cluster, troubles, "T1", "c") == []
    assert cluster.server_by_id["T1"].health is Health.QUARANTINED


def test_one_job_alone_sets_no_server_apart(cluster: Cluster) -> None:
    troubles = Troubles(RULE)
    for _ in range(10):
        assert fail(cluster, troubles, "T1", "a") == [Health.RESTING]
    # The window is of the last three.
    assert fail(cluster, troubles, "T1", "b") == [Health.QUARANTINED]


def test_a_job_that_ended_well_clears_its_servers(cluster: Cluster) -> None:
    troubles = Troubles(RULE)
    fail(cluster, troubles, "T1", "a")
    fail(cluster, troubles, "T1", "b")
    troubles.went_well(iter(["T1", "T2"]))
    assert fail(cluster, troubles, "T1", "c") == [Health.RESTING]
    assert fail(cluster, troubles, "T1", "d") == [Health.RESTING]
    assert fail(cluster, troubles, "T1", "a") == [Health.QUARANTINED]


def test_a_job_that_failed_on_three_servers_has_itself_to_blame_also_for_what_was(cluster: Cluster) -> None:
    troubles = Troubles(RULE)
    fail(cluster, troubles, "T1", "a")
    fail(cluster, troubles, "T2", "a")
    assert fail(cluster, troubles, "T3", "a") == [Health.RESTING]
    # Of the failures on T1 only this one and the next count; with the first of `a` they would be three.
    assert fail(cluster, troubles, "T1", "b") == [Health.RESTING]
    assert fail(cluster, troubles, "T1", "c") == [Health.RESTING]
    assert fail(cluster, troubles, "T1", "a") == [Health.RESTING]
    assert fail(cluster, troubles, "T1", "d") == [Health.QUARANTINED]


def test_a_job_that_is_over_is_forgotten(cluster: Cluster) -> None:
    troubles = Troubles(RULE)
    fail(cluster, troubles, "T1", "gone")
    fail(cluster, troubles, "T2", "a")
    assert set(troubles._failed_on) == {"a"}


def test_a_suspect_server_stays_that_whatever_fails_there(cluster: Cluster) -> None:
    troubles = Troubles(RULE)
    happen(cluster, HealthChanged(0.0, "T1", Health.SUSPECT))
    for job_id in "abcd":
        assert fail(cluster, troubles, "T1", job_id) == []
    assert troubles.next_s() == ENDLESS


def test_who_rests_at_a_restart_rests_a_moment_longer(cluster: Cluster) -> None:
    fail(cluster, Troubles(RULE), "T2", "a")
    troubles = Troubles(RULE)
    troubles.take_over(cluster, 100.0)
    assert troubles.next_s() == 105.0
    assert list(troubles.rested(cluster, 105.0)) == [HealthChanged(105.0, "T2", Health.HEALTHY)]


@given(
    st.lists(st.tuples(st.sampled_from(["T1", "T2", "T3"]), st.sampled_from("abcd")), max_size=40),
)
def test_no_server_is_set_apart_but_after_three_failures_of_two_jobs_there(
    failures: list[tuple[str, str]],
) -> None:
    cluster = cluster_of(3)
    submit(cluster, *(job(name, 1) for name in "abcd"))
    troubles = Troubles(RULE)
    seen: dict[str, list[str]] = {"T1": [], "T2": [], "T3": []}
    for server_id, job_id in failures:
        apart = cluster.server_by_id[server_id].health is Health.QUARANTINED
        seen[server_id].append(job_id)
        outcome = fail(cluster, troubles, server_id, job_id)
        assert len(outcome) == (0 if apart else 1)
        if outcome == [Health.QUARANTINED]:
            assert len(seen[server_id]) >= RULE.failures
            assert len(set(seen[server_id])) >= RULE.jobs


@pytest.fixture
def running() -> Cluster:
    cluster = cluster_of(2)
    run(cluster, job("a", 1), Slot("T1", 1, 0, 1))
    run(cluster, job("b", 1), Slot("T2", 1, 0, 1))
    return cluster


def test_who_never_reported_is_not_missed(running: Cluster) -> None:
    watchdog = Watchdog(60.0)
    assert watchdog.next_s() == ENDLESS
    watchdog.changed("a", 1, 0.0)
    assert list(watchdog.silent(running, 1e9)) == []


def test_who_falls_silent_is_told_once_in_each_term(running: Cluster) -> None:
    watchdog = Watchdog(60.0)
    watchdog.heard("a", 1, 10.0)
    watchdog.heard("b", 1, 40.0)
    assert watchdog.next_s() == 70.0
    assert list(watchdog.silent(running, 69.9)) == []
    assert list(watchdog.silent(running, 70.0)) == [Stalled(70.0, "a", 1)]
    assert list(watchdog.silent(running, 71.0)) == []
    assert watchdog.next_s() == 100.0
    assert list(watchdog.silent(running, 130.0)) == [Stalled(130.0, "a", 1), Stalled(130.0, "b", 1)]


def test_a_resize_takes_a_while_and_a_forgotten_attempt_is_not_missed(running: Cluster) -> None:
    watchdog = Watchdog(60.0)
    watchdog.heard("a", 1, 0.0)
    watchdog.heard("b", 1, 0.0)
    watchdog.changed("a", 1, 50.0)
    watchdog.forget("b", 1)
    watchdog.forget("b", 1)
    assert list(watchdog.silent(running, 109.0)) == []
    assert list(watchdog.silent(running, 110.0)) == [Stalled(110.0, "a", 1)]


def test_only_a_job_that_runs_undisturbed_can_be_silent(running: Cluster) -> None:
    watchdog = Watchdog(60.0)
    for job_id, attempt in (("a", 1), ("a", 0), ("b", 1), ("unknown", 1)):
        watchdog.heard(job_id, attempt, 0.0)
    happen(running, ServerLost(1.0, "T1"), Crashed(2.0, "b", 1, 0.0))
    assert running.jobs["a"].trouble is not None or running.jobs["a"].state is not JobState.RUNNING
    assert list(watchdog.silent(running, 100.0)) == []
    # Those that can't be meant any more are forgotten.
    assert ("a", 0) not in watchdog._heard_s
    assert ("unknown", 1) not in watchdog._heard_s
