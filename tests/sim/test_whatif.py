"""Dry runs and comparisons on a snapshot: exact where the future is known, honest where it isn't."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.snapshot import snapshot as picture
from tests.strategies import EVERY_POLICY, Case, cases

from aryl.core import events as ev
from aryl.core import upkeep
from aryl.core.cluster import Cluster
from aryl.core.invariants import verify
from aryl.core.model import Health, JobSpec, JobState, Slot, Tenure
from aryl.core.plan import Launch, Plan
from aryl.errors import IllegalTransitionError, InputError
from aryl.policies.catalogue import parse_policy
from aryl.policies.policy import Policy
from aryl.scheduler.journal import MemoryJournal
from aryl.scheduler.loop import Loop
from aryl.sim.driver import Overheads, SimDriver
from aryl.sim.snapshot import lends, rebuild, restore, snapshot
from aryl.sim.whatif import DryRun, Outlook, WhatIf, compare, dry_run
from aryl.testing import Scene, servers
from aryl.wire.views import DryRunView, WhatIfOutcome

# Between all the round moments of the cases, so that nothing else happens then.
_APART_S = 1 / 64
# What these stop keeps what it hasn't saved, which the state doesn't tell.
_KEEPING = ("srtf", "las")

_SEARCH = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


class Asking:
    """A driver that asks for a dry run right before a certain job is submitted, and goes on as if nothing
    were.
    """

    def __init__(self, driver: SimDriver, spec: JobSpec, policy: Policy, overheads: Overheads) -> None:
        self.driver, self.spec, self.policy, self.overheads = driver, spec, policy, overheads
        self.loop: Loop | None = None
        self.answer: DryRun | None = None

    def poll(self, deadline_s: float) -> Sequence[ev.Event] | None:
        polled = self.driver.poll(deadline_s)
        if polled and polled[0] == ev.Submitted(self.spec.submit_s, self.spec):
            assert self.loop is not None
            before = picture(self.loop.cluster)
            copy = restore(snapshot(self.loop.cluster))
            self.answer = dry_run(copy, self.policy, self.spec, overheads=self.overheads)
            assert picture(self.loop.cluster) == before, "the dry run changed the cluster"
            again = restore(snapshot(self.loop.cluster))
            assert dry_run(again, self.policy, self.spec, overheads=self.overheads) == self.answer
        return polled

    def apply(self, plan: Plan, cluster: Cluster) -> None:
        self.driver.apply(plan, cluster)


@st.composite
def _questions(draw: st.DrawFn) -> tuple[Case, JobSpec]:
    """A case about which all is known after a moment, and a job that comes then."""
    case = draw(cases())
    at_s = draw(st.integers(0, 14)) * 10.0 + _APART_S
    model = draw(st.sampled_from(case.specs))
    spec = replace(model, job_id="asked", sequence=len(case.specs), submit_s=at_s)
    known = tuple(one for one in case.specs if one.submit_s < at_s)
    durations_s = {
        one.job_id: float("inf") if one.estimate_s is None else one.estimate_s for one in (*known, spec)
    }
    return (
        replace(
            case,
            specs=(*known, spec),
            durations_s=durations_s,
            # Jobs in it may not have been submitted.
            script=tuple(
                one
                for one in case.script
                if one.at < at_s and (isinstance(one, ev.ServersJoined) or hasattr(one, "server_id"))
            ),
            demand=tuple(one for one in case.demand if one.at < at_s),
            overheads=replace(case.overheads, vacate_s=0.0),
        ),
        spec,
    )


@_SEARCH
@given(question=_questions(), name=st.sampled_from(EVERY_POLICY))
def test_x3_a_dry_run_says_what_submitting_does(question: tuple[Case, JobSpec], name: str) -> None:
    case, spec = question
    policy = parse_policy(name)
    asking = Asking(case.driver(policy), spec, policy, case.overheads)
    journal = MemoryJournal()
    loop = asking.loop = Loop(Cluster(policy.order), policy, asking, journal=journal)
    loop.record(case.declared)
    while loop.step() and not _launches(journal.events, spec.job_id) and loop.passes < 3_000:
        pass
    launches = _launches(journal.events, spec.job_id)
    answer = asking.answer
    if answer is None:
        assert not policy.could_ever_start(loop.cluster, spec)
        alone = restore(snapshot(loop.cluster))
        assert dry_run(alone, policy, spec).verdict == "never"
        return
    came = next(n for n, one in enumerate(journal.events) if one == ev.Submitted(spec.submit_s, spec))
    following = [one for one in journal.events[came + 1 :] if one.at == spec.submit_s]
    at_once = bool(_launches(_first_pass(following), spec.job_id))
    assert (answer.verdict == "now") == at_once
    if answer.verdict in ("now", "later"):
        assert [answer.starts_s] == [at for at, _ in launches]
        assert answer.servers == tuple(slot.server_id for slot in launches[0][1].slots)
    elif answer.verdict == "unknown":
        assert launches == []
    else:
        raise AssertionError(f"a job that was accepted can't be refused: {answer}")


def _first_pass(events: Sequence[ev.Event]) -> list[ev.Event]:
    """Plans committed before the world answered."""
    first: list[ev.Event] = []
    for event in events:
        if not isinstance(event, ev.PlanCommitted):
            break
        first.append(event)
    return first


def _launches(events: Sequence[ev.Event], job_id: str) -> list[tuple[float, Launch]]:
    return [
        (event.at, step)
        for event in events
        if isinstance(event, ev.PlanCommitted)
        for step in event.plan.steps
        if isinstance(step, Launch) and step.job_id == job_id
    ]


@_SEARCH
@given(
    case=cases(),
    name=st.sampled_from([name for name in EVERY_POLICY if name not in _KEEPING]),
    steps=st.integers(1, 40),
)
def test_a_simulation_that_is_cut_in_two_goes_on_as_it_would_have(case: Case, name: str, steps: int) -> None:
    case = replace(case, script=(), overheads=replace(case.overheads, vacate_s=0.0))
    policy = parse_policy(name)
    journal = MemoryJournal()
    whole = Loop(Cluster(policy.order), policy, case.driver(policy), journal=journal)
    whole.record(case.declared)
    for _ in range(steps):
        whole.step()
    copy, done, cut_s = restore(snapshot(whole.cluster)), len(journal.events), whole.cluster.now
    later = MemoryJournal()
    ahead = [spec for spec in case.specs if spec.submit_s > cut_s and policy.could_ever_start(copy, spec)]
    driver = SimDriver(
        [ev.Submitted(spec.submit_s, spec) for spec in ahead],
        case.durations_s,
        demand=iter([one for one in case.demand if one.at > cut_s]),
        overheads=case.overheads,
    )
    driver.take_over(copy)
    second = Loop(copy, policy, driver, journal=later)
    second.decide()
    for loop in (whole, second):
        while loop.step() and loop.passes < 3_000:
            pass
    assert _by_instant(later.events) == _by_instant(journal.events[done:])
    assert second.cluster.ended.items() <= whole.cluster.ended.items()


def _by_instant(events: Sequence[ev.Event]) -> list[tuple[float, list[str]]]:
    """What happened, without the order within an instant, and without what is of no account."""
    told = [one for one in events if not isinstance(one, ev.Tick | ev.Refused)]
    return [(at, sorted(map(_told, some))) for at, some in groupby(told, key=lambda event: event.at)]


def _told(event: ev.Event) -> str:
    """Of workers that are gone only their GPUs count."""
    if isinstance(event, ev.Vacated):
        gone = sorted((slot.server_id, slot.gpus) for slot in event.slots)
        return f"{event.job_id} has vacated {gone}"
    return repr(event)


HOUR_S = 3600.0


def ask(scene: Scene, workers: int, *, options: Mapping[str, Any] | None = None, **spec: Any) -> DryRun:
    """A dry run of a job on a copy of the scene; `spec` are fields of `JobSpec`, `options` those of
    `dry_run`.
    """
    fields = {"estimate_s": HOUR_S, **spec}
    asked = JobSpec("asked", 99, scene.cluster.now, workers, workers, **fields)
    return dry_run(restore(snapshot(scene.cluster)), scene.policy, asked, **(options or {}))


def busy() -> Scene:
    """All sorts of things under way: a loan, an elastic job, a claim, somebody leaving, a queue, a job that
    is over.
    """
    scene = Scene(*servers(3), *servers(2, "I"), vacate_s=30.0, resize_s=5.0)
    scene.run("over", {"T3": 2})
    scene.finish("over").demand(1.0)
    scene.run("low", {"T1": 8}, estimate_s=7200.0, checkpoint_s=0.0)
    scene.run("E", {"T2": (4, 4)}, priority=1)
    scene.run("blind", {"T3": 8}, estimate_s=None)
    scene.carry_out()
    scene.run("guest", {"I2": 6}, fungible=True)
    scene.at("15m").submit("urgent", 8, priority=1)
    scene.submit("waits", 8, project="a")
    scene.carry_out()
    return scene


def test_a_restored_cluster_is_the_one_that_was_but_for_what_is_over() -> None:
    scene = busy()
    assert scene.cluster.claims
    assert scene.cluster.ended
    copy = restore(snapshot(scene.cluster))
    verify(copy)
    assert copy.ended == {}
    left_out = frozenset({"ended"})
    assert picture(copy, without=left_out) == picture(scene.cluster, without=left_out)
    assert scene.policy.decide(copy) == scene.policy.decide(scene.cluster)


def test_whatever_happens_to_a_copy_leaves_the_original_alone() -> None:
    scene = busy()
    before, blob = picture(scene.cluster), snapshot(scene.cluster)
    ask(scene, 4)
    compare(blob, ["fifo", "srtf", "aryl"])
    assert picture(scene.cluster) == before
    assert snapshot(scene.cluster) == blob


def test_bytes_that_hold_no_cluster_are_refused() -> None:
    with pytest.raises(ValueError, match="not a dict"):
        restore(b"\x80\x05}.")


def test_now_names_the_servers() -> None:
    scene = Scene(*servers(6))
    found = ask(scene, 48)
    assert found == DryRun(
        "now",
        0.0,
        "It would start at once on T1, T2, T3, T4 and 2 more servers.",
        ("T1", "T2", "T3", "T4", "T5", "T6"),
    )


def test_the_question_may_come_later_than_the_last_event() -> None:
    scene = Scene(*servers(1))
    scene.run("A", {"T1": 8}, estimate_s=600.0)
    spec = JobSpec("asked", 9, 120.0, 8, 8, estimate_s=60.0)
    found = dry_run(restore(snapshot(scene.cluster)), scene.policy, spec)
    assert (found.verdict, found.starts_s, found.servers) == ("later", 600.0, ("T1",))
    assert found.text == (
        "It would start in about 8 min on T1. At first: It needs 8 GPUs, but none that it could use is free. "
        "Once another job has ended, it is expected to start in about 8 min."
    )


def test_later_counts_the_queue_and_what_the_policy_does_with_it() -> None:
    scene = Scene(*servers(1), policy="fifo")
    scene.run("A", {"T1": 8}, estimate_s=600.0)
    scene.submit("B", 8, estimate_s=1000.0)
    assert ask(scene, 1, estimate_s=1.0).starts_s == 1600.0
    shortest_first = Scene(*servers(1), policy="sjf")
    shortest_first.run("A", {"T1": 8}, estimate_s=600.0)
    shortest_first.submit("B", 8, estimate_s=1000.0)
    assert ask(shortest_first, 1, estimate_s=1.0).starts_s == 600.0


def test_a_place_that_has_to_be_vacated_first_is_later() -> None:
    scene = Scene(*servers(1), vacate_s=30.0)
    scene.run("low", {"T1": 8})
    scene.at("1m")
    found = ask(scene, 8, priority=1)
    assert (found.verdict, found.starts_s) == ("later", 90.0)
    assert "is being vacated by another job" in found.text
    assert ask(scene, 8, priority=1, options={"overheads": Overheads(vacate_s=100.0)}).starts_s == 160.0


def test_what_is_under_way_ends_when_it_would_have() -> None:
    scene = busy()
    # urgent takes T1 from low at 15 min, which has 30 s to leave.
    scene.at("15m10s")
    assert scene.cluster.jobs["low"].state is JobState.PREEMPTING
    copy = restore(snapshot(scene.cluster))
    driver = SimDriver((), dict.fromkeys(copy.jobs, HOUR_S), overheads=Overheads(0.0, 5.0, 30.0))
    driver.take_over(copy)
    polled = driver.poll(float("inf"))
    assert polled == [ev.Stopped(930.0, "low", 1, 900.0)]


def test_a_restart_and_a_resize_that_are_under_way_are_not_begun_again() -> None:
    scene = Scene(*servers(2), resize_s=20.0, restart_s=60.0)
    scene.run("E", {"T1": 4}, most=8)
    scene.at("10m").submit("new", 4)
    scene.carry_out()
    states = {job_id: job.state for job_id, job in scene.cluster.jobs.items()}
    assert states == {"E": JobState.RESIZING, "new": JobState.STARTING}
    copy = restore(snapshot(scene.at("10m5s").cluster))
    driver = SimDriver((), dict.fromkeys(copy.jobs, HOUR_S), overheads=Overheads(60.0, 20.0, 0.0))
    driver.take_over(copy)
    reports = [driver.poll(float("inf")) for _ in range(2)]
    # A first attempt starts at once, so its report is overdue.
    assert reports == [[ev.Launched(605.0, "new", 1)], [ev.Resized(620.0, "E", 1, 1)]]


def test_workers_that_are_leaving_are_gone_when_they_would_have_been() -> None:
    scene = Scene(*servers(1), vacate_s=30.0)
    scene.run("E", {"T1": (4, 4)})
    scene.at("10m").submit("new", 4)
    scene.carry_out()
    assert scene.cluster.jobs["E"].leaving == {"T1": 4}
    assert scene.at("10m20s").explain("new").starts_s == 630.0
    copy = restore(snapshot(scene.cluster))
    driver = SimDriver((), dict.fromkeys(copy.jobs, HOUR_S), overheads=Overheads(0.0, 0.0, 30.0))
    driver.take_over(copy)
    polled = [driver.poll(float("inf")) for _ in range(2)]
    assert polled[0] == [ev.Resized(620.0, "E", 1, 1)]
    assert polled[1] == [ev.Vacated(630.0, "E", 1, (Slot("T1", 0, 4, 1),))]


def test_servers_are_handed_over_before_they_take_work() -> None:
    scene = Scene(*servers(1), *servers(1, "I"), confirms_loans=True)
    scene.run("A", {"T1": 8})
    scene.demand(0.0)
    overheads = Overheads(hand_over_s=40.0)
    assert ask(scene, 8, fungible=True, options={"overheads": overheads}).starts_s == 40.0
    scene.carry_out()
    assert scene.cluster.server_by_id["I1"].handing_over
    found = ask(scene.at("10s"), 8, fungible=True, options={"overheads": overheads})
    assert (found.verdict, found.starts_s, found.servers) == ("later", 50.0, ("I1",))


def test_a_server_that_rests_comes_back_and_one_in_quarantine_does_not() -> None:
    scene = Scene(*servers(1))
    scene.happens(ev.HealthChanged(0.0, "T1", Health.RESTING))
    assert ask(scene, 8, options={"overheads": Overheads(rest_s=25.0)}).starts_s == 25.0
    scene.happens(ev.HealthChanged(0.0, "T1", Health.QUARANTINED))
    found = ask(scene, 8)
    assert found.verdict == "unknown"
    assert found.text.startswith("No start is in sight within 30 d: nothing foreseen makes room for it.")


def test_what_an_operator_has_asked_for_is_foreseen() -> None:
    scene = Scene(*servers(2))
    scene.run("A", {"T1": 8}, estimate_s=600.0)
    scene.run("B", {"T2": 8}, estimate_s=HOUR_S, checkpoint_s=0.0)
    assert ask(scene, 8, estimate_s=2 * HOUR_S).starts_s == 600.0
    # When T2 has to be empty B comes first in what is left.
    scene.happens(ev.ServerDrained(0.0, "T2", True, deadline_s=300.0))
    assert ask(scene, 8, estimate_s=2 * HOUR_S).starts_s == 600.0 + HOUR_S - 300.0


def test_never_says_why() -> None:
    scene = Scene(*servers(2), *servers(1, "I"), policy="opportunistic")
    assert ask(scene, 17) == DryRun(
        "never",
        None,
        "It could never start here: Its gang needs 17 GPUs, which would not fit even if nothing else were "
        "here.",
    )
    # All three servers together would do, but this policy never spreads a job over both pools.
    both = ask(scene, 24, fungible=True)
    assert both.verdict == "never"
    assert "would not fit" in both.text
    wrong = ask(scene, 1, gpu_types=(("MI300", 1.0),))
    assert wrong.verdict == "never"
    assert "no server that is up has a GPU type that it accepts" in wrong.text


def test_unknown_where_a_job_without_an_estimate_is_in_the_way() -> None:
    scene = Scene(*servers(2))
    scene.run("blind", {"T1": 8}, estimate_s=None)
    scene.run("seen", {"T2": 8}, estimate_s=600.0)
    assert ask(scene, 8).starts_s == 600.0
    found = ask(scene, 16)
    assert (found.verdict, found.starts_s) == ("unknown", None)
    assert found.text.startswith("It can't be said when it would start: a job has no estimate and may hold")


def test_a_waiting_job_without_an_estimate_promises_nothing_either() -> None:
    scene = Scene(*servers(1), policy="fifo")
    scene.run("A", {"T1": 8}, estimate_s=600.0)
    scene.submit("blind", 8, estimate_s=None)
    assert ask(scene, 1).verdict == "unknown"


def test_unknown_beyond_the_horizon_and_where_looking_ahead_is_given_up() -> None:
    scene = Scene(*servers(1), policy="fifo")
    scene.run("A", {"T1": 8}, estimate_s=2 * HOUR_S)
    assert ask(scene, 8, options={"horizon_s": 2 * HOUR_S}).starts_s == 2 * HOUR_S
    short = ask(scene, 8, options={"horizon_s": HOUR_S})
    assert short.verdict == "unknown"
    assert short.text.startswith("No start is in sight within 60 min")
    for number in range(5):
        scene.submit(f"B{number}", 8)
    cut = ask(scene, 8, options={"most_passes": 3})
    assert cut.verdict == "unknown"
    assert "not within the next 3 h, as far as was looked ahead" in cut.text
    assert ask(scene, 8).starts_s == 7 * HOUR_S


def test_a_job_that_has_outlived_its_estimate_is_about_to_end() -> None:
    scene = Scene(*servers(1))
    scene.run("A", {"T1": 8}, estimate_s=600.0)
    assert ask(scene.at("20m"), 8).starts_s == 1201.0


def test_inference_needs_what_it_said_last_unless_somebody_foretells_it() -> None:
    scene = Scene(*servers(1), *servers(1, "I"))
    scene.run("A", {"T1": 8}, estimate_s=9 * HOUR_S)
    scene.demand(1.0)
    assert ask(scene, 8, fungible=True).starts_s == 9 * HOUR_S

    def night(at_s: float) -> float:
        return 0.0 if at_s >= 2 * HOUR_S else 1.0

    found = ask(scene, 8, fungible=True, options={"need": night})
    assert (found.verdict, found.starts_s, found.servers) == ("later", 2 * HOUR_S, ("I1",))


def test_a_server_that_will_be_needed_before_it_could_be_taken_back_is_not_lent() -> None:
    scene = Scene(*servers(1), *servers(1, "I"), reclaim_within_s=900.0)
    scene.run("A", {"T1": 8}, estimate_s=9 * HOUR_S)
    scene.demand(1.0)

    def gap(at_s: float) -> float:
        return 0.0 if HOUR_S <= at_s < HOUR_S + 1000.0 else 1.0

    assert ask(scene, 8, fungible=True, options={"need": gap}).starts_s == 9 * HOUR_S


def test_a_job_that_is_there_already_can_not_be_submitted() -> None:
    scene = Scene(*servers(1))
    spec = scene.submit("A", 4)
    with pytest.raises(IllegalTransitionError, match="submitted before"):
        dry_run(restore(snapshot(scene.cluster)), scene.policy, spec)


def test_compare_lets_each_policy_go_on_from_here() -> None:
    scene = Scene(*servers(1), policy="fifo")
    scene.run("A", {"T1": 8}, estimate_s=600.0)
    scene.at("1m").submit("long", 8, estimate_s=1000.0)
    scene.submit("short", 8, estimate_s=100.0)
    in_turn, shortest, stopping = compare(snapshot(scene.cluster), ["fifo", "sjf", "srtf"])
    assert in_turn == Outlook("fifo", 3, 0, (600 + 1540 + 1640) / 3, (0 + 540 + 1540) / 3, 0, 0)
    assert shortest == Outlook("sjf", 3, 0, (600 + 640 + 1640) / 3, (0 + 540 + 640) / 3, 0, 0)
    # short stops A at once, which keeps its progress and waits for it.
    assert stopping == Outlook("srtf", 3, 0, (700 + 100 + 1640) / 3, (100 + 0 + 640) / 3, 1, 0)


def test_compare_leaves_jobs_without_estimates_unfinished_and_says_how_many() -> None:
    scene = Scene(*servers(2))
    scene.run("blind", {"T1": 8}, estimate_s=None)
    scene.submit("seen", 8, estimate_s=600.0)
    assert compare(snapshot(scene.cluster), ["fifo"]) == [Outlook("fifo", 1, 1, 600.0, 0.0, 0, 1)]
    nobody = Scene(*servers(1))
    nobody.run("blind", {"T1": 8}, estimate_s=None)
    assert compare(snapshot(nobody.cluster), ["sjf"]) == [Outlook("sjf", 0, 1, None, None, 0, 1)]


def test_compare_stops_at_the_horizon_and_at_the_limit_of_work() -> None:
    scene = Scene(*servers(1))
    for number in range(4):
        scene.submit(f"A{number}", 8)
    blob = snapshot(scene.cluster)
    assert [one.finished for one in compare(blob, ["fifo"], horizon_s=2.5 * HOUR_S)] == [2]
    assert [one.finished for one in compare(blob, ["fifo"], most_passes=2)] == [1]
    assert [one.finished for one in compare(blob, ["fifo"])] == [4]


def test_a_policy_that_does_not_lend_lets_loans_run_out() -> None:
    scene = Scene(*servers(1), *servers(2, "I"))
    scene.demand(0.0).run("A", {"T1": 8}, estimate_s=600.0)
    scene.lend("I1", "I2")
    scene.run("F", {"I1": 8}, fungible=True, estimate_s=600.0)
    scene.submit("G", 8, fungible=True, estimate_s=600.0)
    copy = rebuild(restore(snapshot(scene.cluster)), parse_policy("fifo"))
    verify(copy)
    assert [copy.server_by_id[name].tenure for name in ("I1", "I2")] == [Tenure.RECLAIMING] * 2
    assert upkeep.due(copy).steps
    lending, keeping = compare(snapshot(scene.cluster), ["aryl", "fifo"])
    assert lending == Outlook("aryl", 3, 0, 600.0, 0.0, 0, 0)
    assert keeping == Outlook("fifo", 3, 0, (600 + 600 + 1200) / 3, 200.0, 0, 0)


def test_a_job_that_another_policy_would_not_have_accepted_does_not_block_its_queue() -> None:
    scene = Scene(*servers(1), *servers(1, "I", gpu_type="T4"))
    scene.demand(1.0).submit("F", 1, gpu_types=(("T4", 1.0),), fungible=True)
    scene.submit("G", 8, estimate_s=600.0)
    assert compare(snapshot(scene.cluster), ["fifo"]) == [Outlook("fifo", 1, 1, 600.0, 0.0, 0, 0)]


def test_a_job_that_is_being_cancelled_is_nobodys_merit() -> None:
    scene = Scene(*servers(1))
    scene.run("A", {"T1": 8})
    scene.happens(ev.CancelRequested(0.0, "A"))
    assert compare(snapshot(scene.cluster), ["fifo"]) == [Outlook("fifo", 0, 0, None, None, 0, 0)]


def test_an_unknown_policy_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no such policy"):
        compare(snapshot(Scene(*servers(1)).cluster), ["fifo", "fofi"])


@pytest.mark.parametrize("name", EVERY_POLICY)
def test_every_policy_can_take_over_from_another(name: str) -> None:
    policy = parse_policy(name)
    copy = rebuild(restore(snapshot(busy().cluster)), policy)
    verify(copy)
    assert {entry.job_id for entry in copy.pending} <= {"waits", "low"}
    assert lends(policy) == (
        name == "opportunistic" or (name.startswith("aryl") and name not in _WITHOUT_LOANS)
    )
    (outlook,) = compare(snapshot(busy().cluster), [name])
    assert (outlook.policy, outlook.finished, outlook.unfinished) == (name, 5, 1)
    assert outlook.without_estimate == 1


_WITHOUT_LOANS = ("aryl:scaling", "aryl:no-loaning,no-scaling")


def test_what_the_daemon_is_given_answers_in_views() -> None:
    scene = Scene(*servers(1), policy="sjf")
    scene.run("A", {"T1": 8}, estimate_s=600.0)
    whatif = WhatIf(overheads=Overheads(0.0, 0.0, 0.0))
    blob = whatif.snapshot(scene.cluster)
    view = whatif.dry_run(blob, scene.policy, JobSpec("B", 5, 0.0, 8, 8, estimate_s=60.0))
    assert isinstance(view, DryRunView)
    assert (view.verdict, view.starts, view.servers) == ("later", 600.0, ["T1"])
    assert whatif.compare(blob, ["fifo"]) == [
        WhatIfOutcome(
            policy="fifo", finished=1, unfinished=0, mean_jct_s=600.0, mean_queuing_s=0.0, preemptions=0
        )
    ]
