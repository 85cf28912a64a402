"""What must be true after every event, checked from first principles and not from the indexes.

The numbers are those of the acceptance scenarios: (1) no GPU has two owners; (2) a live job has min..max
workers and an allowed size; (3) what jobs, servers and indexes say agrees; (4) flexible workers don't hold
back a base demand; (6) a claim belongs to one waiting job. `rebuilt_free_index` rebuilds the index from
scratch.
"""

from __future__ import annotations

from collections.abc import Iterator

from aryl.core.cluster import Cluster
from aryl.core.free_index import LANES_PER_SHELF, OFF_SHELF, Content, FreeIndex
from aryl.core.model import LIVE_STATES, JobState, Pool, Tenure, allowed_size
from aryl.errors import InvariantError


def verify(cluster: Cluster) -> None:
    """Raise InvariantError naming everything that is wrong."""
    wrong = list(violations(cluster))
    if wrong:
        raise InvariantError(f"at {cluster.now} s: " + "; ".join(wrong))


def violations(cluster: Cluster) -> Iterator[str]:
    """Everything that is wrong with the state, in words; nothing if all is well."""
    yield from _servers(cluster)
    yield from _jobs(cluster)
    yield from _claims(cluster)
    yield from _indexes(cluster)


def _servers(cluster: Cluster) -> Iterator[str]:
    for server in cluster.servers:
        name, gpus = server.spec.server_id, server.spec.gpus
        used = sum(slot.gpus for slot in server.jobs.values())
        leaving = sum(job.leaving.get(name, 0) for job in cluster.jobs.values())
        held = sum(
            slot.gpus for claim in cluster.claims.values() for slot in claim.slots if slot.server_id == name
        )
        if (used, leaving, held) != (server.used, server.leaving, server.held):
            counts = f"{server.used}/{server.leaving}/{server.held}"
            yield f"{name} counts {counts} used/leaving/held, true are {used}/{leaving}/{held}"
        if used + max(leaving, held) > gpus:
            yield f"{name} has {gpus} GPUs but {used} used, {leaving} leaving, {held} held"
        if (used or leaving) and not server.up:
            yield f"{name} is down but has workers"
        if used and server.spec.pool is Pool.INFERENCE and server.tenure is Tenure.OWNED:
            yield f"{name} serves inference but trains"
        flexible = sum(slot.flexible * slot.gpus_per_worker for slot in server.jobs.values())
        if flexible != server.flexible_gpus:
            yield f"{name} counts {server.flexible_gpus} flexible GPUs, true are {flexible}"


def _jobs(cluster: Cluster) -> Iterator[str]:
    for job_id, job in cluster.jobs.items():
        base = sum(slot.base for slot in job.slots.values())
        flexible = sum(slot.flexible for slot in job.slots.values())
        gpus = sum(slot.gpus for slot in job.slots.values())
        kinds: dict[str, int] = {}
        flexible_on: dict[int, int] = {}
        for server_id, slot in job.slots.items():
            server = cluster.server_by_id[server_id]
            kinds[server.spec.gpu_type] = kinds.get(server.spec.gpu_type, 0) + slot.workers
            if slot.flexible:
                flexible_on[server.shelf] = flexible_on.get(server.shelf, 0) + slot.flexible
        if (base, flexible, gpus) != (job.base, job.flexible, job.gpus) or (kinds, flexible_on) != (
            job.kinds,
            job.flexible_on,
        ):
            yield f"job {job_id} miscounts its workers"
        for server_id, slot in job.slots.items():
            if cluster.server_by_id[server_id].jobs.get(job_id) != slot:
                yield f"job {job_id} and server {server_id} disagree"
        if job.state in LIVE_STATES:
            if job_id not in cluster.live:
                yield f"job {job_id} is {job.state.value} but not among the live"
            if job.trouble is None:
                yield from _size(cluster, job_id)
        elif job.state is not JobState.CANCELLING and job.slots:
            yield f"job {job_id} is {job.state.value} but holds workers"
        waiting = job_id in cluster.pending, job_id in cluster.claims
        if (job.state is JobState.PENDING) != any(waiting) or all(waiting):
            yield f"job {job_id} is {job.state.value}, queued/claiming: {waiting}"


def _size(cluster: Cluster, job_id: str) -> Iterator[str]:
    job = cluster.jobs[job_id]
    if not job.min_workers <= job.workers <= job.max_workers or not allowed_size(job.spec.sizes, job.workers):
        yield f"job {job_id} has {job.workers} workers outside its limits"
    if job.base != job.min_workers:
        yield f"job {job_id} has {job.base} base workers, its gang is {job.min_workers}"
    if len(job.kinds) > 1 and not job.spec.heterogeneous:
        yield f"job {job_id} isn't heterogeneous but holds {sorted(job.kinds)}"
    accepted = {stand.shelf for stand in cluster.stands(job.spec)}
    if any(cluster.server_by_id[server_id].shelf not in accepted for server_id in job.slots):
        yield f"job {job_id} stands on a server that it doesn't accept"


def _claims(cluster: Cluster) -> Iterator[str]:
    for claimant, claim in cluster.claims.items():
        if claim.job_id != claimant or cluster.jobs[claimant].state is not JobState.PENDING:
            yield f"claim {claim.claim_id} belongs to no waiting job"
        if sum(slot.base for slot in claim.slots) != cluster.jobs[claimant].min_workers:
            yield f"claim {claim.claim_id} holds no whole gang"


def _indexes(cluster: Cluster) -> Iterator[str]:
    fresh = rebuilt_free_index(cluster)
    for name in ("free", "lane", "buckets", "lane_free"):
        if getattr(fresh, name) != getattr(cluster.free, name):
            yield f"the free index is stale: {name}"
    flexible = [0] * len(cluster.free.shelves)
    masks = [0, 0, 0]
    for server in cluster.servers:
        bit = 1 << server.place
        flexible[server.shelf] += server.flexible_gpus
        masks[0] |= bit if server.flexible_gpus else 0
        masks[1] |= bit if server.tenure is Tenure.ON_LOAN else 0
        masks[2] |= bit if server.tenure is Tenure.RECLAIMING else 0
    if flexible != cluster.shelf_flexible or masks != [
        cluster.flexible_mask,
        cluster.on_loan_mask,
        cluster.reclaiming_mask,
    ]:
        yield "the counts of flexible, lent or reclaimed servers are stale"
    live = {
        job_id
        for job_id, job in cluster.jobs.items()
        if job.state in LIVE_STATES or (job.slots and not job.stopping)
    }
    if live != set(cluster.live):
        yield f"the set of live jobs is stale: {sorted(live ^ set(cluster.live))}"
    if {job_id for job_id in live if cluster.jobs[job_id].elastic} != set(cluster.elastic):
        yield "the set of live elastic jobs is stale"
    growable = {job_id for job_id, job in cluster.elastic.items() if job.workers < job.max_workers}
    if growable != set(cluster.growable):
        yield "the set of jobs that could grow is stale"
    counts: dict[int, int] = {}
    for job_id in live:
        priority = cluster.jobs[job_id].spec.priority
        counts[priority] = counts.get(priority, 0) + 1
    if counts != cluster.live_by_priority:
        yield "the counts of live jobs by priority are stale"


def rebuilt_free_index(cluster: Cluster) -> FreeIndex:
    """The free index, made anew from the servers."""
    index = FreeIndex(cluster.free.shelves, len(cluster.servers))
    for server in cluster.servers:
        lane = OFF_SHELF
        if server.placeable:
            content = server.content if server.spec.pool is Pool.INFERENCE else Content.EMPTY
            lane = server.shelf * LANES_PER_SHELF + content
        index.put(server.place, lane, server.free)
    return index
