"""Which servers there are, by what Ray's nodes say of themselves and by who has leave to go on.

A node of Ray with a label for its pool is a server. Each gets a keeper; a server is *here* while its keeper's
leave is fresh and nothing is wrong with it. When the leave is too old, or another incarnation has it, all
that ran there has certainly ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aryl
from aryl.backends.ray.connection import in_thread
from aryl.backends.ray.keeper import Keeper
from aryl.backends.ray.places import (
    GPU_TYPE_LABEL,
    HEAD_RESOURCE,
    POOL_LABEL,
    RAY_GPU_TYPE_LABEL,
    REGISTRY,
    SERVER_LABEL,
    Place,
    keeper_name,
)
from aryl.backends.ray.registry import Registry
from aryl.core.model import Pool, ServerSpec
from aryl.errors import ArylError, ConflictError, FencedError
from aryl.wire.job_file_fields import is_name

T = TypeVar("T")

_log = logging.getLogger(__name__)

# After its lease is over a supervisor looks, kills, and waits until all is gone; a while for that.
ENDING_S = 1.5
ASK_WITHIN_S = 5.0
FIRST_WITHIN_S = 15.0
_FIRST_EVERY_S = 0.05
ALONE = "Aryl's registry can't be reached"


@dataclass(frozen=True, slots=True)
class Settings:
    """How servers are kept. `shared`: a file of the control plane that all servers have to see. `speed_of`:
    the speed of a GPU type of a pool.
    """

    namespace: str
    installation: str
    shared: str
    lease_s: float
    gpu_resource: str
    speed_of: Callable[[Pool, str], float]
    real_gpus: bool = False

    @property
    def gone_after_s(self) -> float:
        """After the last leave of a server, until it is certainly empty."""
        return self.lease_s + ENDING_S


@dataclass(frozen=True, slots=True)
class Here:
    """A server that is there: Ray's id of its node, and where others reach it."""

    spec: ServerSpec
    node: str
    address: str


@dataclass
class Servers:
    """See the module. Used in one event loop."""

    ray: Any
    settings: Settings
    fence: int
    here: dict[str, Here] = field(default_factory=dict)
    head_address: str = ""
    registry: Any = None
    epoch: str = ""
    _keepers: dict[tuple[str, str], Any] = field(default_factory=dict)
    _nodes: dict[tuple[str, str], Here] = field(default_factory=dict)
    _held: Mapping[str, Any] = field(default_factory=dict)
    _up_s: float = 0.0
    _complaints: dict[str, str] = field(default_factory=dict)

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Something of Ray that may block."""
        return await asyncio.wrap_future(in_thread(work, *args))

    async def ask(self, method: Any, *args: Any, within_s: float = ASK_WITHIN_S) -> Any:
        """The answer of an actor's method, which is called in a thread and may raise what Ray raises."""
        ref = await asyncio.wait_for(self.run(lambda: method.remote(*args)), within_s)
        return await asyncio.wait_for(asyncio.wrap_future(ref.future()), within_s)

    async def open(self) -> None:
        """Take over the registry, which is made if there is none, and look around until each node has been
        heard of, or for a while. Raises FencedError, ArylError.
        """
        self.registry = await self.run(self._make_registry)
        try:
            self.epoch = await self.ask(
                self.registry.take_over, self.settings.installation, self.fence, within_s=FIRST_WITHIN_S
            )
        except (FencedError, ConflictError) as error:
            raise type(error)(_said(error)) from None
        except Exception as error:
            raise ArylError(f"{ALONE}: {error!r}") from None
        end_s = time.monotonic() + FIRST_WITHIN_S
        while True:
            await self.look(self._nobody, self._nobody)
            heard = {(server_id, held["node"]) for server_id, held in self._held.items()}
            if all(one in heard for one in self._nodes) or time.monotonic() > end_s:
                return
            await asyncio.sleep(_FIRST_EVERY_S)

    async def look(
        self, came: Callable[[Here], Awaitable[None]], went: Callable[[Here], Awaitable[None]]
    ) -> None:
        """Look around once, and tell what has changed. Raises FencedError, or what Ray raises."""
        await self._look_at_nodes(await asyncio.wait_for(self.run(self.ray.nodes), ASK_WITHIN_S))
        got = await self.ask(self.registry.look, self.fence)
        if self.epoch != got["epoch"]:
            self.epoch = got["epoch"]  # whoever looks has to see this
        self._held, self._up_s = got["servers"], got["up_s"]
        now = {
            server_id: self._nodes[server_id, held["node"]]
            for server_id, held in self._held.items()
            if (server_id, held["node"]) in self._nodes and not self._wrong(server_id, held)
        }
        for server_id, was in tuple(self.here.items()):
            is_now = now.get(server_id)
            # One that only can't be asked just now isn't gone yet.
            if (is_now is None or is_now.node != was.node) and self.certainly_gone(server_id, was.node):
                del self.here[server_id]
                await went(was)
        for server_id, one in now.items():
            if server_id not in self.here:
                self.here[server_id] = one
                await came(one)

    def certainly_gone(self, server_id: str, node: str) -> bool:
        """Whether nothing can run any more on that incarnation of a server."""
        held = self._held.get(server_id)
        if held is None:
            return self._up_s > self.settings.gone_after_s
        return bool(held["node"] != node or held["age_s"] > self.settings.gone_after_s)

    async def well(self, server_id: str, within_s: float = 1.5) -> bool:
        """Whether a server answers now."""
        keeper = self.keeper(server_id)
        if keeper is None:
            return False
        try:
            return bool(await self.ask(keeper.well, within_s=within_s))
        except Exception:
            return False

    def keeper(self, server_id: str) -> Any:
        """The keeper of a server that is here; None if it isn't."""
        here = self.here.get(server_id)
        return None if here is None else self._keepers.get((server_id, here.node))

    # The inside.

    def _wrong(self, server_id: str, held: Mapping[str, Any]) -> str:
        wrong = str(held["wrong"])
        if held["version"] != aryl.__version__:
            wrong = f"it has Aryl {held['version']}, the control plane {aryl.__version__}"
        if held["age_s"] > self.settings.gone_after_s:
            return "it isn't heard of"
        self._complain(server_id, wrong)
        return wrong

    def _complain(self, server_id: str, wrong: str) -> None:
        if wrong and self._complaints.get(server_id) != wrong:
            _log.error("server %s can't be used: %s", server_id, wrong)
        self._complaints[server_id] = wrong

    async def _look_at_nodes(self, nodes: list[dict[str, Any]]) -> None:
        found: dict[tuple[str, str], Here] = {}
        for node in nodes:
            if not node["Alive"]:
                continue
            if HEAD_RESOURCE in node["Resources"]:
                self.head_address = node["NodeManagerAddress"]
            here = self._server(node)
            if here is not None:
                found[here.spec.server_id, here.node] = here
        for gone in [one for one in self._keepers if one not in found]:
            # Ray would wait for its node for ever.
            await self.run(self._kill, self._keepers.pop(gone))
        self._nodes = found
        for one, here in found.items():
            if one not in self._keepers:
                self._keepers[one] = await self.run(self._make_keeper, here)

    def _server(self, node: Mapping[str, Any]) -> Here | None:
        labels = node["Labels"]
        if POOL_LABEL not in labels:
            return None
        server_id = labels.get(SERVER_LABEL) or node["NodeManagerHostname"]
        gpus = node["Resources"].get(self.settings.gpu_resource, 0.0)
        try:
            pool = Pool(labels[POOL_LABEL])
        except ValueError:
            pools = " or ".join(pool.value for pool in Pool)
            self._complain(server_id, f"its label {POOL_LABEL} is '{labels[POOL_LABEL]}', not {pools}")
            return None
        if not is_name(server_id):
            self._complain(server_id, f"its name, the label {SERVER_LABEL}, can't be used")
            return None
        if gpus < 1 or gpus != int(gpus):
            self._complain(server_id, f"it has {gpus:g} of the resource {self.settings.gpu_resource}")
            return None
        gpu_type = labels.get(GPU_TYPE_LABEL) or labels.get(RAY_GPU_TYPE_LABEL) or "GPU"
        spec = ServerSpec(server_id, pool, gpu_type, int(gpus), self.settings.speed_of(pool, gpu_type))
        return Here(spec, node["NodeID"], node["NodeManagerAddress"])

    def _make_registry(self) -> Any:
        return (
            self.ray.remote(Registry)
            .options(
                name=REGISTRY,
                namespace=self.settings.namespace,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                resources={HEAD_RESOURCE: 0.001},
                max_restarts=-1,
            )
            .remote(self.settings.gone_after_s)
        )

    def _make_keeper(self, here: Here) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        settings = self.settings
        place = Place(settings.installation, here.spec.server_id, here.node)
        return (
            self.ray.remote(Keeper)
            .options(
                name=keeper_name(here.spec.server_id, here.node),
                namespace=settings.namespace,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
                scheduling_strategy=NodeAffinitySchedulingStrategy(here.node, soft=False),
            )
            .remote(place, settings.lease_s, self.registry, settings.shared, {})
        )

    def _kill(self, actor: Any) -> None:
        try:
            self.ray.kill(actor, no_restart=True)
        except Exception as error:
            _log.debug("a keeper can't be ended: %s", error)

    async def _nobody(self, _here: Here) -> None:
        """Nobody is told."""


def _said(error: Exception) -> str:
    """What was said in the actor, without where."""
    return str(getattr(error, "cause", error))
