"""The state: servers, jobs, claims, and the indexes that make decisions cheap.

Everything here may be read by anybody and is written by `evolve` alone. State is changed in place: with a
thousand servers a copy per event would cost more than all decisions together, and a policy can't tell the
difference, because it works on a fork of the free index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from aryl.core.free_index import LANES_PER_SHELF, OFF_SHELF, Content, FreeIndex
from aryl.core.model import Accounting, Health, JobSpec, JobState, Pool, Slot
from aryl.core.pending import DemandClass, PendingQueue, QueueKey
from aryl.core.plan import Cause, Claim
from aryl.core.progress import Progress
from aryl.core.server import Server

# What is left of a job that has outlived its estimate, in base seconds: "any moment now".
OVERDUE_S = 1.0


class Job:
    """A job at run time. `slots` are live workers by server, `leaving` GPUs by server of workers told to
    go.
    """

    __slots__ = (
        "_attained_gpu_s",
        "_attained_since_s",
        "at_front",
        "attempt",
        "base",
        "failures",
        "finishing",
        "flexible",
        "flexible_on",
        "gpus",
        "grown_s",
        "kinds",
        "launched_s",
        "leaving",
        "limits",
        "max_workers",
        "min_workers",
        "pending_since_s",
        "preemptions",
        "progress",
        "revision",
        "scaled_in_s",
        "slots",
        "spec",
        "state",
        "stopping",
        "trouble",
    )

    def __init__(self, spec: JobSpec, now_s: float) -> None:
        self.spec = spec
        self.min_workers = spec.min_workers
        self.max_workers = spec.max_workers
        self.limits = spec.min_workers, spec.max_workers  # as the user last set them
        self.finishing = False  # some workers are done; the limits follow those that are left
        self.state = JobState.PENDING
        self.attempt = 0
        self.revision = 0
        self.slots: dict[str, Slot] = {}
        self.leaving: dict[str, int] = {}
        self.base = 0
        self.flexible = 0
        self.gpus = 0
        self.kinds: dict[str, int] = {}  # live workers by GPU type
        self.flexible_on: dict[int, int] = {}  # flexible workers by shelf
        self.progress = Progress(spec.checkpoint_s)
        self.launched_s = float("-inf")
        self.grown_s = float("-inf")
        self.scaled_in_s = float("-inf")  # when workers were last taken from it
        self.pending_since_s = now_s
        self.preemptions = 0
        self.failures = 0
        self.at_front = False  # thrown out by a failure: a rank that it keeps until something else stops it
        self.trouble: Cause | None = None  # why `upkeep` has to regroup or stop it
        self.stopping = False  # its workers have been told to go
        self._attained_gpu_s = 0.0
        self._attained_since_s = now_s

    @property
    def workers(self) -> int:
        """Live workers."""
        return self.base + self.flexible

    @property
    def elastic(self) -> bool:
        """Has flexible demand under its present limits."""
        return self.max_workers > self.min_workers

    @property
    def sizes(self) -> tuple[int, ...]:
        """The allowed numbers of workers; empty: any."""
        return () if self.finishing else self.spec.sizes

    def attained_gpu_s(self, now_s: float) -> float:
        """GPU-seconds held so far."""
        return self._attained_gpu_s + self.gpus * (now_s - self._attained_since_s)

    def settle_attained(self, now_s: float) -> None:
        """Note the service attained before the number of GPUs changes. For `evolve`."""
        self._attained_gpu_s = self.attained_gpu_s(now_s)
        self._attained_since_s = now_s

    def remaining_s(self, now_s: float) -> float | None:
        """Estimated base seconds left, or None without an estimate."""
        estimate_s = self.spec.estimate_s
        if estimate_s is None:
            return None
        return max(estimate_s - self.progress.done_at(now_s), OVERDUE_S)

    def finishes_in_s(self, now_s: float) -> float:
        """Estimated seconds until a live job ends at its present size; inf without an estimate or standing
        still.
        """
        remaining_s = self.remaining_s(now_s)
        if remaining_s is None or self.progress.rate <= 0.0:
            return float("inf")
        return remaining_s / self.progress.rate

    def may_grow_from_s(self, cooldown_s: float) -> float:
        """When the job has rested since its last growth: twice as long if that was taken back before it
        had.
        """
        taken_back = self.grown_s <= self.scaled_in_s < self.grown_s + cooldown_s
        return self.grown_s + cooldown_s * (2.0 if taken_back else 1.0)

    def lost_gpu_s(self, now_s: float) -> float:
        """GPU-seconds of work at base demand that a stop now would lose."""
        return self.progress.lost_at(now_s) * self.spec.base_gpus


class Stand(NamedTuple):
    """A shelf on which a job's workers may stand: GPUs a worker takes there, and its speed there."""

    shelf: int
    gpus_per_worker: int
    speed: float


class Demand(NamedTuple):
    """The inference side's last word, in servers, and when it was measured. `hosting`: GPUs of the replicas
    by server; empty: unknown.
    """

    at_s: float
    need_servers: float
    forecast_servers: float
    headroom_servers: float
    hosting: Mapping[str, tuple[int, ...]]


class Cluster:
    """The state of both pools and all jobs that are not over yet. `order` is the policy's queue key."""

    def __init__(self, order: Callable[[Job, float], QueueKey]) -> None:
        self.order = order
        self.now = 0.0
        self.accounting = Accounting.MORE_GPUS
        self.resize_s = 0.0
        self.restart_s = 0.0
        self.vacate_s = 0.0
        self.headroom_servers = 0
        self.reclaim_within_s = 0.0
        self.guaranteed: dict[str, int] = {}
        self.confirms_loans = False
        self.confirms_returns = False
        self.load_s = 0.0
        self.least_kept_servers = 0
        self.most_lent_servers: int | None = None  # as declared
        self.lending_limit: int | None = None  # as a calendar says at the moment

        self.declared_servers: int | None = None  # the first so many are those of the declaration
        self.servers: list[Server] = []
        self.server_by_id: dict[str, Server] = {}
        self.free = FreeIndex((), 0)
        self.shelf_flexible: list[int] = []  # GPUs of flexible workers by shelf
        self.flexible_mask = 0  # places of servers with flexible workers
        self.leaving_mask = 0  # places of servers that workers are leaving
        self.on_loan_mask = 0
        self.reclaiming_mask = 0
        self.restoring_mask = 0  # places of servers that are home again and don't serve yet
        self.inference_mask = 0  # every server that the inference pool owns and that is up
        self.asked_mask = 0  # places of servers that an operator wants drained by a time, lent or back
        self.demand: Demand | None = None
        self.telemetry_lost = False  # the demand is too old to act on

        self.jobs: dict[str, Job] = {}
        self.ended: dict[str, JobState] = {}
        self.pending = PendingQueue()
        self.live: dict[str, Job] = {}
        self.elastic: dict[str, Job] = {}  # the live jobs that have flexible demand
        self.growable: dict[str, Job] = {}  # those of them that could use more workers
        self.troubled: dict[str, None] = {}  # jobs that `upkeep` has to look at
        self.claims: dict[str, Claim] = {}  # by claimant
        self.claims_made = 0
        self.claims_dropped = 0
        self.live_by_priority: dict[int, int] = {}
        self.project_gpus: dict[str, int] = {}  # of base workers, as many as on the reference type
        self.grown_s = float("-inf")  # when a running job last got more workers
        self.elastic_launched_s = float("-inf")  # when a job with flexible demand was last launched
        self.moved_s = float("-inf")  # when flexible workers last left for the sake of another job's growth
        self.scaled_in_s = float("-inf")  # when flexible workers last had to make room
        self._stands: dict[tuple[int, tuple[tuple[str, float], ...], bool], tuple[Stand, ...]] = {}

    def stands(self, spec: JobSpec) -> tuple[Stand, ...]:
        """The shelves that accept this job's workers: training shelves first, faster ones before slower
        ones.
        """
        key = (spec.gpus_per_worker, spec.gpu_types, spec.fungible)
        found = self._stands.get(key)
        if found is None:
            found = self._stands[key] = self.find_stands(spec)
        return found

    def forget_stands(self) -> None:
        """The shelves have changed. For `evolve`."""
        self._stands.clear()

    def stand_on(self, spec: JobSpec, shelf: int) -> Stand | None:
        """How this job's workers stand on a shelf, or None if the shelf doesn't accept them."""
        for stand in self.stands(spec):
            if stand.shelf == shelf:
                return stand
        return None

    def demand_class(self, job: Job) -> DemandClass:
        """The waiting job's class in the queue. Its project counts only where projects have shares."""
        spec = job.spec
        project = spec.project if spec.project in self.guaranteed else ""
        return DemandClass(
            job.min_workers,
            spec.gpus_per_worker,
            spec.fungible,
            spec.heterogeneous,
            spec.gpu_types,
            spec.priority,
            project,
        )

    def find_stands(self, spec: JobSpec) -> tuple[Stand, ...]:
        """What `stands` remembers, worked out anew."""
        return tuple(self._look_for_stands(spec))

    def _look_for_stands(self, spec: JobSpec) -> Iterator[Stand]:
        accepted = dict(spec.gpu_types)
        ranked = sorted(
            enumerate(self.free.shelves), key=lambda pair: (pair[1].loaned, -pair[1].speed, pair[0])
        )
        for number, shelf in ranked:
            if shelf.loaned and not spec.fungible:
                continue
            speed = accepted.get(shelf.gpu_type) if accepted else shelf.speed
            if not speed:
                continue
            gpus = spec.gpus_per_worker
            if self.accounting is Accounting.MORE_GPUS:
                gpus, speed = max(gpus, round(gpus / speed)), 1.0
            if gpus <= shelf.gpus_per_server:
                yield Stand(number, gpus, speed)

    def speed_on(self, spec: JobSpec, gpu_type: str) -> float:
        """Speed of one of the job's workers on this GPU type relative to the reference; 1.0 where it takes
        more GPUs instead.
        """
        for stand in self.stands(spec):
            if self.free.shelves[stand.shelf].gpu_type == gpu_type:
                return stand.speed
        return 1.0

    def rate(self, spec: JobSpec, workers_by_type: dict[str, int]) -> float:
        """Base seconds of work a second with these workers: speed-up, mean GPU speed, and the loss when types
        are mixed.
        """
        workers = sum(workers_by_type.values())
        if workers == 0:
            return 0.0
        # Most jobs run at base demand all the time.
        rate = 1.0 if workers == spec.min_workers else spec.speedup(workers) / spec.speedup(spec.min_workers)
        if self.accounting is Accounting.SLOWER:
            rate *= (
                sum(count * self.speed_on(spec, kind) for kind, count in workers_by_type.items()) / workers
            )
        if len(workers_by_type) > 1:
            rate *= spec.mixed_efficiency
        return rate

    def queue_key(self, job: Job) -> QueueKey:
        """Priority, then jobs that a failure threw out, then the policy's order; never equal for two jobs."""
        spec = job.spec
        return (
            -spec.priority,
            0.0 if job.at_front else 1.0,
            *self.order(job, self.now),
            spec.submit_s,
            spec.sequence,
        )

    @property
    def serving(self) -> int:
        """Inference servers that are up, at home and in service."""
        away = self.on_loan_mask | self.reclaiming_mask | self.restoring_mask
        return (self.inference_mask & ~away).bit_count()

    @property
    def inference_pool(self) -> int:
        """Servers that the inference pool counts as its own: those that were declared, and those that joined
        and haven't left.
        """
        declared = self.declared_servers or 0
        return sum(
            server.spec.pool is Pool.INFERENCE and (server.up or server.place < declared)
            for server in self.servers
        )

    @property
    def kept_servers(self) -> float:
        """Servers that the inference side is to keep, by its last word; all of them before its first."""
        demand = self.demand
        if demand is None:
            return float(self.inference_mask.bit_count())
        return max(demand.forecast_servers + demand.headroom_servers, float(self.least_kept_servers))

    @property
    def lending_cap(self) -> int:
        """The most servers that may be on loan, whatever inference needs."""
        up = self.inference_mask.bit_count()
        limits = [limit for limit in (self.most_lent_servers, self.lending_limit) if limit is not None]
        return min(max(up - self.least_kept_servers, 0), *limits, up)

    @property
    def on_loan(self) -> int:
        """Servers on loan that are up (those being reclaimed not counted)."""
        return (self.on_loan_mask & self.inference_mask).bit_count()

    def places(self, mask: int) -> Iterator[Server]:
        """The servers of a mask, in the order of their places."""
        while mask:
            bit = mask & -mask
            yield self.servers[bit.bit_length() - 1]
            mask ^= bit

    def note_asked(self, server: Server) -> None:
        """Keep account of the servers that `upkeep` has to look at, and of those that inference can count
        on. For `evolve`.
        """
        bit, endless = 1 << server.place, float("inf")
        asked = server.given or server.drain_by_s < endless or server.recall_by_s < endless
        counts = server.spec.pool is Pool.INFERENCE and server.up and server.health is not Health.SUSPECT
        self.asked_mask = self.asked_mask | bit if asked else self.asked_mask & ~bit
        self.inference_mask = self.inference_mask | bit if counts else self.inference_mask & ~bit

    def refresh(self, server: Server) -> None:
        """Bring the indexes up to date with one server. For `evolve`."""
        lane, free = OFF_SHELF, server.spec.gpus - server.used - max(server.held, server.leaving)
        if server.placeable:
            content = server.content if server.spec.pool is Pool.INFERENCE else Content.EMPTY
            lane = server.shelf * LANES_PER_SHELF + content
        self.free.put(server.place, lane, free)
