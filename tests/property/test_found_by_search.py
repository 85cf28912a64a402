"""Cases that the search has found, each as small as it could be made; all of them broke a promise once."""

from __future__ import annotations

from tests.property.watch import Ran, watched_run
from tests.strategies import NO_OVERHEADS, Case

from aryl.core import events as ev
from aryl.core import upkeep
from aryl.core.model import Accounting, JobSpec, Pool, ServerSpec, Slot
from aryl.core.plan import Stop
from aryl.sim.driver import Overheads
from aryl.testing import Scene

T4_ONLY = (("T4", 1.0),)


def job(
    number: int, workers: int, length_s: float, most: int | None = None, at: float = 0.0, **more: object
) -> JobSpec:
    return JobSpec(f"j{number}", number, at, workers, most or workers, estimate_s=length_s, **more)  # type: ignore[arg-type]


def ran(
    policy: str,
    *jobs: JobSpec,
    servers: int = 1,
    inference: int = 0,
    script: tuple[ev.Event, ...] = (),
    overheads: Overheads = NO_OVERHEADS,
    accounting: Accounting = Accounting.MORE_GPUS,
    guaranteed: tuple[tuple[str, int], ...] = (),
) -> Ran:
    """Servers of four GPUs; nobody needs the inference servers."""
    specs = tuple(ServerSpec(f"T{n}", Pool.TRAINING, "V100", 4) for n in range(1, servers + 1))
    specs += tuple(ServerSpec(f"I{n}", Pool.INFERENCE, "T4", 4, 0.5) for n in range(1, inference + 1))
    declared = ev.ClusterDeclared(
        0.0,
        specs,
        accounting,
        overheads.resize_s,
        overheads.restart_s,
        overheads.vacate_s,
        guaranteed=guaranteed,
    )
    demand = (ev.DemandReported(0.0, 0.0, 0.0),) if inference else ()
    lengths = {spec.job_id: spec.estimate_s or 0.0 for spec in jobs}
    return watched_run(Case(declared, jobs, lengths, script, demand, overheads), policy)


def stopped(run: Ran) -> list[str]:
    plans = [event.plan for event in run.events if isinstance(event, ev.PlanCommitted)]
    return [step.job_id for plan in plans for step in plan.steps if isinstance(step, Stop)]


def test_srtf_counts_only_what_a_job_holds_where_others_could_stand() -> None:
    """Half of j0 is on a draining server; a shorter job that fits beside its other half needn't stop it."""
    drains = (ev.ServerDrained(5.0, "T1", True),)
    run = ran("srtf", job(0, 2, 10.0, gpus_per_worker=3), job(1, 1, 1.0, at=5.0), servers=2, script=drains)
    assert stopped(run) == []


def test_a_job_that_leaves_the_head_of_the_training_queue_for_idle_servers_makes_way_at_once() -> None:
    run = ran(
        "opportunistic",
        job(0, 1, 1.0),
        job(1, 1, 1.0, priority=1, gpu_types=T4_ONLY, fungible=True),
        inference=1,
    )
    assert run.accounts.finish_s == {"j0": 1.0, "j1": 1.0}


def test_where_resizes_cost_nothing_a_tie_moves_no_worker() -> None:
    run = ran("aryl", job(0, 2, 9.0, 6), job(1, 2, 9.0, 6, sizes=(2, 6)), servers=2)
    moved = [
        event
        for event in run.events
        if isinstance(event, ev.Vacated) and event.at < min(run.accounts.finish_s.values())
    ]
    assert moved == []


def test_a_job_that_a_failure_threw_out_isnt_stopped_again_as_soon_as_it_runs() -> None:
    """By attained service j0 comes last, but a failure has put it first."""
    outage = (ev.ServerLost(10.0, "T1"), ev.ServerReturned(11.0, "T1"))
    run = ran("las", job(0, 4, 25.0), job(1, 4, 25.0), script=outage)
    assert run.accounts.finish_s == {"j0": 36.0, "j1": 61.0}


def test_a_project_below_its_share_waits_for_no_second_pass() -> None:
    crowd = [job(number, 1, 10.0) for number in range(11)]
    ran("aryl", *crowd, job(11, 1, 10.0, project="a"), guaranteed=(("a", 4), ("b", 3)))


def test_shares_and_priorities_dont_undo_each_other() -> None:
    run = ran(
        "aryl",
        job(0, 4, 10.0, priority=1, project="a"),
        job(1, 4, 10.0, project="b", at=1.0),
        guaranteed=(("b", 4),),
    )
    assert len(run.accounts.finish_s) == 2


def test_a_smaller_gang_than_was_submitted_has_a_full_speed_of_its_own() -> None:
    """Half a gang runs at half the speed wherever it stands: no reason to wait for faster GPUs."""
    run = ran(
        "aryl:no-preemption",
        job(0, 4, 5.0),
        job(1, 2, 10.0, at=1.0),
        script=(ev.LimitsChanged(2.0, "j1", 1, 1),),
        accounting=Accounting.SLOWER,
    )
    assert run.accounts.finish_s == {"j0": 5.0, "j1": 25.0}


def test_claims_on_a_server_that_starts_to_drain_are_dropped() -> None:
    run = ran(
        "aryl",
        job(0, 4, 50.0),
        job(1, 4, 10.0, at=5.0, priority=1),
        servers=2,
        script=(
            ev.ServerDrained(1.0, "T2", True),
            ev.ServerDrained(6.0, "T1", True),
            ev.ServerDrained(9.0, "T2", False),
        ),
        overheads=Overheads(0.0, 0.0, 3.0),
    )
    assert run.loop.cluster.claims_dropped == 1
    assert run.accounts.finish_s["j1"] == 19.0


def test_whoever_loses_a_claim_to_a_recall_is_looked_at_again_in_the_same_breath() -> None:
    """When the inference side wants its server back, another has just become free."""
    servers = (ServerSpec("T1", Pool.TRAINING, "V100", 4), ServerSpec("I1", Pool.INFERENCE, "T4", 4))
    overheads = Overheads(0.0, 0.0, 3.0)
    jobs = (
        job(0, 4, 10.0),
        job(1, 1, 90.0, 4, gpu_types=T4_ONLY, fungible=True),
        job(2, 2, 5.0, at=8.0, gpu_types=(("V100", 1.0), ("T4", 1.0)), fungible=True),
    )
    case = Case(
        ev.ClusterDeclared(0.0, servers, vacate_s=3.0),
        jobs,
        {"j0": 10.0, "j1": 90.0, "j2": 5.0},
        demand=(ev.DemandReported(0.0, 0.0, 0.0), ev.DemandReported(10.0, 1.0, 1.0)),
        overheads=overheads,
    )
    run = watched_run(case, "aryl")
    assert run.loop.cluster.claims_dropped == 1
    assert run.accounts.finish_s["j2"] == 15.0


def test_who_is_leaving_is_there_until_the_world_says_otherwise() -> None:
    """The fast server is empty in a moment; so nobody has to make room for W on the slow one."""
    scene = Scene(
        ServerSpec("A1", Pool.TRAINING, "A100", 4, 2.0),
        ServerSpec("V1", Pool.TRAINING, "V100", 8, 1.0),
        accounting=Accounting.SLOWER,
    )
    scene.run("cancelled", {"A1": 4}, gpu_types=(("A100", 2.0),))
    scene.run("E", {"V1": (4, 4)}, gpu_types=(("V100", 1.0),))
    scene.at(1.0).happens(ev.CancelRequested(1.0, "cancelled"))
    scene.happens(ev.PlanCommitted(1.0, upkeep.due(scene.cluster)))
    scene.submit("W", 4, gpu_types=(("A100", 2.0), ("V100", 1.0)))
    assert scene.decide().empty
    scene.vacated()
    assert scene.decide().starts[0].slots == (Slot("A1", 4, 0, 1),)


def test_srtf_gives_out_what_a_claim_on_leaving_gpus_leaves_free() -> None:
    """Two GPUs are leaving and six are free: a claim of six waits for the two, and needs but four of the
    others.
    """
    scene = Scene(
        *(ServerSpec(name, Pool.TRAINING, "V100", 8) for name in ("T1", "T2")), policy="srtf", vacate_s=9.0
    )
    scene.run("cancelled", {"T1": 2})
    scene.run("long", {"T2": 6}, estimate_s=9000.0)
    scene.run("short", {"T2": 2}, estimate_s=50.0)
    scene.at(1.0).happens(ev.CancelRequested(1.0, "cancelled"))
    scene.happens(ev.PlanCommitted(1.0, upkeep.due(scene.cluster)))
    scene.submit("wide", 4, gpus_per_worker=3, estimate_s=100.0)
    scene.submit("small", 2, estimate_s=200.0)
    scene.carry_out()
    assert scene.cluster.jobs["small"].slots == {"T1": Slot("T1", 2, 0, 1)}
