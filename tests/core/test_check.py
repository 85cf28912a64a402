"""Each refusal, and what is let through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.helpers import claim, cluster_of, commit, happen, job, refused, run, stop, submit

from aryl.core import events as ev
from aryl.core.check import check
from aryl.core.cluster import Cluster
from aryl.core.decision import NOTHING, Decision, Preemption, Recall, Rescale, Start
from aryl.core.model import Slot
from aryl.core.plan import Cause, Loan, Reclaim
from aryl.errors import DecisionError


def _cluster() -> Cluster:
    """T1 has E(2..6) at 2+2, T2 has D(8), T4 drains, T5 is down; I1, I2 are on loan, I3 is recalled.

    W(4) waits, S (2 or 4 workers) waits, X(2) is fungible, V(2) has a claim on T3.
    """
    cluster = cluster_of(5, 4)
    commit(cluster, Loan("I1"), Loan("I2"), Loan("I3"), Reclaim("I3", 9.0))
    run(cluster, job("E", 2, 6), Slot("T1", 2, 2, 1))
    run(cluster, job("D", 8), Slot("T2", 8, 0, 1))
    run(cluster, job("U", 2), Slot("T3", 2, 0, 1))
    submit(
        cluster,
        job("W", 4),
        job("S", 2, 4, sizes=(2, 4)),
        job("X", 2, fungible=True),
        job("V", 2),
    )
    commit(cluster, stop(cluster, "U"), claim(cluster, "V", Slot("T3", 2, 0, 1)))
    happen(cluster, ev.Stopped(1.0, "U", 1, 0.0))
    happen(cluster, ev.ServerDrained(1.0, "T4", True), ev.ServerLost(1.0, "T5"))
    return cluster


def _start(job_id: str, *slots: Slot) -> Decision:
    return Decision(starts=(Start(job_id, slots),))


def _rescale(
    job_id: str, add: tuple[Slot, ...] = (), remove: tuple[Slot, ...] = (), *starts: Start
) -> Decision:
    return Decision(starts=starts, rescales=(Rescale(job_id, add, remove, Cause.GROWTH),))


def _preempt(job_id: str, *starts: Start) -> Decision:
    return Decision(starts=starts, preemptions=(Preemption(job_id, Cause.PRIORITY, "W"),))


GOOD: dict[str, Decision] = {
    "nothing": NOTHING,
    "a start where GPUs are free": _start("W", Slot("T1", 4, 0, 1)),
    "a start on what the same decision vacates": _preempt("D", Start("W", (Slot("T2", 4, 0, 1),))),
    "a start on two servers": _start("W", Slot("T1", 3, 0, 1), Slot("T3", 1, 0, 1)),
    "a start with flexible workers": _start("S", Slot("T3", 2, 2, 1)),
    "a fungible job on loan": _start("X", Slot("I1", 2, 0, 2)),
    "a server lent and used at once": Decision(lend=("I4",), starts=(Start("X", (Slot("I4", 2, 0, 2),)),)),
    "growth": _rescale("E", (Slot("T1", 0, 2, 1),)),
    "a move to another server": _rescale("E", (Slot("T3", 0, 2, 1),), (Slot("T1", 0, 2, 1),)),
    "a recall": Decision(recall=(Recall("I1", 5.0),)),
    "a withdrawn recall": Decision(lend=("I3",)),
    "a released claim": Decision(release=(0,)),
}
BAD: dict[str, tuple[Decision, str]] = {
    "overbooked": (_start("W", Slot("T2", 4, 0, 1)), "overbooked by 4"),
    "overbooked by two": (
        Decision(starts=(Start("W", (Slot("T1", 4, 0, 1),)), Start("S", (Slot("T1", 2, 0, 1),)))),
        "overbooked by 2",
    ),
    "on claimed GPUs": (
        Decision(starts=(Start("W", (Slot("T3", 4, 0, 1),)), Start("S", (Slot("T3", 4, 0, 1),)))),
        "overbooked|base workers",
    ),
    "growth onto occupied GPUs": (
        Decision(
            preemptions=(Preemption("D", Cause.PRIORITY, "E"),),
            rescales=(Rescale("E", (Slot("T2", 0, 2, 1),), (), Cause.GROWTH),),
        ),
        "overbooked by 2",
    ),
    "growth onto what a launch takes": (
        _rescale("E", (Slot("T1", 0, 2, 1),), (), Start("W", (Slot("T1", 4, 0, 1),))),
        "overbooked by 2",
    ),
    "no whole gang": (_start("W", Slot("T1", 3, 0, 1)), "gang of 4"),
    "too many base workers": (_start("S", Slot("T1", 4, 0, 1)), "gang of 2"),
    "a size between two": (_start("S", Slot("T1", 2, 1, 1)), "would have 3 workers"),
    "above the maximum": (_start("W", Slot("T1", 4, 0, 1), Slot("T3", 0, 1, 1)), "would have 5 workers"),
    "growth above the maximum": (_rescale("E", (Slot("T1", 0, 3, 1),)), "would have 7 workers"),
    "flexible that aren't there": (_rescale("E", (), (Slot("T1", 0, 3, 1),)), "no 3 such workers"),
    "the same workers twice": (_rescale("E", (), (Slot("T1", 0, 1, 1), Slot("T1", 0, 2, 1))), "no 2 such"),
    "nothing to remove": (_rescale("E", (), (Slot("T1", 0, 0, 1),)), "no 0 such"),
    "other GPUs a worker": (_rescale("E", (), (Slot("T1", 0, 1, 2),)), "workers of 1 GPUs"),
    "base workers to leave": (_rescale("E", (), (Slot("T1", 1, 0, 1),)), "base workers"),
    "base workers to come": (_rescale("E", (Slot("T1", 1, 0, 1),)), "base workers"),
    "resized by nothing": (_rescale("E"), "by nothing"),
    "resized but waiting": (_rescale("W", (Slot("T1", 0, 1, 1),)), "not running"),
    "preempted but waiting": (_preempt("W"), "not running"),
    "preempted but unknown": (_preempt("nobody"), "not running"),
    "started but running": (_start("E", Slot("T1", 2, 0, 1)), "isn't waiting"),
    "started but claiming": (_start("V", Slot("T3", 2, 0, 1)), "isn't waiting"),
    "started but unknown": (_start("nobody", Slot("T1", 2, 0, 1)), "isn't waiting"),
    "started twice": (
        Decision(starts=(Start("X", (Slot("T1", 2, 0, 1),)), Start("X", (Slot("T3", 2, 0, 1),)))),
        "decided on twice",
    ),
    "preempted and resized": (
        Decision(
            preemptions=(Preemption("E", Cause.PRIORITY, "W"),),
            rescales=(Rescale("E", (), (Slot("T1", 0, 1, 1),), Cause.GROWTH),),
        ),
        "decided on twice",
    ),
    "an empty slot": (_start("W", Slot("T1", 4, 0, 1), Slot("T3", 0, 0, 1)), "no workers on T3"),
    "a negative slot": (_start("W", Slot("T1", 5, 0, 1), Slot("T3", -1, 2, 1)), "would have 6|no workers"),
    "on a draining server": (_start("W", Slot("T4", 4, 0, 1)), "takes nothing new"),
    "on a lost server": (_start("W", Slot("T5", 4, 0, 1)), "takes nothing new"),
    "on a server at home": (_start("X", Slot("I4", 2, 0, 2)), "takes nothing new"),
    "on a recalled server": (_start("X", Slot("I3", 2, 0, 2)), "takes nothing new"),
    "on a server recalled now": (
        Decision(recall=(Recall("I1", 5.0),), starts=(Start("X", (Slot("I1", 2, 0, 2),)),)),
        "takes nothing new",
    ),
    "not fungible": (_start("W", Slot("I1", 4, 0, 2)), "workers of 2 GPUs on I1"),
    "too few GPUs a worker": (_start("X", Slot("I1", 2, 0, 1)), "workers of 1 GPUs on I1"),
    "mixed types": (_start("X", Slot("T1", 1, 0, 1), Slot("I1", 1, 0, 2)), "isn't heterogeneous"),
    "a server that isn't there": (_start("W", Slot("T9", 4, 0, 1)), "no server T9"),
    "recalled but not on loan": (Decision(recall=(Recall("I4", 5.0),)), "not on loan"),
    "recalled but unknown": (Decision(recall=(Recall("T9", 5.0),)), "no server T9"),
    "lent but on loan": (Decision(lend=("I1",)), "on loan already"),
    "lent but a training server": (Decision(lend=("T1",)), "training pool"),
    "released but not there": (Decision(release=(7,)), "claim 7"),
}


@pytest.mark.parametrize("decision", GOOD.values(), ids=GOOD)
def test_a_decision_that_can_be_carried_out_passes(decision: Decision) -> None:
    check(_cluster(), decision)


@pytest.mark.parametrize(("decision", "words"), BAD.values(), ids=BAD)
def test_a_decision_that_cant_be_carried_out_is_refused(decision: Decision, words: str) -> None:
    cluster = _cluster()
    refused(DecisionError, cluster, words, lambda: check(cluster, decision))


@pytest.mark.parametrize("event", [ev.ServerLost(2.0, "I4"), ev.ServerDrained(2.0, "I4", True)])
def test_a_server_that_is_lost_or_draining_cant_be_lent(event: ev.Event) -> None:
    cluster = _cluster()
    happen(cluster, event)
    refused(DecisionError, cluster, "takes nothing new", lambda: check(cluster, Decision(lend=("I4",))))


def test_a_heterogeneous_job_may_hold_both_types() -> None:
    cluster = _cluster()
    submit(cluster, job("H", 2, fungible=True, heterogeneous=True))
    check(cluster, _start("H", Slot("T1", 1, 0, 1), Slot("I1", 1, 0, 2)))


def test_claims_are_served_from_leaving_gpus_so_what_was_free_stays_free_for_growth() -> None:
    cluster = cluster_of(1)
    run(cluster, job("A", 4), Slot("T1", 4, 0, 1))
    run(cluster, job("E", 1, 4), Slot("T1", 1, 0, 1))
    submit(cluster, job("P", 4))
    decision: Callable[[int], Decision] = lambda workers: Decision(  # noqa: E731
        starts=(Start("P", (Slot("T1", 4, 0, 1),), Cause.PRIORITY),),
        preemptions=(Preemption("A", Cause.PRIORITY, "P"),),
        rescales=(Rescale("E", (Slot("T1", 0, workers, 1),), (), Cause.GROWTH),),
    )
    check(cluster, decision(3))
    run(cluster, job("B", 1), Slot("T1", 1, 0, 1))
    with pytest.raises(DecisionError, match="overbooked by 1"):
        check(cluster, decision(3))
