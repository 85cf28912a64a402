"""From the configuration to what the engine is told of the cluster, and to who tells what inference needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from aryl.backends.devices import Devices, Nvml
from aryl.core.cluster import Cluster
from aryl.core.events import ClusterDeclared
from aryl.core.evolve import evolve
from aryl.core.model import Accounting, JobSpec, Pool, ServerSpec
from aryl.errors import InputError
from aryl.files.cluster_config import PoolConfig
from aryl.files.inference_fields import ORACLE, ForecastConfig
from aryl.forecast.calendar import calendar_of
from aryl.forecast.catalogue import build_predictor, headroom_rule
from aryl.forecast.control import FixedHeadroom, HeadroomRule, LoanControl, LoanRules
from aryl.forecast.lead import GiveBack
from aryl.forecast.limits import LimitClock
from aryl.live.clock import WallClock
from aryl.live.config import ServeConfig
from aryl.live.demand import InferenceDesk, ReplayedNeed
from aryl.live.hooks import LoanHooks, OnLimit, Ready
from aryl.live.source_config import serve_pool_of, source_of
from aryl.live.sources.observation import Observation, in_servers
from aryl.live.sources.poller import Poller
from aryl.policies.policy import Policy
from aryl.traces.curves import load_curve, scale_curve
from aryl.traces.need import Need


def declare(config: ServeConfig) -> ClusterDeclared:
    """The servers of both pools, training first, and the rules they are accounted by."""
    cluster = config.cluster
    inference = cluster.inference
    return ClusterDeclared(
        0.0,
        (
            *_servers(cluster.training, Pool.TRAINING, "T"),
            *_servers(inference, Pool.INFERENCE, "I"),
        ),
        Accounting(cluster.accounting),
        resize_s=config.resize_s,
        restart_s=config.restart_s,
        vacate_s=config.vacate_s,
        headroom_servers=_headroom(config, inference.servers),
        reclaim_within_s=config.inference.deadline,
        guaranteed=tuple((name, project.guaranteed) for name, project in cluster.projects.items()),
        confirms_loans=True,
        confirms_returns=config.inference.confirms_returns,
        load_s=config.inference.load,
        least_kept_servers=config.inference.min_servers,
        most_lent_servers=config.inference.max_lent,
    )


def check_same_cluster(cluster: Cluster, declared: ClusterDeclared) -> None:
    """Raise InputError if the journal was begun with other servers than the configuration has, or counts
    them otherwise. Servers that have joined since aren't the configuration's, and stay.
    """
    if cluster.accounting is not declared.accounting:
        raise InputError(
            "the store was begun with another one",
            field="cluster.accounting",
            found=declared.accounting.value,
            expected=f"{cluster.accounting.value}, or another store and state folder",
        )
    before = [server.spec for server in cluster.servers[: cluster.declared_servers]]
    if before == list(declared.servers):
        return
    old = {spec.server_id: spec for spec in before}
    new = {spec.server_id: spec for spec in declared.servers}
    gone, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    words = (("without", gone), ("with the new", added), ("with other GPUs in", changed))
    detail = (
        ", ".join(f"{word} {' '.join(names[:4])}" for word, names in words if names) or "in another order"
    )
    raise InputError(
        f"the store was begun with other servers; the configuration has the cluster {detail}",
        field="cluster",
        expected="the servers that the store was begun with, or another store and state folder",
    )


def rules_in(declared: ClusterDeclared) -> tuple[object, ...]:
    """The rules of a declaration, which may change between two starts of the daemon."""
    return (
        declared.resize_s,
        declared.restart_s,
        declared.vacate_s,
        declared.headroom_servers,
        declared.reclaim_within_s,
        dict(declared.guaranteed),
        declared.confirms_loans,
        declared.confirms_returns,
        declared.load_s,
        declared.least_kept_servers,
        declared.most_lent_servers,
    )


def rules_of(cluster: Cluster) -> tuple[object, ...]:
    """The rules that a cluster is run by now."""
    return (
        cluster.resize_s,
        cluster.restart_s,
        cluster.vacate_s,
        cluster.headroom_servers,
        cluster.reclaim_within_s,
        cluster.guaranteed,
        cluster.confirms_loans,
        cluster.confirms_returns,
        cluster.load_s,
        cluster.least_kept_servers,
        cluster.most_lent_servers,
    )


class Yardstick:
    """Whether a job could ever run here, asked of an empty cluster. Needs the owner's lock."""

    def __init__(self, declared: ClusterDeclared, policy: Policy) -> None:
        self._declared, self._policy = declared, policy
        self._servers = declared.servers
        self._begin()

    def _begin(self) -> None:
        self._empty = Cluster(self._policy.order)
        evolve(self._empty, replace(self._declared, servers=self._servers))
        self._known: dict[object, bool] = {}

    def could_ever_start(self, spec: JobSpec, servers: Sequence[ServerSpec] | None = None) -> bool:
        """Whether the gang fits when nothing else is there. `servers`: all that there are now, up or down;
        None: as before, at first those that were declared.
        """
        if servers is not None and tuple(servers) != self._servers:
            self._servers = tuple(servers)
            self._begin()
        shape = (spec.min_workers, spec.gpus_per_worker, spec.fungible, spec.heterogeneous, spec.gpu_types)
        if shape not in self._known:
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[shape] = self._policy.could_ever_start(self._empty, spec)
        return self._known[shape]


def inference_desk(config: ServeConfig, clock: WallClock, give_back: GiveBack) -> InferenceDesk:
    """Where the inference side is heard. Raises InputError for a curve that can't be read, or a predictor
    that can't be used.
    """
    inference, pool = config.inference, config.cluster.inference
    oracle = inference.forecast.predictor == ORACLE

    def headroom_of(pool_servers: int) -> HeadroomRule:
        if oracle:
            return FixedHeadroom(_headroom(config, pool_servers))
        return headroom_rule(inference.headroom, pool_servers)

    rules = LoanRules(
        inference.interval,
        give_back.longest_s,
        inference.lead,
        0.0 if oracle else inference.settle,  # one who knows what comes needn't wait and see
        headroom_of(pool.servers),
    )
    predictor = build_predictor(ForecastConfig(predictor="last") if oracle else inference.forecast)
    need = _replayed_need(config)
    limits = None
    if inference.calendar is not None:
        limits = LimitClock(calendar_of(inference.calendar), give_back.longest_s, clock.unix, clock.at)
    return InferenceDesk(
        LoanControl(rules, predictor),
        give_back,
        stale_after_s=inference.stale_after * config.clock.speed,
        replay=None if need is None else ReplayedNeed(need, rules.lead_or_default_s if oracle else None),
        limits=limits,
        headroom_of=headroom_of,
    )


def give_back(config: ServeConfig) -> GiveBack:
    """How long a reclaimed server takes, to begin with."""
    return GiveBack(config.inference.deadline + config.vacate_s + config.inference.load)


def demand_poller(config: ServeConfig, told: Callable[[Observation], None]) -> Poller | None:
    """What asks the configured source, in the unit that it speaks; None without one. Raises InputError."""
    source = config.inference.source
    if source is None:
        return None
    return Poller(source_of(source, config.ray.gpu_resource), source.every, told)


def of_the_pool(seen: Observation, cluster: Cluster) -> Observation:
    """What was seen, in servers of the inference pool as it is: its number may change, and where its servers
    have different sizes a GPU is a part of a mean one.
    """
    gpus = [server.spec.gpus for server in cluster.servers if server.spec.pool is Pool.INFERENCE]
    return in_servers(seen, cluster.inference_pool, sum(gpus) / len(gpus) if gpus else 1.0)


def _replayed_need(config: ServeConfig) -> Need | None:
    inference, pool = config.inference, config.cluster.inference
    line = inference.interpolate == "line"
    if inference.points is not None:
        times, servers = np.array(inference.points, dtype=np.float64).T
        return Need(times, servers, line=line)
    if inference.curve is None:
        return None
    curve = scale_curve(
        load_curve(inference.curve),
        servers=pool.servers,
        gpus_per_server=pool.gpus_per_server,
        peak=inference.peak,
    )
    return Need(curve.time_s, curve.busy, line=line)


def loan_hooks(config: ServeConfig) -> LoanHooks:
    """What hands servers over."""
    hooks, ray_serve = config.inference.hooks, config.inference.ray_serve
    return LoanHooks(
        hooks.release_command or (),
        hooks.restore_command or (),
        hooks.drain_limit,
        OnLimit(hooks.on_limit),
        Ready(config.inference.ready),
        None if ray_serve is None else serve_pool_of(ray_serve, config.ray.gpu_resource),
    )


def check_machine(config: ServeConfig) -> None:
    """Raise InputError for GPUs or a curve that aren't there, before anything is written."""
    inference_desk(config, WallClock(0.0), give_back(config))
    if config.inference.source is not None:
        source_of(config.inference.source).close()
    if config.gpus == "real" and config.backend == "local":
        Devices(gpu_indices(config), Nvml())


def gpu_indices(config: ServeConfig) -> dict[str, tuple[int, ...]]:
    """The GPUs of each server by number; those of emulated servers count from 0."""
    real = config.device_indices()
    if real is not None:
        return real
    return {spec.server_id: tuple(range(spec.gpus)) for spec in declare(config).servers}


def _headroom(config: ServeConfig, pool_servers: int) -> int:
    """What a pool of that size keeps at least. An oracle makes no errors that a headroom could cover."""
    inference = config.inference
    if inference.forecast.predictor == ORACLE and not inference.headroom.is_fixed:
        return 0
    return inference.headroom.in_servers(pool_servers)


def _servers(pool: PoolConfig, owner: Pool, prefix: str) -> Iterator[ServerSpec]:
    for name, gpu_type in zip(pool.server_names(prefix), pool.server_gpu_types(), strict=True):
        yield ServerSpec(name, owner, gpu_type, pool.gpus_per_server, pool.speed_of(gpu_type))
