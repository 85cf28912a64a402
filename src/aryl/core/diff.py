"""`diff(cluster, decision)`: the decision as ordered steps.

Order: servers change hands first (nothing may be placed on one that is being reclaimed), then GPUs are
vacated, then places are claimed, then gangs are launched and workers added where GPUs are free already.
*Preempt now, place later*: a start whose place is still occupied becomes a claim, and `upkeep` launches it
when the world has confirmed the vacating.
"""

from __future__ import annotations

from collections.abc import Iterable

from aryl.core.cluster import Cluster
from aryl.core.decision import Decision, Start
from aryl.core.model import Slot
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


def split_starts(cluster: Cluster, decision: Decision) -> tuple[list[Start], list[Start]]:
    """The starts whose whole place is free now, and those whose place has to be claimed; both in order.

    Claims are served from leaving GPUs first, those that this decision vacates among them; so a claim takes
    free GPUs from the starts behind it only as far as it exceeds these. Free GPUs that running jobs grow onto
    aren't free for a start.
    """
    vacated: dict[str, int] = {}
    placed: dict[str, int] = {}
    for preemption in decision.preemptions:
        _count(vacated, cluster.live[preemption.job_id].slots.values())
    for rescale in decision.rescales:
        _count(vacated, rescale.remove)
        _count(placed, rescale.add)
    claimed: dict[str, int] = {}

    def free_now(server_id: str) -> int:
        server = cluster.server_by_id[server_id]
        if plain:
            return server.free
        leaves = vacated.get(server_id, 0)
        busy = max(server.held + claimed.get(server_id, 0), server.leaving + leaves)
        return server.spec.gpus - (server.used - leaves) - busy - placed.get(server_id, 0)

    launches: list[Start] = []
    claims: list[Start] = []
    plain = not vacated and not placed  # so it is for the first start of most decisions
    for start in decision.starts:
        if all(free_now(slot.server_id) >= slot.gpus for slot in start.slots):
            launches.append(start)
            _count(placed, start.slots)
        else:
            claims.append(start)
            _count(claimed, start.slots)
        plain = False
    return launches, claims


def _count(gpus: dict[str, int], slots: Iterable[Slot]) -> None:
    for slot in slots:
        gpus[slot.server_id] = gpus.get(slot.server_id, 0) + slot.gpus


def _starts(cluster: Cluster, decision: Decision) -> list[Step]:
    launches, claims = split_starts(cluster, decision)
    return [
        *(
            Reserve(Claim(cluster.claims_made + number, start.job_id, start.slots, start.cause))
            for number, start in enumerate(claims)
        ),
        *(Launch(start.job_id, cluster.jobs[start.job_id].attempt + 1, start.slots) for start in launches),
    ]
