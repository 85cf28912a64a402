"""A decision in the making: what one pass has given out and taken away so far.

Parts of a policy work on the same draft one after the other, so each sees what the earlier ones took. The
cluster itself is never touched: places are taken on a fork of its free index. GPUs that the draft vacates
aren't free in that index, since they can't be given out before the world confirms that they are empty; only a
claim may count on them.
"""

from __future__ import annotations

from aryl.core.cluster import Cluster, Job
from aryl.core.decision import NOTHING, Decision, Preemption, Recall, Rescale, Start
from aryl.core.free_index import FreeIndex
from aryl.core.model import Slot, largest_allowed
from aryl.core.plan import Cause
from aryl.core.server import Server


class Draft:
    """What is to change, and the free GPUs that are left."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.starts: dict[str, Start] = {}
        self.preemptions: dict[str, Preemption] = {}
        self.lend: list[str] = []
        self.recall: list[Recall] = []
        self.release: list[int] = []
        self.claiming: set[str] = set()  # starts whose place is still occupied
        self.awaiting: set[str] = set()  # jobs that wait for GPUs being vacated to grow onto
        self.wake_at_s = float("inf")
        self._index: FreeIndex | None = None
        self._grown: dict[str, list[Slot]] = {}
        self._shed: dict[str, dict[str, int]] = {}  # flexible workers to leave, by job and server
        self._causes: dict[str, Cause] = {}

    @property
    def index(self) -> FreeIndex:
        """Free GPUs that are left; a fork, made when it is first needed."""
        if self._index is None:
            self._index = self.cluster.free.fork()
        return self._index

    def adopt(self, index: FreeIndex) -> None:
        """Go on with a fork of the draft's index, on which something was tried that is to stay."""
        self._index = index

    @property
    def untouched_index(self) -> FreeIndex:
        """The same for looking only, without forking."""
        return self.cluster.free if self._index is None else self._index

    def start(self, job: Job, slots: tuple[Slot, ...], cause: Cause = Cause.BASE_DEMAND) -> None:
        """Start a job on places that have been taken on the index, or that this draft vacates."""
        self.starts[job.spec.job_id] = Start(job.spec.job_id, slots, cause)

    def add_flexible(self, job: Job, slots: tuple[Slot, ...]) -> None:
        """Add workers, on places that have been taken on the index; a job that starts now gets them at
        once.
        """
        job_id = job.spec.job_id
        start = self.starts.get(job_id)
        if start is None:
            self._grown.setdefault(job_id, []).extend(slots)
            self._causes.setdefault(job_id, Cause.GROWTH)
            return
        merged = {slot.server_id: slot for slot in start.slots}
        for slot in slots:
            old = merged.get(slot.server_id)
            merged[slot.server_id] = (
                slot if old is None else old._replace(flexible=old.flexible + slot.flexible)
            )
        self.starts[job_id] = Start(job_id, tuple(merged.values()), start.cause)

    def shed(self, job: Job, server_id: str, workers: int, cause: Cause) -> None:
        """Let flexible workers of a live job leave a server. Stronger causes win over GROWTH in the
        record.
        """
        job_id = job.spec.job_id
        leaving = self._shed.setdefault(job_id, {})
        leaving[server_id] = leaving.get(server_id, 0) + workers
        if self._causes.get(job_id, Cause.GROWTH) is Cause.GROWTH:
            self._causes[job_id] = cause

    def preempt(self, preemption: Preemption) -> None:
        """Stop a live job; whatever else the draft had in mind for it is void."""
        job_id = preemption.job_id
        self.preemptions[job_id] = preemption
        self._shed.pop(job_id, None)
        self._grown.pop(job_id, None)

    def shed_on(self, job_id: str, server_id: str) -> int:
        """Flexible workers of a job that this draft lets leave a server."""
        return self._shed.get(job_id, {}).get(server_id, 0)

    def shed_of(self, job_id: str) -> int:
        """Flexible workers that this draft lets leave, on all servers."""
        return sum(self._shed.get(job_id, {}).values())

    def grown(self, job_id: str) -> tuple[Slot, ...]:
        """Workers that this draft adds to a running job."""
        return tuple(self._grown.get(job_id, ()))

    def may_grow(self, job: Job) -> bool:
        """Whether the draft neither stops a live job nor takes workers from it."""
        return job.spec.job_id not in self.preemptions and job.spec.job_id not in self._shed

    def undecided(self, job: Job) -> bool:
        """Whether the draft has left a live job alone so far."""
        job_id = job.spec.job_id
        return job_id not in self.preemptions and job_id not in self._shed and job_id not in self._grown

    def vacating(self) -> int:
        """The places of servers that workers are leaving, or will leave by this draft; a mask."""
        cluster = self.cluster
        mask = cluster.leaving_mask
        for job_id in (*self.preemptions, *self._shed):
            for server_id in self._shed.get(job_id, cluster.live[job_id].slots):
                mask |= 1 << cluster.server_by_id[server_id].place
        return mask

    def unclaimed_gpus(self, server: Server) -> int:
        """GPUs that are being vacated on a server beyond what is claimed; claims are served first."""
        server_id = server.spec.server_id
        leaving, claimed = server.leaving, server.held
        if self.starts or self.preemptions:
            for job_id, slot in server.jobs.items():
                gone = slot.workers if job_id in self.preemptions else self.shed_on(job_id, server_id)
                leaving += gone * slot.gpus_per_worker
            for job_id in self.claiming:
                claimed += sum(slot.gpus for slot in self.starts[job_id].slots if slot.server_id == server_id)
        return leaving - claimed

    def round_to_allowed(self) -> None:
        """Let further workers go where a job with a list of allowed sizes would be left between two of
        them.
        """
        for job_id, leaving in self._shed.items():
            job = self.cluster.live[job_id]
            if not job.spec.sizes:
                continue
            left = job.workers - sum(leaving.values())
            surplus = left - largest_allowed(job.spec.sizes, left)
            for server_id, slot in job.slots.items():
                more = min(surplus, slot.flexible - leaving.get(server_id, 0))
                if more > 0:
                    leaving[server_id] = leaving.get(server_id, 0) + more
                    surplus -= more

    def wake_at(self, at_s: float) -> None:
        """Ask to be called again at this instant, if it lies ahead."""
        if at_s > self.cluster.now:
            self.wake_at_s = min(self.wake_at_s, at_s)

    def decision(self) -> Decision:
        """The draft as a decision."""
        self.round_to_allowed()
        rescales = []
        for job_id in {**self._shed, **self._grown}:
            job = self.cluster.live[job_id]
            remove = tuple(
                job.slots[server_id]._replace(base=0, flexible=count)
                for server_id, count in self._shed.get(job_id, {}).items()
                if count
            )
            add = tuple(self._grown.get(job_id, ()))
            if add or remove:
                rescales.append(Rescale(job_id, add, remove, self._causes[job_id]))
        decision = Decision(
            tuple(self.starts.values()),
            tuple(rescales),
            tuple(self.preemptions.values()),
            tuple(self.lend),
            tuple(self.recall),
            tuple(self.release),
            self.wake_at_s,
        )
        return NOTHING if decision.empty and self.wake_at_s == float("inf") else decision
