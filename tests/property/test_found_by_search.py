"""Cases that the search has found, each as small as it could be made; all of them broke a promise once."""

from __future__ import annotations

from tests.property.watch import Ran, watched_run
from tests.strategies import NO_OVERHEADS, Case

from aryl.core import events as ev
from aryl.core.model import Accounting, JobSpec, Pool, ServerSpec
from aryl.core.plan import Stop
from aryl.sim.driver import Overheads

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
