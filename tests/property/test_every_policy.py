"""Any policy on any cluster, whatever happens: the rules that nobody may break."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.snapshot import snapshot
from tests.property.watch import Ran, plain_run, watched_run
from tests.strategies import EVERY_POLICY, Case, cases

from aryl.core.cluster import Cluster
from aryl.core.events import NeedChanged
from aryl.core.model import JobState
from aryl.policies.catalogue import parse_policy
from aryl.policies.reasons import Wait
from aryl.scheduler.journal import from_lines, replay, to_line


@pytest.mark.parametrize("name", EVERY_POLICY)
@given(case=cases(slow=True))
def test_a_run_keeps_every_promise(name: str, case: Case) -> None:
    ran = watched_run(case, name)
    _everybody_is_done_or_knows_why(ran)
    _no_job_beats_the_bound(ran)
    lines = [to_line(event, number) for number, event in enumerate(ran.events)]
    again = replay(Cluster(parse_policy(name).order), from_lines(lines, "journal"))
    assert snapshot(again) == snapshot(ran.loop.cluster)
    plain = [to_line(event, number) for number, event in enumerate(plain_run(case, name))]
    assert plain == lines, "the same input gave another journal"


@given(case=cases(slow=True), name=st.sampled_from(EVERY_POLICY))
def test_what_inference_needs_between_its_reports_moves_nothing(case: Case, name: str) -> None:
    unsaid = replace(case, demand=tuple(one for one in case.demand if not isinstance(one, NeedChanged)))
    heard = [event for event in plain_run(case, name) if not isinstance(event, NeedChanged)]
    assert heard == plain_run(unsaid, name)


def _everybody_is_done_or_knows_why(ran: Ran) -> None:
    cluster = ran.loop.cluster
    assert not cluster.claims, "a claim was neither used nor dropped"
    for job_id, job in cluster.jobs.items():
        assert job.state is JobState.PENDING, f"{job_id} is {job.state.value} and will be for ever"
        assert ran.policy.explain(cluster, job_id).wait not in (Wait.NOT_WAITING, Wait.VACATING)


def _no_job_beats_the_bound(ran: Ran) -> None:
    accounts = ran.accounts
    for job_id, finish_s in accounts.finish_s.items():
        jct_s = finish_s - accounts.submit_s[job_id]
        assert jct_s >= accounts.shortest_s[job_id] * (1 - 1e-9), f"{job_id} ended sooner than possible"
    jobs = len(accounts.finish_s)
    if jobs:
        assert math.fsum(accounts.finish_s.values()) / jobs >= math.fsum(accounts.shortest_s.values()) / jobs
