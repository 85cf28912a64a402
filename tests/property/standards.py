"""What a policy promises wherever it comes to rest, from first principles: invariant (4), nobody waits for a
base demand that flexible workers hold back; and limits on lending are kept.
"""

from __future__ import annotations

from aryl.core.cluster import Cluster, Job
from aryl.core.model import Accounting, Health, Pool, Tenure
from aryl.policies.aryl import Aryl
from aryl.policies.placement import Scatter
from aryl.policies.policy import Policy
from aryl.sim.snapshot import lends


def base_demand_is_not_held_back(policy: Policy, cluster: Cluster) -> None:
    """Assert (4) where a policy promises it: scaling, no strict order, gangs that may be scattered."""
    if (
        not isinstance(policy, Aryl)
        or policy.scaling is None
        or policy.strict
        or policy.reserving is not None
        or policy.scatter is not Scatter.ALLOWED
        or cluster.accounting is not Accounting.MORE_GPUS  # else waiting for faster GPUs may be better
    ):
        return
    for entry in cluster.pending:
        job = cluster.jobs[entry.job_id]
        rooms = _rooms(cluster, job)
        most = max(rooms.values(), default=0)
        if (
            job.spec.heterogeneous and job.spec.mixed_efficiency == 1.0
        ):  # else waiting for one type may be better
            most = sum(rooms.values())
        assert most < job.min_workers, (
            f"at {cluster.now} s {entry.job_id} waits for {job.min_workers} workers, though {rooms} fit"
        )


def limits_on_lending_are_kept(policy: Policy, cluster: Cluster) -> None:
    """Assert that what an operator and a calendar allow isn't exceeded by a policy that lends, whatever the
    inference side has said, or hasn't.
    """
    if not lends(policy):
        return
    up = [
        server
        for server in cluster.servers
        if server.spec.pool is Pool.INFERENCE and server.up and server.health is not Health.SUSPECT
    ]
    lent = sum(server.tenure is Tenure.ON_LOAN for server in up)
    limits = [max(len(up) - cluster.least_kept_servers, 0)]
    limits += [most for most in (cluster.most_lent_servers, cluster.lending_limit) if most is not None]
    assert lent <= min(limits), f"at {cluster.now} s {lent} servers are lent, at most {limits} may be"


def _rooms(cluster: Cluster, job: Job) -> dict[str, int]:
    """How many of its workers would fit on each GPU type if flexible workers it may displace were gone."""
    rooms: dict[str, int] = {}
    for server in cluster.servers:
        stand = cluster.stand_on(job.spec, server.shelf)
        if stand is None or not server.placeable:
            continue
        gpus = server.free
        for other_id, slot in server.jobs.items():
            if cluster.jobs[other_id].spec.priority <= job.spec.priority:
                gpus += slot.flexible * slot.gpus_per_worker
        kind = server.spec.gpu_type
        rooms[kind] = rooms.get(kind, 0) + gpus // stand.gpus_per_worker
    return rooms
