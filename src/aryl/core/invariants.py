"""What must be true after every event, checked from first principles and not from the indexes.

The numbers are those of the acceptance scenarios: (1) no GPU has two owners; (2) a live job has min..max
workers and an allowed size; (3) what jobs, servers and indexes say agrees; (6) a claim belongs to one waiting
job. Those that a policy has to keep, such as (4), can't be read off a state and are tested with the policies.
`rebuilt_free_index` rebuilds the index from scratch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from aryl.core.cluster import Cluster
from aryl.core.free_index import LANES_PER_SHELF, OFF_SHELF, Content, FreeIndex
from aryl.core.joining import shelf_of
from aryl.core.model import LIVE_STATES, Health, JobState, Pool, Tenure, allowed_size
from aryl.errors import InvariantError


def verify(cluster: Cluster) -> None:
    """Raise InvariantError naming everything that is wrong."""
    wrong = list(violations(cluster))
    if wrong:
        raise InvariantError(f"at {cluster.now} s: " + "; ".join(wrong))


def violations(cluster: Cluster) -> Iterator[str]:
    """Everything that is wrong with the state, in words; nothing if all is well."""
    yield from _servers(cluster)
    yield from _tenures(cluster)
    yield from _jobs(cluster)
    yield from _claims(cluster)
    yield from _indexes(cluster)


def _servers(cluster: Cluster) -> Iterator[str]:
    leaving_from: Counter[str] = Counter()
    for job in cluster.jobs.values():
        leaving_from.update(job.leaving)
    held_on: Counter[str] = Counter()
    for claim in cluster.claims.values():
        for slot in claim.slots:
            held_on[slot.server_id] += slot.gpus
    for server in cluster.servers:
        name, gpus = server.spec.server_id, server.spec.gpus
        used = sum(slot.gpus for slot in server.jobs.values())
        leaving, held = leaving_from[name], held_on[name]
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
        for job_id, slot in server.jobs.items():
            if job_id not in cluster.jobs or cluster.jobs[job_id].slots.get(name) != slot:
                yield f"{name} and job {job_id} disagree"


def _tenures(cluster: Cluster) -> Iterator[str]:
    endless = float("inf")
    for server in cluster.servers:
        name, at_home = server.spec.server_id, server.tenure is Tenure.OWNED
        if not at_home and server.spec.pool is Pool.TRAINING:
            yield f"{name} is {server.tenure.value} but belongs to the training pool"
        if server.handing_over and (at_home or not cluster.confirms_loans):
            yield f"{name} is being handed over, though nobody waits for that"
        if server.handing_over and (server.used or server.leaving or server.held):
            yield f"{name} has workers or is claimed, but hasn't been handed over yet"
        if server.restoring and not at_home:
            yield f"{name} is being restored, but isn't at home"
        if server.given and (server.kept_home or server.tenure is Tenure.ON_LOAN):
            yield f"{name} is to be lent, but is kept at home or lent already"
        if server.recall_by_s < endless and (at_home or not server.kept_home):
            yield f"{name} is wanted back, but is at home or may be lent again"
        if server.drain_by_s < endless and not server.draining:
            yield f"{name} has to be empty by a time, but takes work"


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
        if job.state is JobState.PENDING and (job.leaving or job.stopping or job.finishing):
            yield f"job {job_id} is PENDING, but its last attempt isn't over"
        if not job.finishing and (job.min_workers, job.max_workers) != job.limits:
            yield f"job {job_id} doesn't keep to the limits {job.limits} that the user has set"
        if job.progress.rate > 0.0 and job.state not in (JobState.RUNNING, JobState.CANCELLING):
            yield f"job {job_id} is {job.state.value} but makes progress"
        if job.failures and job.failures >= job.spec.max_failures:
            yield f"job {job_id} has failed {job.failures} times and is tried again"
        if (job.trouble is not None) != (job_id in cluster.troubled):
            yield f"job {job_id} is in trouble ({job.trouble}), and nobody will see to it"


def _size(cluster: Cluster, job_id: str) -> Iterator[str]:
    job = cluster.jobs[job_id]
    if not job.min_workers <= job.workers <= job.max_workers or not allowed_size(job.sizes, job.workers):
        yield f"job {job_id} has {job.workers} workers outside its limits"
    if job.finishing and job.min_workers != job.max_workers:
        yield f"job {job_id} is on its way out but could be resized"
    if job.state is JobState.RUNNING and job.workers:
        rate = cluster.rate(job.spec, job.kinds)
        if job.progress.rate != rate:
            yield f"job {job_id} makes {job.progress.rate} s of progress a second, its workers {rate} s"
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
        for slot in claim.slots:
            if not cluster.server_by_id[slot.server_id].placeable:
                yield f"claim {claim.claim_id} holds GPUs on {slot.server_id}, which takes nothing new"


def _indexes(cluster: Cluster) -> Iterator[str]:
    fresh = rebuilt_free_index(cluster)
    for name in ("free", "lane", "buckets", "lane_free"):
        if getattr(fresh, name) != getattr(cluster.free, name):
            yield f"the free index is stale: {name}"
    yield from _places(cluster)
    yield from _server_sets(cluster)
    yield from _live_sets(cluster)
    yield from _queue(cluster)


def _places(cluster: Cluster) -> Iterator[str]:
    shelves = cluster.free.shelves
    if len(set(shelves)) < len(shelves) or len(cluster.shelf_flexible) != len(shelves):
        yield "the shelves are stale"
    if list(cluster.server_by_id.values()) != cluster.servers:
        yield "the servers by name are stale"
    for place, server in enumerate(cluster.servers):
        if server.place != place or cluster.server_by_id.get(server.spec.server_id) is not server:
            yield f"{server.spec.server_id} stands in the wrong place"
        if shelves[server.shelf] != shelf_of(server.spec):
            yield f"{server.spec.server_id} stands on the wrong shelf"
    kinds = {
        (job.spec.gpus_per_worker, job.spec.gpu_types, job.spec.fungible): job.spec
        for job in cluster.jobs.values()
    }
    if any(cluster.stands(spec) != cluster.find_stands(spec) for spec in kinds.values()):
        yield "the shelves that jobs accept are stale"


def _server_sets(cluster: Cluster) -> Iterator[str]:
    flexible = [0] * len(cluster.free.shelves)
    masks = {
        "flexible_mask": 0,
        "leaving_mask": 0,
        "on_loan_mask": 0,
        "reclaiming_mask": 0,
        "restoring_mask": 0,
        "inference_mask": 0,
        "asked_mask": 0,
    }
    for server in cluster.servers:
        bit = 1 << server.place
        flexible[server.shelf] += server.flexible_gpus
        masks["flexible_mask"] |= bit if server.flexible_gpus else 0
        masks["leaving_mask"] |= bit if server.leaving else 0
        masks["on_loan_mask"] |= bit if server.tenure is Tenure.ON_LOAN else 0
        masks["reclaiming_mask"] |= bit if server.tenure is Tenure.RECLAIMING else 0
        masks["restoring_mask"] |= bit if server.restoring else 0
        counts = server.up and server.spec.pool is Pool.INFERENCE and server.health is not Health.SUSPECT
        masks["inference_mask"] |= bit if counts else 0
        asked = server.given or min(server.drain_by_s, server.recall_by_s) < float("inf")
        masks["asked_mask"] |= bit if asked else 0
    if flexible != cluster.shelf_flexible:
        yield "the counts of flexible GPUs are stale"
    for name, mask in masks.items():
        if getattr(cluster, name) != mask:
            yield f"the {name} is stale"


def _live_sets(cluster: Cluster) -> Iterator[str]:
    live = {
        job_id: job
        for job_id, job in cluster.jobs.items()
        if job.state in LIVE_STATES or (job.state is JobState.CANCELLING and not job.stopping)
    }
    if live.keys() != cluster.live.keys():
        yield f"the set of live jobs is stale: {sorted(live.keys() ^ cluster.live.keys())}"
    if {job_id for job_id, job in live.items() if job.elastic} != set(cluster.elastic):
        yield "the set of live elastic jobs is stale"
    growable = {job_id for job_id, job in live.items() if job.elastic and job.workers < job.max_workers}
    if growable != set(cluster.growable):
        yield "the set of jobs that could grow is stale"
    priorities: dict[int, int] = {}
    projects: dict[str, int] = {}
    for job in live.values():
        priorities[job.spec.priority] = priorities.get(job.spec.priority, 0) + 1
        if job.spec.project:
            base_gpus = sum(slot.base for slot in job.slots.values()) * job.spec.gpus_per_worker
            projects[job.spec.project] = projects.get(job.spec.project, 0) + base_gpus
    if priorities != cluster.live_by_priority:
        yield "the counts of live jobs by priority are stale"
    if any(
        projects.get(project, 0) != cluster.project_gpus.get(project, 0)
        for project in {**projects, **cluster.project_gpus}
    ):
        yield "the counts of GPUs by project are stale"


def _queue(cluster: Cluster) -> Iterator[str]:
    for demand, entries in cluster.pending.classes.items():
        if not entries or any(first >= second for first, second in pairwise(entries)):
            yield f"the queue of {demand} is out of order"
        for entry in entries:
            job = cluster.jobs.get(entry.job_id)
            if job is None or cluster.demand_class(job) != demand or cluster.queue_key(job) != entry.key:
                yield f"job {entry.job_id} stands in the wrong place of the queue"


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
