"""Trust (X1, X3): why does it wait, and would it fit?

One cluster of islands, each of its own GPU type, so that eight jobs wait at the same time for eight different
reasons; and a strict queue for the reasons that only it has.
"""

from __future__ import annotations

import pytest
from tests.property.snapshot import snapshot as picture

from aryl.core.events import PlanCommitted, Submitted
from aryl.core.model import Accounting, JobSpec
from aryl.core.plan import Launch
from aryl.policies.reasons import Wait, WaitReason
from aryl.policies.sentence import sentence
from aryl.scheduler.journal import MemoryJournal
from aryl.scheduler.loop import Loop
from aryl.sim.driver import Overheads, SimDriver
from aryl.sim.snapshot import restore, snapshot
from aryl.sim.whatif import DryRun, dry_run
from aryl.testing import Scene, experiment, job, run_scenario, servers

MINUTE_S = 60.0
NOW_S = 40 * MINUTE_S


def only(*kinds: str) -> tuple[tuple[str, float], ...]:
    """These GPU types, each half as fast as the one before it."""
    return tuple((kind, 0.5**place) for place, kind in enumerate(kinds))


def islands() -> Scene:
    """Servers of 8 GPUs: two each of types A, B and C, one each of D, E, F and G, and one S that is slow."""
    scene = Scene(
        *servers(2, "A", gpu_type="A"),
        *servers(2, "B", gpu_type="B"),
        *servers(2, "C", gpu_type="C"),
        *(spec for kind in "DEFG" for spec in servers(1, kind, gpu_type=kind)),
        *servers(1, "S", gpu_type="S", speed=0.5),
        policy="aryl:scatter=never,min_runtime=20m,reserve_after=30m",
        accounting=Accounting.SLOWER,
        vacate_s=45.0,
    )
    # A: ten GPUs are needed, six are free, and the one that is in the way ends after 50 minutes.
    scene.run("a1", {"A1": 8}, gpu_types=only("A"), estimate_s=50 * MINUTE_S)
    scene.run("a2", {"A2": 2}, gpu_types=only("A"), estimate_s=90 * MINUTE_S)
    # B: six GPUs are free, three on each server.
    scene.run("b1", {"B1": 5}, gpu_types=only("B"), estimate_s=70 * MINUTE_S)
    scene.run("b2", {"B2": 5}, gpu_types=only("B"), estimate_s=80 * MINUTE_S)
    # C: a gang of 16 has waited for 40 minutes and is to start when c1 ends.
    scene.run("c1", {"C1": 8}, gpu_types=only("C"), estimate_s=60 * MINUTE_S)
    scene.submit("gang", 16, gpu_types=only("C"))
    # D: low leaves for urgent.
    scene.run("low", {"D1": 8}, gpu_types=only("D"), checkpoint_s=0.0)
    # F: fast GPUs come free in ten minutes, slow ones are free now.
    scene.run("f1", {"F1": 8}, gpu_types=only("F"), estimate_s=50 * MINUTE_S)
    # E: rested has run for ten minutes only.
    scene.at("30m").run("young", {"E1": 8}, gpu_types=only("E"), estimate_s=300 * MINUTE_S)
    scene.at(NOW_S)
    scene.submit("short of GPUs", 8 + 2, gpu_types=only("A"))
    scene.submit("in pieces", 4, gpu_types=only("B"))
    scene.submit("held back", 8, gpu_types=only("C"), estimate_s=120 * MINUTE_S)
    scene.submit("urgent", 8, gpu_types=only("D"), priority=1)
    scene.submit("not yet", 8, gpu_types=only("E"), priority=1)
    scene.submit("choosy", 8, gpu_types=only("F", "S"), estimate_s=100 * MINUTE_S)
    scene.submit("from elsewhere", 3, gpu_types=only("MI300"))
    scene.submit("giant", 9, gpu_types=only("G"))
    scene.carry_out()
    return scene


ISLANDS = {
    "short of GPUs": WaitReason("short of GPUs", Wait.NOT_ENOUGH_FREE, 10, 6, 6, ("a1",), 50 * MINUTE_S),
    "in pieces": WaitReason("in pieces", Wait.FRAGMENTED, 4, 6, 3, ("b1",), 70 * MINUTE_S),
    "held back": WaitReason("held back", Wait.RESERVED, 8, 8, 8, ("gang",)),
    "urgent": WaitReason("urgent", Wait.VACATING, 8, behind=("low",), starts_s=NOW_S + 45.0),
    "not yet": WaitReason("not yet", Wait.VICTIMS_REST, 8, 0, 0, ("young",), 50 * MINUTE_S),
    "choosy": WaitReason("choosy", Wait.FASTER_LATER, 8, 8, 8, (), 50 * MINUTE_S),
    "from elsewhere": WaitReason("from elsewhere", Wait.NO_MATCHING_GPU, 3),
    "giant": WaitReason("giant", Wait.TOO_LARGE, 9),
}


def test_x1_eight_jobs_wait_for_eight_reasons_and_why_names_each() -> None:
    scene = islands()
    assert {job_id: scene.explain(job_id) for job_id in ISLANDS} == ISLANDS
    assert len({reason.wait for reason in ISLANDS.values()}) == 8
    # The gang itself waits for c1, as its reservation says.
    assert scene.explain("gang") == WaitReason("gang", Wait.NOT_ENOUGH_FREE, 16, 8, 8, ("c1",), 60 * MINUTE_S)


def test_x1_what_people_read_has_the_numbers_in_it() -> None:
    said = {job_id: sentence(reason, NOW_S) for job_id, reason in ISLANDS.items()}
    assert said["short of GPUs"] == (
        "It needs 10 GPUs, but only 6 are free, at most 6 on one server. Once a1 has ended, it is expected "
        "to start in about 10 min."
    )
    assert said["urgent"] == (
        "Its place of 8 GPUs is being vacated by low; it starts as soon as that is over (expected in about "
        "45 s)."
    )
    assert len(set(said.values())) == 8


def test_x1_asking_changes_nothing() -> None:
    scene = islands()
    before = picture(scene.cluster)
    for job_id in ISLANDS:
        scene.explain(job_id)
    assert picture(scene.cluster) == before


def test_x1_a_strict_queue_has_a_reason_of_its_own() -> None:
    scene = Scene(*servers(1), policy="fifo")
    scene.run("A", {"T1": 4}, estimate_s=600.0)
    scene.submit("head", 8)
    scene.submit("small", 1)
    assert scene.explain("small") == WaitReason("small", Wait.BEHIND_THE_HEAD, 1, 4, 4, ("head",))
    scene.finish("A").submit("late", 1)
    assert scene.explain("head") == WaitReason("head", Wait.NEXT_PASS, 8, 8, 8, (), 0.0)


def test_x1_the_expected_starts_come_true_where_estimates_are_right() -> None:
    scene = islands()
    cluster = scene.cluster
    durations_s = {job_id: one.spec.estimate_s or 0.0 for job_id, one in cluster.jobs.items()}
    driver, journal = SimDriver((), durations_s, overheads=Overheads(0.0, 0.0, 45.0)), MemoryJournal()
    driver.take_over(cluster)
    Loop(cluster, scene.policy, driver, journal=journal).run()
    plans = [event for event in journal.events if isinstance(event, PlanCommitted)]
    started_s = {
        step.job_id: event.at for event in plans for step in event.plan.steps if isinstance(step, Launch)
    }
    for job_id in ("short of GPUs", "in pieces", "urgent", "choosy"):
        assert started_s[job_id] == ISLANDS[job_id].starts_s
    assert started_s["gang"] == 60 * MINUTE_S
    # Its victim is told to go when it has run for its minimum time, and then takes its time.
    assert started_s["not yet"] == 50 * MINUTE_S + 45.0


QUESTIONS = {
    "now": (JobSpec("asked", 9, 600.0, 2, 2, estimate_s=60.0), 600.0),
    "later": (JobSpec("asked", 9, 600.0, 8, 8, estimate_s=60.0), 1800.0),
    "never": (JobSpec("asked", 9, 600.0, 17, 17, estimate_s=60.0), None),
}


@pytest.mark.parametrize("verdict", QUESTIONS)
def test_x3_a_dry_run_answers_now_later_or_never_and_submitting_does_what_it_said(verdict: str) -> None:
    spec, starts_s = QUESTIONS[verdict]
    record = run_scenario(
        experiment(
            [
                job("A", 8, duration="30m"),
                job("B", 6, duration="2h"),
                *([] if starts_s is None else [job("asked", spec.min_workers, submit="10m", duration="1m")]),
            ],
            training=2,
        )
    )
    cluster = record.state_at("9m")
    before = picture(cluster)
    found = dry_run(restore(snapshot(cluster)), record.policy, spec)
    assert picture(cluster) == before
    assert (found.verdict, found.starts_s) == (verdict, starts_s)
    if starts_s is None:
        assert found == DryRun(
            "never",
            None,
            "It could never start here: Its gang needs 17 GPUs, which would not fit even if nothing else "
            "were here.",
        )
        return
    assert record.starts("asked") == [starts_s]
    (launch,) = (step for _, step in record.steps(Launch, "asked"))
    assert found.servers == tuple(slot.server_id for slot in launch.slots)
    assert any(isinstance(event, Submitted) and event.job.job_id == "asked" for event in record.events)
