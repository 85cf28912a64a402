"""What the state looks like from outside: views for the API and gauges for metrics. Called by the loop's
thread; nothing here changes anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aryl.core.cluster import Cluster
from aryl.core.model import Health, JobState, Pool, Tenure
from aryl.core.server import Server
from aryl.live.clock import WallClock
from aryl.policies.policy import Policy
from aryl.policies.sentence import sentence
from aryl.wire.views import JobView, Limit, LoanList, LoanView, ServerView, WhyView

ENDLESS = float("inf")


def why(cluster: Cluster, policy: Policy, clock: WallClock, job: JobView) -> WhyView:
    """Why a job waits, or what it does instead."""
    found = cluster.jobs.get(job.job_id)
    if found is None:
        if job.job_id in cluster.ended:
            return why_over(job)
        return WhyView(
            job_id=job.job_id, state=JobState.PENDING, reason=None, text="It was accepted a moment ago."
        )
    if found.state is not JobState.PENDING:
        held = ", ".join(f"{slot.workers} on {server_id}" for server_id, slot in found.slots.items())
        text = f"It isn't waiting: it is {found.state.value}" + (f" with {held}." if held else ".")
        if found.finishing:
            text += " Some of its workers are done."
        return WhyView(job_id=job.job_id, state=found.state, reason=None, text=text)
    reason = policy.explain(cluster, job.job_id)
    text = sentence(reason, max(clock.now(), cluster.now))
    if found.failures:
        text += f" It has failed {found.failures} of {found.spec.max_failures} times."
    return WhyView(
        job_id=job.job_id,
        state=found.state,
        reason=reason.wait,
        text=text,
        needed_gpus=reason.needed_gpus,
        free_gpus=reason.free_gpus,
        best_server_free_gpus=reason.best_server_free_gpus,
        behind=list(reason.behind),
        starts=None if reason.starts_s in (None, ENDLESS) else clock.unix(reason.starts_s),
    )


def why_over(job: JobView) -> WhyView:
    """What there is to say of a job that is over."""
    text = f"It isn't waiting: it is {job.state.value}."
    if job.message:
        text += f" {job.message}"
    return WhyView(job_id=job.job_id, state=job.state, reason=None, text=text)


def left_s(cluster: Cluster, clock: WallClock, job_id: str) -> float | None:
    """Real seconds until a running job ends at its present size, as far as anybody can say."""
    job = cluster.jobs.get(job_id)
    if job is None:
        return None
    now_s = max(clock.now(), cluster.now)
    seconds = job.finishes_in_s(now_s) / clock.speed
    return None if seconds == ENDLESS else seconds


def servers(cluster: Cluster, clock: WallClock) -> list[ServerView]:
    """All servers as they stand."""
    return [_server(server, clock) for server in cluster.servers]


def loans(cluster: Cluster, clock: WallClock, rows: Sequence[LoanView]) -> LoanList:
    """The loans, and the inference side's account."""
    demand = cluster.demand
    return LoanList(
        loans=list(rows),
        inference_servers=cluster.inference_mask.bit_count(),
        on_loan=(cluster.on_loan_mask | cluster.reclaiming_mask).bit_count(),
        need_servers=None if demand is None else demand.need_servers,
        forecast_servers=None if demand is None else demand.forecast_servers,
        reported=None if demand is None else clock.unix(demand.at_s),
        degraded=cluster.telemetry_lost,
        shortfall_servers=shortfall(cluster),
        serving_servers=cluster.serving,
        restoring_servers=restoring(cluster),
        headroom_servers=headroom(cluster),
        lending_cap=cluster.lending_cap,
        limit=limit(cluster),
    )


def shortfall(cluster: Cluster) -> float:
    """Servers that inference needs now and that don't serve."""
    return 0.0 if cluster.demand is None else max(cluster.demand.need_servers - cluster.serving, 0.0)


def restoring(cluster: Cluster) -> int:
    """Inference servers that are up and at home, but not in service yet."""
    return (cluster.restoring_mask & cluster.inference_mask).bit_count()


def headroom(cluster: Cluster) -> float:
    """Servers that are kept on top of what inference needs: its last word, or else the configuration's."""
    return float(cluster.headroom_servers if cluster.demand is None else cluster.demand.headroom_servers)


def limit(cluster: Cluster) -> Limit | None:
    """What says how many servers may be lent at most; None: nothing does. Of several that say the same the
    one that may change soonest.
    """
    cap, up = cluster.lending_cap, cluster.inference_mask.bit_count()
    if cap == up:
        return None
    if cap == cluster.lending_limit:
        return "calendar"
    return "max_lent" if cap == cluster.most_lent_servers else "min_servers"


def gauges(cluster: Cluster) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """How many jobs, GPUs and servers there are of each kind."""
    states = Counter(job.state for job in cluster.jobs.values())
    ended = Counter(cluster.ended.values())
    demand = cluster.demand
    training, inference = _gpus(cluster, Pool.TRAINING), _gpus(cluster, Pool.INFERENCE)
    return {
        "jobs": {(("state", state.value),): float(states[state] + ended[state]) for state in JobState},
        "gpus": {
            (("pool", pool.value), ("use", use)): float(count)
            for pool, uses in ((Pool.TRAINING, training), (Pool.INFERENCE, inference))
            for use, count in uses.items()
        },
        "servers": {
            (("health", health.value),): float(
                sum(1 for server in cluster.servers if server.health is health)
            )
            for health in Health
        },
        "servers_down": {(): float(sum(1 for server in cluster.servers if not server.up))},
        "servers_draining": {(): float(sum(1 for server in cluster.servers if server.draining))},
        "servers_on_loan": {(): float(cluster.on_loan)},
        "servers_reclaiming": {(): float(cluster.reclaiming_mask.bit_count())},
        "inference_need_servers": {(): demand.need_servers if demand else 0.0},
        "inference_headroom_servers": {(): headroom(cluster)},
        "inference_serving_servers": {(): float(cluster.serving)},
        "inference_restoring_servers": {(): float(restoring(cluster))},
        "inference_shortfall_servers": {(): shortfall(cluster)},
        "inference_degraded": {(): float(cluster.telemetry_lost)},
        "lending_cap_servers": {(): float(cluster.lending_cap)},
        "claims": {(): float(len(cluster.claims))},
    }


def _gpus(cluster: Cluster, pool: Pool) -> dict[str, int]:
    uses = dict.fromkeys(("used", "leaving", "free"), 0)
    for server in cluster.servers:
        if server.spec.pool is pool and server.up:
            uses["used"] += server.used
            uses["leaving"] += server.leaving
            uses["free"] += server.spec.gpus - server.used - server.leaving
    return uses


def _server(server: Server, clock: WallClock) -> ServerView:
    spec = server.spec
    by_s = server.deadline_s if server.tenure is Tenure.RECLAIMING else server.drain_by_s
    return ServerView(
        server=spec.server_id,
        pool=spec.pool,
        tenure=server.tenure,
        gpu_type=spec.gpu_type,
        gpus=spec.gpus,
        free_gpus=max(server.free, 0),
        used_gpus=server.used,
        leaving_gpus=server.leaving,
        up=server.up,
        draining=server.draining,
        health=server.health.value,
        handing_over=server.handing_over,
        restoring=server.restoring,
        reclaim_by=None if by_s == ENDLESS else clock.unix(by_s),
        jobs=list(server.jobs),
    )
