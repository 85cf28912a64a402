"""Whatever a live cluster sees, in whatever order: the state stays sound, and every policy comes to rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.live_world import KINDS, LiveWorld, Move
from tests.property.snapshot import snapshot
from tests.property.standards import base_demand_is_not_held_back, limits_on_lending_are_kept
from tests.strategies import EVERY_POLICY, Case, cases

from aryl.core import events as ev
from aryl.core import upkeep
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.invariants import verify
from aryl.core.model import Health, Hosting, JobState, Pool, ServerSpec, Slot, Tenure
from aryl.core.plan import Loan, Plan
from aryl.core.speedup import Amdahl
from aryl.errors import IllegalTransitionError
from aryl.policies.aryl import Aryl
from aryl.policies.catalogue import parse_policy
from aryl.policies.policy import Policy
from aryl.scheduler.journal import MemoryJournal, from_lines, replay, to_line
from aryl.scheduler.loop import Loop

_WAITS_S = st.sampled_from((0.0, 0.0, 0.0, 1.0, 5.0, 20.0, 100.0, 400.0))
_ANY_MOVE = st.builds(Move, st.sampled_from(KINDS), _WAITS_S, st.integers(0, 31), st.integers(0, 15))
# Nothing much can happen before there are jobs that run, on servers that may be lent.
_OPENING = st.integers(0, 8).map(
    lambda jobs: [Move("demand", 0.0, 1, 0), *[Move("submit", 0.0, 0, 0)] * jobs]
)
MOVES = st.builds(list.__add__, _OPENING, st.lists(_ANY_MOVE, min_size=15, max_size=80))


class _Watched:
    """The world, watched: the state after every event, the policy whenever an instant is over."""

    def __init__(self, world: LiveWorld, policy: Policy) -> None:
        self.world, self.policy = world, policy
        self.decided_s = float("-inf")

    def poll(self, deadline_s: float) -> Sequence[ev.Event] | None:
        cluster = self.world.cluster
        assert cluster is not None
        polled = self.world.poll(deadline_s)
        next_s = polled[0].at if polled else deadline_s
        if (polled is None or next_s > cluster.now) and self.decided_s == cluster.now:
            assert not upkeep.due(cluster).steps, "upkeep left something undone"
            again = self.policy.decide(cluster)
            assert again.empty, f"at {cluster.now} s nothing happened, and yet: {again}"
            base_demand_is_not_held_back(self.policy, cluster)
            limits_on_lending_are_kept(self.policy, cluster)
        return polled

    def apply(self, plan: Plan, cluster: Cluster) -> None:
        self.world.apply(plan, cluster)

    def saw(self, event: ev.Event, cluster: Cluster) -> None:
        verify(cluster)
        if not isinstance(event, (*ev.QUIET, ev.PlanCommitted)):
            self.decided_s = event.at
        if isinstance(event, ev.PlanCommitted):
            assert self.decided_s == event.at, "nothing happened that is worth a plan"
            lent = {step.server_id for step in event.plan.steps if isinstance(step, Loan)}
            if lent and not lent & self.world.asked:
                self._leaves_inference_what_it_needs(cluster)

    def _leaves_inference_what_it_needs(self, cluster: Cluster) -> None:
        assert cluster.demand is not None, "servers were lent before the inference side said anything"
        assert not cluster.telemetry_lost, "servers were lent on a guess"
        left = cluster.inference_mask.bit_count() - cluster.on_loan
        kept = cluster.kept_servers if isinstance(self.policy, Aryl) else cluster.demand.need_servers
        assert left >= kept - 1e-9


def _run(case: Case, moves: Sequence[Move], name: str, *, confirms: bool) -> tuple[Loop, list[ev.Event]]:
    policy, journal = parse_policy(name), MemoryJournal()
    specs = [replace(spec, max_failures=number % 3 + 1) for number, spec in enumerate(case.specs)]
    world = LiveWorld(specs, moves, policy)
    watched = _Watched(world, policy)
    loop = Loop(Cluster(policy.order), policy, watched, journal=journal, watchers=[watched])
    world.cluster = loop.cluster
    loop.record(replace(case.declared, confirms_loans=confirms))
    turns = 0
    while loop.step():
        turns += 1
        assert turns < 5_000, "the world doesn't come to an end"
    return loop, journal.events


@pytest.mark.parametrize("name", EVERY_POLICY)
@settings(max_examples=settings().max_examples // 4)  # each has many moves
@given(case=cases(slow=True), moves=MOVES, confirms=st.booleans())
def test_whatever_happens_the_state_is_sound_and_the_policy_comes_to_rest(
    name: str, case: Case, moves: list[Move], confirms: bool
) -> None:
    loop, events = _run(case, moves, name, confirms=confirms)
    _nothing_is_left_hanging(loop.cluster)
    lines = [to_line(event, number) for number, event in enumerate(events)]
    again = replay(Cluster(parse_policy(name).order), from_lines(lines, "journal"))
    assert snapshot(again) == snapshot(loop.cluster)


def _nothing_is_left_hanging(cluster: Cluster) -> None:
    """Once every order has been answered and every deadline is over."""
    assert not cluster.claims, "a claim was neither used nor dropped"
    for job_id, job in cluster.jobs.items():
        settled = (JobState.PENDING, JobState.RUNNING)
        assert job.state in settled, f"{job_id} is {job.state.value} and will be for ever"
        assert not job.leaving
    for server in cluster.servers:
        name, used = server.spec.server_id, server.used
        assert not server.handing_over, f"nobody says whether {name} is handed over"
        assert not server.restoring, f"nobody says that {name} serves again"
        overdue = min(server.drain_by_s, server.recall_by_s) <= cluster.now
        assert not (used and overdue), f"{name} should have been empty long ago"
        assert used or server.tenure is not Tenure.RECLAIMING, f"{name} is empty and isn't given back"
        assert server.tenure is not Tenure.ON_LOAN or server.recall_by_s == float("inf")


_NAMES = st.sampled_from(("j0", "j1", "j2", "ghost"))
_SERVERS = st.sampled_from(("T1", "T2", "I3", "I4", "T9"))
_NUMBERS = st.sampled_from((0.0, 1.0, 7.5, 1e9, float("inf")))
_COUNTS = st.integers(0, 3)
_AT = st.sampled_from((0.0, 1.0, 1.0, 1.0, 50.0, float("nan")))
_SLOTS = st.lists(st.builds(Slot, _SERVERS, _COUNTS, _COUNTS, st.integers(1, 2)), max_size=3).map(tuple)
_ANY_SERVER = st.builds(
    ServerSpec,
    st.sampled_from(("T1", "I3", "N1", "N2")),
    st.sampled_from(Pool),
    st.sampled_from(("V100", "T4")),
    st.integers(-1, 4),
    st.sampled_from((1.0, 0.5, 0.0, float("nan"), float("inf"))),
)
_ANY_EVENT = st.one_of(
    st.builds(ev.ServersJoined, _AT, st.lists(_ANY_SERVER, max_size=2).map(tuple)),
    st.builds(ev.CancelRequested, _AT, _NAMES),
    st.builds(ev.LimitsChanged, _AT, _NAMES, _COUNTS, st.integers(0, 9)),
    st.builds(ev.Launched, _AT, _NAMES, _COUNTS),
    st.builds(ev.Resized, _AT, _NAMES, _COUNTS, _COUNTS),
    st.builds(ev.Vacated, _AT, _NAMES, _COUNTS, _SLOTS),
    st.builds(ev.Stopped, _AT, _NAMES, _COUNTS, _NUMBERS),
    st.builds(ev.Finished, _AT, _NAMES, _COUNTS),
    st.builds(ev.Failed, _AT, _NAMES, _COUNTS),
    st.builds(ev.Crashed, _AT, _NAMES, _COUNTS, _NUMBERS),
    st.builds(ev.WorkersDone, _AT, _NAMES, _COUNTS, _SLOTS),
    st.builds(ev.WorkerReplaced, _AT, _NAMES, _COUNTS, _SERVERS, st.just("signal 9")),
    st.builds(ev.Stalled, _AT, _NAMES, _COUNTS),
    st.builds(
        ev.Learned,
        _AT,
        _NAMES,
        _COUNTS,
        st.sampled_from((0.0, 3.0, 1e6)),
        st.sampled_from((0.0, 5.0)),
        st.none() | st.sampled_from((0.0, 40.0)),
        st.none() | st.just(Amdahl(0.5)),
    ),
    st.builds(ev.ServerLost, _AT, _SERVERS),
    st.builds(ev.ServerReturned, _AT, _SERVERS),
    st.builds(ev.ServerDrained, _AT, _SERVERS, st.booleans(), _NUMBERS),
    st.builds(ev.HealthChanged, _AT, _SERVERS, st.sampled_from(Health)),
    st.builds(ev.HandedOver, _AT, _SERVERS),
    st.builds(ev.BackInService, _AT, _SERVERS),
    st.builds(ev.LoanCalledOff, _AT, _SERVERS),
    st.builds(ev.GiveRequested, _AT, _SERVERS),
    st.builds(ev.ReclaimRequested, _AT, _SERVERS, _NUMBERS),
    st.builds(
        ev.DemandReported,
        _AT,
        st.sampled_from((0.0, 1.0)),
        st.sampled_from((0.0, 2.0)),
        st.sampled_from((None, 0.5)),
        st.lists(st.builds(Hosting, _SERVERS, st.just((8, 8))), max_size=2).map(tuple),
    ),
    st.builds(ev.NeedChanged, _AT, _NUMBERS),
    st.builds(ev.LendingLimited, _AT, st.none() | st.integers(-1, 3)),
    st.builds(ev.TelemetryLost, _AT),
)


@given(case=cases(most_jobs=4, slow=True), moves=MOVES, wild=st.lists(_ANY_EVENT, min_size=1, max_size=20))
def test_any_event_at_all_is_refused_and_changes_nothing_or_leaves_the_state_sound(
    case: Case, moves: list[Move], wild: list[ev.Event]
) -> None:
    """What reaches the core may be wrong in every way that its types allow."""
    loop, _ = _run(case, moves, "aryl", confirms=True)
    cluster = loop.cluster
    for event in wild:
        moved = replace(event, at=cluster.now - 1.0 + event.at)
        before = snapshot(cluster)
        try:
            evolve(cluster, moved)
        except IllegalTransitionError:
            assert snapshot(cluster) == before
        verify(cluster)
