"""What the backend reports, as events of the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.helpers import cluster_of, commit, happen, job, run, stop, submit

from aryl.backends import port
from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.model import Health, Pool, ServerSpec, Slot
from aryl.core.plan import Cause
from aryl.live.facts import WITHOUT_NOTICE, Interpreter
from aryl.live.learning import Learner
from aryl.live.troubles import QuarantineRule, Troubles, Watchdog

NOW_S = 100.0
HEARD_UNIX_S = 1e9  # when the backend saw it; the loop's time is what counts
SLOTS = (Slot("T1", 0, 1, 1),)


@pytest.fixture
def cluster() -> Cluster:
    """The job `a` runs with two workers since 0 s, `b` waits."""
    cluster = cluster_of(2)
    run(cluster, job("a", 2, checkpoint_s=30.0, max_failures=3), Slot("T1", 1, 0, 1), Slot("T2", 1, 0, 1))
    submit(cluster, job("b", 1))
    return cluster


@pytest.fixture
def interpreter() -> Interpreter:
    return Interpreter(Troubles(QuarantineRule()), Watchdog(60.0), Learner())


def heard(interpreter: Interpreter, fact: port.Fact, cluster: Cluster) -> list[ev.Event]:
    return list(interpreter.events(fact, cluster, NOW_S))


@pytest.mark.parametrize(
    ("fact", "event"),
    [
        (port.GangUp(HEARD_UNIX_S, "a", 1), ev.Launched(NOW_S, "a", 1)),
        (port.GangResized(HEARD_UNIX_S, "a", 1, 3), ev.Resized(NOW_S, "a", 1, 3)),
        (port.WorkersGone(HEARD_UNIX_S, "a", 1, SLOTS), ev.Vacated(NOW_S, "a", 1, SLOTS)),
        (port.WorkersDone(HEARD_UNIX_S, "a", 1, SLOTS), ev.WorkersDone(NOW_S, "a", 1, SLOTS)),
        (port.GangSucceeded(HEARD_UNIX_S, "a", 1), ev.Finished(NOW_S, "a", 1)),
        (port.GangSucceeded(HEARD_UNIX_S, "unknown", 1), ev.Finished(NOW_S, "unknown", 1)),
        (
            port.WorkerReplaced(HEARD_UNIX_S, "a", 1, "T1", "why"),
            ev.WorkerReplaced(NOW_S, "a", 1, "T1", "why"),
        ),
        (port.ServerDown(HEARD_UNIX_S, "T1"), ev.ServerLost(NOW_S, "T1")),
        (port.ServerStuck(HEARD_UNIX_S, "T1", True), ev.HealthChanged(NOW_S, "T1", Health.SUSPECT)),
    ],
)
def test_a_fact_is_an_event_at_the_loops_own_time(
    interpreter: Interpreter, cluster: Cluster, fact: port.Fact, event: ev.Event
) -> None:
    assert heard(interpreter, fact, cluster) == [event]


@pytest.mark.parametrize(
    ("health", "events"),
    [
        (Health.SUSPECT, [ev.HealthChanged(NOW_S, "T1", Health.HEALTHY)]),
        (Health.QUARANTINED, []),
        (Health.HEALTHY, []),
    ],
)
def test_a_stuck_worker_that_is_gone_clears_its_own_suspicion_only(
    interpreter: Interpreter, cluster: Cluster, health: Health, events: list[ev.Event]
) -> None:
    evolve(cluster, ev.HealthChanged(cluster.now, "T1", health))
    assert heard(interpreter, port.ServerStuck(HEARD_UNIX_S, "T1", False), cluster) == events


def test_a_lost_backend_is_the_drivers_business(interpreter: Interpreter, cluster: Cluster) -> None:
    assert heard(interpreter, port.BackendLost(HEARD_UNIX_S, False, "gone"), cluster) == []


def test_who_saved_keeps_all_that_was_done_and_who_did_not_goes_back_to_the_last_save(
    interpreter: Interpreter, cluster: Cluster
) -> None:
    commit(cluster, stop(cluster, "a", save=True), at=80.0)
    saved = heard(interpreter, port.GangStopped(HEARD_UNIX_S, "a", 1, True), cluster)
    not_saved = heard(interpreter, port.GangStopped(HEARD_UNIX_S, "a", 1, False), cluster)
    (done,), (kept,) = saved, not_saved
    assert isinstance(done, ev.Stopped)
    assert isinstance(kept, ev.Stopped)
    # It stood still from the moment that it was told to stop; it had saved at 30 s and 60 s.
    assert (done.kept_s, kept.kept_s) == (80.0, 60.0)


@pytest.mark.parametrize(("job_id", "attempt"), [("unknown", 1), ("a", 2), ("a", 0)])
def test_of_an_attempt_that_is_not_the_present_one_nothing_is_kept(
    interpreter: Interpreter, cluster: Cluster, job_id: str, attempt: int
) -> None:
    assert heard(interpreter, port.GangStopped(HEARD_UNIX_S, job_id, attempt, True), cluster) == [
        ev.Stopped(NOW_S, job_id, attempt, 0.0)
    ]
    assert heard(interpreter, port.GangFailed(HEARD_UNIX_S, job_id, attempt, (), 9.0, "why"), cluster) == [
        ev.Crashed(NOW_S, job_id, attempt, 0.0, "why")
    ]


def test_a_failure_keeps_what_was_saved_and_an_early_one_lets_the_server_rest(
    interpreter: Interpreter, cluster: Cluster
) -> None:
    late = port.GangFailed(HEARD_UNIX_S, "a", 1, ("T1",), 100.0, "exited with 1")
    early = port.GangFailed(HEARD_UNIX_S, "a", 1, ("T1",), 0.1, "exited with 1")
    crashed = ev.Crashed(NOW_S, "a", 1, 90.0, "exited with 1")
    assert heard(interpreter, late, cluster) == [crashed]
    assert heard(interpreter, early, cluster) == [crashed, ev.HealthChanged(NOW_S, "T1", Health.RESTING)]


def test_a_success_clears_the_servers_of_the_gang(interpreter: Interpreter, cluster: Cluster) -> None:
    def fails(job_id: str) -> ev.Event:
        fact = port.GangFailed(HEARD_UNIX_S, job_id, 1, ("T1",), 0.1, "")
        *_, last = heard(interpreter, fact, cluster)
        return last

    fails("b")
    fails("x")
    heard(interpreter, port.GangSucceeded(HEARD_UNIX_S, "a", 1), cluster)
    assert fails("y") == ev.HealthChanged(NOW_S, "T1", Health.RESTING)


def test_a_server_that_is_up_already_is_nothing_new(interpreter: Interpreter, cluster: Cluster) -> None:
    up = port.ServerUp(HEARD_UNIX_S, "T1")
    assert heard(interpreter, up, cluster) == []
    # Down and up again within one look: the state hasn't seen the first yet, and must hear of both.
    assert heard(interpreter, port.ServerDown(HEARD_UNIX_S, "T1"), cluster) == [ev.ServerLost(NOW_S, "T1")]
    assert heard(interpreter, up, cluster) == [ev.ServerReturned(NOW_S, "T1")]
    assert heard(interpreter, up, cluster) == []
    # And one of which the state knows that it is down, also in a new daemon.
    happen(cluster, ev.ServerLost(NOW_S, "T2"))
    assert heard(interpreter, port.ServerUp(HEARD_UNIX_S, "T2"), cluster) == [ev.ServerReturned(NOW_S, "T2")]


NEW = ServerSpec("N1", Pool.TRAINING, "A100", 4, 2.0)


def joined(spec: ServerSpec) -> port.ServerJoined:
    return port.ServerJoined(HEARD_UNIX_S, spec)


def test_a_server_that_nobody_knew_joins_once(interpreter: Interpreter, cluster: Cluster) -> None:
    assert heard(interpreter, joined(NEW), cluster) == [ev.ServersJoined(NOW_S, (NEW,))]
    assert heard(interpreter, joined(NEW), cluster) == []
    happen(cluster, ev.ServersJoined(NOW_S, (NEW,)))
    assert heard(interpreter, joined(NEW), cluster) == []
    assert heard(interpreter, port.ServerDown(0.0, "N1"), cluster) == [ev.ServerLost(NOW_S, "N1")]
    assert heard(interpreter, joined(NEW), cluster) == [ev.ServerReturned(NOW_S, "N1")]


def test_a_server_that_the_journal_knows_doesnt_join_again(
    interpreter: Interpreter, cluster: Cluster
) -> None:
    declared = cluster.server_by_id["T1"].spec
    assert heard(interpreter, joined(declared), cluster) == []
    happen(cluster, ev.ServerLost(NOW_S, "T1"))
    assert heard(interpreter, joined(declared), cluster) == [ev.ServerReturned(NOW_S, "T1")]


def test_a_server_of_which_nobody_has_said_what_it_has_is_left_alone(
    interpreter: Interpreter, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    for fact in (
        port.ServerUp(0.0, "N1"),
        port.ServerDown(0.0, "N1"),
        port.ServerStuck(0.0, "N1", True),
        port.ServerStuck(0.0, "N1", False),
    ):
        assert heard(interpreter, fact, cluster) == []
    assert "server N1 is talked about, but nobody has said what it has" in caplog.text


def test_a_server_that_joined_may_be_another_machine_when_it_comes_back(
    interpreter: Interpreter, cluster: Cluster
) -> None:
    other = replace(NEW, gpus=8)
    happen(cluster, ev.ServersJoined(NOW_S, (NEW,)), ev.ServerLost(NOW_S, "N1"))
    assert heard(interpreter, joined(other), cluster) == [ev.ServersJoined(NOW_S, (other,))]
    # Nobody had noticed that the old one was gone, and nothing of ours was on it.
    assert heard(interpreter, joined(NEW), cluster) == [
        ev.ServerLost(NOW_S, "N1"),
        ev.ServersJoined(NOW_S, (NEW,)),
    ]


def test_while_workers_are_on_it_a_server_is_what_it_was(
    interpreter: Interpreter, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    happen(cluster, ev.ServersJoined(NOW_S, (NEW,)))
    run(cluster, job("n", 1, gpu_types=(("A100", 1.0),)), Slot("N1", 1, 0, 1))
    assert heard(interpreter, joined(replace(NEW, gpus=8)), cluster) == []
    assert "server N1 has 8 A100 GPUs of speed 2 in the training pool now, not 4 A100" in caplog.text
    commit(cluster, stop(cluster, "n"))
    assert heard(interpreter, joined(replace(NEW, gpus=8)), cluster) == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            ServerSpec("T1", Pool.TRAINING, "V100", 4),
            "T1, with 4 V100 GPUs in .* it was declared with 8 V100",
        ),
        (ServerSpec("N1", Pool.INFERENCE, "A100", 4, 2.0), "it belongs to the training pool"),
        (ServerSpec("N2", Pool.TRAINING, "A100", 0), "N2, .* can't join: it needs at least one GPU"),
    ],
)
def test_a_server_that_cant_join_is_an_error_in_the_log_and_counts_as_lost(
    interpreter: Interpreter, caplog: pytest.LogCaptureFixture, spec: ServerSpec, words: str
) -> None:
    cluster = cluster_of(1)
    happen(cluster, ev.ServersJoined(0.0, (NEW,)))
    known = spec.server_id in cluster.server_by_id
    assert heard(interpreter, joined(spec), cluster) == [ev.ServerLost(NOW_S, spec.server_id)] * known
    assert heard(interpreter, joined(spec), cluster) == []
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert re.search(words, caplog.text)


_SPECS = st.builds(
    ServerSpec,
    st.sampled_from(("T1", "N1", "N2")),
    st.sampled_from((Pool.TRAINING, Pool.TRAINING, Pool.INFERENCE)),
    st.just("V100"),
    st.sampled_from((8, 8, 4)),
)
_SAID = st.one_of(
    _SPECS.map(joined),
    _SPECS.map(lambda spec: port.ServerUp(0.0, spec.server_id)),
    _SPECS.map(lambda spec: port.ServerDown(0.0, spec.server_id)),
    st.builds(port.ServerStuck, st.just(0.0), st.sampled_from(("T1", "N1", "N2")), st.booleans()),
)


def _believed(believed: dict[str, tuple[ServerSpec, bool]], fact: port.Fact, fixed: str) -> None:
    """What is to be believed of the servers once a fact is known; `fixed` was declared."""
    match fact:
        case port.ServerJoined(server=spec) if spec.server_id not in believed:
            believed[spec.server_id] = (spec, True)
        case port.ServerJoined(server=spec):
            old, _ = believed[spec.server_id]
            other = spec.pool is not old.pool or spec.server_id == fixed
            believed[spec.server_id] = (old, False) if spec != old and other else (spec, True)
        case port.ServerUp(server_id=name) | port.ServerDown(server_id=name) if name in believed:
            believed[name] = (believed[name][0], isinstance(fact, port.ServerUp))
        case _:
            pass


@settings(max_examples=200, deadline=None)
@given(looks=st.lists(st.lists(_SAID, max_size=6), max_size=6))
def test_whatever_is_heard_of_servers_in_one_look_only_what_can_be_is_told(
    looks: Sequence[Sequence[port.Fact]],
) -> None:
    cluster = cluster_of(1)
    interpreter = Interpreter(Troubles(QuarantineRule()), Watchdog(60.0), Learner())
    believed = {"T1": (cluster.servers[0].spec, True)}
    for facts in looks:
        # All of a look is interpreted before any of it has changed the state.
        events = [event for fact in facts for event in heard(interpreter, fact, cluster)]
        happen(cluster, *events)
        for fact in facts:
            _believed(believed, fact, "T1")
        assert {server.spec.server_id: (server.spec, server.up) for server in cluster.servers} == believed


def test_a_report_is_a_sign_of_life_and_may_teach(interpreter: Interpreter, cluster: Cluster) -> None:
    silent = port.Reported(HEARD_UNIX_S, "a", 1, {})
    assert heard(interpreter, silent, cluster) == []
    assert interpreter.watchdog.next_s() == NOW_S + 60.0
    said = {"step": 50.0, "total_steps": 1000.0, "steps_per_s": 5.0, "saved_step": 0.0}
    assert heard(interpreter, port.Reported(HEARD_UNIX_S, "a", 1, said), cluster) == [
        ev.Learned(NOW_S, "a", 1, 10.0, 0.0, 200.0, None)
    ]


def test_a_resize_that_is_over_is_a_sign_of_life_of_one_that_reports(
    interpreter: Interpreter, cluster: Cluster
) -> None:
    resized = port.GangResized(HEARD_UNIX_S, "a", 1, 1)
    heard(interpreter, resized, cluster)
    assert interpreter.watchdog.next_s() == float("inf")
    interpreter.watchdog.heard("a", 1, 0.0)
    heard(interpreter, resized, cluster)
    assert interpreter.watchdog.next_s() == NOW_S + 60.0


@pytest.mark.parametrize("cause", Cause)
def test_all_but_the_cancelled_and_the_silent_get_their_notice(cause: Cause) -> None:
    assert (cause in WITHOUT_NOTICE) is (cause in (Cause.CANCELLED, Cause.STALLED))


FACTS: list[Callable[[str, int], port.Fact]] = [
    lambda job_id, attempt: port.GangUp(0.0, job_id, attempt),
    lambda job_id, attempt: port.GangResized(0.0, job_id, attempt, 1),
    lambda job_id, attempt: port.WorkersGone(0.0, job_id, attempt, SLOTS),
    lambda job_id, attempt: port.WorkersDone(0.0, job_id, attempt, SLOTS),
    lambda job_id, attempt: port.GangStopped(0.0, job_id, attempt, True),
    lambda job_id, attempt: port.GangSucceeded(0.0, job_id, attempt),
    lambda job_id, attempt: port.GangFailed(0.0, job_id, attempt, (), 9.0, ""),
    lambda job_id, attempt: port.WorkerReplaced(0.0, job_id, attempt, "T1", ""),
    lambda job_id, attempt: port.Reported(0.0, job_id, attempt, {"step": 1.0, "steps_per_s": 1.0}),
]


@pytest.mark.parametrize("fact", FACTS)
def test_what_is_said_of_an_attempt_that_is_over_changes_no_job(
    interpreter: Interpreter, cluster: Cluster, fact: Callable[[str, int], port.Fact]
) -> None:
    def shown() -> list[object]:
        return [
            (one.state, one.attempt, one.slots, one.progress.done_s, one.failures)
            for one in cluster.jobs.values()
        ]

    before = shown()
    for job_id, attempt in (("a", 0), ("a", 2), ("b", 1), ("over", 1)):
        for event in heard(interpreter, fact(job_id, attempt), cluster):
            happen(cluster, event)
    assert shown() == before
