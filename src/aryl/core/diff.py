"""`diff(cluster, decision)`: the decision as ordered steps.

Order: servers change hands first (nothing may be placed on one that is being reclaimed), then GPUs are
vacated, then places are claimed, then gangs are launched and workers added where GPUs are free already.
*Preempt now, place later*: a start whose place is still occupied becomes a claim, and `upkeep` launches it
when the world has confirmed the vacating.
"""

from __future__ import annotations

from aryl.core.cluster import Cluster
from aryl.core.decision import Decision, Start
from aryl.core.plan import Cause, Claim, Launch, Loan, Plan, Reclaim, Release, Reserve, Resize, Step, Stop


def diff(cluster: Cluster, decision: Decision) -> Plan:
    """The plan that makes `decision` real. The decision must have passed `check`."""
    steps: list[Step] = [Release(claim_id, Cause.WITHDRAWN) for claim_id in decision.release]
    steps += [Reclaim(recall.server_id, recall.deadline_s, recall.weighed) for recall in decision.recall]
    steps += [Loan(server_id) for server_id in decision.lend]
    for preemption in decision.preemptions:
        steps.append(
            Stop(
                preemption.job_id,
                cluster.jobs[preemption.job_id].attempt,
                preemption.cause,
                preemption.save,
                preemption.beneficiary,
                preemption.weighed,
                preemption.collateral_gpus,
            )
        )
    resizes = [
        Resize(
            rescale.job_id,
            cluster.jobs[rescale.job_id].attempt,
            cluster.jobs[rescale.job_id].revision + 1,
            rescale.add,
            rescale.remove,
            rescale.cause,
        )
        for rescale in decision.rescales
    ]
    steps += [resize for resize in resizes if resize.remove]
    steps += _starts(cluster, decision)
    steps += [resize for resize in resizes if not resize.remove]
    return Plan(tuple(steps))


def _starts(cluster: Cluster, decision: Decision) -> list[Step]:
    free_now: dict[str, int] = {}
    claims: list[Step] = []
    launches: list[Step] = []
    made = cluster.claims_made
    for start in decision.starts:
        if _fits_now(cluster, start, free_now):
            for slot in start.slots:
                free_now[slot.server_id] -= slot.gpus
            launches.append(Launch(start.job_id, cluster.jobs[start.job_id].attempt + 1, start.slots))
        else:
            claims.append(Reserve(Claim(made, start.job_id, start.slots, start.cause)))
            made += 1
            for slot in start.slots:
                free_now[slot.server_id] = max(free_now[slot.server_id] - slot.gpus, 0)
    return claims + launches


def _fits_now(cluster: Cluster, start: Start, free_now: dict[str, int]) -> bool:
    fits = True
    for slot in start.slots:
        free = free_now.get(slot.server_id)
        if free is None:
            server = cluster.server_by_id[slot.server_id]
            free = free_now[slot.server_id] = server.free
        fits = fits and free >= slot.gpus
    return fits
