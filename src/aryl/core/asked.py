"""What an operator has asked of servers, whatever the policy: lend this one, have that one empty by a time.

A server that is wanted back, or drained while it is on loan, is reclaimed. Flexible workers leave it at once.
Base workers may stay as long as there is time: their jobs are stopped, with notice to save, so early that
they are gone by the deadline.
"""

from __future__ import annotations

from aryl.core.cluster import Cluster, Job
from aryl.core.model import LIVE_STATES, Slot, Tenure, largest_allowed
from aryl.core.plan import Cause, Loan, Reclaim, Resize, Step, Stop
from aryl.core.server import Server


def due(cluster: Cluster) -> list[Step]:
    """The steps that are due now for the servers that somebody asked something of."""
    steps: list[Step] = []
    touched = set(cluster.troubled)
    for server in cluster.places(cluster.asked_mask):
        deadline_s = deadline_of(server)
        if server.given and server.lendable(cluster.now):
            steps.append(Loan(server.spec.server_id))
        if server.tenure is Tenure.ON_LOAN and deadline_s < float("inf"):
            steps.append(Reclaim(server.spec.server_id, deadline_s))
        if deadline_s < float("inf"):
            steps += _vacate(cluster, server, deadline_s, touched)
    return steps


def wake_at(cluster: Cluster) -> float:
    """When jobs have to be stopped next so that a server is empty in time; inf if there is no such time."""
    at_s = float("inf")
    for server in cluster.places(cluster.asked_mask):
        last_s = deadline_of(server) - cluster.vacate_s
        if server.used and cluster.now < last_s:
            at_s = min(at_s, last_s)
    return at_s


def deadline_of(server: Server) -> float:
    """When the server has to be empty, absolute; inf if nobody asked for that."""
    return min(server.drain_by_s, server.recall_by_s)


def shrink(job: Job, workers: int, spared: str = "") -> list[Slot]:
    """Which flexible workers to give up: on the servers with fewest of them first, so that whole servers
    become empty. None are taken from the server `spared`.
    """
    removed: list[Slot] = []
    for slot in sorted(
        (slot for slot in job.slots.values() if slot.flexible and slot.server_id != spared),
        key=lambda slot: slot.flexible,
    ):
        if workers <= 0:
            break
        count = min(workers, slot.flexible)
        removed.append(slot._replace(base=0, flexible=count))
        workers -= count
    return removed


def _vacate(cluster: Cluster, server: Server, deadline_s: float, touched: set[str]) -> list[Step]:
    steps: list[Step] = []
    last_call = cluster.now >= deadline_s - cluster.vacate_s
    for job_id, slot in server.jobs.items():
        job = cluster.jobs[job_id]
        if job_id in touched or job.state not in LIVE_STATES:
            continue
        wanted = largest_allowed(job.sizes, job.workers - slot.flexible)
        if slot.base == 0 and wanted >= job.min_workers:
            left = job.workers - slot.flexible - wanted
            gone = (slot, *shrink(job, left, spared=slot.server_id))
            steps.append(Resize(job_id, job.attempt, job.revision + 1, (), gone, Cause.DRAIN))
        elif last_call:
            steps.append(Stop(job_id, job.attempt, Cause.DRAIN, True, server.spec.server_id))
        else:
            continue
        touched.add(job_id)
    return steps
