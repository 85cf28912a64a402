"""Hypothesis strategies for whole simulations: small clusters, all kinds of jobs, and all that can go wrong.

Numbers are small and mostly whole, so that things happen at the same instant all the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.model import Accounting, Hosting, JobSpec, Pool, ServerSpec
from aryl.core.speedup import LINEAR, Amdahl, Points, Speedup
from aryl.policies.policy import Policy
from aryl.sim.driver import Overheads, SimDriver

EVERY_POLICY = (
    "fifo",
    "fifo:scatter=never",
    "fifo-skip",
    "sjf",
    "srtf",
    "las",
    "opportunistic",
    "aryl",
    "aryl-las",
    "aryl:loaning",
    "aryl:scaling",
    "aryl:no-loaning,no-scaling",
    "aryl:no-preemption",
    "aryl:scatter=never",
    "aryl:order=fifo",
    "aryl:order=las",
    "aryl:order=size",
    "aryl:cooldown=0",
    "aryl:cooldown=0,min_interval=20",
    "aryl:min_runtime=30",
    "aryl:reserve_after=0",
    "aryl:reserve_after=40,order=fifo",
    "aryl:reclaim=gpu-fraction",
    "aryl:reclaim=count",
    "aryl:reclaim=random",
    "aryl:reclaim=in-order",
    "aryl:reclaim=exact",
)


NO_OVERHEADS = Overheads(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Case:
    """A simulation that is still to be run, under any policy."""

    declared: ev.ClusterDeclared
    specs: tuple[JobSpec, ...]
    durations_s: dict[str, float]
    script: tuple[ev.Event, ...] = ()
    demand: tuple[ev.Event, ...] = ()  # all that the inference side says, in order
    overheads: Overheads = NO_OVERHEADS

    def driver(self, policy: Policy) -> SimDriver:
        """The world of one run; jobs that could never run are refused at the door."""
        empty = Cluster(policy.order)
        evolve(empty, self.declared)
        for event in self.script:
            # A job may wait for a server that is still to come.
            if isinstance(event, ev.ServersJoined | ev.ServerLost):
                evolve(empty, event)
        arrivals: list[ev.Event] = [
            ev.Submitted(spec.submit_s, spec)
            if policy.could_ever_start(empty, spec)
            else ev.Refused(spec.submit_s, spec.job_id, "too large")
            for spec in self.specs
        ]
        return SimDriver(
            arrivals,
            self.durations_s,
            demand=iter(self.demand),
            script=self.script,
            overheads=self.overheads,
        )


_SPEEDS = {"V100": 1.0, "A100": 2.0, "T4": 0.5, "K80": 1 / 3}
_CURVES: tuple[Speedup, ...] = (LINEAR, LINEAR, Amdahl(0.1), Points(((2, 2.0), (4, 3.0), (8, 4.0))))
_MOMENTS = st.integers(0, 12).map(lambda tens: 10.0 * tens) | st.integers(0, 120).map(float)


@st.composite
def _servers(draw: st.DrawFn, *, lending: bool) -> tuple[ServerSpec, ...]:
    servers: list[ServerSpec] = []
    pools: list[tuple[Pool, tuple[str, ...], int]] = [(Pool.TRAINING, ("V100", "V100", "A100"), 1)]
    if lending:
        pools.append((Pool.INFERENCE, ("T4", "T4", "K80", "V100"), 0))
    for pool, kinds, least in pools:
        for _ in range(draw(st.sampled_from((1, 1, 2)))):
            kind, gpus = draw(st.sampled_from(kinds)), draw(st.sampled_from((4, 8, 2)))
            for _ in range(draw(st.sampled_from((least, 1, 2, 3)))):
                name = f"{pool.name[0]}{len(servers) + 1}"
                servers.append(ServerSpec(name, pool, kind, gpus, _SPEEDS[kind]))
    return tuple(servers)


@st.composite
def _jobs(draw: st.DrawFn, number: int, *, plain: bool) -> tuple[JobSpec, float]:
    least = draw(st.sampled_from((1, 2, 4, 2, 3, 6)))
    most = least + draw(st.sampled_from((0, 4, 0, 2, 6, 1)))
    sizes: tuple[int, ...] = ()
    if most > least and draw(st.booleans()):
        between = draw(st.sets(st.integers(least, most), max_size=2))
        sizes = tuple(sorted({least, most, *between}))
    duration_s = float(draw(st.integers(1, 12)) * draw(st.sampled_from((10, 25, 1))))
    estimate_s = draw(st.sampled_from((duration_s, duration_s, None, duration_s / 2, duration_s * 1.7)))
    accepted = draw(
        st.sampled_from(
            (
                (),
                (),
                (),
                (),
                (("V100", 1.0), ("T4", 0.5)),
                (("A100", 2.0), ("K80", 0.25), ("V100", 1.0)),
                (("T4", 1.0),),
            )
        )
    )
    spec = JobSpec(
        f"j{number}",
        number,
        draw(_MOMENTS),
        least,
        most,
        draw(st.sampled_from((1, 1, 1, 1, 2, 3, 4))),
        sizes,
        estimate_s,
        priority=0 if plain else draw(st.sampled_from((0, 0, 0, 1, 2))),
        project="" if plain else draw(st.sampled_from(("", "a", "b"))),
        gpu_types=accepted,
        fungible=draw(st.sampled_from((True, True, False))),
        heterogeneous=draw(st.sampled_from((False, False, True))),
        mixed_efficiency=1.0 if plain else draw(st.sampled_from((1.0, 0.7))),
        checkpoint_s=draw(st.sampled_from((None, 0.0, 7.0))),
        speedup=draw(st.sampled_from(_CURVES)),
    )
    return spec, duration_s


@st.composite
def _script(
    draw: st.DrawFn, servers: tuple[ServerSpec, ...], specs: tuple[JobSpec, ...]
) -> tuple[ev.Event, ...]:
    script: list[ev.Event] = []
    for _ in range(draw(st.integers(0, 3))):
        server_id = draw(st.sampled_from(servers)).server_id
        at = draw(_MOMENTS)
        back = at + draw(st.sampled_from((0.0, 1.0, 10.0, 50.0)))
        if draw(st.booleans()):
            script += [ev.ServerLost(at, server_id), ev.ServerReturned(back, server_id)]
        else:
            within_s = draw(st.sampled_from((float("inf"), float("inf"), 0.0, 15.0)))
            script.append(ev.ServerDrained(at, server_id, True, at + within_s))
            if draw(st.booleans()):
                script.append(ev.ServerDrained(back, server_id, False))
    for _ in range(draw(st.integers(0, 2)) if specs else 0):
        spec = draw(st.sampled_from(specs))
        at = spec.submit_s + draw(_MOMENTS)
        if draw(st.booleans()):
            script.append(ev.CancelRequested(at, spec.job_id))
        else:
            least = draw(st.sampled_from(spec.sizes)) if spec.sizes else draw(st.integers(1, 6))
            script.append(ev.LimitsChanged(at, spec.job_id, least, least + draw(st.integers(0, 5))))
    return tuple(sorted(script, key=lambda event: event.at))


@st.composite
def _joins(draw: st.DrawFn, *, lending: bool) -> list[ev.Event]:
    """Servers that join, alone or several at once; some are lost and come back, as they were or with other
    GPUs.
    """
    events: list[ev.Event] = []
    for number in range(draw(st.sampled_from((0, 0, 1, 2)))):
        pool = Pool.INFERENCE if lending and draw(st.booleans()) else Pool.TRAINING
        kinds = ("T4", "K80", "V100") if pool is Pool.INFERENCE else ("V100", "A100")

        def spec(name: str, pool: Pool = pool, kinds: tuple[str, ...] = kinds) -> ServerSpec:
            kind = draw(st.sampled_from(kinds))
            return ServerSpec(name, pool, kind, draw(st.sampled_from((4, 8, 2))), _SPEEDS[kind])

        names = [f"N{number}{twin}" for twin in range(draw(st.sampled_from((1, 1, 2))))]
        specs = tuple(spec(name) for name in names)
        at = draw(_MOMENTS)
        events.append(ev.ServersJoined(at, specs))
        if draw(st.booleans()):
            continue
        lost_s = at + draw(st.sampled_from((0.0, 10.0, 35.0)))
        back_s = lost_s + draw(st.sampled_from((0.0, 1.0, 10.0)))
        events.append(ev.ServerLost(lost_s, names[0]))
        if draw(st.booleans()):
            events.append(ev.ServersJoined(back_s, (spec(names[0]),)))
        elif draw(st.booleans()):
            events.append(ev.ServerReturned(back_s, names[0]))
    return events


@st.composite
def _hosting(draw: st.DrawFn, inference: tuple[ServerSpec, ...]) -> tuple[Hosting, ...]:
    """Where replicas stand: on some of the servers, and now and then more than fits there."""
    named = draw(st.lists(st.sampled_from(inference), unique=True, max_size=len(inference)))
    sizes = st.lists(st.sampled_from((1, 1, 2, 3, 4)), max_size=4).map(tuple)
    return tuple(Hosting(server.server_id, draw(sizes)) for server in named)


@st.composite
def _demand(draw: st.DrawFn, inference: tuple[ServerSpec, ...], *, limited: bool) -> tuple[ev.Event, ...]:
    """Reports, what changes between them, and limits; at one instant limits first, as they are said."""
    servers = len(inference)
    needs = draw(
        st.lists(st.integers(0, 2 * servers) | st.sampled_from((0, 2 * servers)), min_size=1, max_size=16)
    )
    ahead = draw(st.sampled_from((0, 1, 2)))
    headrooms = draw(st.sampled_from(((None,), (None,), (None, 0.0, 0.5, 1.25))))
    hosted = draw(st.sampled_from((False, False, True)))
    limits = []
    if limited:
        limits = draw(st.lists(st.tuples(_MOMENTS, st.none() | st.integers(0, servers)), max_size=4))
    changes = draw(st.lists(st.tuples(_MOMENTS, st.integers(0, 2 * servers)), max_size=4))
    said: list[ev.Event] = [ev.LendingLimited(at, most) for at, most in limits]
    said += [
        ev.DemandReported(
            20.0 * tick,
            needs[tick] / 2,
            max(needs[tick : tick + ahead + 1]) / 2,
            draw(st.sampled_from(headrooms)),
            draw(_hosting(inference)) if hosted else (),
        )
        for tick in range(len(needs))
    ]
    said += [ev.NeedChanged(at, need / 2) for at, need in changes]
    return tuple(sorted(said, key=lambda event: event.at))


@st.composite
def cases(
    draw: st.DrawFn, *, lending: bool = True, plain: bool = False, most_jobs: int = 12, slow: bool = False
) -> Case:
    """A random simulation. `lending` False: no inference servers; `plain`: no preempting, no patience;
    `slow`: servers take their time between the pools.
    """
    servers = draw(_servers(lending=lending))
    drawn = [
        draw(_jobs(number, plain=plain))
        for number in range(draw(st.sampled_from((1, 2, 4, most_jobs, most_jobs))))
    ]
    drawn.sort(key=lambda pair: pair[0].submit_s)
    specs = tuple(spec for spec, _ in drawn)
    inference = tuple(server for server in servers if server.pool is Pool.INFERENCE)
    confirms = (False, False) if not inference else draw(st.tuples(st.booleans(), st.booleans()))
    limited = bool(inference) and draw(st.sampled_from((False, True, False)))
    overheads = Overheads(
        draw(st.sampled_from((0.0, 0.0, 5.0))),
        draw(st.sampled_from((0.0, 0.0, 1.0))),
        draw(st.sampled_from((0.0, 0.0, 3.0))),
        hand_over_s=draw(st.sampled_from((0.0, 4.0, 25.0))) if slow and confirms[0] else 0.0,
        load_s=draw(st.sampled_from((0.0, 7.0, 45.0))) if slow and confirms[1] else 0.0,
    )
    declared = ev.ClusterDeclared(
        0.0,
        servers,
        Accounting.MORE_GPUS if plain else draw(st.sampled_from(Accounting)),
        overheads.resize_s,
        overheads.restart_s,
        overheads.vacate_s,
        headroom_servers=draw(st.integers(0, 1)) if inference else 0,
        reclaim_within_s=draw(st.sampled_from((0.0, 15.0))),
        guaranteed=() if plain else draw(st.sampled_from(((), (("a", 4), ("b", 3))))),
        confirms_loans=confirms[0],
        confirms_returns=confirms[1],
        load_s=overheads.load_s,
        least_kept_servers=draw(st.sampled_from((0, 0, 1, 2, 9))) if limited else 0,
        most_lent_servers=draw(st.sampled_from((None, None, 1, 2, 0, 9))) if limited else None,
    )
    return Case(
        declared,
        specs,
        {spec.job_id: duration_s for spec, duration_s in drawn},
        tuple(
            sorted(
                [*draw(_script(servers, specs)), *draw(_joins(lending=lending))], key=lambda event: event.at
            )
        ),
        draw(_demand(inference, limited=limited)) if inference else (),
        overheads,
    )
