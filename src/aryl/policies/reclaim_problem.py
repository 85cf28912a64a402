"""States the reclaim problem: which of the servers on loan go back, so that as few jobs as possible are
preempted.

A server can go back once nothing stands on it. Flexible workers are scaled in, and their jobs go on. Base
workers can't be: their job is preempted, once, everywhere, which makes all the other servers it stood on
cheaper. Values that depend on each other make the problem NP-hard (*Aryl*, arXiv 2202.07896, section on
capacity loaning).

This file has the instance, the answer, and the board on which an answer grows. It knows servers and jobs
only by their place in the instance's lists. `reclaim_greedy` has the rules, `reclaim_exact` the optimum.

**Waiting.** With a deadline, a job that is expected to finish within it counts as *leaving*: it is neither
preempted nor scaled in, and costs nothing. A server that still has workers of leaving jobs is not returned
but waited for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from aryl.errors import InputError, nearest_word


class Rule(StrEnum):
    """How the next server is chosen where a preemption can't be avoided."""

    SERVER_FRACTION = "server-fraction"
    """Lowest sum over jobs of 1 / (servers with base workers of the job): the paper's cost, reconstructed."""
    GPU_FRACTION = "gpu-fraction"
    """Lowest sum over jobs of the share of the job's base GPUs that stands on the server."""
    COUNT = "count"
    """Fewest jobs first: what the paper compares with as SCF."""
    RANDOM = "random"
    """In an order drawn from the seed."""
    IN_ORDER = "in-order"
    """In the list's order: an inference side that asks nobody."""
    EXACT = "exact"
    """Fewest preemptions, then least lost work, then fewest collateral GPUs, proven."""


def parse_rule(word: str) -> Rule:
    """The rule of that name. Raises InputError with the nearest name."""
    try:
        return Rule(word)
    except ValueError:
        raise InputError(
            "no such reclaim rule",
            field="rule",
            found=word,
            expected=" | ".join(Rule),
            nearest=nearest_word(word, Rule),
        ) from None


@dataclass(frozen=True, slots=True)
class FlexibleShare:
    """The flexible workers of one job on one server, and the GPUs they hold there."""

    workers: int
    gpus: int


@dataclass(frozen=True, slots=True)
class ReclaimServer:
    """A server on loan. `base` maps jobs, by place, to the GPUs that their base workers hold here."""

    name: str
    base: Mapping[int, int] = field(default_factory=dict)
    flexible: Mapping[int, FlexibleShare] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReclaimJob:
    """A job with workers on a candidate server. All counts are over *all* servers, on loan or not."""

    name: str
    base_servers: int
    """Servers that hold base workers of it."""
    base_gpus: int
    gpus: int
    """GPUs of its base and its flexible workers."""
    lost_work_gpu_s: float
    """What a preemption now would throw away."""
    finishes_in_s: float = math.inf


@dataclass(frozen=True, slots=True)
class ReclaimInstance:
    """Candidates in their order of preference where all else is equal, and the jobs that stand on them."""

    servers: Sequence[ReclaimServer]
    jobs: Sequence[ReclaimJob]


class Reason(StrEnum):
    """Why a server was chosen."""

    IDLE = "idle"
    SCALE_IN = "scale-in"
    FINISHING = "finishing"
    """All that stands on it and can't be scaled in finishes before the deadline."""
    RULE = "rule"
    """The rule's choice, at the price of its jobs."""
    EMPTIED = "emptied"
    """Preemptions that were needed for others left no base worker on it."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a server would have cost at that moment: by the rule, in collateral GPUs, in lost work."""

    server: int
    cost: float
    collateral_gpus: int
    lost_work_gpu_s: float


@dataclass(frozen=True, slots=True)
class ReclaimStep:
    """One chosen server: why, at what cost, which jobs that preempts, and the next best, passed over."""

    chosen: Weighed
    reason: Reason
    rule: Rule
    preempts: tuple[int, ...] = ()
    alternatives: tuple[Weighed, ...] = ()


@dataclass(frozen=True, slots=True)
class ScaleIn:
    """All the flexible workers of a job on a server: they stop, the job goes on."""

    job: int
    server: int
    workers: int


@dataclass(frozen=True, slots=True)
class ReclaimAnswer:
    """Servers and jobs by their place in the instance, in the order in which they were decided."""

    servers_to_return: tuple[int, ...]
    servers_to_wait_for: tuple[int, ...]
    jobs_to_preempt: tuple[int, ...]
    scale_ins: tuple[ScaleIn, ...]
    collateral_gpus: int
    lost_work_gpu_s: float
    shortfall: int
    """Servers wanted beyond the candidates."""
    steps: tuple[ReclaimStep, ...]
    proven_optimal: bool = False

    @property
    def objectives(self) -> tuple[int, float, int]:
        """Jobs preempted, GPU-seconds lost, collateral GPUs: what `exact` minimises, in that order."""
        return len(self.jobs_to_preempt), self.lost_work_gpu_s, self.collateral_gpus


class Board:
    """What still stands on the candidates as servers are taken one by one. Leaving jobs are off the board."""

    def __init__(self, instance: ReclaimInstance, deadline_s: float | None = None) -> None:
        """Without a deadline no job is leaving."""
        jobs, servers = instance.jobs, instance.servers
        self.instance = instance
        within = -math.inf if deadline_s is None else deadline_s
        leaving = {job for job, facts in enumerate(jobs) if facts.finishes_in_s <= within}
        self.base: list[dict[int, int]] = []
        self.flexible: list[dict[int, FlexibleShare]] = []
        self.hosts: list[list[int]] = [[] for _ in jobs]
        self.flexible_hosts: list[list[int]] = [[] for _ in jobs]
        self.awaited = [False] * len(servers)
        self.clear_in_s: list[float] = [0.0] * len(servers)
        for place, server in enumerate(servers):
            base, flexible = dict(server.base), dict(server.flexible)
            for job in [job for job in (*base, *flexible) if job in leaving]:
                self.awaited[place] = True
                self.clear_in_s[place] = max(self.clear_in_s[place], jobs[job].finishes_in_s)
                base.pop(job, None)
                flexible.pop(job, None)
            self.base.append(base)
            self.flexible.append(flexible)
            for job in base:
                self.hosts[job].append(place)
            for job in flexible:
                self.flexible_hosts[job].append(place)
        self.gpus = [job.gpus for job in jobs]
        self.open = [True] * len(servers)
        self.taken: list[int] = []
        self.preempted: dict[int, None] = {}

    def free(self, servers: Iterable[int]) -> list[int]:
        """Those of the servers that need no preemption: idle, then by scaling in, then by waiting."""
        clear = [place for place in servers if self.open[place] and not self.base[place]]
        return sorted(clear, key=self._ease)

    def _ease(self, place: int) -> tuple[bool, float, int, int]:
        workers = sum(share.workers for share in self.flexible[place].values())
        return self.awaited[place], self.clear_in_s[place], workers, place

    def reason(self, place: int) -> Reason:
        """Why a server without base workers is free."""
        if self.awaited[place]:
            return Reason.FINISHING
        return Reason.SCALE_IN if self.flexible[place] else Reason.IDLE

    def collateral_gpus(self, place: int) -> int:
        """GPUs that taking the server would vacate elsewhere."""
        flexible = self.flexible[place]
        return sum(
            self.gpus[job] - gpus - (flexible[job].gpus if job in flexible else 0)
            for job, gpus in self.base[place].items()
        )

    def lost_work_gpu_s(self, place: int) -> float:
        """Work that taking the server would throw away."""
        jobs = self.instance.jobs
        return sum(jobs[job].lost_work_gpu_s for job in self.base[place])

    def take(self, place: int) -> tuple[tuple[int, ...], set[int]]:
        """Preempt the jobs on a server, scale in the rest; those jobs, and the servers whose cost changes."""
        jobs = tuple(self.base[place])
        touched: set[int] = set()
        for job in jobs:
            self.preempted[job] = None
            for host in self.hosts[job]:
                del self.base[host][job]
            for host in self.flexible_hosts[job]:
                # On servers taken before as well: what was to be scaled in there goes with the job.
                del self.flexible[host][job]
            touched.update(self.hosts[job], self.flexible_hosts[job])
        for job, share in self.flexible[place].items():
            self.gpus[job] -= share.gpus
            touched.update(self.hosts[job])
        self.open[place] = False
        self.taken.append(place)
        touched.discard(place)
        return jobs, touched

    def answer(
        self, wanted: int, steps: Sequence[ReclaimStep], proven_optimal: bool = False
    ) -> ReclaimAnswer:
        """The answer that the servers taken so far amount to."""
        servers, jobs = self.instance.servers, self.instance.jobs
        return ReclaimAnswer(
            servers_to_return=tuple(place for place in self.taken if not self.awaited[place]),
            servers_to_wait_for=tuple(place for place in self.taken if self.awaited[place]),
            jobs_to_preempt=tuple(self.preempted),
            scale_ins=tuple(
                ScaleIn(job, place, servers[place].flexible[job].workers)
                for place in self.taken
                for job in self.flexible[place]
            ),
            collateral_gpus=sum(jobs[job].gpus for job in self.preempted) - self._returned_gpus(),
            lost_work_gpu_s=math.fsum(jobs[job].lost_work_gpu_s for job in self.preempted),
            shortfall=max(wanted - len(self.taken), 0),
            steps=tuple(steps),
            proven_optimal=proven_optimal,
        )

    def _returned_gpus(self) -> int:
        """GPUs that the preempted jobs held on the servers taken."""
        return sum(
            server.base.get(job, 0) + (server.flexible[job].gpus if job in server.flexible else 0)
            for server in map(self.instance.servers.__getitem__, self.taken)
            for job in {*server.base, *server.flexible}
            if job in self.preempted
        )
