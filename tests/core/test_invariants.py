"""A state that is corrupted by hand is found out, whatever was corrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.core.helpers import claim, cluster_of, commit, job, run, stop, submit

from aryl.core.cluster import Cluster
from aryl.core.free_index import LANES_PER_SHELF
from aryl.core.invariants import rebuilt_free_index, verify, violations
from aryl.core.model import Health, JobState, Slot, Tenure
from aryl.core.pending import Entry
from aryl.core.plan import Cause, Loan
from aryl.errors import InvariantError


def _cluster() -> Cluster:
    """E(2..6) at 2+2 and L, leaving, on T1, where C claims; F on I1, which is on loan; W and X wait."""
    cluster = cluster_of(2, 2)
    commit(cluster, Loan("I1"))
    run(cluster, job("E", 2, 6, project="p"), Slot("T1", 2, 2, 1))
    run(cluster, job("L", 3), Slot("T1", 3, 0, 1))
    run(cluster, job("F", 1, fungible=True), Slot("I1", 1, 0, 2))
    submit(cluster, job("C", 3), job("W", 8), job("X", 8))
    commit(cluster, stop(cluster, "L"), claim(cluster, "C", Slot("T1", 3, 0, 1)))
    return cluster


def _set(path: str, value: Any) -> Callable[[Cluster], None]:
    """Set an attribute of a server or job: `T1.used`."""
    name, _, attribute = path.partition(".")

    def act(cluster: Cluster) -> None:
        owner: Any = cluster.server_by_id.get(name) or cluster.jobs.get(name) or cluster
        setattr(owner, attribute or path, value)

    return act


def _call(act: Callable[[Cluster], object]) -> Callable[[Cluster], None]:
    def corrupt(cluster: Cluster) -> None:
        act(cluster)

    return corrupt


def _overbook(cluster: Cluster) -> None:
    """Two owners for some GPUs, with every count in order."""
    slot = Slot("T1", 2, 7, 1)
    found, server = cluster.jobs["E"], cluster.server_by_id["T1"]
    found.slots["T1"] = server.jobs["E"] = slot
    found.flexible, found.gpus, server.used, server.flexible_gpus = 7, 9, 9, 7


def _swap_queue(cluster: Cluster) -> None:
    for entries in cluster.pending.classes.values():
        entries.reverse()


CORRUPTIONS: dict[str, tuple[Callable[[Cluster], None], str]] = {
    "used": (_set("T1.used", 5), "T1 counts 5/3/3"),
    "leaving": (_set("T1.leaving", 0), "T1 counts 4/0/3"),
    "held": (_set("T1.held", 0), "T1 counts 4/3/0"),
    "two owners": (_overbook, "T1 has 8 GPUs but 9 used"),
    "down with workers": (_set("T1.up", False), "T1 is down but has workers"),
    "trains at home": (_set("I1.tenure", Tenure.OWNED), "I1 serves inference but trains"),
    "flexible GPUs": (_set("T1.flexible_gpus", 1), "T1 counts 1 flexible GPUs"),
    "a ghost on a server": (
        _call(lambda cluster: cluster.server_by_id["T2"].jobs.update(ghost=Slot("T2", 1, 0, 1))),
        "T2 and job ghost disagree",
    ),
    "base": (_set("E.base", 3), "job E miscounts"),
    "flexible": (_set("E.flexible", 1), "job E miscounts"),
    "gpus": (_set("E.gpus", 1), "job E miscounts"),
    "kinds": (_set("E.kinds", {"T4": 4}), "job E miscounts"),
    "flexible_on": (_set("E.flexible_on", {}), "job E miscounts"),
    "slots apart": (
        _call(lambda cluster: cluster.server_by_id["T1"].jobs.pop("E")),
        "job E and server T1 disagree",
    ),
    "running while it waits": (_set("E.state", JobState.PENDING), "PENDING but holds workers"),
    "not among the live": (_call(lambda cluster: cluster.live.pop("E")), "not among the live"),
    "below its gang": (_set("E.min_workers", 5), "4 workers outside its limits"),
    "above its maximum": (_set("E.max_workers", 3), "4 workers outside its limits"),
    "base is not the gang": (_set("E.min_workers", 1), "2 base workers, its gang is 1"),
    "claiming and queued": (
        _call(lambda cluster: cluster.pending.discard("W")),
        r"job W is PENDING, queued/claiming: \(False, False\)",
    ),
    "trouble nobody sees to": (_set("E.trouble", Cause.LIMITS), "job E is in trouble"),
    "trouble that is over": (
        _call(lambda cluster: cluster.troubled.update(E=None)),
        "job E is in trouble",
    ),
    "a claim of nobody who waits": (_set("C.state", JobState.RUNNING), "belongs to no waiting job"),
    "a claim for less than a gang": (_set("C.min_workers", 4), "holds no whole gang"),
    "a claim on a draining server": (_set("T1.draining", True), "which takes nothing new"),
    "the free index": (_call(lambda cluster: cluster.free.put(1, 0, 7)), "free index is stale: free"),
    "the lanes": (
        _call(lambda cluster: cluster.free.put(2, LANES_PER_SHELF, cluster.free.free[2])),
        "free index is stale: lane",
    ),
    "a sum of the index": (
        _call(lambda cluster: cluster.free.lane_free.__setitem__(0, 3)),
        "free index is stale: lane_free",
    ),
    "a bucket of the index": (
        _call(lambda cluster: cluster.free.buckets[0].__setitem__(0, 1)),
        "free index is stale: buckets",
    ),
    "flexible by shelf": (_set("shelf_flexible", [0, 0]), "flexible GPUs are stale"),
    "place": (_set("T2.place", 0), "T2 stands in the wrong place"),
    "shelf": (_set("T2.shelf", 1), "T2 stands on the wrong shelf"),
    "shelves": (
        _call(lambda cluster: setattr(cluster.free, "shelves", cluster.free.shelves[:1] * 2)),
        "the shelves are stale",
    ),
    "servers by name": (_call(lambda cluster: cluster.server_by_id.pop("T2")), "servers by name are stale"),
    "what jobs accept": (
        _call(lambda cluster: cluster._stands.update({(1, (), False): ()})),
        "the shelves that jobs accept are stale",
    ),
    "flexible_mask": (_set("flexible_mask", 0), "flexible_mask is stale"),
    "on_loan_mask": (_set("on_loan_mask", 0), "on_loan_mask is stale"),
    "reclaiming_mask": (_set("reclaiming_mask", 1), "reclaiming_mask is stale"),
    "inference_mask": (_set("inference_mask", 0), "inference_mask is stale"),
    "live": (_call(lambda cluster: cluster.live.update(W=cluster.jobs["W"])), "set of live jobs is stale"),
    "elastic": (_call(lambda cluster: cluster.elastic.clear()), "live elastic jobs is stale"),
    "growable": (_call(lambda cluster: cluster.growable.clear()), "could grow is stale"),
    "priorities": (_set("live_by_priority", {0: 1}), "live jobs by priority are stale"),
    "projects": (_set("project_gpus", {"p": 1}), "GPUs by project are stale"),
    "projects that hold nothing": (_set("project_gpus", {"p": 2, "q": 1}), "GPUs by project are stale"),
    "on loan from the training pool": (_set("T2.tenure", Tenure.ON_LOAN), "T2 is on-loan but belongs"),
    "handed over at home": (_set("I2.handing_over", True), "I2 is being handed over, though nobody waits"),
    "handed over but in use": (_set("I1.handing_over", True), "I1 has workers or is claimed, but hasn't"),
    "given and lent": (_set("I1.given", True), "I1 is to be lent, but is kept at home or lent already"),
    "given but not noted": (_set("I2.given", True), "asked_mask is stale"),
    "wanted back, yet at home": (_set("I2.recall_by_s", 5.0), "I2 is wanted back, but is at home"),
    "wanted back, yet lent again": (_set("I1.recall_by_s", 5.0), "I1 is wanted back, but .* may be lent"),
    "to be empty, yet open": (_set("T1.drain_by_s", 5.0), "T1 has to be empty by a time, but takes work"),
    "health": (_set("T2.health", Health.SUSPECT), "free index is stale: lane"),
    "health of an inference server": (_set("I2.health", Health.SUSPECT), "inference_mask is stale"),
    "limits of its own": (_set("E.limits", (1, 6)), r"job E doesn't keep to the limits \(1, 6\)"),
    "on its way out, yet elastic": (
        _set("E.finishing", True),
        "job E is on its way out but could",
    ),
    "an attempt that isn't over": (_set("W.finishing", True), "job W is PENDING, but its last attempt"),
    "progress while it waits": (
        _call(lambda cluster: setattr(cluster.jobs["W"].progress, "rate", 1.0)),
        "job W is PENDING but makes progress",
    ),
    "progress of other workers": (
        _call(lambda cluster: setattr(cluster.jobs["E"].progress, "rate", 1.0)),
        "job E makes 1.0 s of progress a second, its workers 2.0 s",
    ),
    "one failure too many": (_set("E.failures", 1), "job E has failed 1 times and is tried again"),
    "the order of the queue": (_swap_queue, "is out of order"),
    "a stranger in the queue": (
        _call(lambda cluster: next(iter(cluster.pending.classes.values())).append(Entry((9.0,), "ghost"))),
        "job ghost stands in the wrong place",
    ),
    "the wrong class": (_set("W.min_workers", 7), "job W stands in the wrong place"),
    "the wrong key": (_set("W.at_front", True), "job W stands in the wrong place"),
}


def test_a_sound_state_has_no_violations() -> None:
    cluster = _cluster()
    assert list(violations(cluster)) == []
    verify(cluster)


@pytest.mark.parametrize(("corrupt", "words"), CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_a_corrupted_state_is_found_out(corrupt: Callable[[Cluster], None], words: str) -> None:
    cluster = _cluster()
    corrupt(cluster)
    with pytest.raises(InvariantError, match=words):
        verify(cluster)


def test_a_size_that_isnt_allowed_is_found_out() -> None:
    cluster = cluster_of()
    with pytest.raises(InvariantError, match="job S has 3 workers outside its limits"):
        run(cluster, job("S", 2, 4, sizes=(2, 4)), Slot("T1", 2, 1, 1))


def test_types_mixed_by_a_job_that_isnt_heterogeneous_are_found_out() -> None:
    cluster = cluster_of(1, 1)
    commit(cluster, Loan("I1"))
    with pytest.raises(InvariantError, match="isn't heterogeneous but holds"):
        run(cluster, job("M", 2, fungible=True), Slot("T1", 1, 0, 1), Slot("I1", 1, 0, 2))


def test_a_job_on_a_server_that_it_doesnt_accept_is_found_out() -> None:
    cluster = cluster_of(1, 1)
    commit(cluster, Loan("I1"))
    with pytest.raises(InvariantError, match="a server that it doesn't accept"):
        run(cluster, job("N", 2), Slot("I1", 2, 0, 2))


def test_everything_that_is_wrong_is_named_with_the_time() -> None:
    cluster = _cluster()
    cluster.now = 7.0
    cluster.flexible_mask = cluster.on_loan_mask = 0
    with pytest.raises(InvariantError, match=r"at 7.0 s: .*flexible_mask.*; .*on_loan_mask"):
        verify(cluster)


def test_the_free_index_made_anew_is_the_one_that_was_kept_up() -> None:
    cluster = _cluster()
    fresh = rebuilt_free_index(cluster)
    assert (fresh.free, fresh.lane, fresh.buckets, fresh.lane_free) == (
        cluster.free.free,
        cluster.free.lane,
        cluster.free.buckets,
        cluster.free.lane_free,
    )
