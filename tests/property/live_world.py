"""A world in which anything may happen that a live cluster can see, in any order; it keeps its own books.

What happens is a list of moves drawn beforehand; each is read against the state in which it comes, so that
most of them mean something. Orders are answered late, in any order, or twice; between them workers crash,
finish and fall silent, servers fall ill, loans are called off, and operators change their minds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from aryl.core import events as ev
from aryl.core.cluster import Cluster, Job
from aryl.core.model import LIVE_STATES, Health, Hosting, JobSpec, Pool, ServerSpec, Slot
from aryl.core.plan import Launch, Loan, Plan, Reclaim, Release, Reserve, Resize, Return, Stop
from aryl.core.speedup import LINEAR, Amdahl
from aryl.policies.policy import Policy

# Reports that name no revision or worker can't be told from new ones when they come twice.
_SAID_ONCE = (ev.Vacated, ev.WorkersDone)


@dataclass(frozen=True)
class Move:
    """One thing that happens: `kind` after `wait_s`, to the `which`-th of those it can happen to."""

    kind: str
    wait_s: float
    which: int
    size: int


@dataclass
class _Occupied:
    """GPUs that really are occupied by an attempt, by server."""

    staying: dict[str, int] = field(default_factory=dict)
    leaving: dict[str, int] = field(default_factory=dict)


class LiveWorld:
    """Implements `ClusterDriver`. At the end every order that is still open is answered, one instant each."""

    def __init__(self, specs: Sequence[JobSpec], moves: Sequence[Move], policy: Policy) -> None:
        self._specs = list(specs)
        self._moves = list(moves)
        self._policy = policy
        self.cluster: Cluster | None = None
        self._open: list[ev.Event] = []  # what the world still has to say to orders
        self._said: list[ev.Event] = []
        self._occupied: dict[tuple[str, int], _Occupied] = {}
        self._next_s: float | None = None
        self._joined = 0
        self._batch: list[ev.Event] = []  # what happens at this instant
        self.asked: set[str] = set()  # servers of which an operator has ever asked something
        self.most_leaving = 0

    def poll(self, deadline_s: float) -> Sequence[ev.Event] | None:
        """The next move and those that come at the same instant."""
        cluster = self._cluster
        if not self._moves:
            return self._answer_all(deadline_s)
        if self._next_s is None:
            self._next_s = cluster.now + self._moves[0].wait_s
        if deadline_s < self._next_s:
            return ()
        at, self._next_s = self._next_s, None
        batch = self._batch = []
        while self._moves and (not batch or self._moves[0].wait_s == 0.0):
            event = _MOVES[self._moves[0].kind](self, self._moves.pop(0), at)
            batch.append(event or ev.Tick(at))
        for event in batch:
            self._note(event)
        return batch

    def apply(self, plan: Plan, cluster: Cluster) -> None:
        """Carry out a plan: nobody may be put where somebody still is."""
        for step in plan.steps:
            match step:
                case Launch():
                    place = self._occupied[step.job_id, step.attempt] = _Occupied()
                    _count(place.staying, step.slots)
                    self._open.append(ev.Launched(0.0, step.job_id, step.attempt))
                case Resize():
                    place = self._occupied[step.job_id, step.attempt]
                    _count(place.staying, step.remove, -1)
                    _count(place.leaving, step.remove)
                    _count(place.staying, step.add)
                    if step.remove:
                        self._open.append(ev.Vacated(0.0, step.job_id, step.attempt, step.remove))
                    self._open.append(ev.Resized(0.0, step.job_id, step.attempt, step.revision))
                case Stop():
                    self._open.append(ev.Stopped(0.0, step.job_id, step.attempt, 0.0))
                case Loan():
                    self._forget(ev.BackInService, step.server_id)
                    if cluster.server_by_id[step.server_id].handing_over:
                        self._open.append(ev.HandedOver(0.0, step.server_id))
                case Return():
                    self._forget(ev.HandedOver, step.server_id)
                    if cluster.server_by_id[step.server_id].restoring:
                        self._open.append(ev.BackInService(0.0, step.server_id))
                    assert self._on(step.server_id) == 0, f"{step.server_id} goes home with workers on it"
                case Reserve() | Release() | Reclaim():
                    pass
        for server in cluster.servers:
            occupied = self._on(server.spec.server_id)
            assert occupied <= server.spec.gpus, f"{server.spec.server_id}: {occupied} GPUs are occupied"

    @property
    def _cluster(self) -> Cluster:
        assert self.cluster is not None
        return self.cluster

    def _forget(self, kind: type[ev.HandedOver | ev.BackInService], server_id: str) -> None:
        """Nobody will say that of the server any more."""
        self._open = [one for one in self._open if not (isinstance(one, kind) and one.server_id == server_id)]

    def _on(self, server_id: str) -> int:
        return sum(
            place.staying.get(server_id, 0) + place.leaving.get(server_id, 0)
            for place in self._occupied.values()
        )

    def _note(self, event: ev.Event) -> None:
        """Keep the books of what was just said."""
        match event:
            case ev.Finished() | ev.Failed() | ev.Crashed() | ev.Stopped():
                self._occupied.pop((event.job_id, event.attempt), None)
                # Nobody answers for an attempt that is over.
                self._open = [one for one in self._open if _attempt_of(one) != _attempt_of(event)]
            case ev.Vacated():
                place = self._occupied.get((event.job_id, event.attempt))
                if place is not None:
                    _count(place.leaving, event.slots, -1)
            case ev.WorkersDone():
                place = self._occupied.get((event.job_id, event.attempt))
                if place is not None:
                    _count(place.staying, event.slots, -1)
            case ev.ServerLost():
                for place in self._occupied.values():
                    place.staying.pop(event.server_id, None)
                    place.leaving.pop(event.server_id, None)
                self._open = [_without(one, event.server_id) for one in self._open]
            case ev.ServerDrained() | ev.GiveRequested() | ev.ReclaimRequested():
                self.asked.add(event.server_id)
            case ev.LoanCalledOff():
                self._forget(ev.HandedOver, event.server_id)
                if self._cluster.confirms_returns:
                    self._open.append(ev.BackInService(0.0, event.server_id))
        self._said.append(event)

    def _answer_all(self, deadline_s: float) -> Sequence[ev.Event] | None:
        now = self._cluster.now
        if not self._open:
            return () if deadline_s <= now + 2000.0 else None
        event = self._stamped(self._open.pop(0), now + 1.0)
        if deadline_s < event.at:
            self._open.insert(0, event)
            return ()
        self._note(event)
        return (event,)

    # --- moves ---

    def _stamped(self, event: ev.Event, at: float) -> ev.Event:
        return replace(event, at=at)

    def _job(self, move: Move) -> Job | None:
        jobs = [job for job in self._cluster.jobs.values() if job.attempt and job.slots]
        return jobs[move.which % len(jobs)] if jobs else None

    def _server_id(self, move: Move) -> str:
        servers = self._cluster.servers
        return servers[move.which % len(servers)].spec.server_id

    def _inference_id(self, move: Move) -> str | None:
        servers = [one for one in self._cluster.servers if one.spec.pool is Pool.INFERENCE]
        return servers[move.which % len(servers)].spec.server_id if servers else None

    def submit(self, move: Move, at: float) -> ev.Event | None:
        """Somebody submits the next job; one that could never run is refused."""
        if not self._specs:
            return None
        spec = replace(self._specs.pop(0), submit_s=at)
        if self._policy.could_ever_start(self._cluster, spec):
            return ev.Submitted(at, spec)
        return ev.Refused(at, spec.job_id, "too large")

    def answer(self, move: Move, at: float) -> ev.Event | None:
        """One of the open orders has been carried out."""
        if not self._open:
            return None
        event = self._open.pop(move.which % len(self._open))
        if isinstance(event, ev.Stopped):
            event = replace(event, kept_s=float(move.size))
        return self._stamped(event, at)

    def repeat(self, move: Move, at: float) -> ev.Event | None:
        """Something is said again, late."""
        reports = [
            one for one in self._said if _attempt_of(one) is not None and not isinstance(one, _SAID_ONCE)
        ]
        reports = [one for one in reports if _attempt_of(one) not in self._occupied or _harmless(one)]
        return self._stamped(reports[move.which % len(reports)], at) if reports else None

    def end(self, move: Move, at: float) -> ev.Event | None:
        """An attempt ends, one way or another, perhaps while it is being stopped."""
        gangs = list(self._occupied)
        if not gangs:
            return None
        job_id, attempt = gangs[move.which % len(gangs)]
        match move.size % 4:
            case 0:
                return ev.Finished(at, job_id, attempt)
            case 1:
                return ev.Failed(at, job_id, attempt, "wrong")
            case _:
                return ev.Crashed(at, job_id, attempt, 1.0 * move.size, "exit 1")

    def some_done(self, move: Move, at: float) -> ev.Event | None:
        """Some workers of a gang end well."""
        job = self._job(move)
        if job is None or job.state not in LIVE_STATES:
            return None
        left, slots = move.size, []
        for slot in job.slots.values():
            count = min(left, slot.workers)
            if count:
                slots.append(slot._replace(base=count, flexible=0))
            left -= count
        return ev.WorkersDone(at, job.spec.job_id, job.attempt, tuple(slots)) if slots else None

    def tell(self, move: Move, at: float) -> ev.Event | None:
        """A job says how far it is, or nothing for too long, or replaces a worker."""
        job = self._job(move)
        if job is None:
            return None
        job_id, attempt, size = job.spec.job_id, job.attempt, move.size
        match move.which // 8 % 4:
            case 0:
                return ev.Stalled(at, job_id, attempt)
            case 1:
                return ev.WorkerReplaced(at, job_id, attempt, next(iter(job.slots)), "signal 9")
            case 2:
                return ev.Learned(at, job_id, attempt, float(size), size / 2)
            case _:
                curve = LINEAR if size % 2 else Amdahl(0.2)
                return ev.Learned(at, job_id, attempt, float(size), 0.0, 10.0 * size, curve)

    def health(self, move: Move, at: float) -> ev.Event | None:
        """A server falls ill, or is well again."""
        ill = [one.spec.server_id for one in self._cluster.servers if one.health is not Health.HEALTHY]
        if ill and move.size % 2:
            return ev.HealthChanged(at, ill[move.which % len(ill)], Health.HEALTHY)
        return ev.HealthChanged(at, self._server_id(move), list(Health)[move.size // 2 % len(Health)])

    def power(self, move: Move, at: float) -> ev.Event | None:
        """A server is lost, or returns."""
        lost = [one.spec.server_id for one in self._cluster.servers if not one.up]
        if lost and move.size % 3:
            return ev.ServerReturned(at, lost[move.which % len(lost)])
        return ev.ServerLost(at, self._server_id(move))

    def join(self, move: Move, at: float) -> ev.Event | None:
        """A server joins that nobody knew; or one that had joined, and is lost, is another machine now."""
        cluster = self._cluster
        moved = {getattr(event, "server_id", "") for event in self._batch}
        moved |= {
            one.server_id
            for said in self._batch
            if isinstance(said, ev.ServersJoined)
            for one in said.servers
        }
        known = [one.spec for one in cluster.servers[cluster.declared_servers :] if not one.up]
        known = [spec for spec in known if spec.server_id not in moved]
        if known and move.size % 2:
            old = known[move.which % len(known)]
            name, pool = old.server_id, old.pool
        else:
            self._joined += 1
            name, pool = f"N{self._joined}", (Pool.TRAINING, Pool.INFERENCE)[move.size // 2 % 2]
        kind, speed = (("V100", 1.0), ("A100", 2.0), ("T4", 0.5))[move.which % 3]
        return ev.ServersJoined(at, (ServerSpec(name, pool, kind, (4, 8, 2)[move.which // 3 % 3], speed),))

    def drain(self, move: Move, at: float) -> ev.Event | None:
        """An operator drains a server, with or without a deadline, or stops that."""
        server_id = self._server_id(move)
        match move.size % 4:
            case 0:
                return ev.ServerDrained(at, server_id, True)
            case 1:
                return ev.ServerDrained(at, server_id, False)
            case _:
                return ev.ServerDrained(at, server_id, True, at + 10.0 * (move.size // 4))

    def ask(self, move: Move, at: float) -> ev.Event | None:
        """An operator gives or reclaims a server, whatever it is at."""
        server_id = self._inference_id(move)
        if server_id is None:
            return None
        if move.size % 2:
            return ev.GiveRequested(at, server_id)
        return ev.ReclaimRequested(at, server_id, at + 10.0 * (move.size // 2))

    def call_off(self, move: Move, at: float) -> ev.Event | None:
        """The inference side doesn't let go of a server."""
        waiting = [one for one in self._cluster.servers if one.handing_over]
        if not waiting:
            return None
        return ev.LoanCalledOff(at, waiting[move.which % len(waiting)].spec.server_id, "busy")

    def demand(self, move: Move, at: float) -> ev.Event | None:
        """The inference side says what it needs, or falls silent."""
        if move.which % 5 == 0:
            return ev.TelemetryLost(at)
        need = max(move.size - 6, 0) / 2
        headroom = (None, 0.0, 0.5, 2.0)[move.which // 4 % 4]
        hosting = self._replicas(move) if move.which // 16 % 2 else ()
        return ev.DemandReported(at, need, need + move.which // 2 % 2, headroom, hosting)

    def _replicas(self, move: Move) -> tuple[Hosting, ...]:
        """Some of every second server's replicas, other ones for each move."""
        servers = [one.spec for one in self._cluster.servers if one.spec.pool is Pool.INFERENCE]
        sizes = ((), (1,), (2, 1), (4,), (3, 2), (8,))
        return tuple(
            Hosting(spec.server_id, sizes[(move.size * 5 + move.which + place * 7) % len(sizes)])
            for place, spec in enumerate(servers)
            if (place + move.which) % 2 or move.size % 3
        )

    def need(self, move: Move, at: float) -> ev.Event | None:
        """What inference needs changes, and the scheduler isn't told."""
        return ev.NeedChanged(at, move.size / 2)

    def limit(self, move: Move, at: float) -> ev.Event | None:
        """A calendar allows more loans or fewer, or any number."""
        return ev.LendingLimited(at, None if move.size % 4 == 3 else move.size % 4)

    def rules(self, move: Move, at: float) -> ev.Event | None:
        """The daemon is started again with other rules for the same servers."""
        cluster, size = self._cluster, move.size
        return ev.ClusterDeclared(
            at,
            tuple(server.spec for server in cluster.servers[: cluster.declared_servers]),
            cluster.accounting,
            cluster.resize_s,
            cluster.restart_s,
            cluster.vacate_s,
            cluster.headroom_servers,
            (0.0, 15.0)[size % 2],
            tuple(cluster.guaranteed.items()),
            cluster.confirms_loans,
            (True, True, False)[move.which % 3],
            5.0 * (size // 2 % 2),
            move.which // 4 % 3,
            (None, None, 0, 1, 2)[size % 5],
        )

    def user(self, move: Move, at: float) -> ev.Event | None:
        """A user cancels a job or changes its limits."""
        jobs = list(self._cluster.jobs.values())
        if not jobs:
            return None
        job = jobs[move.which % len(jobs)]
        if move.size % 3 == 0:
            return ev.CancelRequested(at, job.spec.job_id)
        least = job.spec.sizes[move.size % len(job.spec.sizes)] if job.spec.sizes else 1 + move.size % 6
        return ev.LimitsChanged(at, job.spec.job_id, least, least + move.size % 5)


_MOVES: dict[str, Callable[[LiveWorld, Move, float], ev.Event | None]] = {
    "submit": LiveWorld.submit,
    "answer": LiveWorld.answer,
    "repeat": LiveWorld.repeat,
    "end": LiveWorld.end,
    "some-done": LiveWorld.some_done,
    "tell": LiveWorld.tell,
    "health": LiveWorld.health,
    "power": LiveWorld.power,
    "join": LiveWorld.join,
    "drain": LiveWorld.drain,
    "ask": LiveWorld.ask,
    "call-off": LiveWorld.call_off,
    "demand": LiveWorld.demand,
    "user": LiveWorld.user,
    "need": LiveWorld.need,
    "limit": LiveWorld.limit,
    "rules": LiveWorld.rules,
}
KINDS = (*_MOVES, "submit", "submit", "answer", "answer", "answer", "demand")


def _count(gpus: dict[str, int], slots: Sequence[Slot], sign: int = 1) -> None:
    for slot in slots:
        gpus[slot.server_id] = max(gpus.get(slot.server_id, 0) + sign * slot.gpus, 0)


def _attempt_of(event: ev.Event) -> tuple[str, int] | None:
    job_id, attempt = getattr(event, "job_id", None), getattr(event, "attempt", None)
    return None if job_id is None or attempt is None else (job_id, attempt)


def _harmless(event: ev.Event) -> bool:
    """Whether a report of the present attempt may come twice: nobody says before it ends that it has."""
    return isinstance(event, ev.Launched | ev.Resized | ev.Stalled | ev.Learned | ev.WorkerReplaced)


def _without(event: ev.Event, server_id: str) -> ev.Event:
    """Nobody says anything of workers that were lost with their server."""
    if isinstance(event, ev.Vacated):
        return replace(event, slots=tuple(slot for slot in event.slots if slot.server_id != server_id))
    return event
