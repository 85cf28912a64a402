"""How many inference servers are on loan, and which ones go back (algorithms, section 2).

    loanable = inference servers - ceil(forecast need + headroom)

More than are on loan: lend the difference. Fewer: reclaim the difference, by the reclaim rule. Whole servers
only. What the forecast, the headroom and the limits are, the inference side says (`forecast/control.py`). The
decision is a function of the state, so asking again changes nothing.

Limits (`Cluster.lending_cap`) are kept even when nothing is heard of the inference side: they are promises,
and no guesses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from aryl.core.cluster import Cluster, Job
from aryl.core.decision import Preemption, Recall
from aryl.core.free_index import LANES_PER_SHELF, OFF_SHELF
from aryl.core.model import LIVE_STATES, Health, Pool, Tenure
from aryl.core.plan import Cause, Weighed
from aryl.core.server import LOAN_RETRY_S, Server
from aryl.policies.draft import Draft
from aryl.policies.emptying import Host, Standing, choose
from aryl.policies.reclaim_greedy import solve
from aryl.policies.reclaim_problem import (
    FlexibleShare,
    ReclaimAnswer,
    ReclaimInstance,
    ReclaimJob,
    ReclaimServer,
    Rule,
)

# How many passed-over servers are kept with a recall, so that it can be explained later.
MOST_WEIGHED = 3


@dataclass(frozen=True, slots=True)
class Loaning:
    """The loaning part of a policy. `foresight`: lend by the forecast and keep headroom; else by the present
    need alone.
    """

    rule: Rule = Rule.SERVER_FRACTION
    seed: int = 1
    foresight: bool = True

    def decide(self, draft: Draft) -> None:
        """Lend or recall, once the inference side has said what it needs."""
        cluster = draft.cluster
        self._enforce_deadlines(draft)
        demand, cap, on_loan = cluster.demand, cluster.lending_cap, cluster.on_loan
        if demand is None or cluster.telemetry_lost:
            # What was said last is no ground to lend or to take back.
            loanable = min(on_loan, cap)
        else:
            kept = cluster.kept_servers if self.foresight else demand.need_servers
            loanable = min(max(cluster.inference_mask.bit_count() - math.ceil(kept - 1e-9), 0), cap)
        if loanable > on_loan:
            self._lend(draft, loanable - on_loan)
        elif loanable < on_loan:
            self._recall(draft, on_loan - loanable)

    def _lend(self, draft: Draft, count: int) -> None:
        """Withdraw reclaims that are still under way first; then take servers that don't serve yet, then
        others, from the end of the list. If it is known where the replicas stand: those that inference can
        empty at once, which may be fewer.
        """
        cluster = draft.cluster
        at_home = cluster.inference_mask & ~cluster.on_loan_mask & ~cluster.reclaiming_mask
        withdrawn = [
            server
            for server in cluster.places(cluster.reclaiming_mask & cluster.inference_mask)
            if server.used
        ]
        if cluster.demand is not None and cluster.demand.hosting:
            idle = _emptied(cluster, cluster.demand.hosting, at_home, count)
        else:
            idle = [
                *reversed([*cluster.places(at_home & cluster.restoring_mask)]),
                *reversed([*cluster.places(at_home & ~cluster.restoring_mask)]),
            ]
        for server in (*withdrawn, *idle):
            if count == 0:
                return
            if not server.lendable(cluster.now):
                draft.wake_at(server.called_off_s + LOAN_RETRY_S)
                continue
            draft.lend.append(server.spec.server_id)
            # One that still has to be handed over isn't there yet.
            if (server.tenure is Tenure.RECLAIMING and not server.handing_over) or not cluster.confirms_loans:
                draft.index.put(server.place, server.shelf * LANES_PER_SHELF + server.content, server.free)
            count -= 1

    def _recall(self, draft: Draft, count: int) -> None:
        cluster = draft.cluster
        servers, jobs, instance = reclaim_instance(cluster)
        within_s = cluster.reclaim_within_s
        deadline_s = within_s if within_s > 0.0 else None
        answer = solve(instance, count, self.rule, self._seed_of(cluster), deadline_s=deadline_s)
        weighed = _weighed(answer, servers)
        returning = (*answer.servers_to_return, *answer.servers_to_wait_for)
        for place in returning:
            server = servers[place]
            draft.recall.append(Recall(server.spec.server_id, cluster.now + within_s, weighed.get(place, ())))
            draft.index.put(server.place, OFF_SHELF, draft.index.free[server.place])
        if answer.servers_to_wait_for:
            draft.wake_at(cluster.now + within_s - cluster.vacate_s)
        for scale_in in answer.scale_ins:
            draft.shed(
                jobs[scale_in.job], servers[scale_in.server].spec.server_id, scale_in.workers, Cause.RECLAIM
            )
        names = " ".join(servers[place].spec.server_id for place in returning)
        going_back = {servers[place].spec.server_id for place in returning}
        for step in answer.steps:
            for number in step.preempts:
                job = jobs[number]
                outside = sum(slot.gpus for slot in job.slots.values() if slot.server_id not in going_back)
                draft.preempt(
                    Preemption(
                        job.spec.job_id,
                        Cause.RECLAIM,
                        names,
                        weighed=weighed.get(step.chosen.server, ()),
                        collateral_gpus=outside,
                    )
                )

    def _seed_of(self, cluster: Cluster) -> int:
        """A fresh draw for each recall, the same in each repetition; instants are told apart by
        milliseconds.
        """
        return self.seed * 1_000_003 + round(cluster.now * 1000.0)

    def _enforce_deadlines(self, draft: Draft) -> None:
        """Servers that were waited for in vain: their jobs have to go now."""
        cluster = draft.cluster
        for server in cluster.places(cluster.reclaiming_mask & cluster.inference_mask):
            if not server.used:
                continue
            last_s = server.deadline_s - cluster.vacate_s
            if cluster.now < last_s:
                draft.wake_at(last_s)
                continue
            for job_id in server.jobs:
                job = cluster.live.get(job_id)
                if job is None or job.state not in LIVE_STATES or job_id in draft.preemptions:
                    continue
                if job.slots[server.spec.server_id].base:
                    outside = job.gpus - job.slots[server.spec.server_id].gpus
                    draft.preempt(
                        Preemption(job_id, Cause.RECLAIM, server.spec.server_id, collateral_gpus=outside)
                    )
                else:
                    draft.shed(
                        job, server.spec.server_id, job.slots[server.spec.server_id].flexible, Cause.RECLAIM
                    )


def _emptied(
    cluster: Cluster, hosting: Mapping[str, tuple[int, ...]], at_home: int, count: int
) -> list[Server]:
    """Up to `count` servers of those at home (a mask) that inference can empty at once; then those that may
    not be lent now, so that whoever goes through the list sees when they may.
    """
    hosts, stuck = [], []
    for server in cluster.places(at_home):
        lendable = server.lendable(cluster.now)
        replicas = hosting.get(server.spec.server_id, ())
        hosts.append(Host(server.spec.server_id, server.spec.gpus, replicas, _standing(server), lendable))
        if not lendable:
            stuck.append(server)
    for server_id, replicas in hosting.items():
        away = cluster.server_by_id.get(server_id)
        # What was last seen on a server that is gone may not have found another place yet.
        if away is not None and away.spec.pool is Pool.INFERENCE and not at_home >> away.place & 1:
            hosts.append(Host(server_id, away.spec.gpus, replicas, Standing.LEAVING))
    return [*(cluster.server_by_id[server_id] for server_id in choose(hosts, count).lend), *stuck]


def _standing(server: Server) -> Standing:
    """What a server at home is to the replicas of the inference side."""
    if server.draining:
        return Standing.LEAVING
    if server.restoring or server.health is not Health.HEALTHY:
        return Standing.KEEPING
    return Standing.SERVING


def reclaim_instance(cluster: Cluster) -> tuple[list[Server], list[Job], ReclaimInstance]:
    """The reclaim problem of the servers on loan, with the servers and jobs that its numbers stand for."""
    servers = list(cluster.places(cluster.on_loan_mask & cluster.inference_mask))
    numbers: dict[str, int] = {}
    jobs: list[Job] = []
    stated: list[ReclaimServer] = []
    for server in servers:
        assert server.tenure is Tenure.ON_LOAN
        base: dict[int, int] = {}
        flexible: dict[int, FlexibleShare] = {}
        for job_id, slot in server.jobs.items():
            number = numbers.setdefault(job_id, len(numbers))
            if number == len(jobs):
                jobs.append(cluster.jobs[job_id])
            if slot.base:
                base[number] = slot.base * slot.gpus_per_worker
            if slot.flexible:
                flexible[number] = FlexibleShare(slot.flexible, slot.flexible * slot.gpus_per_worker)
        stated.append(ReclaimServer(server.spec.server_id, base, flexible))
    facts = []
    for job in jobs:
        base_slots = [slot for slot in job.slots.values() if slot.base]
        facts.append(
            ReclaimJob(
                job.spec.job_id,
                len(base_slots),
                sum(slot.base * slot.gpus_per_worker for slot in base_slots),
                job.gpus,
                job.lost_gpu_s(cluster.now),
                job.finishes_in_s(cluster.now),
            )
        )
    return servers, jobs, ReclaimInstance(stated, facts)


def _weighed(answer: ReclaimAnswer, servers: list[Server]) -> dict[int, tuple[Weighed, ...]]:
    """For each returned server what it cost and what the next best would have cost."""
    return {
        step.chosen.server: tuple(
            Weighed(servers[other.server].spec.server_id, other.cost)
            for other in (step.chosen, *step.alternatives[:MOST_WEIGHED])
        )
        for step in answer.steps
    }
