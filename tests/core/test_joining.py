"""Servers that join a cluster that is running."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.helpers import claim, cluster_of, commit, happen, job, refused, resize, run, stop, submit
from tests.property.snapshot import snapshot

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.invariants import verify
from aryl.core.model import Accounting, Health, JobState, Pool, ServerSpec, Slot, Tenure
from aryl.core.plan import Loan, Reclaim
from aryl.errors import IllegalTransitionError

T3 = ServerSpec("T3", Pool.TRAINING, "V100", 8)
A1 = ServerSpec("A1", Pool.TRAINING, "A100", 4, 2.0)
I3 = ServerSpec("I3", Pool.INFERENCE, "T4", 8, 0.5)


def joined(*servers: ServerSpec, at: float = 0.0) -> ev.ServersJoined:
    return ev.ServersJoined(at, servers)


def _busy() -> Cluster:
    """E(2..6) on T1 and, lent, on I1; L leaves T2, where C claims; W waits. It is 10 s."""
    cluster = cluster_of(2, 2)
    commit(cluster, Loan("I1"))
    run(cluster, job("E", 2, 6, fungible=True, heterogeneous=True), Slot("T1", 2, 0, 1))
    commit(cluster, resize(cluster, "E", add=(Slot("I1", 0, 2, 2),)))
    happen(cluster, ev.Resized(0.0, "E", 1, 1))
    run(cluster, job("L", 8), Slot("T2", 8, 0, 1))
    submit(cluster, job("C", 8), job("W", 16))
    commit(cluster, stop(cluster, "L"), claim(cluster, "C", Slot("T2", 8, 0, 1)), at=10.0)
    return cluster


def test_a_server_that_joins_takes_work_and_disturbs_nobody() -> None:
    cluster = _busy()
    before = [(one.spec, one.place, one.shelf, dict(one.jobs)) for one in cluster.servers]
    masks = cluster.flexible_mask, cluster.leaving_mask, cluster.on_loan_mask, cluster.inference_mask
    happen(cluster, joined(T3, A1, at=11.0))
    assert [(one.spec, one.place, one.shelf, dict(one.jobs)) for one in cluster.servers[:4]] == before
    assert masks == (
        cluster.flexible_mask,
        cluster.leaving_mask,
        cluster.on_loan_mask,
        cluster.inference_mask,
    )
    assert [server.spec for server in cluster.servers[4:]] == [T3, A1]
    assert cluster.server_by_id["T3"].shelf == cluster.server_by_id["T1"].shelf
    assert [cluster.free.free[server.place] for server in cluster.servers[4:]] == [8, 4]
    run(cluster, job("N", 10, heterogeneous=True), Slot("T3", 8, 0, 1), Slot("A1", 2, 0, 1))
    assert cluster.jobs["N"].state is JobState.RUNNING


def test_an_inference_server_that_joins_serves_and_may_be_lent() -> None:
    cluster = cluster_of(1, 2, least_kept_servers=2)
    happen(cluster, ev.DemandReported(0.0, 1.0, 1.0))
    assert (cluster.serving, cluster.lending_cap) == (2, 0)
    happen(cluster, joined(I3))
    assert (cluster.serving, cluster.lending_cap) == (3, 1)
    commit(cluster, Loan("I3"))
    assert (cluster.serving, cluster.on_loan) == (2, 1)
    run(cluster, job("F", 1, fungible=True), Slot("I3", 1, 0, 2))


def test_what_a_job_accepts_is_looked_up_anew_once_there_is_a_new_shelf() -> None:
    cluster = cluster_of(1)
    spec = job("A", 1, gpu_types=(("A100", 2.0),))
    submit(cluster, spec)
    assert cluster.stands(spec) == ()
    happen(cluster, joined(A1))
    assert [stand.shelf for stand in cluster.stands(spec)] == [cluster.server_by_id["A1"].shelf]


_KINDS = st.sampled_from((T3, A1, I3, replace(T3, gpus=2), replace(I3, gpu_type="V100", speed=1.0)))
_SERVERS = st.lists(_KINDS, max_size=8).map(
    lambda kinds: tuple(replace(kind, server_id=f"S{place}") for place, kind in enumerate(kinds))
)


@settings(max_examples=100, deadline=None)
@given(servers=_SERVERS, cuts=st.lists(st.integers(0, 8), max_size=3))
def test_servers_that_join_one_after_the_other_make_the_cluster_that_is_declared_at_once(
    servers: tuple[ServerSpec, ...], cuts: list[int]
) -> None:
    at_once = Cluster(lambda job, now_s: ())
    evolve(at_once, ev.ClusterDeclared(0.0, servers, least_kept_servers=1))
    edges = [0, *sorted(min(cut, len(servers)) for cut in cuts), len(servers)]
    first, *rest = [servers[start:end] for start, end in pairwise(edges)]
    grown = Cluster(lambda job, now_s: ())
    evolve(grown, ev.ClusterDeclared(0.0, first, least_kept_servers=1))
    for more in rest:
        evolve(grown, ev.ServersJoined(0.0, more))
    verify(grown)
    without = frozenset({"declared_servers"})
    assert snapshot(grown, without=without) == snapshot(at_once, without=without)


def test_one_that_joined_and_was_lost_may_come_back_with_other_gpus_in_its_old_place() -> None:
    cluster = _busy()
    happen(cluster, joined(T3, I3, at=11.0))
    run(cluster, job("N", 8), Slot("T3", 8, 0, 1))
    happen(cluster, ev.ServerDrained(11.0, "T3", True), ev.ServerLost(12.0, "T3"))
    happen(cluster, joined(replace(A1, server_id="T3"), at=13.0))
    server = cluster.server_by_id["T3"]
    assert (server.spec.gpus, server.place, server.up, server.used) == (4, 4, True, 0)
    # What an operator has said of the name holds.
    assert server.draining
    happen(cluster, ev.ServerDrained(13.0, "T3", False))
    assert cluster.free.free[4] == 4
    run(cluster, job("M", 4), Slot("T3", 4, 0, 1))


def test_one_that_was_lost_on_loan_comes_back_on_loan() -> None:
    cluster = cluster_of(1, 1)
    happen(cluster, joined(I3))
    commit(cluster, Loan("I3"))
    happen(cluster, ev.ServerLost(1.0, "I3"), joined(replace(I3, gpus=2), at=2.0))
    assert cluster.server_by_id["I3"].tenure is Tenure.ON_LOAN
    run(cluster, job("F", 1, fungible=True), Slot("I3", 1, 0, 2))
    commit(cluster, Reclaim("I3", 60.0))


def test_a_gpu_type_that_becomes_faster_by_a_new_shelf_is_faster_for_those_that_run() -> None:
    """Its first shelf says how fast a type is, and the faster shelf comes first."""
    cluster = cluster_of(2, accounting=Accounting.SLOWER)
    run(cluster, job("A", 2), Slot("T1", 2, 0, 1))
    happen(cluster, joined(replace(T3, gpus=4, speed=2.0), at=10.0))
    assert cluster.jobs["A"].progress.rate == 2.0
    assert cluster.jobs["A"].progress.done_at(11.0) == 12.0


def test_rules_are_declared_anew_for_the_servers_that_were_declared_and_keep_the_others() -> None:
    cluster = cluster_of(1)
    happen(cluster, joined(T3))
    declared = ev.ClusterDeclared(1.0, (cluster.servers[0].spec,), resize_s=9.0)
    happen(cluster, declared)
    assert (cluster.resize_s, len(cluster.servers)) == (9.0, 2)
    both = replace(declared, servers=(*declared.servers, T3))
    refused(IllegalTransitionError, cluster, "declared once", lambda: evolve(cluster, both))


def test_a_cluster_that_is_declared_without_servers_gets_them_by_and_by() -> None:
    cluster = cluster_of(0)
    happen(cluster, joined(T3))
    run(cluster, job("A", 8), Slot("T3", 8, 0, 1))
    happen(cluster, ev.ClusterDeclared(1.0, (), resize_s=9.0))
    refused(
        IllegalTransitionError,
        cluster,
        "declared once",
        lambda: evolve(cluster, ev.ClusterDeclared(1.0, (T3,))),
    )


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ((T3,), "T3 can't join: it is there already, with 8 V100 GPUs in the training pool"),
        ((replace(T3, gpus=4),), "T3 can't join: it is there already"),
        ((replace(I3, server_id="T1"),), "T1 can't join: it was declared with 8 V100 GPUs in the training"),
        ((replace(T3, server_id="T2", gpus=4),), "T2 can't join: it was declared"),
        ((replace(I3, server_id="D1"),), "D1 can't join: it belongs to the training pool"),
        ((A1, replace(A1, gpus=2)), "two servers have the same name"),
        ((A1, replace(I3, gpus=0)), "I3 can't join: it needs at least one GPU"),
        ((A1, replace(I3, speed=0.0)), "I3 can't join: it needs at least one GPU"),
        ((replace(I3, speed=float("nan")),), "I3 can't join: it needs at least one GPU"),
        ((A1, T3), "T3 can't join"),
    ],
)
def test_a_server_that_cant_join_is_refused_and_nothing_changes(
    servers: tuple[ServerSpec, ...], words: str
) -> None:
    """T1 and T2 were declared, T2 is lost; T3 and D1 have joined, D1 is lost."""
    cluster = cluster_of(2)
    happen(cluster, joined(T3, replace(T3, server_id="D1")))
    happen(cluster, ev.ServerLost(1.0, "T2"), ev.ServerLost(1.0, "D1"))
    refused(IllegalTransitionError, cluster, words, lambda: evolve(cluster, joined(*servers, at=1.0)))


def test_nobody_joins_a_cluster_that_isnt_declared() -> None:
    cluster = Cluster(lambda job, now_s: ())
    refused(IllegalTransitionError, cluster, "no cluster", lambda: evolve(cluster, joined(T3)))


@pytest.mark.parametrize("health", [Health.HEALTHY, Health.SUSPECT])
def test_one_that_comes_back_as_it_was_is_as_if_it_had_returned(health: Health) -> None:
    def after(event: ev.Event) -> Any:
        cluster = cluster_of(1, 1)
        happen(cluster, joined(I3), ev.HealthChanged(0.0, "I3", health), ev.ServerLost(1.0, "I3"), event)
        return snapshot(cluster)

    assert after(joined(I3, at=2.0)) == after(ev.ServerReturned(2.0, "I3"))
